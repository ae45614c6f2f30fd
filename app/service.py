"""The composition root: builds everything from the settings, and owns the order of start and stop."""

import socket
import time
from collections.abc import Callable

from starlette.types import ASGIApp

from app.clients.connections import Connections
from app.clients.denials import Denials
from app.clients.turns import Turns
from app.common.addresses import is_loopback
from app.databases import engines
from app.databases.protocol import TicketDatabase
from app.http.access import Access
from app.http.api.routes import make_api
from app.http.pages.sequence_page import SequencePage
from app.http.pages.status_page import StatusPage
from app.http.request_watcher import RequestWatcher
from app.http.tickets.endpoint import TicketEndpoint
from app.operations.admin import Admin
from app.operations.metrics import Metrics
from app.operations.rates import Rates
from app.operations.tracing import TracedRequests, TracedStatements, TracedTickets, Tracing
from app.redis.door import RedisDoor
from app.redis.watcher import CommandWatcher
from app.settings import Settings
from app.tickets.domain import Clocks, Domain, DomainSettings
from app.tickets.requests.observer import Observer


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
        observer: Observer = self.metrics if tracing is None else TracedStatements(self.metrics, tracing)
        self._domain = domain = Domain(
            make_databases(settings, self._retried),
            DomainSettings(
                address=f"{socket.gethostname()}:{settings.port}",
                probe_interval=settings.probe_interval,
                database_timeout=settings.database_timeout,
                request_timeout=settings.request_timeout,
                reserve_seconds=settings.reserve_seconds,
                refuse_unverified=settings.unverified == "refuse",
                increment=settings.increment,
            ),
            Clocks(),
            observer,
            self.metrics,
        )
        self.desk = domain.desk
        self.admin = Admin(domain, self.metrics, embedded=settings.embedded)
        self.rates = Rates(self.admin.progress, time.monotonic)
        self.access = access = Access(settings.tokens, settings.admin_tokens)
        self._denials = denials = Denials(self.metrics)
        status_page = StatusPage(self.admin, self.rates, self.metrics, self.turns, settings.port)
        sequence_page = SequencePage(self.admin, self.rates, settings.redis_port)
        locally = is_loopback(settings.host)
        api = make_api(
            self.admin,
            access,
            denials,
            status_page,
            self.desk,
            sequence_page=sequence_page,
            turns=self.turns,
            listens_locally=locally,
        )
        self.app: ASGIApp = api if tracing is None else TracedRequests(api, tracing)
        """All of HTTP but tickets and blocks."""
        self._settings = settings
        self._tracer = None if tracing is None else TracedTickets(tracing)
        self._is_watched = tracing is not None or settings.access_log
        watcher = RequestWatcher(self._tracer, log_access=settings.access_log)
        self.endpoint = TicketEndpoint(self.desk, access, denials, watcher if self._is_watched else None)

    def make_redis_door(self, connections: Connections) -> RedisDoor:
        """Serve the tickets over the Redis protocol too. `connections`: all of the server's."""
        watcher = CommandWatcher(self._tracer, log_access=self._settings.access_log)
        return RedisDoor(
            self.desk,
            self._domain.catalog,
            self.access,
            self._denials,
            connections,
            timeout=self._settings.request_timeout,
            watcher=watcher if self._is_watched else None,
        )

    def _retried(self, database: str, cause: str) -> None:
        self.metrics.retries.update([(database, cause)])

    def start(self) -> None:
        """Begin to look at the databases; requests that come before the first one is up wait for it."""
        self._domain.start()
        self.rates.start()

    async def stop(self) -> None:
        """End the sampler, then what draws and its connections, then the traces."""
        await self.rates.stop()
        await self._domain.stop()
        if self._tracing is not None:
            await self._tracing.close()
