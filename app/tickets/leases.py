"""The worker number of this server, for `snowflake`: a number from 0 to 1,023, leased for a time.

Each number is a lane whose limit is a time. Its row of MARKS stands on every database, and first on the database of the
offset `number mod increment + 1`, which lets a single server have it. The limit says up to which time the holder may
stamp ids, and the tenure says who the holder is. The holder renews the lease by marks, as a lane raises its limit. So
what rules 2 and 3 say of limits holds here too. Any other server may take the number once the limit is past, and stamps
only times above that limit. So two holders never stamp one time, whatever their clocks say.

A server never takes a lease over again. Where it cannot renew, it leases another number, at random. An abandoned number
is free again when its limit is past.
"""

import asyncio
import logging
from contextlib import suppress
from dataclasses import dataclass, replace
from random import Random

from app.databases.record import Record, new_word
from app.databases.session import Book, Mark, Note
from app.errors import DatabaseError, DatabaseFailed, NoTicketDatabase, Unavailable, Unverified
from app.tickets.everywhere import everywhere, lives_in_sight
from app.tickets.marks import Outcome, mark_everywhere, replace_rows
from app.tickets.rights import Holder, Right
from app.tickets.server_clock import ServerClock
from app.tickets.sight import Member, Sight

log = logging.getLogger(__name__)

WORKERS = 1_024
LEASE_MS = 120_000
"""How far a lease reaches ahead of the clocks."""
RENEWAL = 20.0
"""Seconds between two renewals."""
PATIENCE_MS = 60_000
"""While more than this is left of a lease whose database is away, the server waits for that database."""
MARGIN_MS = 1_000
"""A number is free this long after its limit, because clocks differ."""
WAIT = 0.01, 0.1
"""Bounds of the random wait, in seconds, after another server was quicker."""


