"""The port of the Redis protocol: it listens, and holds what its connections share."""

import asyncio
import itertools
import socket
from collections import deque
from collections.abc import Sequence
from contextlib import suppress

from app.access import Access
from app.connections import BACKLOG, Admission, Connections
from app.operations.tally import Tally
from app.operations.watch import Watch
from app.redis.commands import Commands
from app.redis.connection import Connection
from app.redis.session import Session
from app.redis.tickets import TicketCommands
from app.service import Service

SWEEP = 1.0
"""Seconds between two looks for connections that are to be closed."""
MOST_IN_TURN = 512
"""Commands of all connections in one turn of the event loop. In between, everything else of the loop runs."""


class RedisDoor:
    """Serves clients that speak the Redis protocol.

    watch: None where neither an access log nor traces are wanted. timeout: in seconds, the request timeout.
    """

    def __init__(
        self,
        service: Service,
        access: Access,
        tally: Tally,
        connections: Connections,
        watch: Watch | None,
        *,
        timeout: float,
    ) -> None:
        tickets = TicketCommands(service, tally, watch, timeout)
        self.draw, self._end_tasks = tickets.draw, tickets.end
        self.execute = Commands(tickets, connections.most).execute
        self.buffer, self.owed = bytearray(16_384), 0
        self._access, self._tally, self._admitted, self._timeout = access, tally, connections, timeout
        self._loop = asyncio.get_running_loop()
        self._numbers = itertools.count(1)
        self._ready: deque[Connection] = deque()
        self._open: set[Connection] = set()
        self._is_scheduled = False
        self._servers: list[asyncio.Server] = []
        self._sweeping: asyncio.Task[None] | None = None

    async def accept_on(self, sockets: Sequence[socket.socket]) -> None:
        """Accept connections from now on. sockets: they listen already."""
        self._sweeping = self._loop.create_task(self._sweep())
        for each in sockets:
            self._servers.append(await self._loop.create_server(self._connection, sock=each, backlog=BACKLOG))

    async def stop(self) -> None:
        """Accept no further connection, answer what is under way, and close the connections."""
        for server in self._servers:
            server.close()
        for connection in list(self._open):
            connection.leave()
            self.ask(connection)
        with suppress(TimeoutError):
            async with asyncio.timeout(self._timeout):
                await asyncio.gather(*[connection.ended.wait() for connection in self._open])
        for connection in list(self._open):
            connection.transport.abort()
        if self._sweeping is not None:
            self._sweeping.cancel()
            await asyncio.gather(self._sweeping, return_exceptions=True)
        await self._end_tasks()

    def opened(self, connection: Connection) -> Admission:
        """Decide on a new connection. One that is turned away counts as a refused ticket."""
        admission = self._admitted.admit()
        if admission is Admission.SERVED:
            self._open.add(connection)
        else:
            self._tally.refused("ticket", "too-many-connections")
        return admission

    def closed(self, connection: Connection) -> None:
        """A connection has ended."""
        self._open.discard(connection)
        self._admitted.leave(connection.admission)

    def ask(self, connection: Connection) -> None:
        """Let a connection work as soon as it is its turn."""
        if not connection.is_queued:
            connection.is_queued = True
            self._ready.append(connection)
            if not self._is_scheduled:
                self._is_scheduled = True
                self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        """Let the connections work in the order in which they asked."""
        left, self._is_scheduled = MOST_IN_TURN, False
        while self._ready and left > 0:
            left -= self._ready.popleft().work()
        if self._ready and not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._turn)

    def _connection(self) -> Connection:
        return Connection(self, Session(self._access, self._tally, next(self._numbers)))

    async def _sweep(self) -> None:
        """Close the connections that are idle, or whose command does not come to its end, until this is cancelled."""
        while True:
            await asyncio.sleep(SWEEP)
            now = self._loop.time()
            for connection in list(self._open):
                if now > connection.deadline:
                    connection.transport.abort()
