"""Reads that have come before: they mean what they meant, wherever a connection stands, and are not parsed again."""

import asyncio
from collections.abc import Callable

import pytest
from pydantic import SecretStr

from app.clients.known_reads import MANY
from app.redis import replies
from app.redis.connection import IDLE_SECONDS, RedisConnection
from tests.fakes.virtual_time import settled, virtual_time
from tests.unit.redis.redis_bench import INCR, OTHER, PING, Bench, command

KNOWN = INCR * 3


@pytest.mark.parametrize(
    ("before", "data", "answer"),
    [
        (b"", KNOWN, b":1\r\n:3\r\n:5\r\n"),
        (b"", PING + KNOWN, b"+PONG\r\n:1\r\n:3\r\n:5\r\n"),
        (b"", b"PING\r\n" + INCR, b"+PONG\r\n:1\r\n"),
        (b"", INCR + b"*0\r\n" + OTHER, b":1\r\n:1\r\n"),
        (b"", INCR * 2 + OTHER, b":1\r\n:3\r\n:1\r\n"),
        (b"", INCR * 200, replies.single_tickets(range(1, 256, 2)) + replies.single_tickets(range(1, 144, 2))),
        (INCR[:5], INCR[5:], b":1\r\n"),
        (command("MULTI"), INCR, b"+OK\r\n+QUEUED\r\n"),
    ],
)
@virtual_time
async def test_a_read_that_comes_again_means_what_it_meant(before: bytes, data: bytes, answer: bytes) -> None:
    """Whether the first time is remembered or not; and bytes that are a run by themselves are none behind others."""
    bench = Bench()
    bench.issuer.drawn_ahead = range(1, 1001, 2)
    for _ in range(3):
        client = bench.connect()
        client.send(KNOWN, INCR)
        client.take()
        client.send(*filter(None, [before, data]))
        assert await client.ask() == answer


@virtual_time
async def test_a_known_read_waits_for_its_turn() -> None:
    bench = Bench()
    bench.issuer.drawn_ahead = range(1, 101, 2)
    client = bench.connect()
    client.send(KNOWN, KNOWN)
    assert client.take() == b":1\r\n:3\r\n:5\r\n" * 2
    bench.issuer.drawn_ahead = None
    client.send(OTHER)
    bench.issuer.drawn_ahead = range(1, 101, 2)
    client.send(KNOWN)
    assert await client.ask() == b""
    bench.issuer.answer()
    assert await client.ask() == b":1\r\n" + b":1\r\n:3\r\n:5\r\n"
    client.protocol.pause_writing()
    client.send(KNOWN)
    assert client.take() == b""
    client.protocol.resume_writing()
    assert client.take() == b":1\r\n:3\r\n:5\r\n"
    client.transport.on_write = client.protocol.pause_writing
    client.send(PING, KNOWN)
    assert client.take() == b"+PONG\r\n"
    client.transport.on_write = lambda: None
    client.protocol.resume_writing()
    assert client.take() == b":1\r\n:3\r\n:5\r\n"


@pytest.mark.parametrize("end", [RedisConnection.close, RedisConnection.shutdown, RedisConnection.leave])
@virtual_time
async def test_a_known_read_that_comes_after_the_end_is_not_answered(end: Callable[[RedisConnection], None]) -> None:
    bench = Bench()
    bench.issuer.drawn_ahead = range(1, 101, 2)
    client = bench.connect()
    client.send(KNOWN, KNOWN)
    client.take()
    end(client.protocol)
    client.protocol.data_received(KNOWN)
    assert client.take() == b""


@virtual_time
async def test_a_connection_that_asks_for_what_is_known_is_not_idle() -> None:
    bench = Bench()
    bench.issuer.drawn_ahead = range(1, 101, 2)
    watcher = asyncio.create_task(bench.connections.watch())
    client = bench.connect()
    client.send(KNOWN)
    for _ in range(4):
        await asyncio.sleep(IDLE_SECONDS / 2)
        client.send(KNOWN)
    assert client.transport.calls == []
    watcher.cancel()


@virtual_time
async def test_a_known_read_needs_a_token_that_is_valid_still() -> None:
    bench = Bench("first")
    bench.issuer.drawn_ahead = range(1, 101, 2)
    client = bench.connect()
    client.send(command("AUTH", "first"), KNOWN, KNOWN)
    assert client.take() == b"+OK\r\n" + b":1\r\n:3\r\n:5\r\n" * 2
    bench.tokens.replace([SecretStr("second")], [])
    client.send(KNOWN)
    assert client.take() == b"-NOAUTH Authentication required.\r\n" * 3


@virtual_time
async def test_a_known_read_without_tickets_drawn_ahead_is_a_request() -> None:
    bench = Bench()
    bench.issuer.drawn_ahead = range(1, 101, 2)
    client = bench.connect()
    client.send(KNOWN, KNOWN)
    client.take()
    bench.issuer.drawn_ahead = None
    client.send(KNOWN)
    await settled()
    assert [request.count for request in bench.issuer.waiting] == [3]
    bench.issuer.answer()
    assert await client.ask() == b":1\r\n:3\r\n:5\r\n"


@virtual_time
async def test_what_comes_while_a_known_read_is_drawn_for_counts() -> None:
    """As it does while any other command is."""
    bench = Bench()
    bench.connect().send(PING, KNOWN)
    ends, leaves, waits = (bench.connect() for _ in range(3))
    for client in (ends, leaves, waits):
        client.send(PING, KNOWN)
        client.take()
    await settled()
    ends.protocol.eof_received()
    leaves.protocol.shutdown()
    waits.protocol.pause_writing()
    assert ends.transport.calls == leaves.transport.calls == []
    bench.issuer.answer()
    await settled()
    assert ends.transport.calls == leaves.transport.calls == ["close"]
    assert waits.take().count(b":") == 3
    bench.issuer.drawn_ahead = range(1, 101, 2)
    waits.send(KNOWN)
    assert await waits.ask() == b""
    waits.protocol.resume_writing()
    assert await waits.ask() == b":1\r\n:3\r\n:5\r\n"


@virtual_time
async def test_so_many_reads_are_known_and_none_that_is_long() -> None:
    bench = Bench()
    bench.issuer.drawn_ahead = range(1, 1001, 2)
    client = bench.connect()
    reads = [command("INCR", f"photos{number}") for number in range(MANY + 10)]
    client.send(*reads, INCR * 40)
    known = bench.door.known_runs.get
    assert [known(read) is not None for read in (reads[0], reads[9], reads[10], reads[-1], INCR * 40)] == [
        False,
        False,
        True,
        True,
        False,
    ]
