"""What clients of the Redis protocol do wrong, or do on purpose: nobody else waits, and the process does not grow."""

import asyncio
import socket
import struct

import pytest

from app.redis import door
from app.redis.commands import Client
from tests.contract.http_bench import Raw, RedisBench, until


@pytest.mark.parametrize(
    "data",
    [
        b"*513\r\n",
        b"*2\r\n$4\r\nINCR\r\n$1000000000\r\n",
        b"*2\r\n$4\r\nINCR\r\n$5\r\nphotos\r\n",
        b"*1\r\n$4097\r\n",
        b"*2\r\n$4000\r\n%b\r\n$99\r\n" % (b"x" * 4_000),
        b"*1\r\n" * 1_000,
        b"*-1x\r\n",
        b"x" * 10_000,
        b"*1\r\n$4\r\nPINGxx",
    ],
)
async def test_what_cannot_be_understood_gets_an_error_and_the_end(raw: Raw, data: bytes) -> None:
    raw.send(data)
    assert (await raw.rest()).startswith(b"-ERR Protocol error: ")


async def test_megabytes_of_empty_lines_let_others_through(bench: RedisBench, raw: Raw) -> None:
    raw.send(b"\r\n" * 1_000_000 + b"PING\r\n")
    assert await (await bench.raw()).ask("PING") == [b"+PONG"]
    assert raw.reader._buffer == b""  # type: ignore[attr-defined]
    assert await raw.lines(1) == [b"+PONG"]


async def test_a_client_that_does_not_read_is_not_read(bench: RedisBench, raw: Raw) -> None:
    raw.writer.transport.pause_reading()  # type: ignore[attr-defined]
    echo = b"*2\r\n$4\r\nECHO\r\n$1000\r\n" + b"x" * 1000 + b"\r\n"
    for _ in range(64):
        raw.send(echo * 256)
        await asyncio.sleep(0)
    (connection,) = bench.door.open
    await until(lambda: connection.is_full and not connection.transport.is_reading())
    for _ in range(1_000):  # it executes nothing, however often the event loop turns
        await asyncio.sleep(0)
    assert connection.transport.get_write_buffer_size() < 1_000_000
    assert len(connection.data) < 1_000_000
    assert await (await bench.raw()).ask("PING") == [b"+PONG"]


async def test_of_a_client_that_goes_nothing_is_left(bench: RedisBench, raw: Raw) -> None:
    assert (await raw.ask("INCR photos"))[0].startswith(b":")
    for server in bench.servers:
        server.freeze()
    raw.send(b"INCR photos\r\n")
    await until(lambda: bench.tally.in_flight == 1)
    raw.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    raw.writer.transport.abort()
    await until(lambda: not bench.door.open)
    assert bench.tally.client_connections == 0
    for server in bench.servers:
        server.thaw()
    await until(lambda: bench.door.owed == bench.tally.in_flight == 0)


async def test_beyond_the_limit_a_client_gets_one_answer(bench: RedisBench, raw: Raw) -> None:
    bench.connections.most = 1
    assert await raw.ask("PING") == [b"+PONG"]
    assert await (await bench.raw()).rest() == b"-ERR max number of clients reached\r\n"
    assert await raw.ask("PING") == [b"+PONG"]


@pytest.mark.parametrize(("sent", "limit"), [(b"*2\r\n$4\r\nINCR", "PARTIAL_SECONDS"), (b"", "IDLE_SECONDS")])
async def test_what_does_not_come_to_its_end_is_cut(
    raw: Raw, monkeypatch: pytest.MonkeyPatch, sent: bytes, limit: str
) -> None:
    raw.send(sent)
    monkeypatch.setattr(door, limit, 0.2)
    assert await raw.rest() == b""


async def test_what_came_is_worked_off_in_turns_of_bounded_cost(raw: Raw, monkeypatch: pytest.MonkeyPatch) -> None:
    """A part of a command costs, too."""
    costs, worked = list[int](), Client.work

    def counting(client: Client) -> int:
        costs.append(worked(client))
        return costs[-1]

    monkeypatch.setattr(Client, "work", counting)
    raw.send(b"PING\r\n" * 2_000)
    assert set(await raw.lines(2_000)) == {b"+PONG"}
    assert 0 < max(costs) <= 200  # 128 commands, and what their bytes count for
    costs.clear()
    raw.send(b"*512\r\n" + b"$1\r\nx\r\n" * 500)
    await until(lambda: sum(costs) >= 500 * 7 // 64)