@dataclass(frozen=True, slots=True)
class Lease:
    """A number that this server holds.

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
    """Holds one lease at a time, once a sequence needs it; see `rights.Holder`.

    sight, clock: of this server. chance: chooses the number. refuses: whether an unprotected lease is neither taken nor
    renewed.
    """

    def __init__(self, sight: Sight, clock: ServerClock, chance: Random, *, refuses: bool) -> None:
        super().__init__()
        self._sight, self._clock, self._chance, self._refuses = sight, clock, chance, refuses
        self.lease: Lease | None = None
        """The lease that was held last; `right` says whether it counts."""

    def __repr__(self) -> str:
        return f"<worker number {self.lease}>"

    def right(self) -> Right | None:
        """See Holder.right."""
        lease, sight = self.lease, self._sight
        if lease is None or not self._is_open(lease) or lease.generation != sight.generation or not sight.is_fresh():
            return None
        return lease.right

    @property
    def is_coming(self) -> bool:
        """See Holder.is_coming."""
        return any(member.life is not None or member.doubtful for member in self._sight.members)

    @property
    def is_needed(self) -> bool:
        """Whether a sequence needs a worker number."""
        return self._needed.is_set()

    @property
    def is_unprotected(self) -> bool:
        """Whether a database that comes back older could let another server have the number of this server."""
        lease = self.lease
        return lease is not None and (self._sight.alone(lease.member) or not lease.sure)

    async def run(self) -> None:
        """Keep a lease once a sequence needs one, until this is cancelled."""
        await self._needed.wait()
        while True:
            if not self._is_due():
                await self._wait()
                continue
            try:
                await self._keep()
                self.trouble = None
            except (DatabaseError, Unavailable) as error:
                if str(error) != str(self.trouble):
                    log.warning("no worker number could be leased or renewed: %s", error)
                self.trouble = error if isinstance(error, Unavailable) else NoTicketDatabase(str(error))
                await self._sight.moved()

    # --- when something has to be done -------------------------------------------------------------------------------

    def _is_open(self, lease: Lease) -> bool:
        """Whether the lease still is what it was taken as. One that is not sure ends as soon as it could be."""
        sight, life = self._sight, lease.member.life
        return lease.era == sight.era and (life is None or life == lease.life) and (lease.sure or not sight.whole)

    def _is_due(self) -> bool:
        lease, sight = self.lease, self._sight
        if lease is None or not self._is_open(lease) or lease.generation != sight.generation:
            return True
        is_patient = lease.member.life is None and lease.right.until_ms - self._clock.wall_ms() > PATIENCE_MS
        return sight.clock() >= lease.renewed + RENEWAL and not is_patient

    async def _wait(self) -> None:
        """Return at the next change of the sight, or when the next renewal is due."""
        with suppress(TimeoutError):
            async with asyncio.timeout(RENEWAL):
                await self._sight.moved()

    # --- keeping a lease ---------------------------------------------------------------------------------------------

    async def _keep(self) -> None:
        """Renew the lease, or take another number. Raises DatabaseError, Unavailable."""
        sight = self._sight
        while sight.doubtful or not sight.is_fresh():
            await sight.moved()
        record, stamp, lease = sight.record, sight.stamp, self.lease
        if record is None or stamp is None:
            raise NoTicketDatabase("the ring of ticket databases is not drawn from now")
        if lease is None or not self._is_open(lease) or lease.member.life is None:
            await self._take(record, stamp)
        else:
            await self._renew(lease)

    async def _renew(self, lease: Lease) -> None:
        """Raise the limit on every database in sight. A refused lease ends."""
        sight, began, generation = self._sight, self._sight.clock(), self._sight.generation
        if self._refuses and sight.alone(lease.member):
            raise Unverified
        until = max(self._until(), lease.right.until_ms)
        mark = Mark(lease.row, lease.tenure, until, lease.right.after_ms, lease.sure)
        outcome = await mark_everywhere(sight, lease.member, mark, lease.era)
        if outcome is Outcome.STANDS:
            right = lease.right._replace(until_ms=until)
            self.lease = replace(lease, right=right, generation=generation, renewed=began)
        elif outcome is Outcome.REFUSED:
            self.lease = None
        elif outcome is Outcome.LOST:
            raise DatabaseFailed(f"the lease of worker number {lease.right.number} could not be renewed in time")

    async def _take(self, record: Record, stamp: str) -> None:
        """Lease a number whose limit is past, from a database in sight. Raises NoTicketDatabase, DatabaseFailed."""
        sight, began, now, until = self._sight, self._sight.clock(), self._clock.now_ms(), self._until()
        era, generation, whole, lives = sight.era, sight.generation, sight.whole, lives_in_sight(sight)
        if self._refuses and not whole:
            raise Unverified
        owners = {member.offset: member for member in lives}
        rows = {
            number: f"#worker{number}/{offset}"
            for number in range(WORKERS)
            if (offset := number % record.increment + 1) in owners
        }
        if not rows:
            raise NoTicketDatabase("no ticket database that could lease a worker number is in sight")
        read = await everywhere(sight, lives, lambda member, life: _read(member, life, rows))
        if len(read) < len(lives):
            raise DatabaseFailed("a ticket database failed while worker numbers were looked up there")
        limits = {number: max(known[number][0] for known in read.values()) for number in rows}
        free = [number for number, limit in limits.items() if limit + MARGIN_MS < now]
        if not free:
            raise NoTicketDatabase(f"other servers hold all {len(rows):,} worker numbers of the databases in sight")
        number = self._chance.choice(free)
        own, after = owners[number % record.increment + 1], limits[number]
        note = Note(until, after, tenure := f"{lives[own]} - {new_word()}")
        found = {member: known[number][1] for member, known in read.items()}
        if await replace_rows(sight, own, rows[number], found, note, lives=lives, stamp=stamp):
            right = Right(number, after, until)
            self.lease = Lease(right, rows[number], own, lives[own], tenure, era, whole, generation, began)
            log.info("leased the worker number %d from %s", number, own.name)
        else:
            await asyncio.sleep(self._chance.uniform(*WAIT))

    def _until(self) -> int:
        """Return how far a lease may reach now. Raises ClockAhead."""
        self._clock.now_ms()
        return self._clock.earliest_ms() + LEASE_MS


async def _read(member: Member, life: str, rows: dict[int, str]) -> dict[int, tuple[int, Note | None]]:
    """Return the limit of each number on this database, by its row and its floor, and the row."""
    marks = await member.database.read(Book.MARKS, list(rows.values()), life)
    floors = await member.database.read(Book.FLOORS, [name.partition("/")[0] for name in rows.values()], life)
    found = {}
    for number, name in rows.items():
        row, floor = marks.get(name), floors.get(name.partition("/")[0], Note())
        found[number] = max(floor.high, row.high if row is not None else 0), row
    return found
