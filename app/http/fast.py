"""The HTTP server: uvicorn's protocol, with requests for ids served without FastAPI. Only this file knows uvicorn.

uvicorn parses, queues what is pipelined behind a request, and runs FastAPI for every request that `cycle.read_request`
leaves to it. In front of the parser stands a memo: the bytes of a whole request that came before need no parser.

uvicorn has no limits against a hostile client, so they stand here: on the size of a head, on the time of a request and
of a client that does not read, and on what is parsed while an answer is under way.
"""

import asyncio
import socket
from collections.abc import Sequence
from email.utils import formatdate
from time import monotonic
from typing import Any

import httptools
from starlette.types import ASGIApp
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from app.access import Access
from app.connections import BACKLOG, Admission, Connections
from app.errors import TooManyConnections
from app.http.cycle import Memo, Refusal, TicketCycle, answer_at_once, read_request
from app.http.problems import BAD_REQUEST, problem, problem_of
from app.operations.tally import Tally
from app.operations.watch import Watch
from app.tickets.desk import Desk

LARGEST_HEAD = 16_384
"""Bytes of a request's head, give or take a piece."""
PIECE = 1024
"""Bytes that are parsed at once. Between two pieces other connections have their turn."""
REQUEST_SECONDS = 10.0
"""How long a request may take to come, and a client to read."""
LINGER = 2.0
"""Seconds for which the rest of a malformed request is passed over, so that the client can read the answer."""
SWEEP = 1.0
"""Seconds between two looks for connections whose time is over."""
ALWAYS = frozenset({b"/livez", b"/readyz", b"/healthz", b"/metrics"})
"""These paths are answered beyond the limit on connections too."""
BETWEEN, HEAD, BODY = range(3)
"""Where the parser is: between two messages, in the head of one, or behind its head."""


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
        self._stopping, self.has_closed = asyncio.Event(), asyncio.Event()
        self.is_draining = False
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
        sweeping = loop.create_task(self._keep_sweeping())
        try:
            await self._stopping.wait()
        finally:
            sweeping.cancel()
            for each in listening:
                each.close()
            await self._end_connections()

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

    async def _keep_sweeping(self) -> None:
        while True:
            self.sweep(monotonic())
            await asyncio.sleep(SWEEP)

    def _renew(self) -> None:
        """Make what each answer begins with, here and in uvicorn, which reads its list once an answer begins."""
        self.date = formatdate(usegmt=True)
        self.head = f"HTTP/1.1 200 OK\r\ndate: {self.date}\r\ncache-control: no-store\r\n"
        self.state.default_headers[:] = [(b"date", self.date.encode())]
        if self.is_draining:
            self.state.default_headers.append((b"connection", b"close"))

    async def _end_connections(self) -> None:
        """Close what is idle, and give the others `grace` for their answers."""
        for each in self._open:
            each.shutdown()
        try:
            async with asyncio.timeout(self._grace):
                while self.state.connections:
                    self.has_closed.clear()
                    await self.has_closed.wait()
        except TimeoutError:
            for each in self._open:
                each.transport.abort()
        for task in self.state.tasks:
            task.cancel()


