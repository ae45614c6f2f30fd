"""Many connections that come at once are accepted in a few turns of the event loop."""

import asyncio
import socket
from contextlib import ExitStack

import uvloop

from app.clients.accepting import AT_ONCE, accepting

MANY = 10 * AT_ONCE


class Counted(asyncio.Protocol):
    """Counts the connections."""

    made = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        type(self).made += 1
        transport.close()


async def turns_until_accepted() -> int:
    """How many turns of the event loop it takes until all of many connections are accepted."""
    loop = asyncio.get_running_loop()
    Counted.made = 0
    with ExitStack() as stack:
        listening = socket.create_server(("127.0.0.1", 0), backlog=MANY)
        for _ in range(MANY):
            stack.enter_context(socket.create_connection(listening.getsockname()))
        servers = [await loop.create_server(Counted, sock=each) for each in accepting([listening])]
        turns = 0
        while Counted.made < MANY:
            turns += 1
            await asyncio.sleep(0)
        for server in servers:
            server.close()
    return turns


def test_many_connections_are_accepted_in_one_turn() -> None:
    assert uvloop.run(turns_until_accepted()) <= MANY / AT_ONCE + 5
