"""The composition root: builds everything from the settings, and owns the order of start and stop."""

import asyncio
import logging
import time
from collections.abc import Callable

from starlette.types import ASGIApp

from app.common.log import event
from app.databases import engines
from app.databases.protocol import TicketDatabase
from app.http.access import Access
from app.http.routes import make_api
from app.http.status_page import StatusPage
from app.http.ticket_endpoint import TicketEndpoint
from app.operations.admin import Admin
from app.operations.metrics import Metrics
from app.operations.rates import Rates
from app.operations.tracing import TracedLane, TracedRequests, Tracing
from app.settings import Settings
from app.tickets.catalog import Catalog
from app.tickets.issuer import TicketIssuer
from app.tickets.lane import Lane
from app.tickets.ledger import Ledger
from app.tickets.prober import Prober
from app.tickets.ring import Member, Ring
from app.tickets.ring_agreement import RingRecords

log = logging.getLogger(__name__)


def make_databases(settings: Settings, on_retry: Callable[[str, str], None]) -> list[TicketDatabase]:
    """The ticket databases that the settings name, in offset order. `on_retry` is told a database's name and why one of
    its statements is tried again."""
    return [
        engines.make_database(address, offset, settings.presumed_increment, settings.database_timeout, on_retry)
        for offset, address in enumerate(settings.addresses, start=1)
    ]


class Service:
    """The ticket server without its HTTP server."""

    def __init__(self, settings: Settings, tracing: Tracing | None = None) -> None:
        self._tracing = tracing
        self.metrics = Metrics()
        self._databases = make_databases(settings, self._retried)
        self.ring = Ring(self._databases, now=time.time)
        self.ring.on_change = self._database_changed
        self.ledger = Ledger(
            self.ring,
            refuse_unverified=settings.unverified == "refuse",
            patience=0.7 * settings.database_timeout,
            forgets_after=5 * settings.probe_interval + 2 * settings.database_timeout,
            clock=time.monotonic,
        )
        self.catalog = Catalog(self.ring, self._make_lane, self.ledger.known_mark)
        self.issuer = TicketIssuer(
            self.ring,
            self.catalog,
            attempt=settings.database_timeout,
            timeout=settings.request_timeout,
        )
        records = RingRecords(self.ring, settings.increment)
        self.prober = Prober(self.ring, records, self.ledger, self.catalog, interval=settings.probe_interval)
        self.admin = Admin(self.ring, self.catalog, self.ledger, self.metrics)
        self.rates = Rates(self.admin.progress, time.monotonic)
        access = Access(settings.tokens, settings.admin_tokens)
        status_page = StatusPage(self.admin, self.rates, self.metrics, settings.port)
        api = make_api(self.admin, access, status_page, self.issuer)
        self.endpoint = TicketEndpoint(api, self.issuer, access, self.metrics)

    def _retried(self, database: str, cause: str) -> None:
        self.metrics.retries.update([(database, cause)])

    @property
    def app(self) -> ASGIApp:
        """The whole of HTTP."""
        return self.endpoint if self._tracing is None else TracedRequests(self.endpoint, self._tracing)

    def _make_lane(self, sequence: str, member: Member) -> Lane:
        if self._tracing is None:
            return Lane(sequence, member, self.ring, self.ledger, self.metrics)
        return TracedLane(sequence, member, self.ring, self.ledger, self.metrics, tracing=self._tracing)

    def _database_changed(self, member: Member) -> None:
        """One line in the log; and nobody waits for a database that is down."""
        _log(member)
        if not member.up:
            for lane in self.catalog.lanes.values():
                if lane.member is member:
                    lane.send_on()

    def start(self) -> None:
        """Begin to look at the databases; requests that come before the first one is up wait for it."""
        self.prober.start()
        self.rates.start()

    async def stop(self) -> None:
        """Sampler and probes end and the last marks are written; then whatever still draws; then the connections."""
        await self.rates.stop()
        await self.prober.stop()
        await self.ledger.close()
        await self.catalog.close()
        await asyncio.gather(*(database.close() for database in self._databases))
        if self._tracing is not None:
            await self._tracing.close()


def _log(member: Member) -> None:
    level = logging.INFO if member.up else logging.WARNING
    reason = member.marks_trouble if member.up else member.last_error
    fields = {"reason": reason} if reason else {}
    event(log, level, f"database {member.status}", None, name=member.name, offset=member.database.offset, **fields)
