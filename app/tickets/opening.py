"""Open a lane (rule 4): adopt it as the marks say it was left, or advance it above everything that is known of it.

A tenure is written as the life of the database, the birth of the counter and a random word, with a space between them.
Two servers that adopt a lane share its tenure and draw from it side by side. A server that advances it gives it another
tenure, and every mark under the one before is refused from then on.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from random import Random

from app.databases.record import new_word
from app.databases.session import Book, Counter, Note, Write
from app.errors import DatabaseError, DatabaseFailed, SequenceExhausted, TicketError
from app.tickets.everywhere import everywhere, lives_in_sight
from app.tickets.floors import Floors
from app.tickets.sight import Member, Sight
from app.tickets.step import Pace

OPENING_UNDER_WAY = 0.2  # seconds for which a server waits for another one that seems to be opening the same lane
SETTLING = 1.0  # seconds for which an opening waits at most while databases are made level, or the ring is changed
FIRST_WAIT, LONGEST_WAIT = 0.01, 1.0  # bounds of the random wait before another try, in seconds; it doubles


@dataclass(frozen=True, slots=True)
class LaneSpec:
    """Which lane is to be opened.

    sequence: as it was made. member: the database that it is drawn from. pace: of the sequence's kind. read_counter:
    reads the sequence's counter on that database. is_drawn: whether that counter is in the database, and can be raised.
    """

    sequence: str
    member: Member
    pace: Pace
    read_counter: Callable[[], Awaitable[Counter]]
    is_drawn: bool = True

    @property
    def row(self) -> str:
        """The name of the lane's row of MARKS."""
        return f"{self.sequence.lower()}/{self.member.offset}"


@dataclass(frozen=True, slots=True)
class Opened:
    """A lane that may be drawn from.

    life, tenure, era: what it was opened under. generation: the sight's when the opening began; the limit counts only
    while that is the present one. highest: every id drawn is larger. limit: the largest id that may be issued, 0 for an
    adopted lane. counter: as it was read. floor: the largest floor that was known. sure: whether every database of the
    ring was in sight.
    """

    life: str
    tenure: str
    era: int
    generation: int
    highest: int
    limit: int
    counter: Counter
    floor: int
    sure: bool


@dataclass(frozen=True, slots=True)
class _Found:
    """What the databases in sight know of a lane.

    lives, rows: by member; each row was read before the counter. stamp: the ring number. opened: what would be opened
    now, under a tenure that is not known yet, at the counter's position, without a limit.
    """

    own: Member
    lives: dict[Member, str]
    rows: dict[Member, Note | None]
    stamp: str
    opened: Opened

    @property
    def tenure(self) -> str:
        """How every tenure of this life and birth begins."""
        return f"{self.opened.life} {self.opened.counter.birth} "

    @property
    def notes(self) -> list[Note]:
        """The rows, with an empty one where there is none."""
        return [row or Note() for row in self.rows.values()]

    @property
    def sure(self) -> bool:
        """Whether a row says that the lane is sure. One is enough."""
        return any(note.sure for note in self.notes)

    @property
    def is_of_this_life(self) -> bool:
        """Whether the lane's own row is of the present life and birth."""
        row = self.rows[self.own]
        return row is not None and (row.tenure or "").startswith(self.tenure)

    @property
    def agrees(self) -> bool:
        """Whether the lane can be adopted.

        All rows have one tenure, of this life and birth; the lane is sure if it can be; and the counter is at or above
        every id that is known to have been given, and every floor.
        """
        opened, is_one = self.opened, len({note.tenure for note in self.notes}) == 1
        has_reached = opened.highest >= max(opened.floor, *(note.issued for note in self.notes))
        return self.is_of_this_life and is_one and has_reached and (self.sure or not opened.sure)


