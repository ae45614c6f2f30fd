"""The port of the Redis protocol."""

import asyncio
import socket
from collections.abc import Sequence

from app.connections import BACKLOG
from app.redis.commands import Client
from app.redis.connection import Shared

IDLE_SECONDS = 620.0  # without a command
PARTIAL_SECONDS = 10.0  # the same while a command has come in part, or the client does not read
SWEEP = 1.0  # seconds between two looks for connections that are to be closed


class RedisDoor(Shared):
    """Serves clients that speak the Redis protocol."""

    async def accept_on(self, sockets: Sequence[socket.socket]) -> None:
        """Accept connections from now on. sockets: they listen already."""
        self.tasks.start(self._sweep())
        for each in sockets:
            self.servers.append(await self._loop.create_server(lambda: Client(self), sock=each, backlog=BACKLOG))

    async def stop(self) -> None:
        """Accept no further connection, answer what is under way, and close the connections."""
        for server in self.servers:
            server.close()
        for connection in self.open:
            connection.leave()
        until = self._loop.time() + self.timeout
        while self.open and self._loop.time() < until:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        for connection in self.open:
            connection.transport.abort()
        await self.tasks.end()

    async def _sweep(self) -> None:
        """Close the connections that are idle, or whose command does not come to its end, until this is cancelled."""
        while True:
            await asyncio.sleep(SWEEP)
            for connection in self.open:
                connection.quiet += SWEEP
                is_stuck = connection.is_full or connection.at < len(connection.data)
                if connection.quiet > (PARTIAL_SECONDS if is_stuck else IDLE_SECONDS):
                    connection.transport.abort()
            self._under_way, self._together = +self._under_way, +self._together  # without those that are 0
