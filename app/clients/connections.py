"""All client connections of a server, whatever they speak: how many there may be, and which are slow or idle.

A ticket pays nothing for that: connections are looked at once in a while, all of them together.
"""

import asyncio
import logging
from collections.abc import Iterable
from typing import Protocol

from app.clients.turns import Turns
from app.common.log import event
from app.common.summed_log import SummedLog

log = logging.getLogger(__name__)

REQUEST_SECONDS = 20.0
"""How long a new connection may say nothing, and how long a request may take: its head, its body, its answer."""
IDLE_SECONDS = 75
"""How long a connection may be idle between two requests, in HTTP."""
HEALTH_IDLE_SECONDS = 5
"""As above, for a connection beyond the limit: other clients that look at the server's health need one, too."""
LOOK_SECONDS = 2.0
FOR_HEALTH = 32
"""Connections that are accepted beyond the limit, for health checks and scrapes. A further one takes the oldest's
place."""

WARNING_SECONDS = 60.0
"""How long a warning stands after a client was refused."""


class ClientConnection(Protocol):
    """One client connection.

    `since`: when the request that is under way began, or the connection, before its first; None where it is idle.
    `idle_since`: when the last answer was sent. Both in the event loop's time. `idle_seconds`: how long it may be idle.
    `health_only`: whether the connection is beyond the limit, so that only questions about the server's health are
    answered.
    """

    transport: asyncio.Transport
    since: float | None
    idle_since: float
    idle_seconds: float
    health_only: bool

    def close(self) -> None:
        """Close it when all that was written has been sent."""

    def shutdown(self) -> None:
        """The server ends: close now, or after the answers that are under way."""


class Ending(Protocol):
    """Ends the connections when the server stops."""

    def opened(self, connection: ClientConnection) -> None: ...

    def closed(self, connection: ClientConnection) -> None: ...


class ConnectionObserver(Protocol):
    """Is told of connections, for whoever counts them."""

    client_connections: int
    """How many are open."""

    def connection_refused(self) -> None:
        """A client was turned away, and its connection closed, because there were too many."""


class Connections:
    """The connections of a server. `most`: how many there may be; `turns`: how long they work in one turn of the event
    loop."""

    def __init__(self, ending: Ending, observer: ConnectionObserver, most: int, turns: Turns) -> None:
        self.most = most
        self.turns = turns
        self._ending = ending
        self._observer = observer
        self._open: set[ClientConnection] = set()
        self._beyond: dict[ClientConnection, None] = {}
        """The connections that are for health checks alone, oldest first."""
        self._refused = 0
        """Clients that were refused since the last line in the log."""
        self._refused_at = float("-inf")
        self._refusals = SummedLog(self._tell)

    @property
    def _is_full(self) -> bool:
        return len(self._open) - len(self._beyond) >= self.most

    def opened(self, connection: ClientConnection) -> None:
        """A connection is there that may ask about the server's health: where there are too many, that alone."""
        if len(self._open) >= self.most + FOR_HEALTH:
            # not the new one: whoever asks again and again on those that there are would keep every health check out
            self._has_refused()
            oldest = next(iter(self._beyond))
            self._forget(oldest)
            oldest.transport.abort()
        if self._is_full:
            self._beyond[connection] = None
            connection.health_only = True
        self._add(connection)

    def opened_for_tickets(self, connection: ClientConnection) -> bool:
        """A connection is there that cannot ask about the server's health; false where there are too many."""
        if self._is_full:
            self._has_refused()
            return False
        self._add(connection)
        return True

    def _has_refused(self) -> None:
        self._observer.connection_refused()
        self._refused += 1
        self._refused_at = asyncio.get_running_loop().time()
        self._refusals.add()

    def _tell(self) -> None:
        event(log, logging.WARNING, "all client connections are taken", most=self.most, refused=self._refused)
        self._refused = 0

    def warnings(self) -> Iterable[str]:
        """Why clients are refused, for operators: while all connections are taken, and for WARNING_SECONDS after the
        last client was refused."""
        limit = f"all {self.most:,} client connections (TICKETS_MAX_CONNECTIONS, or the limit on open files)"
        ago = asyncio.get_running_loop().time() - self._refused_at
        if self._is_full:
            yield f"{limit} are taken: further clients are refused, with 503 or over Redis with an error"
        elif ago < WARNING_SECONDS:
            yield f"{limit} were taken: a client was refused {ago:.0f} s ago"

    def _add(self, connection: ClientConnection) -> None:
        self._open.add(connection)
        self._ending.opened(connection)
        self._observer.client_connections = len(self._open)

    def closed(self, connection: ClientConnection) -> None:
        """A connection is no more."""
        self._forget(connection)
        self._ending.closed(connection)

    def _forget(self, connection: ClientConnection) -> None:
        self._open.discard(connection)
        self._beyond.pop(connection, None)
        self._observer.client_connections = len(self._open)

    def admit(self, connection: ClientConnection) -> bool:
        """Whether a connection beyond the limit may be used like any other by now; if so it is from now on. If not,
        its client has been refused, and the caller closes it."""
        if self._is_full:
            self._has_refused()
            return False
        self._beyond.pop(connection, None)
        connection.health_only = False
        return True

    async def watch(self) -> None:
        """Cut every connection on which one request takes too long, and close those that are idle for long, until
        cancelled. One that is closed and does not read what was sent to it is cut."""
        now = asyncio.get_running_loop().time
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            time = now()
            for connection in tuple(self._open):
                idle_seconds = HEALTH_IDLE_SECONDS if connection.health_only else connection.idle_seconds
                if connection.since is None:
                    idle = time - connection.idle_since
                    if idle > idle_seconds + REQUEST_SECONDS:
                        connection.transport.abort()
                    elif idle > idle_seconds:
                        connection.close()
                elif time - connection.since > min(REQUEST_SECONDS, idle_seconds):
                    connection.transport.abort()
