"""Whatever a server sends, a call ends with a TicketError, in time and without taking memory for it."""

from __future__ import annotations

import random
import socket
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress

import pytest

from lying_server import Says, until
from redis_door import RedisDoor
from ticketd_client import TicketError, Tickets, TicketsUnavailable

OVER_REDIS = [
    b":\r\n",
    b":x\r\n",
    b":1 \r\n",
    b":1_0\r\n",
    b":+1\r\n",
    b":007\r\n",
    b":-0\r\n",
    b"$01\r\n7\r\n",
    b":1\n",
    b":\xb2\r\n",
    b":" + b"9" * 5_000 + b"\r\n",
    b"$abc\r\n",
    b"$-5\r\n",
    b"$\r\n",
    b"$3\r\n12\r\n",
    b"$2\r\n123\r\n",
    b"$2\r\n12xx",
    b"$1000000000\r\n" + b"7" * 100_000,
    b"*-5\r\n",
    b"*-1\r\n",
    b"*x\r\n",
    b"*1000000000\r\n",
    b"*3\r\n*1\r\n:1\r\n:2\r\n:17\r\n",
    b"*3\r\n:1\r\n:2\r\n",
    b"*3\r\n-ERR no\r\n:2\r\n:17\r\n",
    b"*1\r\n" * 2_000,
    b"\r\n",
    b"\x00\xff\r\n",
    b"%1\r\n+a\r\n:1\r\n",
    b"+01ARZ3NDEKTSV4RRFFQ69G5FAV\r\n",
    b"-\r\n",
    b"-" + b"E" * 100_000,
    b"x" * 100_000,
]
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
OVER_HTTP = [
    b"HTTP/1.1 abc OK\r\n\r\n",
    b"HTTP/9.9 200 OK\r\n\r\n",
    b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 20_000,
    b"HTTP/1.1 200 " + b"x" * 200_000,
    b"HTTP/1.1 100 Continue\r\n\r\n" * 20_000,
    HEAD + b"Content-Length: -5\r\n\r\n{}",
    HEAD + b"Content-Length: 1000000000\r\n\r\n" + b"7" * 100_000,
    HEAD + b"Content-Length: " + b"9" * 5_000 + b"\r\n\r\n{}",
    HEAD + b"Transfer-Encoding: chunked\r\n\r\nxyz\r\n{}\r\n0\r\n\r\n",
    HEAD + b"Transfer-Encoding: chunked\r\n\r\n-1\r\n" + b"7" * 400_000,
    HEAD + b"Transfer-Encoding: chunked\r\n\r\n-5\r\n{}",
    HEAD + b"Transfer-Encoding: chunked\r\n\r\n40000000\r\n" + b"7" * 400_000,
    HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + b"1\r\n \r\n" * 50_000,
    HEAD + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n" + b"X: y\r\n" * 50_000,
    HEAD + b"Content-Length: 2\r\n\r\n\xff\xfe",
    HEAD + b'Content-Length: 9\r\n\r\n{"id":1e9}',
    b"HTTP/1.1 503 X\r\nRetry-After: " + b"9" * 400 + b"\r\nContent-Length: 0\r\n\r\n",
    b"HTTP/1.1 404 X\r\nContent-Type: application/problem+json\r\nContent-Length: 14\r\n\r\n" + b'{"detail": []}',
]


class Blunt:
    """A server on a free port that answers whatever comes with `says`, and hangs up."""

    def __init__(self) -> None:
        self.says = b""
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.open = 0
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        with suppress(OSError):
            while True:
                threading.Thread(target=self._serve, args=(self.listener.accept()[0],), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, suppress(OSError):
            self.open += 1
            try:
                connection.recv(65_536)
                connection.sendall(self.says)
                connection.shutdown(socket.SHUT_WR)
                while connection.recv(65_536):
                    pass
            finally:
                self.open -= 1


@pytest.fixture
def blunt() -> Iterator[Blunt]:
    server = Blunt()
    yield server
    server.listener.shutdown(socket.SHUT_RDWR)
    server.listener.close()


def changed(reply: bytes, chance: random.Random) -> bytes:
    """The reply with a few of its bytes replaced, left out, added or repeated."""
    found = bytearray(reply)
    for _ in range(chance.randint(1, 4)):
        place = chance.randrange(len(found) + 1)
        end = min(len(found), place + chance.randint(0, 5))
        found[place:end] = chance.choice(
            [b"", b"\r\n", b"\0", b"-", b":", b"$", b"*", b"9" * 30, chance.randbytes(3), bytes(found[place:end]) * 3]
        )
    return bytes(found)


def outcome(url: str, call: Callable[[Tickets], object]) -> object:
    """The result of a call: an answer or a TicketError. Anything else fails the test."""
    with Tickets(url, prefetch=0, timeout=0.5, patience=0.001) as tickets:
        try:
            return call(tickets)
        except TicketError as error:
            return error


CALLS: list[Callable[[Tickets], object]] = [
    lambda tickets: tickets.take("photos"),
    lambda tickets: tickets.take_many("photos", 3),
    lambda tickets: tickets.take_many("photos", 1_001),
    lambda tickets: tickets.ensure("photos"),
]


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    ("scheme", "replies"), [("redis", OVER_REDIS), ("http", OVER_HTTP)], ids=["over redis", "over http"]
)
def test_a_malformed_reply_is_a_ticket_error_and_ends_the_connection(
    blunt: Blunt, scheme: str, replies: list[bytes]
) -> None:
    for blunt.says in replies:
        for call in CALLS:
            found = outcome(f"{scheme}://127.0.0.1:{blunt.port}", call)
            assert isinstance(found, TicketError), (blunt.says[:60], found)
        until(lambda: blunt.open == 0)


