"""The process: what listens, what a signal does, and the order of the end.

SIGTERM: the server is not ready from then on, and still serves for TICKETS_DRAIN_SECONDS, so that a load balancer
notices. Then it takes no new request, finishes those that are under way, lets go of the databases and exits with 0.
SIGINT skips the wait. A second signal ends the process at once. SIGHUP reads the files with tokens again.

Both ports listen before anything else begins, so a port in use stops a start that has touched no database.
"""

import asyncio
import errno
import gc
import logging
import os
import signal
import socket
from collections.abc import Sequence
from contextlib import AsyncExitStack, ExitStack, closing

import uvloop

from app.access import Access, TokenFiles
from app.connections import BACKLOG, Connections, Tally, most_connections
from app.databases.address import Address
from app.databases.engines import lock_embedded, open_database
from app.errors import DatabaseRefused, SettingsError, TicketError
from app.http.api import make_api
from app.http.fast import HttpServer
from app.log import set_up
from app.operations.report import Report
from app.operations.watch import make_watch
from app.redis.door import RedisDoor
from app.service import Service
from app.settings import Settings
from app.version import VERSION

log = logging.getLogger(__name__)

IDLE_SECONDS = 620
"""How long an idle HTTP connection is kept: longer than load balancers keep theirs."""
HTTP, REDIS = "HTTP", "the Redis protocol"
Ports = dict[str, list[socket.socket]]
"""The sockets that listen, by what is spoken on them."""


def serve(settings: Settings) -> int:
    """Run the ticket server until a signal ends it, or an error; return the exit status.

    SIGHUP is ignored until the server has its own handler: `__main__` sees to that. Raises SettingsError where a
    setting cannot be used on this machine, and TicketError where the server cannot start for another reason: a port or
    the folder of the embedded pair is in use.
    """
    set_up(settings.log_level, settings.log_format)
    with ExitStack() as kept:
        ports: Ports = {HTTP: _listen("TICKETS_PORT", settings.host, settings.port, kept), REDIS: []}
        if settings.redis_port is not None:
            ports[REDIS] = _listen("TICKETS_REDIS_PORT", settings.host, settings.redis_port, kept)
        addresses = _embedded_pair(settings, kept) if settings.is_embedded else settings.databases
        most = most_connections(settings.max_connections)
        warn_if_open(settings)

        async def run() -> int:
            return await Server(settings, ports, addresses, most).run()

        return uvloop.run(run())


