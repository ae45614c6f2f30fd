"""One client connection: the endpoint answers requests for tickets, an `inner` protocol answers every other request.

`reading` turns the bytes into requests. The connection serves one request at a time. Bytes that the client sends ahead
of the answer stay unread; when more than AHEAD_BYTES of them are kept, the connection stops reading its socket.
"""

import asyncio
import logging
from typing import Protocol

from app.clients.connections import IDLE_SECONDS
from app.clients.gone import sends_no_more
from app.clients.turns import Turns
from app.common.errors import TicketError, TooManyConnections
from app.http.problems import Code, Problem, problem_of
from app.http.tickets.head import ClientRequest, KnownHeads, RequestHead
from app.http.tickets.reading import HEAD, RequestReader
from app.http.tickets.responses import problem_response

log = logging.getLogger(__name__)

AHEAD_BYTES = 65_536
"""How many bytes that were sent ahead are kept."""


class Inner(Protocol):
    """The front that answers all other requests, one at a time; see `uvicorn_adapter`."""

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
    """The endpoint that answers requests for tickets."""

    def begin(self, protocol: "TicketProtocol", request: ClientRequest) -> None:
        """Answer by `TicketProtocol.answer`, now or later. Its body may still be coming."""

    def body_has_come(self, protocol: "TicketProtocol", request: ClientRequest) -> None:
        """All of its body has come, or more than LARGEST_BODY bytes of it, after `begin` and before it was answered."""

    def turn_away(self, protocol: "TicketProtocol", request: ClientRequest, error: TicketError) -> None:
        """Answer with this error, as `begin` does, without looking at what the request asks for."""

    def failed(self, request: ClientRequest) -> None:
        """An unexpected error has ended it: the server cuts its connection, and `gone` follows if it has no answer."""

    def gone(self, protocol: "TicketProtocol", request: ClientRequest) -> None:
        """The client has gone before its answer came."""


class Surroundings(Protocol):
    """The objects and limits that all connections of a server share."""

    endpoint: Endpoint
    known_heads: KnownHeads
    turns: Turns

    def make_inner(self, protocol: "TicketProtocol") -> Inner: ...

    def opened(self, connection: "TicketProtocol") -> None: ...

    def closed(self, connection: "TicketProtocol") -> None: ...

    def admit(self, connection: "TicketProtocol") -> bool:
        """See Connections.admit."""


