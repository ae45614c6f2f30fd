"""The process: uvicorn around the service, and the order of its end.

SIGTERM: not ready at once, still serving for TICKETS_DRAIN_SECONDS, so that a load balancer notices; then no new
request, those that are here are finished, the databases are left in good order, exit 0. SIGINT skips the wait. A second
signal ends it now.
"""

import asyncio
import gc
import ipaddress
import logging
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from types import FrameType
from typing import Any

import uvicorn

from app.common.log import event
from app.http.connections import LimitedProtocol, allow_many, silence_closed_connections, watch
from app.http.express import ExpressOrders, ExpressProtocol
from app.operations import tracing
from app.operations.tracing import Tracing
from app.service import Service
from app.settings import Settings

log = logging.getLogger(__name__)

IDLE_SECONDS = 75
"""How long a connection may be idle between two requests."""


class _Uvicorn(uvicorn.Server):
    """uvicorn closes its listening sockets as soon as it is told to exit, so draining begins in the signal handler."""

    def __init__(self, config: uvicorn.Config, service: Service, drain_seconds: float) -> None:
        super().__init__(config)
        self._service = service
        self._drain_seconds = drain_seconds
        self._signals = 0

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        for sig in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(sig, self.handle_exit, sig, None)
        try:
            yield
        finally:
            for sig in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(sig)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._signals += 1
        if self._signals > 1:
            log.warning("a second signal: ending now")
            os._exit(1)
        self._service.admin.draining = True
        wait = self._drain_seconds if sig == signal.SIGTERM else 0.0
        event(log, logging.INFO, "draining", seconds=wait)
        asyncio.get_running_loop().call_later(wait, self._drained)

    def _drained(self) -> None:
        self._service.endpoint.draining_is_over = True
        self.should_exit = True


async def serve(settings: Settings) -> None:
    """Run the ticket server until a signal ends it. Raises OSError where it cannot listen."""
    traces = Tracing() if tracing.is_configured(os.environ) else None
    service = Service(settings, traces)
    protocol: Any = LimitedProtocol
    if traces is None and not settings.access_log:  # these have to see every request
        protocol = partial(ExpressProtocol, orders=ExpressOrders(service.endpoint))
    config = uvicorn.Config(
        service.app,
        host=settings.host,
        port=settings.port,
        http=protocol,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=settings.access_log,
        server_header=False,
        proxy_headers=False,
        backlog=4096,
        timeout_keep_alive=IDLE_SECONDS,
        timeout_graceful_shutdown=max(1, round(settings.request_timeout + 0.5)),
    )
    server = _Uvicorn(config, service, settings.drain_seconds)
    warn_if_open_to_all(settings)
    service.start()
    exempt_from_collection()
    watcher = asyncio.create_task(watch(server.server_state.connections))
    try:
        await server.serve()
    finally:
        watcher.cancel()
        await service.stop()
    log.info("good-bye")


def exempt_from_collection() -> None:
    """Leave what is here to stay out of garbage collections.

    Modules, classes and models are most of the memory. Under load a full collection came about twice a second, and all
    requests stood still while it looked at everything.
    """
    gc.collect()
    gc.freeze()


def warn_if_open_to_all(settings: Settings) -> None:
    """Say so where anybody who reaches this machine may draw tickets and change sequences."""
    if not (settings.tokens or settings.admin_tokens or _is_loopback(settings.host)):
        event(log, logging.WARNING, "listens beyond loopback without TICKETS_TOKENS", host=settings.host)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def run(settings: Settings) -> None:
    """Run the ticket server on uvloop until a signal ends it."""
    import uvloop

    allow_many()
    silence_closed_connections()
    uvloop.run(serve(settings))
