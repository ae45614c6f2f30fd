"""The right to make ids in memory: a number that no other process may use for the same times.

`flake` and `objectid` make ids under an instance number: a ticket that a server draws once after each start. So no
other process ever has that number: no clone of the same image, and not this server after a restart.

`snowflake` makes ids under a worker number from 0 to 1,023, leased for a time. Each number is a lane whose ids are the
milliseconds since 1970, on the database of the offset `number mod increment + 1`. It is opened as any lane is (rule 4),
except that no server adopts it, and that a server advances it only once its limit is past. The limit says up to which
time the holder may stamp ids, and marks raise it, so rules 2 and 3 hold here too. The next holder stamps only times
above that limit. So two holders never stamp one time, whatever their clocks say.

Where a server cannot renew its lease, it leases another number, at random. An abandoned number is free again when its
limit is past.
"""

import asyncio
import logging
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from functools import partial
from random import Random
from typing import NamedTuple

from app.databases.record import new_word
from app.databases.session import Counter, Mark
from app.errors import DatabaseError, NoTicketDatabase, TicketError, Unavailable, Unverified
from app.tickets.catalog import Catalog
from app.tickets.definitions import TICKET
from app.tickets.desk import Desk
from app.tickets.floors import drawn
from app.tickets.marks import Outcome, mark_everywhere
from app.tickets.opening import LaneSpec, Opened, Opener
from app.tickets.request import Call
from app.tickets.sight import Sight
from app.tickets.stamps import ServerClock
from app.tickets.step import TicketPace

log = logging.getLogger(__name__)

INSTANCES = "ticketd_instances"
"""The sequence of plain tickets that instance numbers are drawn from. It is made like any other sequence."""
FOR_EVER = (1 << 63) - 1
WORKERS = 1_024
LEASE_MS = 120_000  # how far a lease reaches ahead of the clocks
RENEWAL = 20.0  # seconds between two renewals
MARGIN_MS = 1_000  # a number is free this long after its limit, because clocks differ


class Right(NamedTuple):
    """The right to make ids under a number, with times above `after_ms` and at most `until_ms` (since 1970)."""

    number: int
    after_ms: int
    until_ms: int


class Holder(ABC):
    """Holds the right of this server, for all sequences of a kind. One task runs `run`.

    needed: set once a sequence makes ids under the right, so that the server gets it and keeps it. trouble: why the
    server could not get the right, or not renew it; None where nothing is wrong.
    """

    def __init__(self, sight: Sight) -> None:
        self._sight = sight
        self.needed = asyncio.Event()
        self.trouble: TicketError | None = None

    @abstractmethod
    def right(self) -> Right | None:
        """Return the right as it stands now; None where this server has none now."""

    @abstractmethod
    async def _keep(self) -> None:
        """Get the right, or a longer one, if that is due. Raises TicketError."""

    async def run(self) -> None:
        """Keep the right once a sequence needs it, until this is cancelled."""
        await self.needed.wait()
        while True:
            try:
                await self._keep()
                self.trouble = None
            except TicketError as error:
                if str(error) != str(self.trouble):
                    log.warning("ids cannot be made in memory: %s", error)
                self.trouble = error if isinstance(error, Unavailable) else NoTicketDatabase(str(error))
            await self._sight.moved(RENEWAL)


class InstanceNumber(Holder):
    """The number of this start of the server: a ticket. catalog, desk: of this server."""

    def __init__(self, sight: Sight, catalog: Catalog, desk: Desk) -> None:
        super().__init__(sight)
        self._catalog, self._desk = catalog, desk
        self._right: Right | None = None

    def right(self) -> Right | None:
        """See Holder.right."""
        return self._right

    async def _keep(self) -> None:
        """Draw the number, and make the sequence of the numbers first if there is none."""
        if self._right is not None:
            return
        answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        request = Call(INSTANCES, answer.set_result, answer.set_exception)
        try:
            await self._catalog.create(INSTANCES, TICKET, {})
            self._desk.take(request)
            self._right = Right(await answer, 0, FOR_EVER)
        except TicketError as error:
            raise NoTicketDatabase(f"this server could not draw its instance number: {error}") from error
        finally:
            request.abandon()
        log.info("drew the instance number %d", self._right.number)


