"""Make databases level: each takes over the largest limits and floors that any of them has (rule 5).

A database that comes into sight may have gone back, or may have missed marks. The server compares the marks and floors
of all databases in sight at once, and again three seconds later, when every mark that began before has ended. From then
on the next database may go back.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from functools import partial

from app.databases.session import Book, Note, Write
from app.tickets.everywhere import PAGE, ROUNDS, all_rows, everywhere, lives_in_sight, read_rows, write_rows
from app.tickets.sight import NEVER, Member, Sight

log = logging.getLogger(__name__)

SECOND_LEVEL = 3.0
"""Seconds after a life was found. Every mark that began before has ended by then: it lives for 2 s at most."""


# --- what a level does ------------------------------------------------------------------------------------------------


def level_row(found: Sequence[Note | None]) -> list[Note | None]:
    """Return what a row of MARKS or FLOORS has to be on each database. found: what it is there, None where it is not.

    A row with a smaller limit, or floor, takes the largest one. It keeps its tenure, and whether it is sure, only if
    the row with the largest limit has that tenure. It takes the largest `issued` of all rows: this only rises and is
    never above the largest limit, and a lane is adopted only if its position is at or above each `issued`, so the
    largest is the strictest.
    """
    there = [row for row in found if row is not None]
    source = max(there, key=lambda row: row.high, default=Note())
    issued = max((row.issued for row in there), default=0)

    def lift(row: Note | None) -> Note | None:
        old = row or Note()
        if old.high >= source.high:
            return row
        kept = old if old.tenure is not None and old.tenure == source.tenure else Note()
        return kept._replace(high=source.high, issued=issued)

    return [lift(row) for row in found]


async def make_level(sight: Sight, lives: Mapping[Member, str]) -> bool:
    """Make the marks and floors of these databases level, each in this life; limits and floors only rise.

    Each takes writes under the ring number, or none, that its own ring row has. Returns False where a database failed,
    had another ring number by then, or where something else changed the same rows each time.
    """
    stamps = {member: member.row.stamp if member.row is not None else "" for member in lives}
    writes: dict[Member, list[Write]] = {}

    async def write(member: Member, life: str) -> list[str]:
        return await write_rows(member, life, writes[member], stamps[member])

    for book in (Book.MARKS, Book.FLOORS):
        rows = await everywhere(sight, lives, partial(all_rows, book=book))
        for _ in range(ROUNDS):
            if len(rows) < len(lives):
                return False
            names = sorted(set[str]().union(*rows.values()))  # all servers lock rows in the same order
            writes = {member: [] for member in rows}
            for number, name in enumerate(names):
                found = [each.get(name) for each in rows.values()]
                for member, old, new in zip(rows, found, level_row(found), strict=True):
                    if new != old:
                        writes[member].append(Write(book, name, old, new))
                if number % PAGE == PAGE - 1:
                    await asyncio.sleep(0)  # no request waits for long
            missed = await everywhere(sight, lives, write)
            if len(missed) < len(lives):
                return False
            names = sorted(set[str]().union(*missed.values()))
            if not names:
                break
            rows = await everywhere(sight, lives, partial(read_rows, book=book, names=names))
        else:
            return False
    return True


# --- when levels are made ---------------------------------------------------------------------------------------------


class Levels:
    """Makes the databases in sight level whenever one comes into sight. One task runs `run`.

    warns: false for the embedded pair, whose databases only go back together.
    """

    def __init__(self, sight: Sight, *, warns: bool = True) -> None:
        self._sight, self._warns = sight, warns
        self._made = NEVER
        """When the last level began that has ended well."""

    @property
    def is_level(self) -> bool:
        """Whether each database in sight was made level with all of the ring, 3 s or more after its life was found."""
        return all(member.level == member.life for member in self._sight.in_sight)

    @property
    def warnings(self) -> list[tuple[str, str]]:
        """For /healthz: the databases, by name, that are not level for good yet, each with what that means."""
        missing = "" if self._sight.whole else "; that takes all databases of the ring to be up at the same time"
        reason = (
            "its high-water marks are not compared with all others yet since it started, or since this server did"
            f"{missing}. Do not restart, restore or replace another ticket database before this warning ends"
        )
        in_sight = self._sight.in_sight if self._warns else []
        return [(member.name, reason) for member in in_sight if member.level != member.life]

    async def run(self) -> None:
        """Make the databases level whenever that is due, until this is cancelled."""
        sight = self._sight
        while True:
            came = max(member.came for member in sight.members)
            due = came if self._made < came else came + SECOND_LEVEL
            left = due - sight.clock()
            is_due = self._made < due and left <= 0
            self._say(under_way=is_due)
            if is_due and await self._level():
                continue
            self._say(under_way=False)
            await sight.moved(left if left > 0 else None)

    def _say(self, *, under_way: bool) -> None:
        """Tell the lanes that are about to be opened whether to wait."""
        if self._sight.is_levelling is not under_way:
            self._sight.is_levelling = under_way
            self._sight.move()

    async def _level(self) -> bool:
        """Make all databases in sight level; once more if one came or went meanwhile. Returns False where it failed."""
        sight = self._sight
        lives, began, whole = lives_in_sight(sight), sight.clock(), sight.whole
        era, generation = sight.era, sight.generation
        if sight.record is not None and not await make_level(sight, lives):
            log.warning("the ticket databases could not be made level; it is tried again")
            return False
        if (era, generation) != (sight.era, sight.generation) or lives_in_sight(sight) != lives:
            return True  # the level is still due
        self._made = began
        for member, life in lives.items():
            if whole and began >= member.came + SECOND_LEVEL:
                member.level = life
        return True
