"""Limits on what a client may send, and for how long it may take: uvicorn has none of its own.

A ticket pays nothing for them. How much of a head has come is counted only while one is incomplete; slow and silent
clients are looked for once in a while, in all connections at once.
"""

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, Any

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from app.http.problems import Problem

if TYPE_CHECKING:
    from collections.abc import Iterable

HEAD_BYTES = 16_384
"""A request line with its headers that is larger is refused; at twice this size for certain."""
_PIECE = HEAD_BYTES // 2
REQUEST_SECONDS = 20.0
"""How long a new connection may say nothing, and how long a request may take: its head, its body, its answer."""
LOOK_SECONDS = 2.0
AHEAD = 8_192
"""How many requests a client may send ahead of the answers; what arrives in one piece may be as many as that."""


class JoinedWrites:
    """A transport that sends what is written in one turn of the event loop at once.

    uvicorn writes the head of an answer and its body by themselves: two system calls, and a killed server may have sent
    the head alone, which a load balancer has passed on by then and cannot take back.
    """

    __slots__ = ("_call_soon", "_parts", "_transport", "is_closing")

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self.is_closing = transport.is_closing
        self._call_soon = loop.call_soon
        self._parts: list[bytes] = []

    def write(self, data: bytes) -> None:
        if not self._parts:
            self._call_soon(self._flush)
        self._parts.append(data)

    def write_at_once(self, data: bytes) -> None:
        """Write a whole answer, after what waits."""
        if self._parts:
            self._flush()
        self._transport.write(data)

    def _flush(self) -> None:
        parts, self._parts = self._parts, []
        if parts and not self._transport.is_closing():
            self._transport.write(b"".join(parts))

    def close(self) -> None:
        self._flush()
        self._transport.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class LimitedProtocol(HttpToolsProtocol):
    """uvicorn's protocol, with a limit on the head, and errors as problems that no log is flooded with."""

    _head: object = None
    _head_bytes = 0
    seen: object = None
    """The request that was under way when `watch` looked last, and since when it has been."""
    seen_at = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(JoinedWrites(transport, self.loop))  # type: ignore[arg-type]

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        if data.strip(b"\r\n"):  # line ends before a request are not one yet
            self._unset_keepalive_if_required()
        try:
            if len(data) > _PIECE:
                self._feed_in_pieces(data)
            else:
                self._feed(data)
                if self.head_is_incomplete:
                    self._count_head(len(data))
            if len(self.pipeline) > AHEAD:
                self.transport.abort()
        except httptools.HttpParserError:
            self._refuse(Problem(400, "this is not a request in HTTP/1.1"))

    def _feed(self, data: bytes) -> None:
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as offer:  # it goes on in HTTP/1.1, which the client has to accept
            if any(_announces_body(name, value) for name, value in self.headers):
                # the parser takes what comes next for a request, and to the next server on the way it is a body
                self._refuse(Problem(400, "a request with a body cannot offer to upgrade the connection"))
            else:
                self._feed(data[offer.args[0] :])

    def on_message_complete(self) -> None:
        self.cycle.more_body = False  # uvicorn forgets this where the answer came first: it would seem to be under way
        self.cycle.message_event.set()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.pipeline:  # uvicorn would read on with each answer, and collect without end what is sent ahead
            self.flow.pause_reading()

    def _feed_in_pieces(self, data: bytes) -> None:
        for begin in range(0, len(data), _PIECE):
            self._feed(data[begin : begin + _PIECE])
            if self.head_is_incomplete:
                self._count_head(min(_PIECE, len(data) - begin))
            if self.transport.is_closing():
                break

    @property
    def head_is_incomplete(self) -> bool:
        """Whether the head of a request has begun and not ended; uvicorn enters its method at the end."""
        return self.scope is not None and "method" not in self.scope

    @property
    def under_way(self) -> object:
        """The request that has begun and not ended, the lack of any in a new connection, or None for an idle one."""
        cycle = self.cycle
        if self.head_is_incomplete:
            return self.scope
        if cycle is None:
            return self
        return cycle if cycle.more_body or not cycle.response_complete else None

    def _count_head(self, size: int) -> None:
        if self._head is not self.scope:  # its beginning is not counted: it may have followed other requests
            self._head, self._head_bytes = self.scope, 0
            return
        self._head_bytes += size
        if self._head_bytes > HEAD_BYTES and not self.transport.is_closing():
            self._refuse(Problem(431, f"request line and headers are larger than {HEAD_BYTES} bytes"))

    def _refuse(self, problem: Problem) -> None:
        body = problem.body
        fields = problem.all_headers | {"content-length": str(len(body)), "connection": "close"}
        head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        self.transport.write(f"HTTP/1.1 {problem.status} {problem.title}\r\n{head}\r\n".encode("latin-1") + body)
        self.transport.close()


def _announces_body(name: bytes, value: bytes) -> bool:
    return name == b"transfer-encoding" or (name == b"content-length" and value.strip(b"0 ") != b"")


def silence_closed_connections() -> None:
    """uvicorn logs a traceback where a client has gone away that it still has something to send to."""
    logging.getLogger("uvicorn.error").addFilter(lambda record: "the handler is closed" not in str(_error_of(record)))


def _error_of(record: logging.LogRecord) -> BaseException | None:
    return record.exc_info[1] if record.exc_info else None


async def watch(connections: "Iterable[Any]") -> None:
    """Cut every connection on which one request takes too long, until cancelled."""
    now = asyncio.get_running_loop().time
    while True:
        await asyncio.sleep(LOOK_SECONDS)
        time = now()
        for connection in list(connections):
            under_way = connection.under_way
            if under_way is None or under_way is not connection.seen:
                connection.seen, connection.seen_at = under_way, time
            elif time - connection.seen_at > REQUEST_SECONDS:
                connection.transport.abort()


def allow_many() -> None:
    """Raise the limit on open files to what the system allows: a connection is one."""
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        target = 65_536 if hard == resource.RLIM_INFINITY else min(hard, 65_536)
        if soft != resource.RLIM_INFINITY and soft < target:
            resource.setrlimit(resource.RLIMIT_NOFILE, (target, hard))
