"""The right to make ids in memory: a number that no other process may use for the same times.

`flake` and `objectid` make ids under an instance number: a ticket that a server draws once after each start. So no
other process ever has that number: no clone of the same image, and not this server after a restart.

`snowflake` makes ids under a worker number from 0 to 1,023, leased for a time. Each number is a lane whose limit is a
time. Its row of MARKS stands on every database, and first on the database of the offset `number mod increment + 1`,
which lets a single server have it. The limit says up to which time the holder may stamp ids, and the tenure says who
the holder is. The holder renews the lease by marks, as a lane raises its limit. So what rules 2 and 3 say of limits
holds here too. Any other server may take the number once the limit is past, and stamps only times above that limit. So
two holders never stamp one time, whatever their clocks say.

A server never takes a lease over again. Where it cannot renew, it leases another number, at random. An abandoned number
is free again when its limit is past.
"""

import asyncio
import logging
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from random import Random
from typing import NamedTuple

from app.databases.record import Record, new_word
from app.databases.session import Book, Mark, Note
from app.errors import NoTicketDatabase, TicketError, Unavailable, Unverified
from app.tickets.catalog import Catalog, drawn
from app.tickets.definitions import TICKET
from app.tickets.desk import Desk
from app.tickets.everywhere import everywhere, lives_in_sight
from app.tickets.marks import Outcome, mark_everywhere, replace_rows
from app.tickets.request import Call
from app.tickets.sight import Member, Sight
from app.tickets.stamps import ServerClock

log = logging.getLogger(__name__)

INSTANCES = "ticketd_instances"
"""The sequence of plain tickets that instance numbers are drawn from. It is made like any other sequence."""
FOR_EVER = (1 << 63) - 1
WORKERS = 1_024
LEASE_MS = 120_000
"""How far a lease reaches ahead of the clocks."""
RENEWAL = 20.0
"""Seconds between two renewals."""
MARGIN_MS = 1_000
"""A number is free this long after its limit, because clocks differ."""
WAIT = 0.01, 0.1
"""Bounds of the random wait, in seconds, after another server was quicker."""


class Right(NamedTuple):
    """The right to make ids under a number, with times above `after_ms` and at most `until_ms` (since 1970)."""

    number: int
    after_ms: int
    until_ms: int


class Holder(ABC):
    """Holds the right of this server, for all sequences of a kind, once one needs it. One task runs `run`.

    trouble: why the server could not get the right, or not renew it; None where nothing is wrong.
    """

    def __init__(self, sight: Sight) -> None:
        self._sight = sight
        self._needed = asyncio.Event()
        self.trouble: TicketError | None = None

    def need(self) -> None:
        """Get the right and keep it: a sequence makes ids under it."""
        self._needed.set()

    @property
    def is_needed(self) -> bool:
        """Whether a sequence makes ids under the right."""
        return self._needed.is_set()

    @abstractmethod
    def right(self) -> Right | None:
        """Return the right as it stands now; None where this server has none now."""

    @abstractmethod
    async def _keep(self) -> None:
        """Get the right, or a longer one, if that is due. Raises TicketError."""

    async def run(self) -> None:
        """Keep the right once a sequence needs it, until this is cancelled."""
        await self._needed.wait()
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

    row: the name of its row of MARKS. member, life, tenure, era, sure: as of a lane, see `Opened`. generation: the
    sight's when the limit was set; the right counts only while that is the present one. renewed: when the last renewal
    began, by the clock of the sight.
    """

    right: Right
    row: str
    member: Member
    life: str
    tenure: str
    era: int
    sure: bool
    generation: int
    renewed: float


class WorkerNumber(Holder):
    """Holds one lease at a time.

    sight, clock: of this server. chance: chooses the number. refuses: whether an unprotected lease is neither taken nor
    renewed. lease: the one that was held last; `right` says whether it counts.
    """

    def __init__(self, sight: Sight, clock: ServerClock, chance: Random, *, refuses: bool) -> None:
        super().__init__(sight)
        self._clock, self._chance, self._refuses = clock, chance, refuses
        self.lease: Lease | None = None

    def right(self) -> Right | None:
        """See Holder.right."""
        lease = self._standing()
        return lease.right if lease is not None and self._sight.is_fresh() else None

    @property
    def is_unprotected(self) -> bool:
        """Whether a database that comes back older could let another server have the number of this server."""
        lease = self.lease
        return lease is not None and (self._sight.alone(lease.member) or not lease.sure)

    def _open(self) -> Lease | None:
        """Return the lease while it is open."""
        lease = self.lease
        if lease is None or not self._sight.keeps(lease.member, lease.life, lease.era, lease.sure):
            return None
        return lease

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
            if lease is None or lease.member.life is None:
                await self._take(record)
            else:
                await self._renew(lease)

    async def _renew(self, lease: Lease) -> None:
        """Try to raise the limit on every database in sight. A refused lease ends."""
        sight, began, generation = self._sight, self._sight.clock(), self._sight.generation
        if self._refuses and sight.alone(lease.member):
            raise Unverified
        self._clock.now_ms()  # raises if this server's clock is ahead
        until = max(self._clock.earliest_ms() + LEASE_MS, lease.right.until_ms)
        mark = Mark(lease.row, lease.tenure, until, lease.right.after_ms, lease.sure)
        outcome = await mark_everywhere(sight, lease.member, mark, lease.era)
        if outcome is Outcome.STANDS:
            right = lease.right._replace(until_ms=until)
            self.lease = replace(lease, right=right, generation=generation, renewed=began)
        elif outcome is Outcome.REFUSED:
            self.lease = None

    async def _take(self, record: Record) -> None:
        """Try to lease a number whose limit is past, from a database in sight. Raises Unavailable."""
        sight, began, now = self._sight, self._sight.clock(), self._clock.now_ms()
        era, generation, whole, lives = sight.era, sight.generation, sight.whole, lives_in_sight(sight)
        if self._refuses and not whole:
            raise Unverified
        owners = {member.offset: member for member in lives}
        names = {
            number: (f"#worker{number}", f"#worker{number}/{offset}")
            for number in range(WORKERS)
            if (offset := number % record.increment + 1) in owners
        }
        if not names:
            raise NoTicketDatabase("no ticket database that could lease a worker number is in sight")

        async def read(member: Member, life: str) -> dict[str, Note]:
            floors, marks = zip(*names.values(), strict=True)
            found = await member.database.read(Book.FLOORS, floors, life)
            return found | await member.database.read(Book.MARKS, marks, life)

        found = await everywhere(sight, lives, read)
        if len(found) < len(lives):
            return
        limits = {
            number: max((notes[name].high for notes in found.values() for name in both if name in notes), default=0)
            for number, both in names.items()
        }
        free = [number for number, limit in limits.items() if limit + MARGIN_MS < now]
        if not free:
            raise NoTicketDatabase(f"other servers hold all {len(names):,} worker numbers of the databases in sight")
        number = self._chance.choice(free)
        own, after, row = owners[number % record.increment + 1], limits[number], names[number][1]
        until = self._clock.earliest_ms() + LEASE_MS
        note = Note(until, after, tenure := f"{lives[own]} - {new_word()}")
        old = {member: notes.get(row) for member, notes in found.items()}
        if await replace_rows(sight, own, row, old, note, lives=lives, stamp=record.stamp):
            right = Right(number, after, until)
            self.lease = Lease(right, row, own, lives[own], tenure, era, whole, generation, began)
            log.info("leased the worker number %d from %s", number, own.name)
        else:
            await asyncio.sleep(self._chance.uniform(*WAIT))
