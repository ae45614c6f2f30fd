"""The HTTP server: uvicorn's protocol, with requests for ids served without FastAPI. Only this file knows uvicorn.

uvicorn's parser reads a connection, and uvicorn runs FastAPI for every request that `cycle.read_request` leaves to it.
In front of the parser stands a memo: the bytes of a whole request that came before need no parser.

The parser gets nothing behind the end of a message before that message is answered, so a connection has one request at
a time, and what is pipelined waits as bytes. uvicorn has no limits against a hostile client, so they stand here: on the
size of a head, on the time of a request and of a client that does not read, and on what is read ahead.
"""

import asyncio
import contextlib
import socket
from collections.abc import Sequence
from email.utils import formatdate
from time import monotonic

import httptools
from starlette.types import ASGIApp
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from app.access import Access
from app.connections import BACKLOG, Admission, Connections, Tally
from app.errors import TooManyConnections
from app.http.cycle import Asked, Memo, TicketCycle, answer_at_once, read_request, rendered
from app.http.problems import BAD_REQUEST, Problem, problem, problem_of
from app.operations.watch import Watch
from app.tickets.desk import Desk

LARGEST_HEAD = 16_384  # bytes of a request's head, give or take a piece
PIECE = 1024  # Bytes that are parsed at once. Between two pieces other connections have their turn.
REQUEST_SECONDS = 10.0  # how long a request may take to come, and a client to read
LINGER = 2.0  # seconds for which the rest of a malformed request is passed over, so that the client can read the answer
SWEEP = 1.0  # seconds between two looks for connections whose time is over
ALWAYS = frozenset({b"/livez", b"/readyz", b"/healthz", b"/metrics"})
"""These paths are answered beyond the limit on connections too."""
BETWEEN, HEAD, BODY, OVER = range(4)
"""Where a connection is: between two messages, in the head of one, behind its head, or nothing more is read."""


class HttpServer:
    """Serves HTTP on sockets that listen.

    app: for all that is not a plain request for ids. watch: None where nobody watches. grace: seconds that answers
    under way may take when the server stops. idle: seconds for which a connection without a request is kept.
    head: how each answer of tickets begins. date: of now, as HTTP writes it.
    """

    def __init__(  # noqa: PLR0917  what a door is made of, as server.py has it
        self,
        app: ASGIApp,
        desk: Desk,
        access: Access,
        tally: Tally,
        connections: Connections,
        watch: Watch | None,
        *,
        grace: float,
        idle: float,
    ) -> None:
        self.desk, self.access, self.tally, self.watch = desk, access, tally, watch
        self.connections, self.idle, self._grace = connections, idle, grace
        self.memo = Memo(access)
        self.config = Config(app, access_log=False, log_config=None, lifespan="off", ws="none")
        self.state = ServerState()
        self._stopping, self.is_draining = asyncio.Event(), False
        self._renew()

    @property
    def _open(self) -> list["FastProtocol"]:
        return list(self.state.connections)  # type: ignore[arg-type]

    async def serve(self, sockets: Sequence[socket.socket]) -> None:
        """Serve until `stop` is called, and until the answers under way are sent or `grace` is over."""
        loop = asyncio.get_running_loop()
        listening = [
            await loop.create_server(lambda: FastProtocol(self), sock=each, backlog=BACKLOG) for each in sockets
        ]
        try:
            while not self._stopping.is_set():
                self.sweep(monotonic())
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._stopping.wait(), SWEEP)
        finally:
            for server in listening:
                server.close()
            for each in self._open:
                each.shutdown()
            until = monotonic() + self._grace
            while self.state.connections and monotonic() < until:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            for each in self._open:
                each.transport.abort()
            for task in self.state.tasks:
                task.cancel()

    def begin_drain(self) -> None:
        """Let every answer from now on end its connection."""
        self.is_draining = True
        self._renew()

    def stop(self) -> None:
        """Let `serve` take no new connection and return."""
        self.begin_drain()
        self._stopping.set()

    def sweep(self, now: float) -> None:
        """Renew the date, and end the connections whose time is over. now: by the monotonic clock."""
        self._renew()
        for each in self._open:
            if each.is_overdue(now):
                each.transport.abort()

    def _renew(self) -> None:
        """Make what each answer begins with, here and in uvicorn, which reads its list once an answer begins."""
        self.date = formatdate(usegmt=True)
        self.head = f"HTTP/1.1 200 OK\r\ndate: {self.date}\r\ncache-control: no-store\r\n"
        self.state.default_headers[:] = [(b"date", self.date.encode())]
        if self.is_draining:
            self.state.default_headers.append((b"connection", b"close"))


