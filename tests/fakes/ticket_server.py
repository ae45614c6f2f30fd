"""The ticket server as `app.service` puts it together, on databases that a test hands over and without HTTP."""

import asyncio
import itertools
import random
from collections.abc import Callable, Sequence

from app.common.version import VERSION
from app.databases.protocol import RingRecord, ServerEntry, TicketDatabase
from app.kinds.table import KINDS
from app.operations.admin import Admin
from app.operations.metrics import Metrics
from app.tickets.bumps import Bumps
from app.tickets.catalog import Catalog
from app.tickets.front_desk import FrontDesk
from app.tickets.instance_number import InstanceNumber
from app.tickets.issuer import TicketIssuer
from app.tickets.lane import Lane
from app.tickets.ledger import Ledger
from app.tickets.prober import Prober
from app.tickets.reserve_window import window_seconds
from app.tickets.reserves import Reserves
from app.tickets.ring import Member, Ring
from app.tickets.ring_agreement import RingRecords
from app.tickets.server_clock import ServerClock
from app.tickets.sources import Sources
from app.tickets.worker_lease import WorkerLease
from tests.fakes.ticket_database import TIMEOUT, TRUE_TIME, FakeServer, FakeTicketDatabase
from tests.fakes.virtual_time import VirtualLoop

PROBE_INTERVAL = 1.0
REQUEST_TIMEOUT = 2.0


class FakeTicketServer:
    """Ring, ledger, catalog, issuer, health and admin on these databases."""

    _numbers = itertools.count(1)

    def __init__(
        self,
        databases: Sequence[TicketDatabase],
        *,
        clock: Callable[[], float],
        refuse_unverified: bool = False,
        probe_interval: float = PROBE_INTERVAL,
        database_timeout: float = TIMEOUT,
        request_timeout: float = REQUEST_TIMEOUT,
        increment: int | None = None,
        wall: Callable[[], float] | None = None,
        reserve_seconds: float = 0.0,
        boot_clock: Callable[[], float] | None = None,
        lane: Callable[[str, Member, Ring, Ledger, Metrics], Lane] = Lane,
    ) -> None:
        self.databases = databases
        self._lane = lane
        self.metrics = Metrics()
        self.ring = Ring(databases, now=clock)
        self.reserves = Reserves(
            self.ring,
            self.metrics,
            seconds=reserve_seconds,
            window=window_seconds(probe_interval, database_timeout),
            may_draw=self._may_draw,
            clock=boot_clock or clock,
        )
        instance = f"{next(self._numbers):x}"

        def describe() -> ServerEntry:
            uses = self.ring.uses(f"host{instance}:8000")
            return ServerEntry(instance, VERSION, tuple(KINDS), probe_interval, self.reserves.announced, uses=uses)

        for database in databases:
            database.announce(describe)
        self.ledger = Ledger(
            self.ring,
            refuse_unverified=refuse_unverified,
            patience=0.7 * database_timeout,
            forgets_after=5 * probe_interval + 2 * database_timeout,
            clock=clock,
            on_bump=self.reserves.bumped,
        )
        self.clock = ServerClock(wall or (lambda: TRUE_TIME + clock()), clock)
        self.lease = WorkerLease(self.ring, self.clock, self.ledger)
        self.instance = InstanceNumber(self.ring)
        self.sources = Sources(self.ring, self.clock, self.lease, self.instance, request_timeout)
        self.catalog = Catalog(self.ring, self._make_lane, self.ledger.known_mark, self.sources.equip, self.reserves)
        self.issuer = TicketIssuer(
            self.ring,
            self.catalog,
            self.ledger.may_draw,
            self.reserves,
            attempt=database_timeout,
            timeout=request_timeout,
        )
        records = RingRecords(self.ring, increment)
        self.prober = Prober(
            self.ring,
            records,
            self.ledger,
            self.catalog,
            self.clock,
            reserves=self.reserves,
            interval=probe_interval,
            clock=clock,
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
            bumps=Bumps(self.ring, self.reserves, request_timeout),
            embedded=False,
        )

    def _may_draw(self, member: Member) -> bool:
        return self.ledger.may_draw(member)

    def _make_lane(self, sequence: str, member: Member) -> Lane:
        return self._lane(sequence, member, self.ring, self.ledger, self.metrics)

    def lane(self, sequence: str, offset: int) -> Lane:
        return self.catalog.lanes[sequence, offset]

    async def start(self) -> None:
        self.prober.start()
        self.lease.start()
        self.instance.start(self.catalog)
        self.reserves.start()
        await self.prober.settled()

    async def stop(self) -> None:
        await self.instance.stop()
        await self.lease.stop(self.sources.last_ms)
        await self.prober.stop()
        await self.reserves.stop()
        await self.issuer.close()
        await self.ledger.close()
        await self.catalog.close()
        await asyncio.gather(*(database.close() for database in self.databases))


