"""One client connection: requests for tickets are answered here, every other one by an `inner` protocol.

httptools parses. One request is served at a time. What is sent ahead of its answer stays as it came: unread bytes, of
which so many are kept (`AHEAD_BYTES`), and beyond that the socket is not read.
"""

import asyncio
import logging
from collections import deque
from typing import Protocol

import httptools

from app.http.problems import Problem
from app.http.request_head import RequestHead, is_for_tickets
from app.http.responses import problem_response

log = logging.getLogger(__name__)

HEAD_BYTES = 16_384
"""A request line with its headers that is larger is refused."""
AHEAD_BYTES = 65_536
"""How many bytes that were sent ahead are kept."""
PIECE = 1_024
"""How many bytes the parser gets at a time: it cannot be stopped at the end of a request, and what it reads behind one
has to be kept as requests, which are larger than their bytes."""
REQUESTS_AT_ONCE = 64
"""How many pieces and requests are worked off before others get a turn of the event loop."""


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

    def begin(self, protocol: "TicketProtocol", head: RequestHead) -> None:
        """Answer by `TicketProtocol.answer`, now or later."""

    def gone(self, head: RequestHead) -> None:
        """The client has gone before its answer came."""


class Surroundings(Protocol):
    """What all connections of a server share."""

    endpoint: Endpoint

    def make_inner(self, protocol: "TicketProtocol") -> Inner: ...

    def opened(self, protocol: "TicketProtocol") -> None: ...

    def closed(self, protocol: "TicketProtocol") -> None: ...


