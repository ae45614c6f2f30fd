"""The HTTP server: uvicorn's protocol, with requests for ids served without FastAPI. Only this file knows uvicorn.

uvicorn parses, queues what is pipelined behind a request, and runs FastAPI for every request that `cycle.read_request`
leaves to it. In front of the parser stands a memo: the bytes of a whole request that came before need no parser.

uvicorn has no limits against a hostile client, so they stand here: on the size of a head, on the time of a request and
of a client that does not read, and on what is parsed while an answer is under way.

This file is long because no other one may know uvicorn's insides.
"""

import asyncio
import socket
from collections.abc import Sequence
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
from app.http.cycle import ALWAYS, Door, Memo, Refusal, TicketCycle, read_request
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


class HttpServer:
    """Serves HTTP on sockets that listen.

    app: for all that is not a plain request for ids. watch: None where nobody watches. grace: seconds that answers
    under way may take when the server stops. idle: seconds for which a connection without a request is kept.
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
        self.door = Door(desk, access, tally, watch)
        self.door.renew()
        self.connections, self.idle, self._grace = connections, idle, grace
        self.memo = Memo()
        self.config = Config(app, access_log=False, log_config=None, lifespan="off", ws="none")
        self.state = ServerState()
        self._stopping, self.has_closed = asyncio.Event(), asyncio.Event()

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
        self.door.is_draining = True
        for each in self._open:
            each.end_after_answer()

    def stop(self) -> None:
        """Let `serve` take no new connection and return."""
        self.begin_drain()
        self._stopping.set()

    def sweep(self, now: float) -> None:
        """End the connections whose time is over. now: by the monotonic clock."""
        self.door.renew()
        self.state.default_headers = [(b"date", self.door.date.encode())]
        for each in self._open:
            if each.is_overdue(now):
                each.transport.abort()

    async def _keep_sweeping(self) -> None:
        while True:
            self.sweep(monotonic())
            await asyncio.sleep(SWEEP)

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

    _running: what is being answered. _own: the cycle of the message that is being parsed, once its head is whole.
    _is_between: whether the parser is between two messages. _unread: what was received and not parsed.
    """

    def __init__(self, http: HttpServer) -> None:
        super().__init__(http.config, http.state, {})
        self.access_log = False
        self.door, self._http = http.door, http
        self._memo = http.memo
        self._running: Any = None
        self._own: Any = None
        self._unread = bytearray()
        self._is_between, self._is_busy, self._is_broken = True, False, False
        self._size = 0
        self._began = self._rested = self._stalled = monotonic()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._admission = self._http.connections.admit()
        if self._admission is Admission.REFUSED:
            transport.abort()
        elif self._admission is Admission.ONE_ANSWER:
            self._memo = Memo()

    def connection_lost(self, exc: Exception | None) -> None:
        """Abandon what is being drawn, so that its ids go to the next request."""
        self.connections.discard(self)
        self._http.connections.leave(self._admission)
        running, self._running = self._running, None
        self._http.has_closed.set()
        self.pipeline.clear()
        self._unread.clear()
        if isinstance(running, RequestResponseCycle):
            running.disconnected = True
            running.message_event.set()
        elif running is not None:
            running.abandon()
        self.flow.resume_writing()
        self.parser = None  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        if self._is_between and self._running is None and not self._unread and not self.flow.write_paused:
            wanted = self._memo.get(data) if self._memo.generation == self.door.access.generation else None
            if wanted is not None:
                self.cycle = self._running = cycle = TicketCycle(self, wanted, True)  # type: ignore[assignment]
                cycle.start()
                return
        if not self._is_broken and self._admission is not Admission.REFUSED:
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
                self._start_queued()
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
        if not self._unread or self.pipeline or self.flow.write_paused or self.transport.is_closing():
            return False
        return self._running is None or (self._running is self._own and not self._is_between)

    def _parse_piece(self) -> None:
        piece = bytes(self._unread[:PIECE])
        del self._unread[:PIECE]
        is_whole = self._is_between
        try:
            self.parser.feed_data(piece)
        except httptools.HttpParserUpgrade as offer:  # passed over: what follows is HTTP/1.1 as before
            self._unread[:0] = piece[offer.args[0] :]
        except httptools.HttpParserError:
            self._refuse(400, "this is not HTTP/1.1, or the request is malformed")
            return
        if not self._is_between:
            self._size += len(piece)
            if self._size > LARGEST_HEAD:
                self._refuse(431, f"the head is larger than {LARGEST_HEAD:,} bytes")
            return
        is_alone = is_whole and not self._unread and piece.find(b"\r\n\r\n") == len(piece) - 4
        if is_alone and self._is_kept and isinstance(self._own, TicketCycle):
            self._memo.keep(piece, self._own.wanted, self.door.access.generation)

    def on_message_begin(self) -> None:
        self.url, self.headers, self.expect_100_continue = b"", [], False
        self._is_between, self._own, self._size = False, None, 0
        self._began = monotonic()

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._own is None:  # the trailers of a body are no headers
            self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        version = self.parser.get_http_version()
        if version not in ("1.0", "1.1"):
            raise ValueError(version)  # the parser makes an error of it, and that becomes a 400
        self._is_kept = self.parser.should_keep_alive()
        cycle: TicketCycle | Refusal
        if self._admission is Admission.ONE_ANSWER and self.url.partition(b"?")[0] not in ALWAYS:
            cycle = Refusal(self, problem_of(TooManyConnections()))
        elif (
            self.parser.get_method() == b"GET"
            and version == "1.1"
            and (wanted := read_request(self.door, self.url, self.headers)) is not None
        ):
            cycle = TicketCycle(self, wanted, self._is_kept)
        else:
            url, headers = self.url, self.headers
            super().on_message_begin()  # only now, since a ticket has no use for what uvicorn makes of a request
            self.url = url
            for name, value in headers:
                super().on_header(name, value)
            super().on_headers_complete()
            self._own = self.cycle
            self.flow.resume_reading()  # uvicorn reads nothing while a request is queued; here _go_on limits that
            if self.door.is_draining or self._admission is Admission.ONE_ANSWER:
                self.cycle.keep_alive = False
            return
        self._own = cycle
        self._start_or_queue(cycle)

    def on_body(self, body: bytes) -> None:
        self._size = 0
        if isinstance(self._own, RequestResponseCycle):
            super().on_body(body)

    def on_message_complete(self) -> None:
        self._is_between = True
        if isinstance(self._own, RequestResponseCycle):
            super().on_message_complete()

    def _refuse(self, status: int, detail: str) -> None:
        """Answer in the order of the requests that what came is no request; read nothing more."""
        self._is_broken, self._memo = True, Memo()
        self._unread.clear()
        own = None if self._is_between else self._own
        if own is not None and self.pipeline and self.pipeline[0][0] is own:
            self.pipeline.popleft()
        elif own is not None and own is self._running and not own.response_started:
            own.disconnected = True
            own.message_event.set()
            self._running = None
        elif own is not None:  # it has its answer already
            self.transport.close()
            return
        self._start_or_queue(Refusal(self, problem(status, BAD_REQUEST, detail)))

    def _start_or_queue(self, cycle: TicketCycle | Refusal) -> None:
        self.cycle = cycle  # type: ignore[assignment]
        if self._running is None and not self.pipeline and not self.flow.write_paused:
            self._start_asgi_task(cycle, self.app)
        else:
            self.pipeline.appendleft((cycle, self.app))  # type: ignore[arg-type]

    def _start_asgi_task(self, cycle: Any, app: Any) -> None:
        self._running = cycle
        if isinstance(cycle, RequestResponseCycle):
            super()._start_asgi_task(cycle, app)
        else:
            cycle.start()

    def answer(self, cycle: TicketCycle | Refusal, data: bytes) -> None:
        """See cycle.Connection."""
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
        self._rested = monotonic()
        if self.flow.read_paused and not self.transport.is_closing():
            self.flow.resume_reading()
        if self.pipeline or self._unread:
            self._go_on()

    def pause_writing(self) -> None:
        self._stalled = monotonic()
        super().pause_writing()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._go_on()

    def is_overdue(self, now: float) -> bool:
        """Whether the client takes longer than it may. now: by the monotonic clock."""
        if self.flow.write_paused:
            return now - self._stalled > REQUEST_SECONDS
        if self._is_broken and self._running is None and not self.pipeline:
            return now - self._rested > LINGER
        if not self._is_between:
            return not self._unread and now - self._began > REQUEST_SECONDS
        idle = self._http.idle if self._admission is Admission.SERVED else REQUEST_SECONDS
        return self._running is None and not self.pipeline and now - self._rested > idle

    def end_after_answer(self) -> None:
        """Let the answer that is under way be the last."""
        for cycle in (self._running, *(cycle for cycle, _ in self.pipeline)):
            if cycle is not None:
                cycle.keep_alive = False

    def shutdown(self) -> None:
        """Close now, or behind the answer that is under way."""
        if self._running is None and not self.pipeline:
            self.transport.close()
