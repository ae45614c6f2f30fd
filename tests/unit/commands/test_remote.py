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


class Ran(NamedTuple):
    """What a command did: its exit status, and what it printed."""

    status: int
    out: str
    err: str


Commands = Callable[..., Ran]


@pytest.fixture(scope="module")
def server() -> Iterator[TicketServer]:
    """A server on its embedded pair, with tokens."""
    with TicketServer(tokens=USER, admin_tokens=ADMIN) as running:
        yield running


@pytest.fixture
def ticketd(
    server: TicketServer, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Commands:
    """Run a command in this process, which variables lead to the server, with its admin token."""
    (tmp_path / "token").write_text(ADMIN + "\n")
    monkeypatch.setenv("TICKETD_TOKEN_FILE", str(tmp_path / "token"))
    monkeypatch.setenv("TICKETD_URL", server.url)
    monkeypatch.setattr(remote, "SECONDS", 60.0)  # a busy machine may take long for an answer

    def run(*arguments: str) -> Ran:
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        return Ran(int(ended.value.code or 0), *capsys.readouterr())

    return run


def test_take_prints_tickets_one_a_line(ticketd: Commands) -> None:
    assert ticketd("create", "hex", "--kind", "uuid7").status == 0
    for name, count in (("photos", 2345), ("hex", 1500)):
        status, out, err = ticketd("take", name, "-n", str(count))
        assert (status, err, len(set(out.splitlines()))) == (0, "", count)
    assert ticketd("create", "last", "--bits", "32", "--start", str(2**32 - 5000)).status == 0
    status, out, err = ticketd("take", "last", "-n", "6000")  # what it has printed before it fails is valid
    assert (status, "410: " in err) == (1, True)
    assert 1000 <= out.count("\n") == len(set(out.splitlines())) <= 5000


def test_create_list_and_show(ticketd: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    for said in ("made", "exists already"):
        status, out, _ = ticketd("create", "albums", "--bits", "53", "--start", "1000")
        assert (status, out.partition("\n")[0]) == (0, f"albums: {said}")
    status, out, err = ticketd("create", "albums", "--bits", "32")
    assert (status, out, "409: " in err) == (1, "", True)
    for command in ("create", "show"):
        assert json.loads(ticketd(command, "albums", "--json").out)["bits"] == 53

    lines = [line.split()[:3] for line in ticketd("list", "ALBUM").out.splitlines()]
    assert lines == [["SEQUENCE", "KIND", "BITS"], ["albums", "ticket", "53"]]
    assert [each["sequence"] for each in json.loads(ticketd("list", "albums", "--json").out)["sequences"]] == ["albums"]
    every = ticketd("list").out
    monkeypatch.setattr(remote, "MOST", 2)
    assert ticketd("list").out == every
    assert every.count("\n") > 4

    first, *more = ticketd("show", "Albums").out.splitlines()
    assert first == "albums"
    assert {"  bits: 53", "  exhausted: no"} <= set(more)
    assert [line.split()[0] for line in more[-2:]] == ["odd.sqlite3", "even.sqlite3"]
    assert ticketd("show", "nowhere").status == 1


def test_bump_is_forced_near_the_end(ticketd: Commands) -> None:
    end = str(2**63 - 1000)
    refused = ticketd("bump", "groups", "--above", end)
    assert (refused.status, "409: " in refused.err) == (1, True)
    assert ticketd("bump", "groups", "--above", end, "--force").status == 0
    assert int(ticketd("take", "groups").out) > 2**63 - 1000


def test_tokens_and_no_answer(ticketd: Commands, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for token, command, status, said in (
        (USER, "take", 0, ""),
        (USER, "create", 1, "403: "),
        ("two tokens", "take", 2, "--token-file cannot be used; expected one token"),
    ):
        (tmp_path / "user").write_text(token)
        ran = ticketd(command, "photos", "--token-file", str(tmp_path / "user"))
        assert (ran.status, said in ran.err) == (status, True)
    assert "no answer: Connection refused" in ticketd("list", "--url", "http://127.0.0.1:1").err
    monkeypatch.delenv("TICKETD_TOKEN_FILE")
    status, _, err = ticketd("take", "photos")
    assert (status, "401: " in err, "--token-file FILE" in err) == (1, True, True)


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
        ((502, b"<html>"), "answered 502 and no JSON object: is it a ticket server?"),
        ((301, b"{}"), "301: is it a ticket server?"),
        ((200, b"[" * 100_000), "answered 200 and no JSON object"),
        ((200, b" " * 200_000 + b"{}"), "answered 200 and no JSON object"),
        ((200, b'{"ids_str": "7"}'), "does not have 1 tickets"),
        ((200, b'{"ids_str": ["7", "9"]}'), "does not have 1 tickets"),
        ((200, b'{"ids_str": ["\\u001b[31m"]}'), "does not have 1 tickets"),
        ((409, b'{"detail": "no\\u001b[31m\\nway admin-token"}'), "409: no?[31m?way [token]"),
    ],
)
def test_a_foreign_or_endless_answer_is_one_printable_line_and_no_proxy_is_asked(
    answer: tuple[int, bytes], said: str, stranger: SimpleNamespace, ticketd: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    monkeypatch.setattr(remote, "MOST_BYTES", 200_000)
    stranger.answer = answer
    status, out, err = ticketd("take", "photos", "--url", stranger.url + "/below/")
    assert (status, out, err.count("\n"), err.startswith("ticketd: ")) == (1, "", 1, True)
    assert (said in err, ADMIN in err) == (True, False)
    assert stranger.asked == [("POST", "/below/ticket/photos?count=1", f"Bearer {ADMIN}")]
