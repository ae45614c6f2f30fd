"""Make databases level: each takes over the largest limits and floors that any of them has (rule 5).

A database that comes into sight may have gone back, or may have missed marks. The server compares the marks and floors
of all databases in sight at once, and again three seconds later, when every mark that began before has ended. From then
on the next database may go back.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

from app.databases.database import Database
from app.databases.session import Book, Note, Write
from app.errors import DatabaseError
from app.tickets.everywhere import lives_in_sight, packets
from app.tickets.sight import Member, Sight

log = logging.getLogger(__name__)

T = TypeVar("T")
Place = tuple[Database, str, str]
"""A database, its life, and the stamp that its own ring row has."""
Rows = dict[str, Note]

PAGE = 1_000
"""How many rows of each database are compared at a time, so that no lane waits for long."""
ROUNDS = 20
"""How often rows are read and raised, while something else changes them at the same moment."""
SECOND_LEVEL = 3.0
"""Seconds after a life was found. Every mark that began before has ended by then: it lives for 2 s at most."""


class NotLevel(DatabaseError):
    """The high-water marks of the ticket databases could not be made level.

    database: the one that failed, its error is `__cause__`; None where rows kept changing or a ring number differed.
    """

    def __init__(self, message: str, database: Database | None = None) -> None:
        super().__init__(message)
        self.database = database


# --- what a level does ------------------------------------------------------------------------------------------------


def level_marks(found: Sequence[Note | None]) -> list[Note | None]:
    """Return what a row of MARKS has to be on each database. found: what it is there, None where there is no such row.

    A row with a smaller limit takes the largest one. It keeps its tenure, and whether it is sure, only if the row with
    the largest limit has that tenure. It takes the largest `issued` of all rows: this only rises and is never above the
    largest limit, and a lane is adopted only if its position is at or above each `issued`, so the largest is the
    strictest.
    """
    there = [row for row in found if row is not None]
    if not there:
        return list(found)
    source = max(there, key=lambda row: row.high)
    issued = max(row.issued for row in there)

    def lift(row: Note | None) -> Note:
        if row is not None and row.high >= source.high:
            return row
        if row is None:
            return Note(source.high, issued)
        if row.tenure is not None and row.tenure == source.tenure:
            return row._replace(high=source.high, issued=issued)
        return row._replace(high=source.high, issued=issued, tenure=None, sure=False)

    return [lift(row) for row in found]


def level_floors(found: Sequence[Note | None]) -> list[Note | None]:
    """Return what a row of FLOORS has to be on each database: the largest floor."""
    largest = max((row.high for row in found if row is not None), default=0)
    return [Note(largest) if row is None else row._replace(high=largest) for row in found]


RULES = {Book.MARKS: level_marks, Book.FLOORS: level_floors}
"""What a level does with the rows of each book that it compares."""


async def make_level(databases: Sequence[Place]) -> None:
    """Make the marks and floors of these databases level; limits and floors only rise.

    Each database is used in the life that stands with it, and takes writes under the ring number that it has itself;
    an empty stamp stands for a database without a record. Raises NotLevel, which names the database that failed.
    """
    for book in RULES:
        after: str | None = ""
        while after is not None:
            after = await _level_page(databases, book, after)


async def _level_page(databases: Sequence[Place], book: Book, after: str) -> str | None:
    """Make the next rows behind this name level. Returns the last name that was compared; None where no row is left."""

    async def page(database: Database, life: str, _stamp: str) -> list[tuple[str, Note]]:
        return await database.page(book, after, PAGE, life)

    pages = await _on_all(databases, page)
    # behind the last name of a full page its database may have rows that were not read
    horizon = min((page[-1][0] for page in pages if len(page) == PAGE), default=None)
    rows = [{name: row for name, row in page if horizon is None or name <= horizon} for page in pages]
    for _ in range(ROUNDS):
        again = await _raise_rows(databases, book, rows)
        if not again:
            return horizon
        rows = await _read(databases, book, again)
    raise NotLevel(
        "something else changed the same rows each time, or the ring's record has changed; it is tried again"
    )


async def _raise_rows(databases: Sequence[Place], book: Book, rows: Sequence[Rows]) -> list[str]:
    """Raise the rows that are too low. Returns the names of those that are not any more what was read."""
    writes: dict[Database, list[Write]] = {database: [] for database, _, _ in databases}
    for name in sorted({name for each in rows for name in each}):  # all servers lock rows in the same order
        found = [each.get(name) for each in rows]
        for (database, _, _), old, new in zip(databases, found, RULES[book](found), strict=True):
            if new != old:
                writes[database].append(Write(book, name, old, new))

    async def write(database: Database, life: str, stamp: str) -> list[str]:
        missed: list[str] = []
        for packet in packets(writes[database]):
            done = await database.write(packet, stamp, life)
            missed += [each.name for each, is_done in zip(packet, done, strict=True) if not is_done]
        return missed

    return sorted({name for missed in await _on_all(databases, write) for name in missed})


async def _read(databases: Sequence[Place], book: Book, names: Sequence[str]) -> list[Rows]:
    """Read these rows on each database."""

    async def read(database: Database, life: str, _stamp: str) -> Rows:
        found: Rows = {}
        for packet in packets(names):
            found |= await database.read(book, packet, life)
        return found

    return await _on_all(databases, read)


async def _on_all(databases: Sequence[Place], call: Callable[[Database, str, str], Awaitable[T]]) -> list[T]:
    """Await the call for each database, all at the same time. Raises NotLevel once all have ended, if any failed."""
    results = await asyncio.gather(*(call(*place) for place in databases), return_exceptions=True)
    found: list[T] = []
    for (database, _, _), result in zip(databases, results, strict=True):
        if isinstance(result, DatabaseError):
            raise NotLevel(f"{database.name}: {result}", database) from result
        if isinstance(result, BaseException):
            raise result
        found.append(result)
    return found


# --- when levels are made ---------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Found:
    """A life in which a database came into sight, when, and whether it is level for good."""

    life: str
    at: float
    is_level: bool = False


class Levels:
    """Makes the databases in sight level whenever one comes into sight. One task runs `run`; the probe calls `came`.

    warns: false for the embedded pair, whose databases only go back together.
    """

    def __init__(self, sight: Sight, *, warns: bool = True) -> None:
        self._sight = sight
        self._warns = warns
        self._found: dict[Member, _Found] = {}
        self._due: set[float] = set()
        self._era = sight.era

    def came(self, member: Member) -> None:
        """A database has come into sight: make all level now, and again in three seconds."""
        now = self._sight.clock()
        found = self._found.get(member)
        if member.life is not None and (found is None or found.life != member.life):
            self._found[member] = _Found(member.life, now)
        # one level serves everything that came before it, so one for now and the last of the later ones are enough
        self._due = {now, now + SECOND_LEVEL, *sorted(self._due)[-1:]}
        self._sight.is_levelling = True
        self._sight.move()

    @property
    def is_level(self) -> bool:
        """Whether each database in sight was made level with all of the ring, 3 s or more after its life was found."""
        return not self._not_level()

    @property
    def warnings(self) -> list[tuple[str, str]]:
        """For /healthz: the databases, by name, that are not level for good yet, each with what that means."""
        if not self._warns:
            return []
        missing = "" if self._sight.whole else "; that takes all databases of the ring to be up at the same time"
        reason = (
            "its high-water marks are not compared with all others yet since it started, or since this server did"
            f"{missing}. Do not restart, restore or replace another ticket database before this warning ends"
        )
        return [(member.name, reason) for member in self._not_level()]

    def _not_level(self) -> list[Member]:
        return [
            member
            for member in self._sight.in_sight
            if (found := self._found.get(member)) is None or found.life != member.life or not found.is_level
        ]

    async def run(self) -> None:
        """Make the databases level whenever that is due, until this is cancelled."""
        while True:
            if not self._is_due():
                self._say(under_way=False)
                await self._wait()
            elif not await self._level():
                self._say(under_way=False)
                await self._sight.moved()

    def _say(self, *, under_way: bool) -> None:
        """Tell the lanes that are about to be opened whether to wait."""
        if self._sight.is_levelling is not under_way:
            self._sight.is_levelling = under_way
            self._sight.move()

    def _is_due(self) -> bool:
        now = self._sight.clock()
        return any(due <= now for due in self._due) or self._era != self._sight.era

    async def _wait(self) -> None:
        """Return at the next change, or when the next level is due."""
        # two clocks of different resolution never agree on less than the smallest wait
        seconds = max(0.001, min(self._due) - self._sight.clock()) if self._due else None
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._sight.moved()

    async def _level(self) -> bool:
        """Make all databases in sight level; once more if one came or went meanwhile. Returns False where it failed."""
        sight = self._sight
        self._say(under_way=True)
        record, lives, began, whole = sight.record, lives_in_sight(sight), sight.clock(), sight.whole
        era, generation = sight.era, sight.generation
        if record is not None:
            try:
                await make_level([(member.database, life, record.stamp) for member, life in lives.items()])
            except NotLevel as error:
                self._lose(lives, error)
                return False
        if (era, generation) != (sight.era, sight.generation) or lives_in_sight(sight) != lives:
            return True  # what was due still is
        self._era = era
        self._due = {due for due in self._due if due > began}
        for member, life in lives.items():
            found = self._found.get(member)
            if whole and found is not None and found.life == life and began >= found.at + SECOND_LEVEL:
                found.is_level = True
        return True

    def _lose(self, lives: dict[Member, str], error: NotLevel) -> None:
        """Lose sight of the database that failed."""
        log.warning("the ticket databases could not be made level: %s", error)
        cause = error.__cause__
        for member, life in lives.items():
            if member.database is error.database and member.life == life and isinstance(cause, DatabaseError):
                self._sight.failed(member, cause)