class Opener:
    """Opens the lanes of one server.

    sight, floors: of this server. chance: decides the random waits.
    """

    def __init__(self, sight: Sight, floors: Floors, chance: Random) -> None:
        self.sight, self.floors, self._chance = sight, floors, chance

    async def open(self, lane: LaneSpec, remembered: int) -> Opened:
        """Open this lane; try again and again until that succeeds.

        remembered: the highest id that this server has drawn there before. Raises DatabaseError where the lane's own
        database, or its counter, cannot be used now.
        """
        began = self.sight.clock()
        wait, patience = FIRST_WAIT, began + OPENING_UNDER_WAY
        while True:
            await self._may_draw(lane.member, began + SETTLING)
            if (found := await self._find(lane, remembered)) is not None:
                if found.agrees:
                    return replace(found.opened, tenure=str(found.notes[0].tenure), sure=found.sure)
                is_under_way = found.is_of_this_life and self.sight.clock() < patience
                if not is_under_way and (advanced := await self._advance(lane, found)) is not None:
                    return advanced
            await asyncio.sleep(self._chance.uniform(0, wait))
            wait = min(2 * wait, LONGEST_WAIT)

    async def _may_draw(self, own: Member, patience: float) -> None:
        """Wait until this server may draw, and no database is in doubt: an opening sets a limit, as a mark does.

        Raises DatabaseFailed where the lane's own database is not in sight.
        patience: until when the opening waits for a level or a change of the ring that is under way, by the sight's
        clock. Such a thing ends within milliseconds, and either would undo the other meanwhile.
        """
        sight = self.sight
        while own.life is not None:
            if sight.stamp is None or sight.doubtful or not sight.is_fresh():
                await sight.moved()
            elif (sight.is_levelling or sight.is_settling) and (left := patience - sight.clock()) > 0:
                await sight.moved(left)
            else:
                return
        raise DatabaseFailed(f"{own.name} is not in sight")

    async def _find(self, lane: LaneSpec, remembered: int) -> _Found | None:
        """Read the rows and the floors on every database in sight, and then the position; None where a read failed."""
        sight, own, name = self.sight, lane.member, lane.sequence.lower()
        lives = lives_in_sight(sight)
        era, generation, stamp, whole = sight.era, sight.generation, sight.stamp, sight.whole
        if own not in lives or stamp is None:
            return None
        marks = await everywhere(sight, lives, lambda each, life: each.database.read(Book.MARKS, [lane.row], life))
        floors = await everywhere(sight, lives, lambda each, life: each.database.read(Book.FLOORS, [name], life))
        if not len(marks) == len(floors) == len(lives):
            return None
        rows = {member: found.get(lane.row) for member, found in marks.items()}
        read = [row.high for found in floors.values() for row in found.values()]
        floor = max(self.floors.known.get(name, 0), remembered, *read)
        counter = await lane.read_counter()
        if rows[own] is None and counter.position > floor:
            # other programs drew from this counter, perhaps at other offsets too
            taken, _ = await self.floors.keep(lane.sequence, counter.position)
            if any(taken.get(member) != life for member, life in lives.items()):
                return None
            floor = counter.position
        opened = Opened(lives[own], "", era, generation, counter.position, 0, counter, floor, whole)
        return _Found(own, lives, rows, stamp, opened)

    async def _advance(self, lane: LaneSpec, found: _Found) -> Opened | None:
        """Raise the counter above all that is known, then replace the rows, the own one first.

        None where something differed or failed, so that the server has to begin again. Raises SequenceExhausted where
        nothing is left above what is known.
        """
        own, counter, record = found.own, found.opened.counter, self.sight.record
        known = max(found.opened.floor, *(note.high for note in found.notes))
        base = max(known, counter.position)
        if base >= counter.ceiling:
            raise SequenceExhausted(f"{lane.sequence} has no ids left above {base}")
        if record is None:
            return None
        if lane.is_drawn and known > counter.position:
            raised = await own.database.raise_above({counter.name: known}, found.lives[own])
            if (error := raised.get(counter.name)) is not None:
                raise error
        ahead = lane.pace.step(0, (counter.ceiling - base) // record.increment, record.increment)
        limit = min(base + ahead, counter.ceiling)
        row = Note(high=limit, issued=base, tenure=f"{found.tenure}{new_word()}")
        if not await self._replace(lane, found, row):
            return None
        return replace(found.opened, tenure=str(row.tenure), highest=base, limit=limit)

    async def _replace(self, lane: LaneSpec, found: _Found, row: Note) -> bool:
        """Put this row in place of the rows that were found, on the lane's own database first.

        Each database replaces its row only if that still is what was found there. Returns False where a row differed,
        or where a database failed; the failed database goes out of sight.
        """
        for member in [found.own, *(each for each in found.rows if each is not found.own)]:
            write, life = Write(Book.MARKS, lane.row, found.rows[member], row), found.lives[member]
            try:
                (done,) = await member.database.write([write], found.stamp, life)
            except DatabaseError as error:
                self.sight.failed(member, error, life)
                return False
            if not done:
                return False
        return True

    async def lower_limit(self, lane: LaneSpec) -> None:
        """Lower the limit of a lane to its position, on every database. What fails leaves a gap.

        An embedded pair is in another life at each start, so every lane is advanced above its limit then. At a clean
        end the lanes of the one process that uses the pair draw no more, and nothing above the positions was issued.
        """
        with suppress(TicketError):
            found = await self._find(lane, 0)
            if found is not None and found.agrees:
                await self._replace(lane, found, found.notes[0]._replace(high=found.opened.highest))
