"""The one wiring of the rooms of `app.tickets`, for the server and for tests, which pass in clocks of their own."""

import asyncio
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from app.common.boot_clock import boot_seconds
from app.common.version import VERSION
from app.databases.protocol import USE_INTERVALS, ServerEntry, TicketDatabase
from app.kinds.table import KINDS
from app.tickets.agreement.ring_records import RingRecords
from app.tickets.desk.front_desk import FrontDesk, RequestObserver
from app.tickets.desk.inner import draw_one
from app.tickets.desk.issuer import TicketIssuer
from app.tickets.lanes.attempts import Attempts
from app.tickets.lanes.lane import Lane
from app.tickets.marks.ledger import Ledger
from app.tickets.requests.observer import Observer
from app.tickets.reserve.reserves import Reserves
from app.tickets.reserve.window import window_seconds
from app.tickets.ring.ring import Member, Ring
from app.tickets.sequences.bumps import Bumps
from app.tickets.sequences.catalog import Catalog
from app.tickets.sources.instance_number import InstanceNumber
from app.tickets.sources.server_clock import ServerClock
from app.tickets.sources.sources import Sources
from app.tickets.sources.worker_lease import WorkerLease
from app.tickets.watch.prober import Prober


@dataclass(frozen=True, slots=True, kw_only=True)
class DomainSettings:
    """The settings of the server that the domain uses.

    `address`: this server's host name and port, as other servers name it. `increment`: TICKETS_INCREMENT, None where it
    is unset. The other fields are the settings of the same name, times in seconds.
    """

    address: str
    probe_interval: float
    database_timeout: float
    request_timeout: float
    reserve_seconds: float = 0.0
    refuse_unverified: bool = False
    increment: int | None = None

    @property
    def forgets_after(self) -> float:
        """Seconds for which the marks that the server read count, and for which a failure to reach a database does."""
        return USE_INTERVALS * self.probe_interval + 2 * self.database_timeout


@dataclass(frozen=True, slots=True)
class Clocks:
    """The clocks that the domain reads, in seconds.

    `wall`: since 1970, may jump. `monotonic`: never goes back, stands still while the machine is suspended. `boot`: the
    same, but goes on while the machine is suspended.
    """

    wall: Callable[[], float] = time.time
    monotonic: Callable[[], float] = time.monotonic
    boot: Callable[[], float] = boot_seconds


class Domain:
    """The ticket server without its ports: the ring, the sequences in it, and the desk that takes requests.

    Args:
        databases: in offset order.
        lane_observer: counts and traces draws.
        request_observer: counts and times requests.
        instance: a word that no other start of any server has; empty: a random one.
        make_lane: makes the lanes. Tests pass another one.
    """

    def __init__(
        self,
        databases: Sequence[TicketDatabase],
        settings: DomainSettings,
        clocks: Clocks,
        lane_observer: Observer,
        request_observer: RequestObserver,
        *,
        instance: str = "",
        make_lane: Callable[[str, Member, Ring, Ledger, Observer], Lane] = Lane,
    ) -> None:
        self._databases = databases
        self.ring = Ring(databases, now=clocks.wall)
        attempts = Attempts(settings.database_timeout)
        self.reserves = self._make_reserves(settings, clocks, lane_observer, attempts)
        self._announce(settings, instance or secrets.token_hex(8))
        self.ledger = self._make_ledger(settings, clocks)
        self.clock = ServerClock(clocks.wall, clocks.monotonic)
        self.lease = WorkerLease(self.ring, self.clock, self.ledger)
        self.instance = InstanceNumber()
        self.sources = Sources(self.ring, self.clock, self.lease, self.instance, settings.request_timeout)
        self.catalog = Catalog(
            self.ring,
            lambda sequence, member: make_lane(sequence, member, self.ring, self.ledger, lane_observer),
            self.ledger.known_mark,
            self.sources,
            self.reserves,
        )
        self.issuer = TicketIssuer(
            self.ring,
            self.catalog,
            self.ledger.may_draw,
            attempts,
            timeout=settings.request_timeout,
            draws_ahead=settings.reserve_seconds > 0,
        )
        self.prober = self._make_prober(settings, clocks)
        self.desk = FrontDesk(self.issuer, request_observer)
        self.bumps = Bumps(self.ring, self.catalog, self.ledger, self.reserves, settings.request_timeout)

    def _make_reserves(
        self, settings: DomainSettings, clocks: Clocks, lane_observer: Observer, attempts: Attempts
    ) -> Reserves:
        return Reserves(
            self.ring,
            lane_observer,
            seconds=settings.reserve_seconds,
            window=window_seconds(settings.probe_interval, settings.database_timeout),
            attempts=attempts,
            may_draw=self._may_draw,
            clock=clocks.boot,
        )

    def _may_draw(self, member: Member) -> bool:
        """Ask the ledger, which is made after the reserves, because it tells them of bumps."""
        return self.ledger.may_draw(member)

    def _make_ledger(self, settings: DomainSettings, clocks: Clocks) -> Ledger:
        return Ledger(
            self.ring,
            refuse_unverified=settings.refuse_unverified,
            patience=0.7 * settings.database_timeout,
            forgets_after=settings.forgets_after,
            clock=clocks.monotonic,
            boot_clock=clocks.boot,
            on_bump=self.reserves.bumped,
        )

    def _make_prober(self, settings: DomainSettings, clocks: Clocks) -> Prober:
        return Prober(
            self.ring,
            RingRecords(self.ring, settings.increment),
            self.ledger,
            self.catalog,
            self.clock,
            reserves=self.reserves,
            interval=settings.probe_interval,
            forgets_after=settings.forgets_after,
            clock=clocks.monotonic,
        )

    def _announce(self, settings: DomainSettings, instance: str) -> None:
        def describe() -> ServerEntry:
            return ServerEntry(
                instance,
                VERSION,
                tuple(KINDS),
                settings.probe_interval,
                self.reserves.announced,
                uses=self.ring.uses(settings.address),
            )

        for database in self._databases:
            database.announce(describe)

    def start(self) -> None:
        """Begin to look at the databases; requests that come before the first one is up wait for it."""
        self.prober.start()
        self.lease.start()
        self.instance.start(partial(draw_one, self.ring, self.catalog))
        self.reserves.start()

    async def stop(self) -> None:
        """End the probes and write the last marks, then end whatever still draws, then close the connections."""
        await self.instance.stop()
        await self.lease.stop(self.sources.last_ms)
        await self.prober.stop()
        await self.reserves.stop()
        await self.issuer.close()
        await self.ledger.close()
        await self.catalog.close()
        await asyncio.gather(*(database.close() for database in self._databases))
