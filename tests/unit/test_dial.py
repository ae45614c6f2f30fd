"""Connecting to a host with several addresses."""

import asyncio
import socket
from collections.abc import Iterator

import pytest

from app.databases import dial


@pytest.fixture
def black_hole() -> Iterator[int]:
    """A port where nobody answers: the kernel drops every further SYN, because the backlog is full."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        waiting = [socket.socket() for _ in range(4)]
        for each in waiting:
            each.setblocking(False)
            each.connect_ex(listener.getsockname())
        yield listener.getsockname()[1]
        for each in waiting:
            each.close()


def info(port: int) -> dial.Info:
    return socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port)


async def test_the_next_address_is_tried_before_the_first_one_has_failed(
    black_hole: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = await asyncio.start_server(lambda _reader, writer: writer.close(), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]

    async def resolve(*_args: object, **_keywords: object) -> list[dial.Info]:
        return [info(black_hole), info(port)]

    loop = asyncio.get_running_loop()
    monkeypatch.setattr(loop, "getaddrinfo", resolve)
    async with asyncio.timeout(5):
        with await dial.dial("db.test", 1, 2.0) as opened:
            assert opened.getpeername()[1] == port

    async def fail(*_args: object, **_keywords: object) -> list[dial.Info]:
        raise socket.gaierror

    monkeypatch.setattr(loop, "getaddrinfo", fail)
    with await dial.dial("db.test", 1, 2.0) as opened:  # the addresses of before
        assert opened.getpeername()[1] == port
    with pytest.raises(OSError):
        await dial.dial("other.test", 1, 2.0)
    server.close()
    await server.wait_closed()


async def test_an_address_that_refuses_costs_no_time_and_the_last_error_is_raised() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        with pytest.raises(ConnectionRefusedError):
            await dial.dial("127.0.0.1", unused.getsockname()[1], 2.0)
