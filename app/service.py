"""The composition root: builds everything from the settings, and owns the order of start and stop."""

import asyncio
import secrets
import socket
import time
from collections.abc import Callable

from starlette.types import ASGIApp

from app.clients.connections import Connections
from app.clients.denials import Denials
from app.clients.turns import Turns
from app.common.addresses import is_loopback
from app.common.version import VERSION
from app.databases import engines
from app.databases.protocol import ServerEntry, TicketDatabase
from app.http.access import Access
from app.http.request_watcher import RequestWatcher
from app.http.routes import make_api
from app.http.status_page import StatusPage
from app.http.ticket_endpoint import TicketEndpoint
from app.kinds.table import KINDS
from app.operations.admin import Admin
from app.operations.metrics import Metrics
from app.operations.rates import Rates
from app.operations.tracing import TracedRequests, TracedStatements, TracedTickets, Tracing
from app.redis.door import RedisDoor
from app.redis.watcher import CommandWatcher
from app.settings import Settings
from app.tickets.bumps import Bumps
from app.tickets.catalog import Catalog
from app.tickets.front_desk import FrontDesk
from app.tickets.instance_number import InstanceNumber
from app.tickets.issuer import TicketIssuer
from app.tickets.lane import Lane
from app.tickets.ledger import Ledger
from app.tickets.observer import Observer
from app.tickets.prober import Prober
from app.tickets.reserve_window import window_seconds
from app.tickets.reserves import Reserves
from app.tickets.ring import Member, Ring
from app.tickets.ring_agreement import RingRecords
from app.tickets.server_clock import ServerClock
from app.tickets.sources import Sources
from app.tickets.worker_lease import WorkerLease


def make_databases(settings: Settings, on_retry: Callable[[str, str], None]) -> list[TicketDatabase]:
    """The ticket databases that the settings name, in offset order. `on_retry` is told a database's name and why one of
    its statements is tried again."""
    return [
        engines.make_database(address, offset, settings.presumed_increment, settings.database_timeout, on_retry)
        for offset, address in enumerate(settings.addresses, start=1)
    ]


class Service:
    """The ticket server without its ports."""

    def __init__(self, settings: Settings, tracing: Tracing | None = None) -> None:
        self._tracing = tracing
        self.metrics = Metrics()
        self.turns = Turns()
        self._observer: Observer = self.metrics if tracing is None else TracedStatements(self.metrics, tracing)
        self._databases = make_databases(settings, self._retried)
        self.ring = Ring(self._databases, now=time.time)
        self.reserves = Reserves(
            self.ring,
            self._observer,
            seconds=settings.reserve_seconds,
            window=window_seconds(settings.probe_interval, settings.database_timeout),
            may_draw=self._may_draw,
        )
        instance, address = secrets.token_hex(8), f"{socket.gethostname()}:{settings.port}"

        def describe() -> ServerEntry:
            return ServerEntry(
                instance,
                VERSION,
                tuple(KINDS),
                settings.probe_interval,
                self.reserves.announced,
                uses=self.ring.uses(address),
            )

        for database in self._databases:
            database.announce(describe)
        self.ledger = Ledger(
            self.ring,
            refuse_unverified=settings.unverified == "refuse",
            patience=0.7 * settings.database_timeout,
            forgets_after=5 * settings.probe_interval + 2 * settings.database_timeout,
            clock=time.monotonic,
            on_bump=self.reserves.bumped,
        )
        self.clock = ServerClock()
        self.lease = WorkerLease(self.ring, self.clock, self.ledger)
        self.instance = InstanceNumber(self.ring)
        self.sources = Sources(self.ring, self.clock, self.lease, self.instance, settings.request_timeout)
        self.catalog = Catalog(self.ring, self._make_lane, self.ledger.known_mark, self.sources.equip, self.reserves)
        self.issuer = TicketIssuer(
            self.ring,
            self.catalog,
            self.ledger.may_draw,
            self.reserves,
            attempt=settings.database_timeout,
            timeout=settings.request_timeout,
        )
        records = RingRecords(self.ring, settings.increment)
        self.prober = Prober(
            self.ring,
            records,
            self.ledger,
            self.catalog,
            self.clock,
            reserves=self.reserves,
            interval=settings.probe_interval,
        )
        self.desk = FrontDesk(self.issuer, self.metrics)
        self.admin = Admin(
            self.ring,
            self.catalog,
            self.ledger,
            self.metrics,
            sources=self.sources,
            clock=self.clock,
            reserves=self.reserves,
            bumps=Bumps(self.ring, self.reserves, settings.request_timeout),
            embedded=settings.embedded,
        )
        self.rates = Rates(self.admin.progress, time.monotonic)
        self.access = access = Access(settings.tokens, settings.admin_tokens)
        self._denials = denials = Denials(self.metrics)
        status_page = StatusPage(self.admin, self.rates, self.metrics, self.turns, settings.port)
        locally = is_loopback(settings.host)
        api = make_api(self.admin, access, denials, status_page, self.desk, turns=self.turns, listens_locally=locally)
        self.app: ASGIApp = api if tracing is None else TracedRequests(api, tracing)
        """All of HTTP but tickets and blocks."""
        self._settings = settings
        self._tracer = None if tracing is None else TracedTickets(tracing)
        self._is_watched = tracing is not None or settings.access_log
        watcher = RequestWatcher(self._tracer, log_access=settings.access_log)
        self.endpoint = TicketEndpoint(self.desk, access, denials, watcher if self._is_watched else None)

    def make_redis_door(self, connections: Connections) -> RedisDoor:
        """The same tickets over the Redis protocol. `connections`: all of the server's."""
        watcher = CommandWatcher(self._tracer, log_access=self._settings.access_log)
        return RedisDoor(
            self.desk,
            self.catalog,
            self.access,
            self._denials,
            connections,
            timeout=self._settings.request_timeout,
            watcher=watcher if self._is_watched else None,
        )

    def _retried(self, database: str, cause: str) -> None:
        self.metrics.retries.update([(database, cause)])

    def _may_draw(self, member: Member) -> bool:
        return self.ledger.may_draw(member)

    def _make_lane(self, sequence: str, member: Member) -> Lane:
        return Lane(sequence, member, self.ring, self.ledger, self._observer)

    def start(self) -> None:
        """Begin to look at the databases; requests that come before the first one is up wait for it."""
        self.prober.start()
        self.lease.start()
        self.instance.start(self.catalog)
        self.reserves.start()
        self.rates.start()

    async def stop(self) -> None:
        """Sampler and probes end and the last marks are written; then whatever still draws; then the connections."""
        await self.rates.stop()
        await self.instance.stop()
        await self.lease.stop(self.sources.last_ms)
        await self.prober.stop()
        await self.reserves.stop()
        await self.issuer.close()
        await self.ledger.close()
        await self.catalog.close()
        await asyncio.gather(*(database.close() for database in self._databases))
        if self._tracing is not None:
            await self._tracing.close()
