"""All client connections of a server: what they share, how many there may be, and which are slow or idle.

A ticket pays nothing for that: connections are looked at once in a while, all of them together.
"""

import asyncio
from typing import Protocol

from app.http.connection_roles import Endpoint, Inner
from app.http.request_head import KnownHeads
from app.http.ticket_protocol import TicketProtocol

REQUEST_SECONDS = 20.0
"""How long a new connection may say nothing, and how long a request may take: its head, its body, its answer."""
IDLE_SECONDS = 75
"""How long a connection may be idle between two requests."""
HEALTH_IDLE_SECONDS = 5
"""The same for a connection beyond the limit: others that look at the server's health have to get one, too."""
LOOK_SECONDS = 2.0
FOR_HEALTH = 32
"""Connections that are accepted beyond the limit, for health checks and scrapes. A further one takes the oldest's
place."""


class HTTPBehind(Protocol):
    """Who serves what is not for tickets, and ends the connections with the server."""

    def make_inner(self, protocol: TicketProtocol) -> Inner: ...

    def opened(self, protocol: TicketProtocol) -> None: ...

    def closed(self, protocol: TicketProtocol) -> None: ...


class ConnectionObserver(Protocol):
    """Is told of connections, for whoever counts them."""

    client_connections: int
    """How many are open."""

    def connection_refused(self) -> None:
        """A connection was closed because there were too many."""


class Connections:
    """What the connections of a server share; see connection_roles.Surroundings. `most`: how many there may be."""

    def __init__(self, endpoint: Endpoint, behind: HTTPBehind, observer: ConnectionObserver, most: int) -> None:
        self.endpoint = endpoint
        self.known_heads = KnownHeads()
        self.most = most
        self._behind = behind
        self._observer = observer
        self._open: set[TicketProtocol] = set()
        self._beyond: dict[TicketProtocol, None] = {}
        """Those of them that are for health checks alone, oldest first."""

    def make_protocol(self) -> TicketProtocol:
        """A protocol for a new connection."""
        return TicketProtocol(self, asyncio.get_running_loop())

    def make_inner(self, protocol: TicketProtocol) -> Inner:
        """See connection_roles.Surroundings."""
        return self._behind.make_inner(protocol)

    def opened(self, protocol: TicketProtocol) -> None:
        """See connection_roles.Surroundings."""
        if len(self._open) >= self.most + FOR_HEALTH:
            # not the new one: whoever asks again and again on those that there are would keep every health check out
            self._observer.connection_refused()
            oldest = next(iter(self._beyond))
            self.closed(oldest)
            oldest.transport.abort()
        if len(self._open) - len(self._beyond) >= self.most:
            self._beyond[protocol] = None
            protocol.health_only = True
        self._open.add(protocol)
        self._behind.opened(protocol)
        self._observer.client_connections = len(self._open)

    def closed(self, protocol: TicketProtocol) -> None:
        """See connection_roles.Surroundings."""
        self._open.discard(protocol)
        self._beyond.pop(protocol, None)
        self._behind.closed(protocol)
        self._observer.client_connections = len(self._open)

    def admit(self, protocol: TicketProtocol) -> bool:
        """See connection_roles.Surroundings."""
        if len(self._open) - len(self._beyond) >= self.most:
            return False
        self._beyond.pop(protocol, None)
        protocol.health_only = False
        return True

    async def watch(self) -> None:
        """Cut every connection on which one request takes too long, and close those that are idle for long, until
        cancelled. One that is closed and does not read what was sent to it is cut."""
        now = asyncio.get_running_loop().time
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            time = now()
            for connection in tuple(self._open):
                idle_seconds = HEALTH_IDLE_SECONDS if connection.health_only else IDLE_SECONDS
                if connection.since is None:
                    idle = time - connection.idle_since
                    if idle > idle_seconds + REQUEST_SECONDS:
                        connection.transport.abort()
                    elif idle > idle_seconds:
                        connection.close()
                elif time - connection.since > min(REQUEST_SECONDS, idle_seconds):
                    connection.transport.abort()
