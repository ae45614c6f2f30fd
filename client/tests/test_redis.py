"""redis:// URLs, through redis-py, on a small server that speaks RESP."""

from __future__ import annotations

import socket
import socketserver
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from ticketd_client import (
    NoSuchSequence,
    NotAllowed,
    SequenceExhausted,
    TicketError,
    Tickets,
    TicketsUnavailable,
)

pytest.importorskip("redis")


class RedisDoor(socketserver.ThreadingTCPServer):
    """Tickets over the Redis protocol. `says`: what a command's word is answered with in place of the truth."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, token: str | None = None) -> None:
        super().__init__(("127.0.0.1", 0), _Connection)
        self.token = token
        self.commands: list[list[str]] = []
        self.says: dict[str, bytes | None] = {}
        self.next = 1
        self.lock = threading.Lock()
        self.url = f"redis://127.0.0.1:{self.server_address[1]}"

    def draw(self, size: int) -> int:
        with self.lock:
            first = self.next
            self.next += 2 * size
            return first


class _Connection(socketserver.StreamRequestHandler):
    server: RedisDoor

    def handle(self) -> None:
        self.known = self.server.token is None
        while line := self.rfile.readline():
            words = []
            for _ in range(int(line[1:])):
                length = int(self.rfile.readline()[1:])
                words.append(self.rfile.read(length + 2)[:-2].decode())
            if words[0] != "CLIENT":  # how redis-py introduces itself
                self.server.commands.append(words)
            reply = self.server.says.get(words[0], self.reply(words))
            if reply is None:
                return
            self.wfile.write(reply)

    def reply(self, words: list[str]) -> bytes:
        if words[0] == "CLIENT":
            return b"+OK\r\n"
        if words[0] == "AUTH":
            self.known = words[-1] == self.server.token
            return b"+OK\r\n" if self.known else b"-WRONGPASS this token is not known\r\n"
        if not self.known:
            return b"-NOAUTH Authentication required.\r\n"
        first, size = words[0], int(words[3] if words[0] == "TICKET.TAKE" else words[-1]) if len(words) > 2 else 1
        if first == "INCR":
            return b":%d\r\n" % self.server.draw(1)
        if first == "TICKET.TAKE":
            ids = [b"%d" % self.server.draw(1) for _ in range(size)]
            return b"*%d\r\n" % len(ids) + b"".join(b"$%d\r\n%b\r\n" % (len(each), each) for each in ids)
        return b"*3\r\n:%d\r\n:2\r\n:%d\r\n" % (self.server.draw(size), size)


@pytest.fixture
def door() -> Iterator[RedisDoor]:
    with RedisDoor() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def test_tickets_from_blocks(door: RedisDoor) -> None:
    with Tickets(door.url, prefetch=100) as tickets:
        got = [tickets.take("photos") for _ in range(1_000)]
    assert got == list(range(1, 2_001, 2))
    assert {words[0] for words in door.commands} == {"TICKET.BLOCK"}


def test_single_tickets(door: RedisDoor) -> None:
    with Tickets(door.url, prefetch=0) as tickets:
        assert tickets.take("photos") == 1
        assert tickets.take_many("photos", 3) == [3, 5, 7]
        assert tickets.take("photos", key=31341) == 9
    assert door.commands == [
        ["INCR", "photos"],
        ["TICKET.TAKE", "photos", "COUNT", "3"],
        ["TICKET.TAKE", "photos", "COUNT", "1", "KEY", "31341"],
    ]


def test_kinds_without_blocks_and_ids_that_are_strings(door: RedisDoor) -> None:
    flake = b"12345678901234567890123456789012"
    door.says["TICKET.BLOCK"] = b"-ERR likes is of kind flake, which has no blocks; use ?count=\r\n"
    door.says["INCR"] = b"$32\r\n%b\r\n" % flake
    with Tickets(door.url) as tickets:
        assert tickets.take("likes") == flake.decode()
    assert [words[0] for words in door.commands] == ["TICKET.BLOCK", "INCR"]


def test_a_block_that_is_too_large_is_asked_for_in_parts(door: RedisDoor) -> None:
    door.says["TICKET.BLOCK"] = b"-ERR a block's size has to be a whole number from 1 to 65\r\n"
    with Tickets(door.url) as tickets:
        tickets.take_many("photos", 500)
    assert [words[0] for words in door.commands] == ["TICKET.BLOCK", "TICKET.BLOCK", "TICKET.TAKE"]
    assert door.commands[1][2] == "1"


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        (b"-ERR no such sequence photo; PUT /sequence/photo over HTTP makes it\r\n", NoSuchSequence),
        (b"-EXHAUSTED every ticket is gone\r\n", SequenceExhausted),
        (b"-NOAUTH Authentication required.\r\n", NotAllowed),
        (b"-TRYAGAIN no ticket database can draw\r\n", TicketsUnavailable),
        (b"-ERR max number of clients reached\r\n", TicketsUnavailable),
        (b"-ERR unknown command\r\n", TicketsUnavailable),
        (b"*3\r\n:1\r\n:0\r\n:17\r\n", TicketsUnavailable),
        (b"*3\r\n$1\r\n1\r\n:2\r\n:17\r\n", TicketsUnavailable),
        (b"*1\r\n:1\r\n", TicketsUnavailable),
        (b":1\r\n", TicketsUnavailable),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", TicketsUnavailable),
        (None, TicketsUnavailable),
    ],
)
def test_what_it_may_say_instead(door: RedisDoor, reply: bytes | None, kind: type[TicketError]) -> None:
    door.says["TICKET.BLOCK"] = reply
    with Tickets(door.url, timeout=0.5) as tickets, pytest.raises(kind) as caught:
        tickets.take("photos")
    assert door.url in str(caught.value)


def test_tokens(serve: Any) -> None:
    with RedisDoor("our-token") as door:
        threading.Thread(target=door.serve_forever, daemon=True).start()
        for url, token in ((door.url.replace("//", "//:our-token@"), None), (door.url, "our-token")):
            with Tickets(url, token=token) as tickets:
                assert tickets.take("photos") > 0
                assert "our-token" not in repr(tickets)
        for token in (None, "a-guess"):
            with Tickets(door.url, token=token) as tickets, pytest.raises(NotAllowed) as caught:
                tickets.take("photos")
            assert "a-guess" not in str(caught.value)
        door.shutdown()


def test_it_fails_over_to_http_and_a_bump_goes_there(door: RedisDoor) -> None:
    with socket.socket() as dead:
        dead.bind(("127.0.0.1", 0))
        with Tickets([f"redis://127.0.0.1:{dead.getsockname()[1]}", door.url]) as tickets:
            assert tickets.take("photos") == 1
            with pytest.raises(TicketsUnavailable, match="that takes an http:// URL"):
                tickets.bump("photos", 10)