GOOD = {
    "redis": [
        b":7\r\n",
        b"$1\r\n7\r\n",
        b"$32\r\n12345678901234567890123456789012\r\n",
        b"*3\r\n$1\r\n1\r\n$1\r\n3\r\n$1\r\n5\r\n",
        b"*3\r\n:1\r\n:2\r\n:1001\r\n",
        b"-TRYAGAIN later\r\n",
    ],
    "http": [
        Says({"sequence": "photos", "id": 7, "id_str": "7"}).as_bytes(),
        Says({"sequence": "photos", "count": 3, "ids": [1, 3, 5], "ids_str": ["1", "3", "5"]}).as_bytes(),
        Says({"sequence": "photos", "first": 1, "first_str": "1", "step": 2, "size": 1001}).as_bytes(),
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
    ],
}


@pytest.mark.timeout(120)
@pytest.mark.parametrize("scheme", GOOD)
@pytest.mark.parametrize("seed", range(3))
def test_changed_replies(blunt: Blunt, scheme: str, seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(120):
        blunt.says = changed(chance.choice(GOOD[scheme]), chance)
        found = outcome(f"{scheme}://127.0.0.1:{blunt.port}", chance.choice(CALLS))
        assert found is not None
        if isinstance(found, list):
            assert len(set(found)) == len(found)


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "endless",
    [
        ("redis", b"$1000000000\r\n", b"7" * 65_536),
        ("redis", b"*1000000000\r\n", b":7\r\n" * 10_000),
        ("redis", b"-", b"E" * 65_536),
        ("http", HEAD + b"Content-Length: 1000000000\r\n\r\n", b"7" * 65_536),
        ("http", HEAD + b"\r\n", b"7" * 65_536),
        ("http", HEAD + b"Transfer-Encoding: chunked\r\n\r\n", b"10000\r\n" + b"7" * 65_536 + b"\r\n"),
        ("http", HEAD + b"Transfer-Encoding: chunked\r\n\r\n-1\r\n", b"7" * 65_536),
        ("http", b"HTTP/1.1 200 OK\r\n", b"X: y\r\n" * 10_000),
    ],
    ids=lambda each: f"{each[0]} {each[1][-20:]!r}",
)
def test_an_answer_without_an_end_takes_no_memory(endless: tuple[str, bytes, bytes]) -> None:
    scheme, begins, goes_on = endless
    stop = threading.Event()

    def serve(listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                connection = listener.accept()[0]
                with connection, suppress(OSError):
                    connection.recv(65_536)
                    connection.sendall(begins)
                    while not stop.is_set():
                        connection.sendall(goes_on)

    with ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        stack.callback(stop.set)
        threading.Thread(target=serve, args=(listener,), daemon=True).start()
        tracemalloc.start()
        stack.callback(tracemalloc.stop)
        url = f"{scheme}://127.0.0.1:{listener.getsockname()[1]}"
        with Tickets(url, prefetch=0, timeout=1.0) as tickets, pytest.raises(TicketsUnavailable):
            tickets.take("photos")
        assert tracemalloc.get_traced_memory()[1] < 4_000_000
        listener.shutdown(socket.SHUT_RDWR)


def test_a_redis_url_that_drips_leaves_the_other_its_share() -> None:
    with RedisDoor() as slow, RedisDoor() as good, ExitStack() as stack:
        for door in (slow, good):
            threading.Thread(target=door.serve_forever, args=(0.02,), daemon=True).start()
            stack.callback(door.shutdown)
        slow.drips = 0.2
        slow.says["TICKET.BLOCK"] = slow.says["INCR"] = b":" + b"1" * 40
        for prefetch in (0, 10):
            with Tickets([slow.url, good.url], prefetch=prefetch, timeout=1.0) as tickets:
                began = time.monotonic()
                assert tickets.take("photos") > 0
                assert time.monotonic() - began < 0.95


def test_bytes_after_an_answer_are_not_the_next_answer() -> None:
    with RedisDoor() as door:
        threading.Thread(target=door.serve_forever, args=(0.02,), daemon=True).start()
        door.says["INCR"] = b":7\r\n:8\r\n"
        with Tickets(door.url, prefetch=0) as tickets:
            assert tickets.take("photos") == 7
            del door.says["INCR"]
            assert tickets.take("photos") == 3
        door.shutdown()
