"""The commands that ask a server: on a real one, and on answers that no ticket server gives."""

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import pytest

from app.__main__ import main
from app.commands import remote
from tests.ticketd import TicketServer

USER, ADMIN = "user-token", "admin-token"
SECONDS = 60.0
"""How long a busy machine may take for an answer."""


class Ran(NamedTuple):
    """What a command did: its exit status, what it printed, and the lines of its output."""

    status: int
    out: str
    err: str
    lines: list[str]


Commands = Callable[..., Ran]


@pytest.fixture
def ticketd(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Commands:
    """Run a command in this process, without variables."""
    for name in ("TICKETD_URL", "TICKETD_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(remote, "SECONDS", SECONDS)

    def run(*arguments: str) -> Ran:
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        printed = capsys.readouterr()
        return Ran(int(ended.value.code or 0), printed.out, printed.err, printed.out.splitlines())

    return run


# --- on a ticket server -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def server() -> Iterator[TicketServer]:
    """A server on its embedded pair, with tokens."""
    with TicketServer(tokens=USER, admin_tokens=ADMIN) as running:
        yield running


@pytest.fixture
def asking(server: TicketServer, ticketd: Commands, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Commands:
    """Run a command that the variables lead to the server, with its admin token."""
    (tmp_path / "token").write_text(ADMIN + "\n")
    monkeypatch.setenv("TICKETD_URL", server.url)
    monkeypatch.setenv("TICKETD_TOKEN_FILE", str(tmp_path / "token"))
    return ticketd


def test_take_prints_tickets_one_a_line(asking: Commands) -> None:
    assert asking("create", "hex", "--kind", "uuid7").status == 0
    assert len(asking("take", "photos").lines) == 1
    for name, count in (("photos", 3), ("photos", 2345), ("hex", 1500)):
        ran = asking("take", name, "-n", str(count))
        assert (ran.status, ran.err, len(ran.lines), len(set(ran.lines))) == (0, "", count, count)
    assert asking("create", "last", "--bits", "32", "--start", str(2**32 - 5000)).status == 0
    ran = asking("take", "last", "-n", "6000")  # what it has printed before it fails is valid
    assert (ran.status, "410: " in ran.err) == (1, True)
    assert 1000 <= len(ran.lines) == len(set(ran.lines)) <= 5000


def test_create_list_and_show(asking: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    for said in ("made", "exists already"):
        made = asking("create", "albums", "--bits", "53", "--start", "1000")
        assert (made.status, made.lines[0]) == (0, f"albums: {said}")
    other = asking("create", "albums", "--bits", "32")
    assert (other.status, other.out, "409: " in other.err) == (1, "", True)
    assert json.loads(asking("create", "albums", "--json").out)["bits"] == 53

    listed = asking("list", "ALBUM")
    assert [line.split()[:3] for line in listed.lines] == [["SEQUENCE", "KIND", "BITS"], ["albums", "ticket", "53"]]
    assert [each["sequence"] for each in json.loads(asking("list", "albums", "--json").out)["sequences"]] == ["albums"]
    every = asking("list").out
    monkeypatch.setattr(remote, "MOST", 2)
    assert asking("list").out == every
    assert every.count("\n") > 4

    shown = asking("show", "Albums")
    assert (shown.status, shown.lines[0]) == (0, "albums")
    assert {"  bits: 53", "  exhausted: no"} <= set(shown.lines)
    assert [line.split()[:1] for line in shown.lines[-2:]] == [["odd.sqlite3"], ["even.sqlite3"]]
    assert json.loads(asking("show", "albums", "--json").out)["sequence"] == "albums"
    assert asking("show", "nowhere").status == 1


def test_bump(asking: Commands) -> None:
    assert asking("bump", "groups", "--above", "1000000").status == 0
    assert int(asking("take", "groups").out) > 1_000_000
    end = str(2**63 - 1000)
    refused = asking("bump", "groups", "--above", end)
    assert (refused.status, "409: " in refused.err) == (1, True)
    assert asking("bump", "groups", "--above", end, "--force").status == 0


def test_tokens(server: TicketServer, ticketd: Commands, tmp_path: Path) -> None:
    none = ticketd("take", "photos", "--url", server.url)
    assert (none.status, "401: " in none.err, "--token-file FILE" in none.err) == (1, True, True)
    flags = ["--url", server.url, "--token-file", str(tmp_path / "user")]
    for token, command, status, said in (
        (USER, "take", 0, ""),
        (USER, "create", 1, "403: "),
        ("two tokens", "take", 2, "--token-file cannot be used; expected one token"),
    ):
        (tmp_path / "user").write_text(token)
        ran = ticketd(command, "photos", *flags)
        assert ran.status == status
        assert said in ran.err


# --- on something else ------------------------------------------------------------------------------------------------


@pytest.fixture
def stranger() -> Iterator[SimpleNamespace]:
    """Something that listens and is no ticket server. answer: its status and body. asked: the requests."""
    told = SimpleNamespace(answer=(200, b"{}"), asked=[])

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            told.asked.append((self.command, self.path, self.headers["Authorization"]))
            status, body = told.answer
            self.send_response(status)
            self.send_header("Location", "http://127.0.0.1:1/")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_GET

        def log_message(self, format: str, *args: object) -> None:
            """Write nothing."""

    with HTTPServer(("127.0.0.1", 0), Handler) as listening:
        told.url = f"http://127.0.0.1:{listening.server_port}"
        thread = threading.Thread(target=listening.serve_forever, args=(0.02,))
        thread.start()
        yield told
        listening.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ((200, b"<html>"), "answered 200 and no JSON object: is it a ticket server?"),
        ((502, b"<html>"), "answered 502 and no JSON object"),
        ((301, b"{}"), "301: is it a ticket server?"),
        ((200, b"[" * 100_000), "answered 200 and no JSON object"),
        ((200, b'{"ids_str": "7"}'), "does not have 1 tickets"),
        ((200, b'{"ids_str": ["7", "9"]}'), "does not have 1 tickets"),
        ((200, b'{"ids_str": ["\\u001b[31m"]}'), "does not have 1 tickets"),
        ((409, b'{"detail": "no\\u001b[31m\\nway hush"}'), "409: no?[31m?way [token]"),
    ],
)
def test_a_foreign_answer_is_one_printable_line(
    answer: tuple[int, bytes], said: str, stranger: SimpleNamespace, ticketd: Commands, tmp_path: Path
) -> None:
    stranger.answer = answer
    (tmp_path / "token").write_text("hush")
    ran = ticketd("take", "photos", "--url", stranger.url + "/below/", "--token-file", str(tmp_path / "token"))
    assert (ran.status, ran.out, ran.err.count("\n")) == (1, "", 1)
    assert ran.err.startswith("ticketd: ")
    assert said in ran.err
    assert "hush" not in ran.err
    assert stranger.asked == [("POST", "/below/ticket/photos?count=1", "Bearer hush")]


def test_no_answer_or_an_endless_one_and_no_proxy(
    stranger: SimpleNamespace, ticketd: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "no answer: Connection refused" in ticketd("list", "--url", "http://127.0.0.1:1").err
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    monkeypatch.setattr(remote, "MOST_BYTES", 1000)
    stranger.answer = 200, b" " * 2000 + b"{}"
    assert "answered 200 and no JSON object" in ticketd("list", "--url", stranger.url).err