class TicketProtocol(asyncio.Protocol):
    """The server's side of one connection.

    `since`: when the request that is under way began, or the connection, before its first; None where it is idle.
    `idle_since`: when the last answer was sent. Both in the event loop's time.
    """

    def __init__(self, surroundings: Surroundings, loop: asyncio.AbstractEventLoop) -> None:
        self._surroundings = surroundings
        self._endpoint = surroundings.endpoint
        self._loop = loop
        self._parser = httptools.HttpRequestParser(self)
        self._parser.set_dangerous_leniencies(lenient_data_after_close=True)  # what follows the last one is not read
        self.transport: asyncio.Transport = None  # type: ignore[assignment]
        self.since: float | None = loop.time()
        self.idle_since = 0.0
        # what comes in
        self._unread = b""
        self._offset = 0
        self._reading = False
        self._is_paused = False
        self._inner_is_full = False
        self._target = b""
        self._fields: list[tuple[bytes, bytes]] = []
        self._in_head = False
        self._head_bytes = 0
        self._incoming: RequestHead | None = None
        self._refusal: Problem | None = None
        self._last_has_come = False
        # whose turn it is
        self._current: RequestHead | None = None
        self._ahead: deque[RequestHead] = deque()
        self._inner: Inner | None = None
        self._leaving = False
        # what goes out
        self._parts: list[bytes] = []
        self._write_paused = False

    # --- the socket ------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.transport = transport
        self._surroundings.opened(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._surroundings.closed(self)
        current, self._current = self._current, None
        if current is not None and current.for_tickets:
            self._endpoint.gone(current)
        if self._inner is not None:
            self._inner.connection_lost(exc)
            self._inner = None
        self._unread = b""
        self._ahead.clear()

    def data_received(self, data: bytes) -> None:
        if self._offset < len(self._unread):
            self._unread = self._unread[self._offset :] + data
        else:
            self._unread = data
        self._offset = 0
        if self._current is None or not self._current.is_complete:
            self._go_on()
        else:
            self._pause_or_resume_reading()

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
        """Serve the next request, while none is under way: of those that were parsed, then of the bytes."""
        if self._reading:
            return
        self._reading = True
        try:
            for _ in range(REQUESTS_AT_ONCE):
                if self._write_paused or self._inner_is_full or self.transport.is_closing():
                    break
                if self._ahead and self._current is None:
                    self._begin(self._ahead.popleft())
                elif self._offset < len(self._unread) and (self._current is None or not self._current.is_complete):
                    self._feed_next_piece()
                else:
                    break
            else:
                self._loop.call_soon(self._go_on)
        finally:
            self._reading = False
        if self._refusal is not None and self._current is None and not self._ahead:
            self.write(problem_response(self._refusal, keep_alive=False))
            self.close()
        self._pause_or_resume_reading()

    def _pause_or_resume_reading(self) -> None:
        too_much = self._inner_is_full or len(self._unread) - self._offset > AHEAD_BYTES
        if too_much is not self._is_paused and not self.transport.is_closing():
            self._is_paused = too_much
            (self.transport.pause_reading if too_much else self.transport.resume_reading)()

    def _feed_next_piece(self) -> None:
        begin = self._offset
        if not begin and len(self._unread) <= PIECE:
            piece, self._unread = self._unread, b""
        else:
            piece = self._unread[begin : begin + PIECE]
            self._offset = begin + len(piece)
        try:
            self._feed(piece)
        except httptools.HttpParserCallbackError:
            log.exception("a request met an unknown error")
            self.transport.abort()
        except httptools.HttpParserError:
            self.refuse(Problem(400, "this is not a request in HTTP/1.1"))
        if self._in_head:
            self._head_bytes += len(piece)
            if self._head_bytes > HEAD_BYTES:
                self.refuse(Problem(431, f"request line and headers are larger than {HEAD_BYTES} bytes"))

    def _feed(self, piece: bytes) -> None:
        try:
            self._parser.feed_data(piece)
        except httptools.HttpParserUpgrade as offer:  # it goes on in HTTP/1.1, which the client has to accept
            self._feed(piece[offer.args[0] :])

    def refuse(self, problem: Problem) -> None:
        """Nothing that follows can be understood: answer what has been, then say so and close."""
        if self._refusal is None and not self._last_has_come:
            self._refusal = problem
            if self._current is not None and not self._current.is_complete:
                self._current = None  # it is this one that cannot be understood
        self._unread, self._offset, self._in_head, self._incoming = b"", 0, False, None

    # --- what the parser says --------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        self._target = b""
        self._fields = []
        self._in_head = True
        self._head_bytes = 0
        if self._current is None:
            self.since = self._loop.time()

    def on_url(self, url: bytes) -> None:
        self._target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._fields.append((name, value))

    def on_headers_complete(self) -> None:
        self._in_head = False
        if self._refusal is not None or self._last_has_come:
            return
        parser = self._parser
        head = RequestHead(parser.get_method(), self._target, self._fields, parser.get_http_version())
        head.keeps_alive = head.version != "1.0" and parser.should_keep_alive()
        if parser.should_upgrade():
            if head.announces_body:
                # the parser takes what comes next for a request, and to the next server on the way it is a body
                self.refuse(Problem(400, "a request with a body cannot offer to upgrade the connection"))
                return
            head.without_upgrade()
        self._incoming = head
        self._last_has_come = not head.keeps_alive
        if self._current is None and not self._ahead:
            self._begin(head)
        else:
            self._ahead.append(head)

    def on_body(self, body: bytes) -> None:
        head = self._incoming
        if head is None or head.for_tickets:
            return
        if not head.has_begun:
            head.body.append(body)
        elif self._inner is not None:
            self._inner.body(body)

    def on_message_complete(self) -> None:
        head, self._incoming = self._incoming, None
        if head is not None:
            head.is_complete = True
            if head.has_begun:
                self._complete(head)

    # --- serving ---------------------------------------------------------------------------------------------------

    def _begin(self, head: RequestHead) -> None:
        """It is this request's turn."""
        self._current = head
        head.has_begun = True
        if self.since is None:
            self.since = self._loop.time()
        try:
            head.for_tickets = is_for_tickets(head)
        except ValueError:
            self.answer(problem_response(Problem(400, "the request's target cannot be read"), keep_alive=False))
            self.close()
            return
        if head.for_tickets:
            if head.expects_continue and not head.is_complete:
                self.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        else:
            if self._inner is None:
                self._inner = self._surroundings.make_inner(self)
            self._inner.begin(head)
            for body in head.body:
                self._inner.body(body)
        if head.is_complete:
            self._complete(head)

    def _complete(self, head: RequestHead) -> None:
        """All of the request has come."""
        if not head.for_tickets:
            if self._inner is not None:
                self._inner.end()
        elif head is self._current:
            self._endpoint.begin(self, head)

    def answer(self, response: bytes) -> None:
        """Send the whole response to the request that is under way."""
        self.write(response)
        self.answered()

    def answered(self) -> None:
        """The request that is under way has its response; on to the next."""
        current, self._current = self._current, None
        if current is None:
            return
        if self._leaving or not current.keeps_alive:
            self.close()
            return
        now = self._loop.time()
        self.since, self.idle_since = (now if self._in_head else None), now
        if not self._reading:
            self._go_on()

    @property
    def keeps_alive(self) -> bool:
        """Whether the connection stays open after the response that is under way."""
        return not self._leaving and self._current is not None and self._current.keeps_alive

    # --- writing ---------------------------------------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        """Send at once, after what waits to be sent."""
        if self._parts:
            self.flush()
        if not self.transport.is_closing():
            self.transport.write(data)

    def write_soon(self, data: bytes) -> None:
        """Send with what else is written in this turn of the event loop.

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
            self._pause_or_resume_reading()
        else:
            self._loop.call_soon(self._go_on)

    def inner_closes(self) -> None:
        """The inner protocol closes what it takes for its connection: ours, if it is serving; else itself alone."""
        if self._current is not None and not self._current.for_tickets:
            self.close()
        elif self._inner is not None:
            inner, self._inner = self._inner, None
            inner.connection_lost(None)
