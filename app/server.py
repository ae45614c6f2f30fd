"""The process: uvicorn around the service, and the order of its end.

SIGTERM: not ready at once, still serving for TICKETS_DRAIN_SECONDS, so that a load balancer notices; then no new
request, those that are here are finished, the databases are left in good order, exit 0. SIGINT skips the wait. A second
signal ends it now. SIGHUP never ends it: the files with tokens are read again, if there are any.

Both ports listen before anything else begins, so that a port in use stops a start that has not touched a database.
"""

import asyncio
import gc
import logging
import os
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from app.clients.connections import IDLE_SECONDS, Connections
from app.clients.open_files import DEFAULT_CONNECTIONS, connections_allowed
from app.common.addresses import is_loopback
from app.common.listening import listen
from app.common.log import event
from app.common.tasks import Tasks
from app.common.value_files import WatchedFiles
from app.http.tickets.connections import HTTPConnections
from app.http.uvicorn_adapter import HTTPServer, check_uvicorn
from app.operations import tracing
from app.operations.tracing import Tracing
from app.redis.door import RedisDoor
from app.service import Service
from app.settings import Settings
from app.token_rotation import TokenRotation, warn_of_short_tokens

log = logging.getLogger(__name__)


class Ports(NamedTuple):
    """The sockets that listen, by what is spoken on them."""

    http: list[socket.socket]
    redis: list[socket.socket]


class Drain:
    """The phases that a signal begins: not ready, then no new request, then the end."""

    def __init__(self, service: Service, server: HTTPServer, redis_door: RedisDoor, seconds: float) -> None:
        self._service = service
        self._server = server
        self._redis_door = redis_door
        self._seconds = seconds
        self._signals = 0

    @contextmanager
    def on_signals(self) -> Iterator[None]:
        """Drain at the first SIGTERM or SIGINT, and end at once with the second."""
        loop = asyncio.get_running_loop()
        for sig in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(sig, self._begin, sig)
        try:
            yield
        finally:
            for sig in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(sig)

    def _begin(self, sig: int) -> None:
        self._signals += 1
        if self._signals > 1:
            log.warning("a second signal: ending now")
            os._exit(1)
        self._service.admin.draining = True
        wait = self._seconds if sig == signal.SIGTERM else 0.0
        event(log, logging.INFO, "draining", seconds=wait)
        asyncio.get_running_loop().call_later(wait, self._end)

    def _end(self) -> None:
        self._redis_door.stop()  # first: what waits for others to share a statement has come in time
        self._service.desk.closed = True
        self._server.stop()


@contextmanager
def tokens_read_on_sighup(rotation: TokenRotation) -> Iterator[None]:
    """Read the tokens again at each SIGHUP; before and after, SIGHUP is ignored.

    The event loop's own handlers would leave a moment, when they are removed, in which SIGHUP ends the process.
    """
    loop = asyncio.get_running_loop()
    signal.signal(signal.SIGHUP, lambda *_: loop.call_soon_threadsafe(rotation.read_again))
    try:
        yield
    finally:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)


async def serve(
    settings: Settings,
    ports: Ports,
    most_connections: int,
    load: Callable[[], Settings],
    token_files: WatchedFiles,
) -> None:
    """Run the ticket server on these ports until a signal ends it. Raises SettingsError."""
    check_uvicorn()
    service = Service(settings, Tracing() if tracing.is_configured(os.environ) else None)
    server = HTTPServer(
        service.app,
        grace=settings.request_timeout,
        idle=IDLE_SECONDS,
        access_log=settings.access_log,
    )
    connections = Connections(server, service.metrics, most_connections, service.turns)
    service.admin.client_warnings = connections.warnings
    http_connections = HTTPConnections(service.endpoint, server, connections)
    redis_door = service.make_redis_door(connections)
    say_if_embedded(settings)
    warn_if_open_to_all(settings)
    warn_of_short_tokens(settings)
    rotation = TokenRotation(service.access, load, token_files)
    watchers = Tasks()
    with tokens_read_on_sighup(rotation), Drain(service, server, redis_door, settings.drain_seconds).on_signals():
        service.start()
        exempt_from_collection()
        watchers.spawn(connections.watch())
        watchers.spawn(rotation.watch())
        try:
            if ports.redis:
                await redis_door.accept_on(settings.host, ports.redis)
            await server.serve(http_connections.make_protocol, settings.host, ports.http)
        finally:
            redis_door.stop()
            await watchers.cancel()
            await service.stop()
    log.info("stopped")


def exempt_from_collection() -> None:
    """Leave what is here to stay out of garbage collections.

    Modules, classes and models are most of the memory. Under load a full collection came about twice a second, and all
    requests stood still while it looked at everything.
    """
    gc.collect()
    gc.freeze()


def say_if_embedded(settings: Settings) -> None:
    """Say where the embedded ticket databases are, if the server uses them."""
    if settings.embedded:
        event(log, logging.INFO, "serves the embedded pair of ticket databases", folder=settings.folder)


def warn_if_open_to_all(settings: Settings) -> None:
    """Warn if any client may draw tickets and change sequences, or if a third party can read tokens on their way."""
    if not (settings.tokens or settings.admin_tokens or is_loopback(settings.host)):
        event(log, logging.WARNING, "listens beyond loopback without TICKETS_TOKENS", host=settings.host)
    if settings.redis_port is not None and not is_loopback(settings.host):
        event(
            log, logging.WARNING, "the Redis protocol is spoken beyond loopback: tokens travel in clear",
            host=settings.host, port=settings.redis_port,
        )  # fmt: skip


def run(settings: Settings, limit: int, load: Callable[[], Settings], token_files: WatchedFiles) -> None:
    """Run the ticket server on uvloop until a signal ends it. `limit`: on open files. `load`: reads the settings anew,
    when one of the `token_files` has changed.

    Raises PortInUse where another program listens on one of its ports, and SettingsError.
    """
    import uvloop

    ports = Ports(
        listen("TICKETS_PORT", settings.host, settings.port),
        [] if settings.redis_port is None else listen("TICKETS_REDIS_PORT", settings.host, settings.redis_port),
    )
    most = connections_allowed(settings.max_connections, limit)
    if most < (settings.max_connections or DEFAULT_CONNECTIONS):
        event(
            log, logging.WARNING, "the limit on open files allows fewer connections than TICKETS_MAX_CONNECTIONS",
            limit=limit, used=most,
        )  # fmt: skip
    uvloop.run(serve(settings, ports, most, load, token_files))
