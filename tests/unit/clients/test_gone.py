"""A client that has closed its connection is noticed although nobody reads it."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from app.clients.gone import sends_no_more


class Unread(asyncio.Protocol):
    """A connection that reads nothing. `made`: its transport."""

    def __init__(self) -> None:
        self.made: asyncio.Future[asyncio.Transport] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.pause_reading()
        self.made.set_result(transport)


@asynccontextmanager
async def unread_connection() -> AsyncIterator[tuple[socket.socket, asyncio.Transport]]:
    protocol = Unread()
    server = await asyncio.get_running_loop().create_server(lambda: protocol, "127.0.0.1", 0)
    with socket.create_connection(server.sockets[0].getsockname()) as client:
        transport = await protocol.made
        yield client, transport
        transport.abort()
    server.close()
    await server.wait_closed()


async def seen(transport: asyncio.Transport) -> bool:
    """Whether it is noticed within ten seconds."""
    for _ in range(1_000):
        if sends_no_more(transport):
            return True
        await asyncio.sleep(0.01)
    return False


async def test_a_client_that_is_there_is_not_gone() -> None:
    async with unread_connection() as (client, transport):
        client.sendall(b"x" * 1_000)
        assert not sends_no_more(transport)


async def test_a_client_that_has_closed_is_gone_whatever_it_has_sent() -> None:
    async with unread_connection() as (client, transport):
        client.sendall(b"x" * 1_000)
        client.close()
        assert await seen(transport)


async def test_a_transport_that_is_closing_has_no_client_to_ask_about() -> None:
    async with unread_connection() as (_, transport):
        transport.abort()
        assert not sends_no_more(transport)
