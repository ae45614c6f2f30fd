"""The parts that all HTTP connections share."""

import asyncio
from typing import Protocol

from app.clients.connections import Connections
from app.http.tickets.head import KnownHeads
from app.http.tickets.protocol import Endpoint, Inner, TicketProtocol


class HTTPBehind(Protocol):
    """The application that serves every request except those for tickets."""

    def make_inner(self, protocol: TicketProtocol) -> Inner: ...


class HTTPConnections:
    """See protocol.Surroundings. `connections`: all of the server's, whatever they speak."""

    def __init__(self, endpoint: Endpoint, behind: HTTPBehind, connections: Connections) -> None:
        self.endpoint = endpoint
        self.known_heads = KnownHeads()
        self.turns = connections.turns
        self._behind = behind
        self.opened = connections.opened
        self.closed = connections.closed
        self.admit = connections.admit

    def make_protocol(self) -> TicketProtocol:
        """A protocol for a new connection."""
        return TicketProtocol(self, asyncio.get_running_loop())

    def make_inner(self, protocol: TicketProtocol) -> Inner:
        """See protocol.Surroundings."""
        return self._behind.make_inner(protocol)