@dataclass(frozen=True, slots=True)
class Lease:
    """A worker number that this server holds.

    right: up to the limit. lane, opened: as of a lane. generation: the sight's when the limit was set; the right counts
    only while that is the present one. renewed: when the last renewal began, by the clock of the sight.
    """

    right: Right
    lane: LaneSpec
    opened: Opened
    generation: int
    renewed: float


class WorkerNumber(Holder):
    """Holds one lease at a time.

    opener, clock: of this server. chance: chooses the number. refuses: whether an unprotected lease is neither taken
    nor renewed. lease: the one that was held last; `right` says whether it counts.
    """

    def __init__(self, opener: Opener, clock: ServerClock, chance: Random, *, refuses: bool) -> None:
        super().__init__(opener.sight)
        self._opener, self._clock, self._chance, self._refuses = opener, clock, chance, refuses
        self.lease: Lease | None = None

    def right(self) -> Right | None:
        """See Holder.right."""
        lease = self._standing()
        return lease.right if lease is not None and self._sight.is_fresh() else None

    @property
    def is_unprotected(self) -> bool:
        """Whether a database that comes back older could let another server have the number of this server."""
        lease = self.lease
        return lease is not None and (self._sight.alone(lease.lane.member) or not lease.opened.sure)

    def _open(self) -> Lease | None:
        """Return the lease while it is open."""
        if (lease := self.lease) is None:
            return None
        opened = lease.opened
        return lease if self._sight.keeps(lease.lane.member, opened.life, opened.era, opened.sure) else None

    def _standing(self) -> Lease | None:
        """The lease, if it is open and its limit stands."""
        lease = self._open()
        return lease if lease is not None and lease.generation == self._sight.generation else None

    async def _keep(self) -> None:
        """Renew the lease, or take another number, until that is not due any more."""
        sight = self._sight
        while (standing := self._standing()) is None or sight.clock() >= standing.renewed + RENEWAL:
            await sight.confirmed()
            record, lease = drawn(sight), self._open()
            if lease is None or lease.lane.member.life is None:
                lease = await self._take(record.increment)
            await self._renew(lease)

    async def _renew(self, lease: Lease) -> None:
        """Try to raise the limit on every database in sight. A refused lease ends."""
        sight, began, generation = self._sight, self._sight.clock(), self._sight.generation
        opened, member = lease.opened, lease.lane.member
        if self._refuses and (sight.alone(member) or not opened.sure):
            raise Unverified
        now = self._clock.now_ms() - int(max(0.0, self._clock.ahead) * 1000)  # not ahead of the databases
        until = max(now + LEASE_MS, lease.right.until_ms)
        mark = Mark(lease.lane.row, opened.tenure, until, opened.highest, opened.sure)
        outcome = await mark_everywhere(sight, member, mark, opened.era)
        if outcome is Outcome.STANDS:
            right = lease.right._replace(until_ms=until)
            self.lease = replace(lease, right=right, generation=generation, renewed=began)
        elif outcome is Outcome.REFUSED and lease is self.lease:
            self.lease = None

    async def _take(self, increment: int) -> Lease:
        """Open the lane of a number whose limit is past, on a database in sight. Raises Unavailable."""
        sight, era = self._sight, self._sight.era
        if self._refuses and not sight.whole:
            raise Unverified
        there = {member.offset: member for member in sight.in_sight}
        numbers = [number for number in range(WORKERS) if number % increment + 1 in there]
        self._chance.shuffle(numbers)
        for number in numbers:
            read, member = partial(self._past, new_word()), there[number % increment + 1]
            lane = LaneSpec(f"#worker{number}", member, TicketPace(), read, is_drawn=False)
            try:
                opened = await self._opener.open(lane, 0)
            except DatabaseError:  # another server holds it, or the database has failed
                continue
            log.info("leases the worker number %d from %s", number, member.name)
            # under another increment the number belongs to another database, so the lane is open in this era only
            return Lease(Right(number, opened.highest, 0), lane, replace(opened, era=era), opened.generation, 0.0)
        raise NoTicketDatabase("no ticket database in sight has a worker number that is free")

    async def _past(self, word: str) -> Counter:
        """Return the end of the past as a counter, of a birth that no other server knows. Raises ClockAhead.

        A lane is exhausted if its limit is not below the counter's end, so only a limit that is past can be passed.
        """
        return Counter("", 64, self._clock.now_ms() - MARGIN_MS, 0, word)