class FastProtocol(HttpToolsProtocol):
    """One connection.

    _running: the request that is being answered. _asked: what the head that was parsed last asks for, if it is ours.
    _unread: what was received and not parsed. _tail: the end of what was parsed, while no empty line has ended it.
    _left: bytes that a body of known length still has. _size: of a head, so far. _since: when the client last had to
    act.
    """

    def __init__(self, http: HttpServer) -> None:
        super().__init__(http.config, http.state, {})
        self.http, self._memo = http, http.memo
        self._running: TicketCycle | RequestResponseCycle | None = None
        self._asked: Asked | None = None
        self._unread, self._tail, self._left = bytearray(), b"", 0
        self._part, self._size, self._since = BETWEEN, 0, monotonic()
        self._is_scheduled = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._admission = self.http.connections.admit()
        if self._admission is Admission.REFUSED:
            transport.abort()
        elif self._admission is Admission.ONE_ANSWER:
            self._memo = Memo(self.http.access)  # it knows nothing, so every request comes to the parser

    def connection_lost(self, exc: Exception | None) -> None:
        """Abandon what is being drawn, so that its ids go to the next request."""
        self.connections.discard(self)
        self.http.connections.leave(self._admission)
        self._abandon()
        self.flow.resume_writing()
        self.parser = None  # type: ignore[assignment]

    def _abandon(self) -> None:
        running, self._running = self._running, None
        if isinstance(running, RequestResponseCycle):
            running.disconnected = True
            running.message_event.set()
        elif running is not None:
            running.abandon()

    def data_received(self, data: bytes) -> None:
        if self._running is None and not (self._part or self._unread or self.flow.write_paused or len(data) > PIECE):
            asked = self._memo.find(data)
            if asked is not None:
                ready = answer_at_once(self.http, asked[0])
                if ready is not None:
                    self._since = monotonic()
                    self.transport.write(ready)
                    return
                self._running = cycle = TicketCycle(self, asked, True)
                cycle.start()
                return
        if self._part != OVER:
            self._unread += data
            if not self._is_scheduled:
                self._go_on()

    def _go_on(self) -> None:
        """Parse one piece if there is something to parse. Between two pieces other connections have their turn."""
        self._is_scheduled = False
        if self._can_parse():
            self._parse_piece()
        if self.transport.is_closing():
            return
        if len(self._unread) > LARGEST_HEAD:
            self.flow.pause_reading()  # less than this may wait here, so that the end of a connection shows at once
        elif self._running is None:
            self.flow.resume_reading()
        if self._can_parse():
            self._schedule()

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self.loop.call_soon(self._go_on)

    def _can_parse(self) -> bool:
        """Whether there is something to parse: the body of what is under way, or anything if nothing is."""
        if not self._unread or self.flow.write_paused or self.transport.is_closing():
            return False
        return self._running is None or self._part == BODY

    def _cut(self) -> bytes:
        """Take the next piece for the parser. It ends where a message may end, behind a body or an empty line."""
        piece = bytes(self._unread[:PIECE])
        if self._left:
            piece = piece[: self._left]
            self._left -= len(piece)
        else:
            end = (self._tail + piece).find(b"\r\n\r\n") + 4 - len(self._tail)
            if end > 0:
                piece, self._tail = piece[:end], b""
            else:
                self._tail = (self._tail + piece)[-3:]
        del self._unread[: len(piece)]
        return piece

    def _parse_piece(self) -> None:
        is_begin, piece, self._asked = self._part == BETWEEN, self._cut(), None
        try:
            self.parser.feed_data(piece)
        except httptools.HttpParserUpgrade:
            pass  # what follows is HTTP/1.1 as before
        except httptools.HttpParserError:
            self._refuse(400, "this is not HTTP/1.1, or the request is malformed")
            return
        self._size += len(piece)
        if self._part in (HEAD, BODY) and self._size > LARGEST_HEAD:
            self._refuse(431, f"the head is larger than {LARGEST_HEAD:,} bytes")
        elif is_begin and self._part == BETWEEN and self._asked is not None:  # the piece is a request, and no more
            self._memo.keep(piece, self._asked)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._part, self._size, self._since = HEAD, 0, monotonic()

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._part == HEAD:  # the trailers of a body are no headers
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        version = self.parser.get_http_version()
        if version not in ("1.0", "1.1") or self._running is not None:
            raise ValueError(version)  # the parser makes an error of it, and that becomes a 400
        may_draw = version == "1.1" and self.parser.get_method() == b"GET"
        if self._admission is Admission.ONE_ANSWER and self.url.partition(b"?")[0] not in ALWAYS:
            self._end(problem_of(TooManyConnections()))
        elif may_draw and (asked := read_request(self.http.desk, self.http.access, self.url, self.headers)):
            keep_alive = self.parser.should_keep_alive()
            self._asked = asked if keep_alive else None
            self._part = BODY
            self._running = cycle = TicketCycle(self, asked, keep_alive)
            cycle.start()
        else:
            self.cycle = None  # type: ignore[assignment]  # uvicorn queues behind a request, and there is none
            super().on_headers_complete()
            self._running, self._part = self.cycle, BODY  # only now, since an error above is one of the head
            self._left = int(dict(self.headers).get(b"content-length", 0))
            if self._admission is Admission.ONE_ANSWER:
                self.cycle.keep_alive = False

    def on_body(self, body: bytes) -> None:
        self._size = 0
        if self._part == BODY:
            super().on_body(body)

    def on_message_complete(self) -> None:
        if self._part == BODY:
            self._part = BETWEEN
            if isinstance(self._running, RequestResponseCycle):
                super().on_message_complete()

    def _refuse(self, status: int, detail: str) -> None:
        """Answer that what came is no request."""
        running = self._running
        if self._part == BODY and (not isinstance(running, RequestResponseCycle) or running.response_started):
            self.transport.close()  # it has its answer already
        else:
            self._abandon()
            self._end(problem(status, BAD_REQUEST, detail))

    def _end(self, answer: Problem) -> None:
        """Send this as the last answer, and read nothing more."""
        self._part, self._since = OVER, monotonic()
        self._unread.clear()
        self.transport.write(rendered(answer, self.http.date, keep_alive=False))
        self.transport.write_eof()  # closed while more comes in, the connection would lose the answer

    def answer(self, cycle: TicketCycle, data: bytes) -> None:
        """Send a whole answer. The connection is closed behind it unless `cycle.keep_alive` is set."""
        if not self.transport.is_closing():
            self.transport.write(data)
            if not cycle.keep_alive:
                self.transport.close()
        self.on_response_complete()

    def on_response_complete(self) -> None:
        self._running, self._since = None, monotonic()
        if self._unread or self.flow.read_paused:
            self._schedule()

    def pause_writing(self) -> None:
        self._since = monotonic()
        super().pause_writing()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._schedule()

    def is_overdue(self, now: float) -> bool:
        """Whether the client takes longer than it may. now: by the monotonic clock."""
        waited = now - self._since
        if self._part == OVER:
            return waited > LINGER
        if self._part != BETWEEN or self.flow.write_paused:
            return waited > REQUEST_SECONDS
        idle = self.http.idle if self._admission is Admission.SERVED else REQUEST_SECONDS
        return self._running is None and waited > idle

    def shutdown(self) -> None:
        """Close now, or behind the answer that is under way."""
        if self._running is None and not self._unread:
            self.transport.close()