class TicketProtocol(asyncio.Protocol):
    """The server's side of one connection.

    Its public attributes: see connections.ClientConnection.
    """

    idle_seconds: float = IDLE_SECONDS

    def __init__(self, surroundings: Surroundings, loop: asyncio.AbstractEventLoop) -> None:
        self._surroundings = surroundings
        self._endpoint = surroundings.endpoint
        self.turns = surroundings.turns
        self._loop = loop
        self.transport: asyncio.Transport = None  # type: ignore[assignment]
        self.since: float | None = loop.time()
        self.idle_since = 0.0
        self.health_only = False
        self._reader = RequestReader(self, surroundings.known_heads)
        self._ahead = self._reader.ahead
        self._current: ClientRequest | None = None
        self._inner: Inner | None = None
        self._inner_has_responded = False
        self._leaving = False
        """Whether the connection is closed after the answer that is under way."""
        self._parts: list[bytes] = []
        # what holds a connection up
        self._is_working = False
        self._is_paused = False
        self._inner_is_full = False
        self._write_paused = False

    # --- the socket ------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.transport = transport
        self._surroundings.opened(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._surroundings.closed(self)
        self._reader.forget()
        self._drop_current()
        self._drop_inner(exc)

    def data_received(self, data: bytes) -> None:
        self._reader.keep(data)
        current = self._current
        if current is None or not current.is_complete:
            self._go_on()
        else:
            self._see_to_reading()

    def pause_writing(self) -> None:
        self._write_paused = True
        if self._inner is not None:
            self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._write_paused = False
        if self._inner is not None:
            self._inner.resume_writing()
        self._go_on()

    def shutdown(self) -> None:
        """The server ends: close now, or after the answer that is under way. uvicorn calls it."""
        self._leaving = True
        if self._current is None:
            self.close()

    # --- reading ---------------------------------------------------------------------------------------------------

    def _go_on(self) -> None:
        """Serve the next request when it is this connection's turn: now, or later."""
        if not self._is_working and not self.turns.take(self):
            self._see_to_reading()

    def work(self, until: float) -> bool:
        """Serve the next request, while none is under way: of those that were parsed, then of the bytes. See
        turns.Worker."""
        if self._is_paused and sends_no_more(self.transport):
            self.transport.abort()  # as where it is read: whoever closes a connection wants no answer on it
            return False
        self._is_working = True
        reader = self._reader
        has_more = False
        is_closing = self.transport.is_closing
        clock = self.turns.clock
        try:
            while not (self._write_paused or self._inner_is_full or has_more or is_closing()):
                current = self._current
                if reader.unread and (not self._ahead if current is None else not current.is_complete):
                    reader.read_piece()
                elif current is not None or not self._ahead:
                    break
                if self._current is None and self._ahead and not is_closing():
                    self._begin_next()
                has_more = bool(reader.unread or self._ahead) and clock() >= until
            if reader.refusal is not None and self._current is None and not self._ahead:
                self._turn_away(reader.refusal)
        except Exception:
            self.fail()
        finally:
            self._is_working = False
        if reader.unread or self._is_paused:
            self._see_to_reading()
        return has_more

    def fail(self) -> None:
        """Handle an unexpected exception: say so in the log, and cut the connection."""
        log.exception("a request met an unknown error")
        current = self._current
        if current is not None and current.for_tickets:
            self._endpoint.failed(current)
        self.transport.abort()

    def _see_to_reading(self) -> None:
        """Read no further while more lies unread than is kept."""
        if not (self._reader.unread or self._is_paused or self._inner_is_full):
            return
        too_much = self._inner_is_full or self._reader.kept_bytes > AHEAD_BYTES
        if too_much is not self._is_paused and not self.transport.is_closing():
            self._is_paused = too_much
            (self.transport.pause_reading if too_much else self.transport.resume_reading)()

    # --- what the reader says --------------------------------------------------------------------------------------

    def request_begins(self) -> None:
        """See reading.Reader."""
        if self._current is None and not self._ahead:
            self.since = self._loop.time()

    def body_comes(self, request: ClientRequest, body: bytes) -> None:
        """See reading.Reader."""
        del request
        if self._inner is not None:
            self._inner.body(body)

    def body_is_too_large(self, request: ClientRequest) -> None:
        """See reading.Reader."""
        if request is self._current:
            self._endpoint.body_has_come(self, request)

    def body_has_ended(self, request: ClientRequest) -> None:
        """See reading.Reader."""
        if request.for_tickets:
            if request is self._current:
                self._endpoint.body_has_come(self, request)
        elif self._inner is not None:
            self._inner.end()
        if request is not self._current:  # it has been answered
            self.since, self.idle_since = None, self._loop.time()

    def broke_off(self, request: ClientRequest) -> None:
        """See reading.Reader."""
        if request is not self._current or self._inner_has_responded:
            self.close()  # it has its answer, or a part of one
        else:
            self._drop_current()

    # --- serving ---------------------------------------------------------------------------------------------------

    def _begin_next(self) -> None:
        """It is the next request's turn."""
        self._current = request = self._ahead.popleft()
        request.has_begun = True
        if self.since is None:
            self.since = self._loop.time()
        place = request.head.place
        if place is None:
            self._turn_away(Problem(Code.BAD_REQUEST, "the request's target cannot be read"))
        elif self.health_only and not place.for_health and not self._surroundings.admit(self):
            self._refuse_beyond_limit(request)
        elif place.for_tickets:
            self._endpoint.begin(self, request)
        elif not place.for_health and sends_no_more(self.transport):
            self.transport.abort()  # the event loop would notice too late: when the answer has been made
        else:
            self._hand_on(request)

    def _refuse_beyond_limit(self, request: ClientRequest) -> None:
        error = TooManyConnections()
        self._leaving = True
        if request.for_tickets:
            self._endpoint.turn_away(self, request, error)
        else:
            self._turn_away(problem_of(error))

    def _turn_away(self, problem: Problem) -> None:
        self.write(problem_response(problem, keep_alive=False))
        self.close()

    def _hand_on(self, request: ClientRequest) -> None:
        inner = self._inner
        if inner is None:
            inner = self._inner = self._surroundings.make_inner(self)
        inner.begin(request.head)
        for body in request.body:
            inner.body(body)
        request.body = ()
        if request.is_complete:
            inner.end()

    def answer(self, response: bytes) -> None:
        """Send the whole response to the request that is under way."""
        if self._parts:
            self.flush()
        transport = self.transport
        if not transport.is_closing():
            transport.write(response)
        self.answered()

    def answered(self) -> None:
        """The request that is under way has its response; on to the next."""
        current, self._current = self._current, None
        if current is None:
            return
        if self._leaving or not current.head.keeps_alive:
            self.close()
            return
        if current.is_complete:
            now = self._loop.time()
            self.since, self.idle_since = (now if self._reader.state is HEAD else None), now
        if self._ahead or self._reader.unread or self._reader.refusal is not None:
            self._go_on()

    def _drop_current(self) -> None:
        """The request that is under way gets no answer."""
        current, self._current = self._current, None
        if current is not None and current.for_tickets:
            self._endpoint.gone(self, current)

    def _drop_inner(self, error: Exception | None) -> None:
        inner, self._inner = self._inner, None
        if inner is not None:
            inner.connection_lost(error)

    @property
    def client(self) -> str:
        """The address at the other end."""
        peer = self.transport.get_extra_info("peername")
        return str(peer[0]) if isinstance(peer, tuple) else "unknown"

    @property
    def keeps_alive(self) -> bool:
        """Whether the connection stays open after the response that is under way."""
        return not self._leaving and self._current is not None and self._current.head.keeps_alive

    # --- writing ---------------------------------------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        """Send at once, after what waits to be sent."""
        if self._parts:
            self.flush()
        if not self.transport.is_closing():
            self.transport.write(data)

    def write_soon(self, data: bytes) -> None:
        """Send with what else is written until the answer is complete, or in this turn of the event loop.

        uvicorn writes the head of an answer and its body by themselves: two system calls, and a killed server may have
        sent the head alone, which a load balancer has passed on by then and cannot take back.
        """
        if not self._parts:
            self._loop.call_soon(self.flush)
        self._parts.append(data)

    def flush(self) -> None:
        """Send what waits."""
        parts, self._parts = self._parts, []
        if parts and not self.transport.is_closing():
            self.transport.write(b"".join(parts))

    def close(self) -> None:
        """Close the connection when all that was written has been sent."""
        self.flush()
        self.transport.close()

    # --- the inner protocol's side ---------------------------------------------------------------------------------

    def inner_is_full(self, full: bool) -> None:
        """Whether the inner protocol can take no more of a body for now."""
        self._inner_is_full = full
        if full:
            self._see_to_reading()
        else:
            self.turns.take_later(self)

    def inner_responds(self) -> None:
        """The inner protocol's response has begun."""
        self._inner_has_responded = True

    def inner_has_answered(self) -> None:
        """The inner protocol's response is complete."""
        if self._inner_is_serving:
            self._inner_has_responded = False
            self.flush()
            self.answered()

    def inner_closes(self) -> None:
        """The inner protocol closes what it takes for its connection: ours, if it is serving; else itself alone."""
        if self._inner_is_serving:
            self.close()
        else:
            self._drop_inner(None)

    @property
    def _inner_is_serving(self) -> bool:
        return self._current is not None and not self._current.for_tickets
