"""One client connection: requests for tickets are answered here, every other one by an `inner` protocol.

httptools parses. One request is served at a time. What is sent ahead of its answer stays as it came: unread bytes, of
which so many are kept (`AHEAD_BYTES`), and beyond that the socket is not read.
"""

import asyncio
import logging
from collections import deque

import httptools

from app.clients.connections import IDLE_SECONDS
from app.clients.gone import sends_no_more
from app.common.errors import TooManyConnections
from app.http.problems import Code, Problem, method_not_allowed, problem_of
from app.http.tickets.head import LARGEST_BODY, ClientRequest, RequestHead
from app.http.tickets.responses import problem_response
from app.http.tickets.roles import Inner, Surroundings

log = logging.getLogger(__name__)

HEAD_BYTES = 16_384
"""A request line with its headers that is larger is refused."""
MOST_FIELDS = 256
"""So many headers, or lines behind the last chunk, are refused: each takes ten times its bytes of memory."""
AHEAD_BYTES = 65_536
"""How many bytes that were sent ahead are kept."""
PIECE = 1_024
"""How many bytes the parser gets at a time: it cannot be stopped at the end of a request, and what it reads behind one
has to be kept as requests, which are larger than their bytes."""


class TicketProtocol(asyncio.Protocol):
    """The server's side of one connection.

    Its public attributes: see connections.ClientConnection.
    """

    idle_seconds: float = IDLE_SECONDS

    def __init__(self, surroundings: Surroundings, loop: asyncio.AbstractEventLoop) -> None:
        self._surroundings = surroundings
        self._endpoint = surroundings.endpoint
        self._known_heads = surroundings.known_heads
        self.turns = surroundings.turns
        self._loop = loop
        self._parser = httptools.HttpRequestParser(self)
        self._parser.set_dangerous_leniencies(lenient_data_after_close=True)  # what follows the last one is not read
        self.transport: asyncio.Transport = None  # type: ignore[assignment]
        self.since: float | None = loop.time()
        self.idle_since = 0.0
        self.health_only = False
        # what comes in
        self._unread = b""
        self._offset = 0
        self._is_working = False
        self._is_paused = False
        self._inner_is_full = False
        self._target = b""
        self._fields: list[tuple[bytes, bytes]] = []
        self._in_fields = False
        self._field_bytes = 0
        self._body: list[bytes] = []
        self._is_between_requests = True
        self._incoming: ClientRequest | None = None
        self._refusal: Problem | None = None
        self._last_has_come = False
        # whose turn it is
        self._current: ClientRequest | None = None
        self._ahead: deque[ClientRequest] = deque()
        self._inner: Inner | None = None
        self._inner_has_responded = False
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
        self._ahead.clear()
        self._unread, self._offset = b"", 0
        self._drop_current()
        self._drop_inner(exc)

    def data_received(self, data: bytes) -> None:
        self._unread = self._unread[self._offset :] + data if self._unread else data
        self._offset = 0
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
        has_more = False
        is_closing = self.transport.is_closing
        clock = self.turns.clock
        try:
            while not (self._write_paused or self._inner_is_full or has_more or is_closing()):
                current = self._current
                if self._unread and (not self._ahead if current is None else not current.is_complete):
                    self._feed_next_piece()
                elif current is not None or not self._ahead:
                    break
                if self._current is None and self._ahead and not is_closing():
                    self._begin_next()
                has_more = bool(self._unread or self._ahead) and clock() >= until
            if self._refusal is not None and self._current is None and not self._ahead:
                self._turn_away(self._refusal)
        except Exception:
            self.fail()
        finally:
            self._is_working = False
        if self._unread or self._is_paused:
            self._see_to_reading()
        return has_more

    def fail(self) -> None:
        """An exception that nobody knows is being handled: say so in the log, and cut the connection."""
        log.exception("a request met an unknown error")
        current = self._current
        if current is not None and current.for_tickets:
            self._endpoint.failed(current)
        self.transport.abort()

    def _see_to_reading(self) -> None:
        """Read no further while more lies unread than is kept."""
        if not (self._unread or self._is_paused or self._inner_is_full):
            return
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
            if self._offset == len(self._unread):
                self._unread, self._offset = b"", 0
        is_first = self._is_between_requests and self._refusal is None
        head = self._known_heads.get(piece) if is_first else None
        if head is not None:
            self.since = self._loop.time()
            self._ahead.append(ClientRequest(head, is_complete=True))
            return
        try:
            self._parser.feed_data(piece)
        except httptools.HttpParserUpgrade as offer:  # it goes on in HTTP/1.1, which the client has to accept
            self._unread, self._offset = piece[offer.args[0] :] + self._unread[self._offset :], 0
        except httptools.HttpParserCallbackError:
            self.fail()
        except httptools.HttpParserError:
            self._refuse(Problem(Code.BAD_REQUEST, "this is not a request in HTTP/1.1"))
        else:
            if is_first and self._is_between_requests and self._refusal is None and len(self._ahead) == 1:
                self._known_heads.keep_of(piece, self._ahead[0])
        if self._body and self._incoming is not None:
            self._hand_on_body(self._incoming)
        if self._in_fields:
            self._field_bytes += len(piece)
            if self._field_bytes > HEAD_BYTES:
                detail = f"request line and headers are larger than {HEAD_BYTES} bytes"
                self._refuse(Problem(Code.BAD_REQUEST, detail, status=431))

    def _refuse(self, problem: Problem) -> None:
        """Nothing that follows can be understood: answer what has been, then say so and close."""
        broken, self._incoming = self._incoming, None
        self._body = []
        self._unread, self._offset, self._in_fields = b"", 0, False
        if self._refusal is not None or (broken is None and self._last_has_come):
            return
        self._refusal = problem
        if broken is None:
            return
        if not broken.has_begun:
            self._ahead.remove(broken)
        elif broken is not self._current or self._inner_has_responded:
            self.close()  # it has its answer, or a part of one
        else:
            self._drop_current()

    # --- what the parser says --------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        self._target = b""
        self._fields = []
        self._in_fields = True
        self._field_bytes = 0
        self._is_between_requests = False
        if self._current is None and not self._ahead:
            self.since = self._loop.time()

    def on_url(self, url: bytes) -> None:
        self._target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._fields.append((name, value))
        if len(self._fields) == MOST_FIELDS:
            self._refuse(Problem(Code.BAD_REQUEST, f"there are {MOST_FIELDS} headers, or more", status=431))

    def on_headers_complete(self) -> None:
        self._in_fields = False
        if self._refusal is not None or self._last_has_come:
            return
        parser = self._parser
        version = parser.get_http_version()
        keeps_alive = version != "1.0" and parser.should_keep_alive()
        head = RequestHead(parser.get_method(), self._target, self._fields, version, keeps_alive=keeps_alive)
        if parser.should_upgrade():
            if head.method == b"CONNECT":
                self._refuse(method_not_allowed("GET", "HEAD", "POST", "PUT"))
                return
            if head.announces_body:
                # the parser takes what comes next for a request, and to the next server on the way it is a body
                self._refuse(Problem(Code.BAD_REQUEST, "a request with a body cannot offer to upgrade the connection"))
                return
            head.without_upgrade()
        self._incoming = request = ClientRequest(head, is_complete=False)
        self._last_has_come = not keeps_alive
        self._ahead.append(request)  # it begins when the parser has accepted it: some errors come only after this

    def on_body(self, body: bytes) -> None:
        self._in_fields = False
        request = self._incoming
        if request is None:
            return
        if request.for_tickets:
            request.keep_content(body)
            if request.body_bytes > LARGEST_BODY and request is self._current:
                self._endpoint.body_has_come(self, request)
        else:
            self._body.append(body)

    def _hand_on_body(self, request: ClientRequest) -> None:
        """Hand on what has come of a body, in one go: there may be a chunk for each byte of it."""
        body, self._body = b"".join(self._body), []
        if not request.has_begun:
            request.body = [*request.body, body]
        elif self._inner is not None:
            self._inner.body(body)

    def on_chunk_header(self) -> None:
        self._fields = []  # behind the last chunk there may be more: they belong to no head
        self._in_fields = True
        self._field_bytes = 0

    def on_chunk_complete(self) -> None:
        self._in_fields = False
        if self._fields and not self._last_has_come and not self._parser.should_keep_alive():
            # the parser obeys, and would read nothing any more on a connection that others may use as well
            self._refuse(Problem(Code.BAD_REQUEST, "a trailer cannot close the connection"))

    def on_message_complete(self) -> None:
        self._is_between_requests = True
        request, self._incoming = self._incoming, None
        if request is not None:
            if self._body:
                self._hand_on_body(request)
            request.is_complete = True
            if request.has_begun:
                self._body_has_ended(request)

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

    def _body_has_ended(self, request: ClientRequest) -> None:
        """All of a request has come whose turn came before."""
        if request.for_tickets:
            if request is self._current:
                self._endpoint.body_has_come(self, request)
        elif self._inner is not None:
            self._inner.end()
        if request is not self._current:  # it has been answered
            self.since, self.idle_since = None, self._loop.time()

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
            self.since, self.idle_since = (now if self._in_fields else None), now
        if self._ahead or self._unread or self._refusal is not None:
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
