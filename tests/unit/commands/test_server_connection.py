"""How a command asks a ticket server: once more where that may help, and never an answer that cannot be right."""

import json
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from app.commands import server_connection
from app.commands.remote import RemoteServer
from app.commands.server_connection import RequestFailed, ServerConnection, UnusableURL
from tests.fakes.certificates import Authority

TOKEN = "a-token-für-tests"
HINT = "--token-file FILE, or TICKETD_TOKEN_FILE, names a file with one"
Answer = bytes | Callable[[socket.socket], None]


def answer(status: int, body: Any, media_type: str = "application/json", *more: str) -> bytes:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    head = [f"HTTP/1.1 {status} Why", f"Content-Type: {media_type}", f"Content-Length: {len(content)}", *more]
    return "\r\n".join([*head, "", ""]).encode() + content


def problem(status: int, detail: str, *more: str) -> bytes:
    return answer(status, {"status": status, "detail": detail}, "application/problem+json", *more)


class Script:
    """A server that gives one answer after the other, then none. `requests`: what it was sent; `connections`: how
    many it took."""

    def __init__(self, listener: socket.socket, answers: tuple[Answer, ...], tls: ssl.SSLContext | None) -> None:
        self.url = f"http{'s' if tls else ''}://127.0.0.1:{listener.getsockname()[1]}"
        self.requests: list[bytes] = []
        self.connections = 0
        self._listener = listener
        self._answers = list(answers)
        self._tls = tls

    def run(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            if self._tls is not None:
                try:
                    connection = self._tls.wrap_socket(connection, server_side=True)
                except ssl.SSLError:
                    connection.close()
                    continue
            with connection:
                while self._answers and (request := connection.recv(65_536)):
                    self.requests.append(request)
                    says = self._answers.pop(0)
                    if callable(says):
                        says(connection)
                        break
                    connection.sendall(says)


@contextmanager
def server(*answers: Answer, tls: ssl.SSLContext | None = None) -> Iterator[Script]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        script = Script(listener, answers, tls)
        thread = threading.Thread(target=script.run)
        thread.start()
        try:
            yield script
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join(10)


def connected(url: str, token: str | None = None) -> closing[ServerConnection]:
    return closing(ServerConnection(url, token))


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give up a failing server sooner."""
    monkeypatch.setattr(server_connection, "PATIENCE_SECONDS", 0.3)


def test_two_requests_share_a_connection_and_carry_the_token() -> None:
    with server(answer(200, {"a": 1}), answer(201, {"a": 2})) as it, connected(f"{it.url}/below/", TOKEN) as connection:
        assert connection.ask("GET", "/x") == (200, {"a": 1})
        assert connection.ask("PUT", "/y", {"bits": 32}, accepted={200, 201}) == (201, {"a": 2})
    assert it.connections == 1
    assert it.requests[0].startswith(b"GET /below/x HTTP/1.1\r\n")
    assert f"\r\nAuthorization: Bearer {TOKEN}\r\n".encode() in it.requests[0]
    assert b"\r\nContent-Length: 12\r\n" in it.requests[1]


def test_an_answer_in_chunks_is_read_to_its_end() -> None:
    chunked = b'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\n{"a"\r\n3\r\n:1}\r\n0\r\n\r\n'
    with server(chunked, answer(200, {})) as it, connected(it.url) as connection:
        assert connection.ask("GET", "/") == (200, {"a": 1})
        connection.ask("GET", "/")
    assert it.connections == 1


@pytest.mark.parametrize(
    "first",
    [
        problem(503, "no database", "Retry-After: 0"),
        answer(502, b"<html>", "text/html"),
        answer(429, {}),
        lambda connection: connection.close(),
        b"SMTP ready\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{}",
    ],
    ids=["503", "502", "429", "hangs up", "no HTTP", "cut off"],
)
def test_a_failure_that_may_pass_is_followed_by_another_attempt(first: Answer) -> None:
    def says(connection: socket.socket) -> None:
        if isinstance(first, bytes):
            connection.sendall(first)

    with server(first if callable(first) else says, answer(200, {"a": 1})) as it, connected(it.url) as connection:
        assert connection.ask("GET", "/")[1] == {"a": 1}
    assert len(it.requests) == 2


@pytest.mark.parametrize(
    ("says", "expected"),
    [
        (problem(404, "there is\nno\x1b sequence"), "404: there is no? sequence"),
        (problem(409, "it is another"), "409: it is another"),
        (answer(404, b"", "text/plain"), "404: Why"),
        (answer(307, b"", "text/plain", "Location: http://127.0.0.1:1/"), "307: Why"),
        (problem(401, f"not {TOKEN}"), f"401: not [token]; {HINT}"),
        (problem(503, "later", "Retry-After: 60"), "503: later"),
    ],
    ids=["problem", "conflict", "a stranger's", "redirect", "token", "much later"],
)  # fmt: skip
def test_a_refusal_is_final_and_in_the_server_s_words(says: bytes, expected: str) -> None:
    with (
        server(says, answer(200, {})) as it,
        connected(it.url, TOKEN) as connection,
        pytest.raises(RequestFailed) as failed,
    ):
        connection.ask("GET", "/")
    assert str(failed.value) == expected
    assert len(it.requests) == 1


@pytest.mark.parametrize(
    ("says", "wrong"),
    [
        (answer(200, b"<html>"), "did not answer with JSON"),
        (answer(200, b"[1]"), "did not answer with JSON"),
        (answer(200, b"[" * 100_000), "did not answer with JSON"),
        (answer(200, b"{}", "text/html"), "did not answer with JSON but with 'text/html'"),
        (answer(200, b'"' + b"a" * 2_000 + b'"'), "gave an answer of more than 1000 bytes"),
    ],
    ids=["html", "list", "deep", "type", "long"],
)
def test_an_answer_that_no_ticket_server_gives(says: bytes, wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if "more than" in wrong:
        monkeypatch.setattr(server_connection, "MOST_BYTES", 1_000)
    with server(*[says] * 20) as it, connected(it.url) as connection, pytest.raises(RequestFailed) as failed:
        connection.ask("GET", "/")
    assert str(failed.value) == f"{it.url} {wrong}: is it a ticket server?"


def test_a_server_that_sends_a_byte_now_and_then_does_not_hold_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_connection, "TIMEOUT_SECONDS", 0.5)
    ended = threading.Event()

    def drip(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
        while not ended.wait(0.05):
            try:
                connection.sendall(b" ")
            except OSError:
                return

    with server(drip) as it, connected(it.url) as connection:
        began = time.monotonic()
        with pytest.raises(RequestFailed, match=r"no answer from .* in 0\.[5-9] s: is the server running there\?"):
            connection.ask("GET", "/")
        assert time.monotonic() - began < 5
        ended.set()


def test_a_server_has_to_prove_who_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trusted, other = Authority(tmp_path, "trusted"), Authority(tmp_path, "other")
    monkeypatch.setenv("SSL_CERT_FILE", str(trusted.file))
    with server(answer(200, {"a": 1}), tls=trusted.server("127.0.0.1")) as it, connected(it.url, TOKEN) as connection:
        assert connection.ask("GET", "/") == (200, {"a": 1})
    with (
        server(answer(200, {}), tls=other.server("127.0.0.1")) as it,
        connected(it.url, TOKEN) as connection,
        pytest.raises(RequestFailed, match=r"no answer from .* \(its certificate: .*\): is the server"),
    ):
        connection.ask("GET", "/")
    assert it.requests == []


def tickets(*ids: object, sequence: str = "photos") -> bytes:
    return answer(200, {"sequence": sequence, "count": len(ids), "ids": list(ids), "ids_str": list(map(str, ids))})


def test_tickets_come_in_lists_of_a_thousand() -> None:
    with server(tickets(*range(1, 1001)), tickets(*range(1001, 1006))) as it, connected(it.url) as connection:
        lists = list(RemoteServer(connection).take("photos", 1_005))
    assert [len(each) for each in lists] == [1_000, 5]
    assert lists[1] == ["1001", "1002", "1003", "1004", "1005"]
    assert [request.split()[1] for request in it.requests] == [b"/ticket/photos?count=1000", b"/ticket/photos?count=5"]


def test_a_name_that_the_databases_fold_is_the_same_name() -> None:
    with server(tickets(1, sequence="photos")) as it, connected(it.url) as connection:
        assert list(RemoteServer(connection).take("Photos", 1)) == [["1"]]


@pytest.mark.parametrize(
    ("says", "wrong"),
    [
        (tickets(1), "did not answer with 2 tickets"),
        (tickets(1, 1), "answered with ids that no sequence has"),
        (tickets(1, "2\n3"), "answered with ids that no sequence has"),
        (tickets(1, 2, sequence="albums"), "answered for another sequence"),
        (answer(200, {"ids": [1, 2]}), "did not answer with 2 tickets"),
    ],
    ids=["too few", "twice", "no id", "another", "no strings"],
)
def test_tickets_that_cannot_be_right_are_not_printed(says: bytes, wrong: str) -> None:
    with server(*[says] * 20) as it, connected(it.url) as connection, pytest.raises(RequestFailed, match=wrong):
        list(RemoteServer(connection).take("photos", 2))


@pytest.mark.parametrize(
    "url", ["redis://:secret@h", "http://u:secret@h", "https://secret@h", "http://h:70000", "http://h:0", "h"]
)
def test_a_url_that_names_no_server_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(UnusableURL) as refused:
        ServerConnection(url, None)
    assert "secret" not in str(refused.value)
