"""The one wiring: everything that a ticket server is made of, without its doors."""

import asyncio
import time
from collections.abc import Callable, Sequence
from functools import partial
from random import Random

from app.databases.database import Database
from app.kinds.table import KINDS
from app.kinds.timed import TimedKind
from app.settings import Settings
from app.tickets.catalog import Catalog, Entry
from app.tickets.desk import Desk
from app.tickets.floors import Floors
from app.tickets.issuer import Issuer
from app.tickets.lane import Again, Lane
from app.tickets.level import Levels
from app.tickets.listing import Listing
from app.tickets.memory import Memory
from app.tickets.opening import LaneSpec, Opener
from app.tickets.probe import Probe
from app.tickets.rights import InstanceNumber, WorkerNumber
from app.tickets.sight import Member, Sight
from app.tickets.source import Source
from app.tickets.stamps import ServerClock, Stamps
from app.tickets.step import Pace, Reserve, TicketPace

boot_clock = partial(time.clock_gettime, time.CLOCK_BOOTTIME)
"""Seconds since the machine started, also those for which it was suspended."""


class Service:
    """One ticket server: its databases, what it sees of them, and the desk that doors call.

    databases: in the order of their offsets. name: `hostname:port` of this server. clock: seconds by a clock that
    counts suspension. wall: seconds since 1970. chance: decides random waits. refuses: whether an unprotected database
    issues nothing.
    """

    def __init__(
        self,
        databases: Sequence[Database],
        settings: Settings,
        name: str,
        *,
        clock: Callable[[], float] = boot_clock,
        wall: Callable[[], float] = time.time,
        chance: Random | None = None,
    ) -> None:
        members = [Member(offset, database) for offset, database in enumerate(databases, 1)]
        chance = chance or Random()
        self.settings, self.name = settings, name
        self.refuses = settings.unverified == "refuse"
        self.sight = Sight(members, settings.probe_interval, settings.database_timeout, clock)
        self.floors = Floors(self.sight)
        self.levels = Levels(self.sight, warns=not settings.is_embedded)
        self.clock = ServerClock(clock, wall)
        self.catalog = Catalog(self.sight, self.floors, self.clock.now_ms)
        self.listing = Listing(self.catalog, self.sight, chance)
        self.opener = Opener(self.sight, self.floors, chance)
        self.probe = Probe(self.sight, name, increment=settings.increment, floors=self.floors)
        self.floors.heard, self.probe.noted = self.probe.floors_heard, self.clock.noted
        self.floors.wait_known = self.probe.wait_known
        self.desk = Desk(self.catalog, self.sight, self._source, settings.request_timeout)
        self.catalog.replaced = self.desk.forget
        self.worker = WorkerNumber(self.opener, self.clock, chance, refuses=self.refuses)
        self.instance = InstanceNumber(self.sight, self.catalog, self.desk)
        self.memory = Memory(self.clock, self.worker, self.instance)
        self._running: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Begin to look at the databases. Requests are served from the first looks on."""
        parts = (self.probe, self.levels, self.listing, self.desk, self.worker, self.instance)
        self._running = [asyncio.get_running_loop().create_task(part.run()) for part in parts]

    async def watch(self) -> None:
        """Return when a part of the server has ended, which none does by itself; raise what ended it."""
        done, _ = await asyncio.wait(self._running, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()

    async def stop(self) -> None:
        """Serve nobody any more, let go of the databases, and close every connection."""
        await self.desk.end()
        if self.settings.is_embedded:
            await asyncio.gather(*(self.opener.lower_limit(lane.spec) for lane in self.desk.lanes))
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)
        await self.probe.close()
        await asyncio.gather(*(member.database.close() for member in self.sight.members))

    def _source(self, entry: Entry) -> Source:
        """Return what serves a sequence: lanes of tickets, lanes of ticks, or memory."""
        kind, parameters = KINDS[entry.definition.kind], entry.definition.parameters
        if not entry.is_counted:
            return self.memory.source(entry.name, entry.definition)
        pace: Pace = TicketPace()
        reserve = Reserve(self.settings.reserve_seconds, len(self.sight.members))
        if isinstance(kind, TimedKind):
            pace, reserve = Stamps(kind, parameters, self.clock, self.sight), Reserve()

        def lanes(again: Again) -> list[Lane]:
            made = []
            for member in self.sight.members:
                spec = LaneSpec(entry.name, member, pace, partial(self.catalog.counter, entry, member))
                made.append(Lane(spec, self.opener, again, reserve, refuses=self.refuses))
            return made

        return Issuer(entry.name, self.sight, pace, lanes)