class FastProtocol(HttpToolsProtocol):
    """One connection.

    _running: what is being answered. cycle: the last request whose head was whole, as uvicorn has it.
    _part: where the parser is. _unread: what was received and not parsed. _since: when the client last had to act.
    """

    cycle: Any

    def __init__(self, http: HttpServer) -> None:
        super().__init__(http.config, http.state, {})
        self.http, self._memo = http, http.memo
        self._running: Any = None
        self._unread = bytearray()
        self._part, self._size, self._since = BETWEEN, 0, monotonic()
        self._is_busy = self._is_broken = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._admission = self.http.connections.admit()
        if self._admission is Admission.REFUSED:
            transport.abort()
        elif self._admission is Admission.ONE_ANSWER:
            self._memo = Memo(self.http.access)

    def connection_lost(self, exc: Exception | None) -> None:
        """Abandon what is being drawn, so that its ids go to the next request."""
        self.connections.discard(self)
        self.http.connections.leave(self._admission)
        running, self._running = self._running, None
        self.http.has_closed.set()
        self.pipeline.clear()
        if isinstance(running, RequestResponseCycle):
            running.disconnected = True
            running.message_event.set()
        elif running is not None:
            running.abandon()
        self.flow.resume_writing()
        self.parser = None  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        if self._running is None and not (self._part or self._unread or self.flow.write_paused or len(data) > PIECE):
            asked = self._memo.find(data)
            if asked is not None:
                ready = answer_at_once(self.http, asked[0])
                if ready is not None:
                    self._since = monotonic()
                    self.transport.write(ready)
                    return
                self.cycle = self._running = cycle = TicketCycle(self, asked, True)
                cycle.start()
                return
        if not self._is_broken:
            self._unread += data
            self._go_on()

    def _go_on(self) -> None:
        """Start what is queued, and parse one piece if nothing is under way."""
        if self._is_busy:
            return
        self._is_busy = True
        try:
            self._start_queued()
            if self._can_parse():
                self._parse_piece()
        finally:
            self._is_busy = False
        if len(self._unread) > LARGEST_HEAD and not self.transport.is_closing():
            self.flow.pause_reading()  # less than this may wait here, so that the end of a connection shows at once
        if self._can_parse():
            self.loop.call_soon(self._go_on)

    def _start_queued(self) -> None:
        while self.pipeline and self._running is None and not (self.flow.write_paused or self.transport.is_closing()):
            self._start_asgi_task(*self.pipeline.pop())

    def _can_parse(self) -> bool:
        """Whether there is something to parse: the body of what is under way, or anything if nothing is."""
        if not self._unread or self.flow.write_paused or self.transport.is_closing():
            return False
        return self._running is None or (self._part == BODY and self._running is self.cycle)

    def _parse_piece(self) -> None:
        piece = bytes(self._unread[:PIECE])
        del self._unread[:PIECE]
        is_whole = self._part == BETWEEN and not self._unread and piece.find(b"\r\n\r\n") == len(piece) - 4
        before = self.cycle
        try:
            self.parser.feed_data(piece)
        except httptools.HttpParserUpgrade as offer:  # passed over: what follows is HTTP/1.1 as before
            self._unread[:0] = piece[offer.args[0] :]
        except httptools.HttpParserError:
            self._refuse(400, "this is not HTTP/1.1, or the request is malformed")
            return
        if self._part != BETWEEN:
            self._size += len(piece)
            if self._size > LARGEST_HEAD:
                self._refuse(431, f"the head is larger than {LARGEST_HEAD:,} bytes")
        elif is_whole and self.cycle is not before and isinstance(self.cycle, TicketCycle) and self.cycle.keep_alive:
            self._memo.keep(piece, self.cycle.asked)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._part, self._size, self._since = HEAD, 0, monotonic()

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._part == HEAD:  # the trailers of a body are no headers
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        version = self.parser.get_http_version()
        if version not in ("1.0", "1.1"):
            raise ValueError(version)  # the parser makes an error of it, and that becomes a 400
        may_draw = version == "1.1" and self.parser.get_method() == b"GET"
        if self._admission is Admission.ONE_ANSWER and self.url.partition(b"?")[0] not in ALWAYS:
            self._queue(Refusal(self, problem_of(TooManyConnections())))
        elif may_draw and (asked := read_request(self.http.desk, self.http.access, self.url, self.headers)):
            self._queue(TicketCycle(self, asked, self.parser.should_keep_alive()))
        else:
            super().on_headers_complete()
            self.flow.resume_reading()  # uvicorn reads nothing while a request is queued; here _go_on limits that
            if self._admission is Admission.ONE_ANSWER:
                self.cycle.keep_alive = False
        self._part = BODY  # only now, since an error in here leaves self.cycle as it was

    def on_body(self, body: bytes) -> None:
        self._size = 0
        if isinstance(self.cycle, RequestResponseCycle):
            super().on_body(body)

    def on_message_complete(self) -> None:
        self._part = BETWEEN
        if isinstance(self.cycle, RequestResponseCycle):
            super().on_message_complete()

    def _refuse(self, status: int, detail: str) -> None:
        """Answer in the order of the requests that what came is no request; read nothing more."""
        self._is_broken = True
        self._unread.clear()
        own = self.cycle if self._part == BODY else None
        if own is not None and self.pipeline and self.pipeline[0][0] is own:
            self.pipeline.popleft()
        elif own is not None and own is self._running and not own.response_started:
            own.disconnected = True
            own.message_event.set()
            self._running = None
        elif own is not None:  # it has its answer already
            self.transport.close()
            return
        self._queue(Refusal(self, problem(status, BAD_REQUEST, detail)))

    def _queue(self, cycle: TicketCycle | Refusal) -> None:
        """Start a request of ours behind those that are queued, as uvicorn does with its own."""
        self.cycle = cycle
        self.pipeline.appendleft((cycle, self.app))  # type: ignore[arg-type]
        self._start_queued()

    def _start_asgi_task(self, cycle: Any, app: Any) -> None:
        self._running = cycle
        if isinstance(cycle, RequestResponseCycle):
            super()._start_asgi_task(cycle, app)
        else:
            cycle.start()

    def answer(self, cycle: TicketCycle | Refusal, data: bytes) -> None:
        """Send a whole answer. The connection is closed behind it unless `cycle.keep_alive` is set."""
        cycle.response_complete = True
        if not self.transport.is_closing():
            self.transport.write(data)
            if self._is_broken and isinstance(cycle, Refusal):
                self.transport.write_eof()  # closed while more comes in, the connection would lose the answer
            elif not cycle.keep_alive:
                self.transport.close()
        self.on_response_complete()

    def on_response_complete(self) -> None:
        self._running = None
        self._since = monotonic()
        if self.flow.read_paused and not self.transport.is_closing():
            self.flow.resume_reading()
        if self.pipeline or self._unread:
            self._go_on()

    def pause_writing(self) -> None:
        self._since = monotonic()
        super().pause_writing()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._go_on()

    def is_overdue(self, now: float) -> bool:
        """Whether the client takes longer than it may. now: by the monotonic clock."""
        waited = now - self._since
        if self.flow.write_paused:
            return waited > REQUEST_SECONDS
        if self._is_broken and self._running is None and not self.pipeline:
            return waited > LINGER
        if self._part != BETWEEN:
            return not self._unread and waited > REQUEST_SECONDS
        idle = self.http.idle if self._admission is Admission.SERVED else REQUEST_SECONDS
        return self._running is None and not self.pipeline and waited > idle

    def shutdown(self) -> None:
        """Close now, or behind the answer that is under way."""
        if self._running is None and not self.pipeline:
            self.transport.close()
