"""The client over HTTP: deadlines, bounds, and connections that are kept, closed and used again."""

from __future__ import annotations

import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone
from email.utils import format_datetime

import pytest

from lying_server import Honest, Says, Serve, problem, until
from ticketd_client import NoSuchSequence, Tickets, TicketsUnavailable
from ticketd_client.answers import AttemptFailed
from ticketd_client.servers import Server
from ticketd_client.urls import servers_of


def server_at(url: str) -> Server:
    return servers_of(url, None, None)[0]


def refusal(url: str, timeout: float = 5.0) -> AttemptFailed:
    """Why it gives no ticket."""
    server = server_at(url)
    with pytest.raises(AttemptFailed) as caught:
        server.take("photos", None, None, time.monotonic() + timeout)
    server.close()
    return caught.value


LONG = b"x" * 2_000


@pytest.mark.parametrize(
    ("said", "says"),
    [
        (b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + LONG, "gave an answer of more than 1100 bytes"),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n7d0\r\n" + LONG + b"\r\n0\r\n\r\n",
            "gave an answer of more than 1100 bytes",
        ),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2000\r\n\r\n", "gave an answer of 2000 bytes"),
        (b"HTTP/1.1 503 X\r\nContent-Length: 1000000000\r\n\r\n" + 20 * LONG, "503: X"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n7d0\r\nx", None),
    ],
    ids=["to the end", "chunks", "by its length", "of an error", "chunks that stop"],
)
def test_no_more_of_an_answer_is_read_than_it_may_have(serve: Serve, said: bytes, says: str | None) -> None:
    """Each stays silent afterwards, or says that more is to come."""
    if says is None:
        assert refusal(serve(lambda _: said).url, 0.4).says.startswith("no answer in")
    else:
        assert refusal(serve(lambda _: said).url).says == says


@pytest.mark.parametrize(
    "said",
    [
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n7d0\r\nx",
    ],
    ids=["by its length", "in chunks"],
)
def test_an_answer_that_is_cut_off(serve: Serve, said: bytes) -> None:
    def answer(_: str) -> None:
        for connection in list(server.sockets):
            connection.sendall(said)

    server = serve(answer)  # hangs up afterwards
    assert refusal(server.url).says == "gave an answer that is cut off"


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("1", 1.0),
        ("86400", 60.0),
        ("9" * 5_000, 60.0),
        ("-5", None),
        ("soon", None),
        ("", None),
        ("²", None),
        (format_datetime(datetime.now(timezone.utc) + timedelta(hours=5), usegmt=True), 60.0),
        (format_datetime(datetime.now(timezone.utc) - timedelta(hours=5), usegmt=True), 0.0),
        ("Wed, 21 Oct 2015 07:28:00 -0000", 0.0),
        ("Wed, 99 Oct 2015 07:28:00 GMT", None),
    ],
    ids=[
        "1",
        "a day",
        "digits",
        "below 0",
        "a word",
        "empty",
        "squared",
        "in hours",
        "hours ago",
        "no zone",
        "no date",
    ],
)
def test_retry_after(serve: Serve, header: str, seconds: float | None) -> None:
    said = Says({}, 503, headers=(f"Retry-After: {header}",)).as_bytes().decode().encode("latin-1")
    assert refusal(serve(lambda _: said).url).retry_after == seconds


def test_a_long_refusal_is_read_whole(serve: Serve) -> None:
    tickets = Tickets(serve(lambda _: problem(404, "no such sequence " + "x" * 9_000)).url)
    with tickets, pytest.raises(NoSuchSequence) as caught:
        tickets.take("photos")
    assert len(str(caught.value)) < 400


def test_it_is_well_when_it_says_that_it_is_ready(serve: Serve) -> None:
    server = serve(lambda path: problem(503, "not yet") if len(asked := server.requests) < 2 and asked else Says({}))
    client = server_at(server.url)
    with pytest.raises(AttemptFailed, match="503: not ready"):
        client.look(time.monotonic() + 5)
    client.look(time.monotonic() + 5)
    client.close()
    assert [request.split()[1] for request in server.requests] == [b"/readyz"] * 2


def test_a_connection_with_an_answer_that_is_not_read_to_its_end_is_not_kept(serve: Serve) -> None:
    """The rest would be the next answer."""
    server = serve(lambda _: problem(503, "x" * 20_000))
    client = server_at(server.url)
    with pytest.raises(AttemptFailed):
        client.take("photos", None, None, time.monotonic() + 5)
    until(lambda: server.connections == 0)
    client.close()