def latency(seed: int, longest: float = 0.004) -> Callable[[], tuple[float, float]]:
    """Random times there and back; the same ones for the same seed."""
    chance = random.Random(seed)
    return lambda: (chance.random() * longest, chance.random() * longest)


def record_ring(servers: Sequence[FakeServer]) -> None:
    """What ticket servers that drew in this ring before have recorded."""
    for server in servers:
        offsets = tuple(other.offset for other in servers)
        server.state.ring = RingRecord(1, server.increment, 1, offsets, own=server.offset)


class Site:
    """Fake servers, and ticket servers on them in one event loop, for tests.

    `recorded`: whether ticket servers have recorded the ring before.
    """

    def __init__(
        self, databases: int = 2, sequences: Sequence[str] = ("photos",), *, increment: int = 0, recorded: bool = True
    ) -> None:
        self._increment = increment or None
        step = increment or databases
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        self.clock = loop.clock
        self.servers = [FakeServer(offset, step, sequences, self.clock) for offset in range(1, databases + 1)]
        if recorded:
            record_ring(self.servers)
        self._numbers = itertools.count(1)
        self._running: list[FakeTicketServer] = []

    async def __aenter__(self) -> "Site":
        return self

    async def __aexit__(self, *_: object) -> None:
        for server in self.servers:
            server.heal()
        await asyncio.gather(*(ticket_server.stop() for ticket_server in self._running))

    async def ticket_server(
        self,
        *,
        refuse_unverified: bool = False,
        probe_interval: float = PROBE_INTERVAL,
        request_timeout: float = REQUEST_TIMEOUT,
        largest_block: int = 32_767,
        reserve_seconds: float = 0.0,
        wall: Callable[[], float] | None = None,
        longest: float = 0.004,
        servers: Sequence[FakeServer] | None = None,
        increment: int | None = None,
    ) -> FakeTicketServer:
        """One more ticket server, started. `longest`: seconds that a statement takes at the most, each way. `servers`:
        the databases that it lists, where these are not the site's."""
        clock = asyncio.get_running_loop().time
        clients = [
            FakeTicketDatabase(server, largest_block=largest_block, latency=latency(next(self._numbers), longest))
            for server in servers or self.servers
        ]
        made = FakeTicketServer(
            clients,
            clock=clock,
            refuse_unverified=refuse_unverified,
            probe_interval=probe_interval,
            request_timeout=request_timeout,
            increment=increment or self._increment,
            wall=wall,
            reserve_seconds=reserve_seconds,
            boot_clock=self.clock,
        )
        await made.start()
        self._running.append(made)
        return made

    async def stop(self, ticket_server: FakeTicketServer) -> None:
        """Stop it."""
        self._running.remove(ticket_server)
        await ticket_server.stop()

    async def restart(self, ticket_server: FakeTicketServer) -> FakeTicketServer:
        """Stop it, and start another in its place."""
        await self.stop(ticket_server)
        return await self.ticket_server()
