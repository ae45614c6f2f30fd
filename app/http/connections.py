"""All client connections of a server: what they share, and an eye on those that are slow, silent or idle.

A ticket pays nothing for that: connections are looked at once in a while, all of them together.
"""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Protocol

from app.http.connection_roles import Endpoint, Inner
from app.http.request_head import KnownHeads
from app.http.ticket_protocol import TicketProtocol

REQUEST_SECONDS = 20.0
"""How long a new connection may say nothing, and how long a request may take: its head, its body, its answer."""
IDLE_SECONDS = 75
"""How long a connection may be idle between two requests."""
LOOK_SECONDS = 2.0


class Registry(Protocol):
    """Who ends the connections with the server."""

    def opened(self, protocol: TicketProtocol) -> None: ...

    def closed(self, protocol: TicketProtocol) -> None: ...


class Connections:
    """What the connections of a server share; see connection_roles.Surroundings."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self.known_heads = KnownHeads()
        self.registry: Registry | None = None
        self._make_inner: Callable[[TicketProtocol], Inner] | None = None
        self._open: set[TicketProtocol] = set()

    def make_protocol(self, make_inner: Callable[[TicketProtocol], Inner]) -> TicketProtocol:
        """A protocol for a new connection."""
        self._make_inner = make_inner
        return TicketProtocol(self, asyncio.get_running_loop())

    def make_inner(self, protocol: TicketProtocol) -> Inner:
        """See connection_roles.Surroundings."""
        assert self._make_inner is not None
        return self._make_inner(protocol)

    def opened(self, protocol: TicketProtocol) -> None:
        """See connection_roles.Surroundings."""
        self._open.add(protocol)
        if self.registry is not None:
            self.registry.opened(protocol)

    def closed(self, protocol: TicketProtocol) -> None:
        """See connection_roles.Surroundings."""
        self._open.discard(protocol)
        if self.registry is not None:
            self.registry.closed(protocol)

    async def watch(self) -> None:
        """Cut every connection on which one request takes too long, and close those that are idle for long, until
        cancelled. One that is closed and does not read what was sent to it is cut."""
        now = asyncio.get_running_loop().time
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            time = now()
            for connection in tuple(self._open):
                if connection.since is None:
                    idle = time - connection.idle_since
                    if idle > IDLE_SECONDS + REQUEST_SECONDS:
                        connection.transport.abort()
                    elif idle > IDLE_SECONDS:
                        connection.close()
                elif time - connection.since > REQUEST_SECONDS:
                    connection.transport.abort()


def allow_many() -> None:
    """Raise the limit on open files to what the system allows: a connection is one."""
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        target = 65_536 if hard == resource.RLIM_INFINITY else min(hard, 65_536)
        if soft != resource.RLIM_INFINITY and soft < target:
            resource.setrlimit(resource.RLIMIT_NOFILE, (target, hard))
