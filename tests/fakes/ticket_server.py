"""The ticket server as `app.service` puts it together, on databases that a test hands over and without HTTP."""

import asyncio
import itertools
import random
from collections.abc import Callable, Sequence

from app.common.sequences import Width
from app.databases.protocol import RingRecord, TicketDatabase
from app.operations.admin import Admin
from app.operations.metrics import Metrics
from app.tickets.domain import Clocks, Domain, DomainSettings
from app.tickets.lanes.lane import Lane
from app.tickets.marks.ledger import Ledger
from app.tickets.requests.observer import Observer
from app.tickets.ring.ring import Member, Ring
from app.tickets.sequences.entry import Entry
from tests.fakes.awaited import AwaitableDesk
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
        lane: Callable[[str, Member, Ring, Ledger, Observer], Lane] = Lane,
    ) -> None:
        self.databases = databases
        self.metrics = Metrics()
        instance = f"{next(self._numbers):x}"
        self.domain = Domain(
            databases,
            DomainSettings(
                address=f"host{instance}:8000",
                probe_interval=probe_interval,
                database_timeout=database_timeout,
                request_timeout=request_timeout,
                reserve_seconds=reserve_seconds,
                refuse_unverified=refuse_unverified,
                increment=increment,
            ),
            Clocks(wall=wall or (lambda: TRUE_TIME + clock()), monotonic=clock, boot=boot_clock or clock),
            self.metrics,
            self.metrics,
            instance=instance,
            make_lane=lane,
        )
        self.ring = self.domain.ring
        self.reserves = self.domain.reserves
        self.ledger = self.domain.ledger
        self.clock = self.domain.clock
        self.lease = self.domain.lease
        self.instance = self.domain.instance
        self.sources = self.domain.sources
        self.catalog = self.domain.catalog
        self.issuer = self.domain.issuer
        self.prober = self.domain.prober
        self.desk = AwaitableDesk(self.issuer, self.metrics)
        self.admin = Admin(self.domain, self.metrics, embedded=False)

    def lane(self, sequence: str, offset: int) -> Lane:
        return self.catalog.lanes[sequence, offset]

    async def make(self, name: str, width: Width | None, start: int | None) -> tuple[Entry, bool]:
        """Look a sequence of plain tickets up, and make it where it is not known."""
        await self.catalog.known(name)
        return await self.catalog.maker.make(self.catalog.given(name), width, start, None)

    def cut_off(self) -> None:
        """Break the network between this ticket server and each of its databases."""
        self._set_cut(True)

    def reconnect(self) -> None:
        """Mend the network again."""
        self._set_cut(False)

    def _set_cut(self, cut: bool) -> None:
        for database in self.databases:
            assert isinstance(database, FakeTicketDatabase)
            database.cut = cut

    async def start(self) -> None:
        self.domain.start()
        await self.prober.settled()

    async def stop(self) -> None:
        await self.domain.stop()


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