def test_what_is_sent_has_the_deadline_of_its_own_call(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    timeouts: list[float | None] = []
    send = socket.socket.sendall

    def watched(self: socket.socket, data: bytes) -> None:
        if threading.current_thread() is threading.main_thread():
            timeouts.append(self.gettimeout())
        send(self, data)

    monkeypatch.setattr(socket.socket, "sendall", watched)
    client = server_at(serve(Honest()).url)
    for seconds in (60, 5):
        client.take("photos", None, None, time.monotonic() + seconds)
    client.close()
    assert [round(timeout or 0) for timeout in timeouts] == [60, 5]


def test_a_connection_that_the_server_closes_is_not_kept(serve: Serve) -> None:
    honest = Honest()

    def answer(path: str) -> Says | bytes | None:
        said = honest(path)
        assert isinstance(said, Says)
        return said._replace(headers=("Connection: close",))

    server = serve(answer)
    with Tickets(server.url, prefetch=0) as tickets:
        assert tickets.take("photos") == 1
        until(lambda: server.connections == 0)


def test_no_more_connections_are_kept_than_are_of_use(serve: Serve) -> None:
    server = serve(Honest(after=0.3))
    with Tickets(server.url, prefetch=0, timeout=20) as tickets, ThreadPoolExecutor(30) as pool:
        tasks = [pool.submit(tickets.take, "photos") for _ in range(30)]
        until(lambda: server.connections == 30)
        assert len({task.result() for task in tasks}) == 30
        until(lambda: server.connections == 16)


def test_where_one_has_died_the_others_are_closed_as_well(serve: Serve) -> None:
    server = serve(Honest(after=0.2))
    with Tickets(server.url, prefetch=0, timeout=20) as tickets, ThreadPoolExecutor(5) as pool:
        list(pool.map(tickets.take, ["photos"] * 5))
        assert server.connections == 5
        for each in list(server.sockets):
            each.shutdown(socket.SHUT_WR)  # it says goodbye, and waits for ours
        tickets.take("photos")
        until(lambda: server.connections == 1)


def test_what_is_under_way_at_the_end_leaves_no_connection(serve: Serve) -> None:
    server = serve(Honest(after=0.5))
    with ThreadPoolExecutor(1) as pool:
        tickets = Tickets(server.url, prefetch=0, timeout=20)
        task = pool.submit(tickets.take, "photos")
        until(lambda: server.requests)
        tickets.close()
        assert task.result() == 1
    until(lambda: server.connections == 0)


def test_a_connection_that_nobody_accepts_ends_with_the_deadline() -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=0) as listener:
        place = listener.getsockname()
        waiting = []
        try:
            for _ in range(4):  # its queue is full: the system answers no more
                each = socket.socket()
                each.setblocking(False)
                each.connect_ex(place)
                waiting.append(each)
            began = time.monotonic()
            assert refusal(f"http://127.0.0.1:{place[1]}", 0.4).says.startswith("no answer in 0.")
            assert time.monotonic() - began < 2
        finally:
            for each in waiting:
                each.close()


def test_a_hosts_next_address_is_tried(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as dead:
        dead.bind(("127.0.0.1", 0))
        server = serve(Honest())
        found = [
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", place)
            for place in (dead.getsockname(), ("127.0.0.1", server.port))
        ]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
        with Tickets("http://tickets.example", prefetch=0) as tickets:
            assert tickets.take("photos") == 1
        found.clear()
        assert refusal("http://tickets.example").says == "no answer (tickets.example has no address)"


def test_a_name_that_is_found_too_late(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    server = serve(Honest())
    found = socket.getaddrinfo("127.0.0.1", server.port, type=socket.SOCK_STREAM)

    def slow(*_: object, **__: object) -> object:
        time.sleep(0.3)
        return found

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    with Tickets(server.url, timeout=0.2) as tickets, pytest.raises(TicketsUnavailable, match=r"no answer in 0\."):
        tickets.take("photos")
    assert not server.requests


def test_a_name_that_is_no_name_for_a_url_is_escaped(serve: Serve) -> None:
    server = serve(lambda _: problem(404, "no such sequence"))
    with Tickets(server.url) as tickets:
        for name in ("a/b?c#d e\r\nX: y", "ä"):
            with pytest.raises(Exception, match="no such sequence"):
                tickets.take(name)
            with pytest.raises(Exception, match="no such sequence"):
                tickets.take(name, key=1)
    paths = {request.split(b"\r\n")[0] for request in server.requests}
    assert paths == {
        b"POST /block/a%2Fb%3Fc%23d%20e%0D%0AX%3A%20y?size=17 HTTP/1.1",
        b"POST /ticket/a%2Fb%3Fc%23d%20e%0D%0AX%3A%20y?key=1 HTTP/1.1",
        b"POST /block/%C3%A4?size=17 HTTP/1.1",
        b"POST /ticket/%C3%A4?key=1 HTTP/1.1",
    }


def test_a_handshake_that_does_not_come_ends_with_the_deadline(serve: Serve) -> None:
    server = serve(lambda _: None)
    began = time.monotonic()
    assert refusal(server.url.replace("http", "https"), 0.4).says.startswith("no answer in 0.")
    assert time.monotonic() - began < 2
    until(lambda: server.connections == 0)
