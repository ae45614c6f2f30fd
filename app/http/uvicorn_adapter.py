"""uvicorn, as far as this server rests on it. No other file knows a name of uvicorn's.

uvicorn listens, makes a protocol for each connection and ends them. The protocol is ours (`http=`, a public setting);
requests that are not for tickets go on to uvicorn's own, unmodified protocol through a transport that leads back to
ours. Which names that takes beyond uvicorn's documentation is listed in `UNDOCUMENTED`, and checked at the start.
"""

import asyncio
import importlib
import logging
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import uvicorn
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.clients.accepting import accepting
from app.clients.connections import ClientConnection
from app.clients.turns import ClientGone
from app.common.errors import SettingsError
from app.common.listening import BACKLOG, port_of
from app.common.log import event
from app.http.tickets.head import RequestHead
from app.http.tickets.protocol import TicketProtocol

log = logging.getLogger(__name__)

UNDOCUMENTED = {
    "uvicorn.server:ServerState": ("connections",),
    "uvicorn.server:Server": ("capture_signals", "should_exit", "server_state", "serve"),
    "uvicorn.protocols.http.httptools_impl:HttpToolsProtocol": (
        "connection_made",
        "connection_lost",
        "data_received",
        "pause_writing",
        "resume_writing",
        "shutdown",
    ),
}
"""The undocumented attributes and methods of uvicorn that this file uses, by class."""
_TO_BE_MADE: dict[str, tuple[object, ...]] = {"ServerState": (), "Server": (uvicorn.Config("", log_config=None),)}
"""The classes whose attributes come with an instance, and what one is made from."""
_CONNECTION = "tickets.connection"
"""In a request's ASGI state: the InnerProtocol that it came on."""


def check_uvicorn() -> None:
    """Raise SettingsError, naming what is missing, where this uvicorn lacks something that we use."""
    for place, names in UNDOCUMENTED.items():
        module, _, name = place.partition(":")
        found = getattr(importlib.import_module(module), name, None)
        if found is None:
            raise SettingsError(f"uvicorn {uvicorn.__version__} has no {module}.{name}, which this server uses")
        made = found(*_TO_BE_MADE[name]) if name in _TO_BE_MADE else found
        missing = [each for each in names if not hasattr(made, each)]
        if missing:
            raise SettingsError(f"uvicorn {uvicorn.__version__}: {name} has no {', '.join(missing)}, which we use")


class HTTPServer:
    """uvicorn around an application and our protocol.

    `app`: ASGI, for all that is not for tickets. `grace`: seconds that requests which are under way have at the end;
    `idle`: that a connection may be idle.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        grace: float,
        idle: int,
        access_log: bool,
    ) -> None:
        config = uvicorn.Config(
            _Answering(app),
            http=lambda **_: self._make_protocol(),  # type: ignore[arg-type]
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=access_log,
            server_header=False,
            proxy_headers=False,
            backlog=BACKLOG,
            timeout_keep_alive=idle,
            timeout_graceful_shutdown=max(1, round(grace + 0.5)),
        )
        self._config = config
        self._make_protocol: Callable[[], TicketProtocol]
        self._server = _Server(config)
        self._connections: set[Any] = self._server.server_state.connections

    def make_inner(self, protocol: TicketProtocol) -> "InnerProtocol":
        """uvicorn's side of a connection."""
        return InnerProtocol(protocol, self._config, self._server.server_state)

    async def serve(
        self, make_protocol: Callable[[], TicketProtocol], host: str, sockets: Sequence[socket.socket]
    ) -> None:
        """Serve until `stop`. `make_protocol`: for a new connection; `sockets`: they listen on `host`."""
        self._make_protocol = make_protocol
        event(log, logging.INFO, "speaks HTTP", host=host, port=port_of(sockets))
        await self._server.serve(accepting(sockets))

    def stop(self) -> None:
        """Accept no further connection, finish what is under way, and return from `serve`."""
        self._server.should_exit = True

    def opened(self, connection: ClientConnection) -> None:
        """See connections.Ending."""
        self._connections.add(connection)

    def closed(self, connection: ClientConnection) -> None:
        """See connections.Ending."""
        self._connections.discard(connection)


class _Server(uvicorn.Server):
    """Signals are ours: see `app.server`."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class InnerProtocol:
    """uvicorn's own protocol on a transport that leads back to `TicketProtocol`. See protocol.Inner."""

    def __init__(self, outer: TicketProtocol, config: Any, server_state: Any) -> None:
        from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

        self._outer = outer
        self.is_lost = False
        self.task: asyncio.Task[Any] | None = None
        """Of the request that the application is answering."""
        state = {_CONNECTION: self}
        self._protocol: Any = HttpToolsProtocol(config=config, server_state=server_state, app_state=state)
        self._protocol.connection_made(_InnerTransport(self, outer))
        self._is_chunked = False

    def begin(self, head: RequestHead) -> None:
        self._is_chunked = head.is_chunked
        self._protocol.data_received(bytes(head))

    def body(self, data: bytes) -> None:
        self._protocol.data_received(b"%x\r\n%b\r\n" % (len(data), data) if self._is_chunked else data)

    def end(self) -> None:
        if self._is_chunked:
            self._protocol.data_received(b"0\r\n\r\n")

    def pause_writing(self) -> None:
        self._protocol.pause_writing()

    def resume_writing(self) -> None:
        self._protocol.resume_writing()

    def connection_lost(self, error: Exception | None) -> None:
        self.is_lost = True
        if self.task is not None:
            self._outer.turns.give_up(self.task)
        self._protocol.connection_lost(None)  # with an error it would leave its timer running

    def responds(self) -> None:
        """The application's response begins."""
        if not self.is_lost:
            self._outer.inner_responds()

    def has_answered(self) -> None:
        """The application's response is complete."""
        if not self.is_lost:
            self._outer.inner_has_answered()


class _InnerTransport(asyncio.Transport):
    """The socket of the inner protocol, as far as that knows. Without a connection it refers to nothing any more."""

    def __init__(self, inner: InnerProtocol, outer: TicketProtocol) -> None:
        super().__init__()
        self._inner = inner
        self._outer = outer

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._outer.transport.get_extra_info(name, default)

    def is_closing(self) -> bool:
        return self._inner.is_lost or self._outer.transport.is_closing()

    def write(self, data: Any) -> None:
        if not self._inner.is_lost:
            self._outer.write_soon(bytes(data))

    def close(self) -> None:
        if not self._inner.is_lost:
            self._outer.inner_closes()

    def abort(self) -> None:
        if not self._inner.is_lost:
            self._outer.transport.abort()

    def pause_reading(self) -> None:
        if not self._inner.is_lost:
            self._outer.inner_is_full(True)

    def resume_reading(self) -> None:
        if not self._inner.is_lost:
            self._outer.inner_is_full(False)


class _Answering:
    """ASGI around the application: tells the inner protocol when a response begins, and when it is complete."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        inner: InnerProtocol = scope["state"].pop(_CONNECTION)
        if inner.is_lost:
            return  # the client has gone before its request began
        inner.task = asyncio.current_task()

        async def tell(message: Message) -> None:
            if message["type"] == "http.response.start":
                inner.responds()
            await send(message)
            if message["type"] == "http.response.body" and not message.get("more_body", False):
                inner.has_answered()

        try:
            await self._app(scope, receive, tell)
        except ClientGone:
            pass
        finally:
            inner.task = None


def access_logger() -> logging.Logger:
    """uvicorn's log of requests."""
    return logging.getLogger("uvicorn.access")
