"""Whom the protocol of a connection deals with."""

from typing import TYPE_CHECKING, Protocol

from app.clients.turns import Turns
from app.common.errors import TicketError
from app.http.tickets.head import ClientRequest, KnownHeads, RequestHead

if TYPE_CHECKING:
    from app.http.tickets.protocol import TicketProtocol


class Inner(Protocol):
    """Who answers all other requests, one at a time; see `uvicorn_adapter`."""

    def begin(self, head: RequestHead) -> None:
        """A request has begun, and its head is complete."""

    def body(self, data: bytes) -> None:
        """Some of its body."""

    def end(self) -> None:
        """All of it has come."""

    def pause_writing(self) -> None: ...

    def resume_writing(self) -> None: ...

    def connection_lost(self, error: Exception | None) -> None: ...


class Endpoint(Protocol):
    """Who answers requests for tickets."""

    def begin(self, protocol: "TicketProtocol", request: ClientRequest) -> None:
        """Answer by `TicketProtocol.answer`, now or later. Its body may still be coming."""

    def body_has_come(self, protocol: "TicketProtocol", request: ClientRequest) -> None:
        """All of its body has come, or more than LARGEST_BODY bytes of it, after `begin` and before it was answered."""

    def turn_away(self, protocol: "TicketProtocol", request: ClientRequest, error: TicketError) -> None:
        """Answer with this error, as `begin` does, without looking at what the request asks for."""

    def failed(self, request: ClientRequest) -> None:
        """An error that nobody knows has ended it: its connection is cut, and `gone` follows where it has no answer."""

    def gone(self, protocol: "TicketProtocol", request: ClientRequest) -> None:
        """The client has gone before its answer came."""


class Surroundings(Protocol):
    """What all connections of a server share."""

    endpoint: Endpoint
    known_heads: KnownHeads
    turns: Turns

    def make_inner(self, protocol: "TicketProtocol") -> Inner: ...

    def opened(self, connection: "TicketProtocol") -> None: ...

    def closed(self, connection: "TicketProtocol") -> None: ...

    def admit(self, connection: "TicketProtocol") -> bool:
        """See Connections.admit."""