class Server:
    """A ticket server with its doors.

    ports: already listen. addresses: of the ticket databases, in the order of their offsets. most: how many client
    connections are served.
    """

    def __init__(self, settings: Settings, ports: Ports, addresses: Sequence[Address], most: int) -> None:
        self._settings, self._ports = settings, ports
        databases = [open_database(address, settings.database_timeout) for address in addresses]
        name = f"{socket.gethostname()}:{ports[HTTP][0].getsockname()[1]}"
        self._service = service = Service(databases, settings, name)
        access, tally = Access(), Tally()
        self._watch = watch = make_watch(settings.access_log, os.environ)
        self._tokens = TokenFiles(settings, access)
        connections, seconds = Connections(most, tally), settings.request_timeout
        self._report = Report(service)
        api = make_api(service, self._report, access, tally, watch, is_local=settings.is_local)
        self._http = HttpServer(api, service.desk, access, tally, connections, watch, grace=seconds, idle=IDLE_SECONDS)
        self._redis = RedisDoor(service, access, tally, connections, watch, timeout=seconds)
        self._loop, self._ending, self._signals = asyncio.get_running_loop(), asyncio.Event(), 0

    async def run(self) -> int:
        """Serve until a signal, or until a part ends; then end in good order, and return the exit status."""
        loop, status = self._loop, 0
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._begin_end, number)
        # a handler of the event loop goes when the loop closes, and then SIGHUP would end the process
        signal.signal(signal.SIGHUP, lambda *_: loop.call_soon_threadsafe(self._tokens.read_again))
        self._service.start()
        works = self._http.serve(self._ports[HTTP]), self._service.watch(), self._tokens.watch()
        http, *others = parts = [loop.create_task(work) for work in works]
        async with AsyncExitStack() as at_end:  # the last step comes first, and each comes though another one fails
            at_end.callback(signal.signal, signal.SIGHUP, signal.SIG_IGN)
            if self._watch is not None:
                at_end.callback(self._watch.close)
            at_end.push_async_callback(self._service.stop)
            for other in others:
                at_end.callback(other.cancel)
            at_end.push_async_callback(asyncio.wait, [http])
            at_end.push_async_callback(self._redis.stop)
            at_end.callback(self._http.stop)
            await self._redis.accept_on(self._ports[REDIS])
            self._announce()
            gc.collect()
            gc.freeze()  # modules, classes and models stay; a collection that looks at all of them stops every request
            gc.set_threshold(10_000)  # requests live as long as a statement: 700 objects are seldom garbage
            ended = loop.create_task(self._ending.wait())
            await asyncio.wait([*parts, ended], return_when=asyncio.FIRST_COMPLETED)
            for part in parts:
                if part.done():
                    log.error("the server stops, because a part of it has ended", exc_info=part.exception())
                    status = 1
            self._report.is_draining = True
        log.info("stopped")
        return status

    def _begin_end(self, number: int) -> None:
        self._signals += 1
        if self._signals > 1:
            log.warning("a second signal: ending now")
            logging.shutdown()
            os._exit(1)
        wait = self._settings.drain_seconds if number == signal.SIGTERM else 0.0
        log.info("draining for %g s", wait)
        self._report.is_draining = True
        self._http.begin_drain()
        self._loop.call_later(wait, self._ending.set)

    def _announce(self) -> None:
        for protocol, sockets in self._ports.items():
            for each in sockets:
                host, port = each.getsockname()[:2]
                log.info("version %s speaks %s on %s:%s", VERSION, protocol, f"[{host}]" if ":" in host else host, port)


def _listen(variable: str, host: str, port: int, kept: ExitStack) -> list[socket.socket]:
    """Return a socket that listens for each address of a host; they are closed with `kept`.

    variable: the setting that names the port. Raises TicketError where another program listens there, and SettingsError
    where this machine cannot listen there at all.
    """
    wrong = f"TICKETS_HOST is {host!r}; expected an address of this machine, where the server listens"
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        raise SettingsError(wrong) from error
    try:
        both = host == "::" and socket.has_dualstack_ipv6()  # as 0.0.0.0 and localhost do, it means IPv4 as well
        return [
            kept.enter_context(socket.create_server(address, family=family, backlog=BACKLOG, dualstack_ipv6=both))
            for family, _, _, _, address in found
        ]
    except OSError as error:
        if error.errno == errno.EADDRNOTAVAIL:
            raise SettingsError(wrong) from error
        reason = f"{variable}: cannot listen on {host}:{port}: {os.strerror(error.errno or 0)}"
        raise (TicketError if error.errno == errno.EADDRINUSE else SettingsError)(reason) from error


def _embedded_pair(settings: Settings, kept: ExitStack) -> Sequence[Address]:
    """Lock the folder of the embedded pair until `kept` closes, and return the addresses of the two."""
    try:
        folder = kept.enter_context(closing(lock_embedded(settings.data_dir)))
    except DatabaseRefused as error:
        if isinstance(error.__cause__, BlockingIOError):
            raise
        raise SettingsError(f"TICKETS_DATA_DIR: {error}; expected a folder that this user may write to") from error
    log.info("serves the embedded pair of ticket databases in %s", settings.data_dir.absolute())
    return folder.addresses


def warn_if_open(settings: Settings) -> None:
    """Warn where everybody may draw tickets and change sequences, or where others can read tokens on their way."""
    if settings.is_local:
        return
    if not settings.tokens and not settings.admin_tokens:
        log.warning("listens on %s, beyond loopback, without TICKETS_TOKENS", settings.host)
    if settings.redis_port is not None:
        log.warning("speaks the Redis protocol on %s, beyond loopback: tokens travel in clear", settings.host)
