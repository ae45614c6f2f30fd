"""redis:// URLs, on a small server that speaks RESP."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from lying_server import until
from redis_door import RedisDoor
from ticketd_client import (
    AsyncTickets,
    NoSuchSequence,
    NotAllowed,
    SequenceExhausted,
    TicketError,
    Tickets,
    TicketsUnavailable,
)
from ticketd_client.answers import AttemptFailed
from ticketd_client.urls import servers_of


@pytest.fixture
def door() -> Iterator[RedisDoor]:
    with RedisDoor() as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
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
        threading.Thread(target=door.serve_forever, args=(0.02,), daemon=True).start()
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


@pytest.mark.parametrize("prefetch", [10, 0])
@pytest.mark.parametrize(("after", "drips"), [(60.0, 0.0), (0.0, 0.1)], ids=["is silent", "drips"])
def test_a_server_that_never_comes_to_an_end(door: RedisDoor, prefetch: int, after: float, drips: float) -> None:
    door.after, door.drips = after, drips
    door.says["INCR"] = door.says["TICKET.BLOCK"] = b":%d\r\n" % 10**40
    with Tickets(door.url, prefetch=prefetch, timeout=0.5) as tickets:
        began = time.monotonic()
        with pytest.raises(TicketsUnavailable, match="no answer in "):
            tickets.take("photos")
        assert 0.4 < time.monotonic() - began < 1.5

    async def run() -> None:
        async with AsyncTickets(door.url, prefetch=prefetch, timeout=0.5) as tickets:
            began = time.monotonic()
            with pytest.raises(TicketsUnavailable):
                await tickets.take("photos")
            assert 0.4 < time.monotonic() - began < 1.5

    asyncio.run(run())


def test_a_connection_that_nobody_accepts_is_given_up() -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=0) as listener:
        waiting = []
        try:
            for _ in range(4):  # its queue is full: the system answers no more
                each = socket.socket()
                each.setblocking(False)
                each.connect_ex(listener.getsockname())
                waiting.append(each)
            server = servers_of(f"redis://127.0.0.1:{listener.getsockname()[1]}", None, None)[0]
            began = time.monotonic()
            with pytest.raises(AttemptFailed, match="no answer"):
                server.take("photos", None, None, began + 0.3)
            assert time.monotonic() - began < 2
        finally:
            for each in waiting:
                each.close()


def test_an_attempt_is_one_and_none_after_its_deadline(door: RedisDoor) -> None:
    door.says["INCR"] = None
    server = servers_of(door.url, None, None)[0]
    with pytest.raises(AttemptFailed):
        server.take("photos", None, None, time.monotonic() + 5)
    assert len(door.commands) == 1
    with pytest.raises(AttemptFailed, match=r"no answer in 0\.0 s"):
        server.take("photos", None, None, time.monotonic())
    assert len(door.commands) == 1
    server.close()


@pytest.mark.parametrize(
    ("reply", "says"),
    [
        (b"$3\r\n007\r\n", "gave '007' for a ticket"),
        (b"$2\r\n-7\r\n", "gave '-7' for a ticket"),
        (b":-7\r\n", "gave -7 for a ticket"),
        (b"$-1\r\n", "gave None for a ticket"),
        (b"*1\r\n:7\r\n", "for a ticket"),
        (b"$2\r\n\xb2\xb2\r\n", "for a ticket"),
        (b"$26\r\n01ARZ3NDEKTSV4RRFFQ69G5FA!\r\n", "for a ticket"),
    ],
)
def test_what_is_no_ticket(door: RedisDoor, reply: bytes, says: str) -> None:
    door.says["INCR"] = reply
    with Tickets(door.url, prefetch=0, timeout=0.3) as tickets, pytest.raises(TicketsUnavailable) as caught:
        tickets.take("photos")
    assert says in str(caught.value)


@pytest.mark.parametrize("reply", [b":7\r\n", b"*0\r\n", b"*2\r\n:1\r\n:3\r\n", b"*3\r\n:1\r\n:1\r\n:3\r\n"])
def test_what_are_not_the_tickets_that_were_asked_for(door: RedisDoor, reply: bytes) -> None:
    door.says["TICKET.TAKE"] = reply
    with Tickets(door.url, prefetch=0, timeout=0.3) as tickets, pytest.raises(TicketsUnavailable):
        tickets.take_many("photos", 3)


def test_a_server_that_wants_to_be_left_alone_for_a_while(door: RedisDoor) -> None:
    door.says["INCR"] = b"-TRYAGAIN no ticket database can draw\r\n"
    with Tickets(door.url, prefetch=0, timeout=0.5) as tickets:
        for _ in range(3):
            with pytest.raises(TicketsUnavailable, match="TRYAGAIN no ticket database can draw"):
                tickets.take("photos")
    assert len(door.commands) == 1


@pytest.mark.parametrize("word", ["ERR", "TRYAGAIN", "NOAUTH", "EXHAUSTED", "LOADING", "OOM"])
def test_a_token_that_an_error_repeats_is_nowhere(word: str, caplog: pytest.LogCaptureFixture) -> None:
    with RedisDoor("our-token") as door:
        threading.Thread(target=door.serve_forever, args=(0.02,), daemon=True).start()
        door.says["INCR"] = b"-%b you sent our-token\r\n" % word.encode()
        tickets = Tickets(door.url, token="our-token", prefetch=0, timeout=0.3)
        with tickets, pytest.raises(TicketError) as caught:
            tickets.take("photos")
        door.shutdown()
    assert "you sent [token]" in str(caught.value)
    assert "our-token" not in repr(caught.value) + caplog.text


def test_closed_it_keeps_no_connection(door: RedisDoor) -> None:
    tickets = Tickets(door.url, prefetch=0, timeout=5)
    tickets.take("photos")
    assert door.connections == 1
    tickets.close()
    until(lambda: door.connections == 0)


def test_what_is_under_way_at_the_end_comes_and_leaves_no_connection(door: RedisDoor) -> None:
    door.after = 0.3
    with ThreadPoolExecutor(1) as pool:
        tickets = Tickets(door.url, prefetch=0, timeout=5)
        task = pool.submit(tickets.take, "photos")
        until(lambda: door.commands)
        tickets.close()
        assert task.result() == 1
    until(lambda: door.connections == 0)
