"""A ticket database whose engine keeps sequences and notes as rows, and can write several of them in one transaction.

`NotebookDatabase` makes all that the protocol asks for from ten methods: a look at the database, its clock, the draw,
the list of sequences, making and raising them, two primitives for notes, and the end of connections. A note is a mark,
the ring record, how a sequence was made, or a ticket server's announcement. What a write does to a note that is kept
already is said once, in `after`.
"""

import asyncio
from abc import abstractmethod
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Generic, TypeVar, cast

from app.common.errors import RingChanged, TicketDatabaseUnavailable
from app.databases.protocol import (
    OLDER_SECONDS,
    USE_INTERVALS,
    ClockReading,
    Mark,
    Position,
    ProbeResult,
    RingRecord,
    ServerEntry,
    Table,
    TicketDatabase,
)
from app.kinds.definition import Definition

Note = Mark | RingRecord | Definition | ServerEntry
N = TypeVar("N", Mark, RingRecord, Definition)
READINGS_KEPT = 64
"""How many readings of the marks are remembered, each with its change number."""


class Book(StrEnum):
    """Which notes are meant."""

    MARKS = "marks"
    RING = "ring"
    KINDS = "kinds"
    SERVERS = "servers"


@dataclass(frozen=True, slots=True)
class Write(Generic[N]):
    """A note that is to be kept: `new`, None for none. `old`: what it replaces; None where it replaces nothing."""

    new: N | None
    old: N | None = None

    @property
    def key(self) -> tuple[Any, ...]:
        """The key that finds a kept note."""
        note = self.new if self.new is not None else self.old
        assert note is not None
        return key_of(note)


@dataclass(frozen=True, slots=True)
class Look:
    """The result of a look at a database at one moment; see ProbeResult. `latency`: of the write, in seconds.
    `servers`: the notes of that book, which `clock` dates."""

    incarnation: str
    identity: str
    latency: float
    clock: ClockReading
    record: RingRecord | None
    servers: Sequence[ServerEntry]
    warnings: tuple[str, ...] = ()


def key_of(note: Mark | RingRecord | Definition) -> tuple[Any, ...]:
    """The key of a note in its book. There is one ring record."""
    if isinstance(note, Mark):
        return note.sequence, note.offset, note.increment
    return (note.key,) if isinstance(note, Definition) else ()


def after(kept: N | None, write: Write[N]) -> N | None:
    """The note that is kept after a write, from the one before. An engine applies this, or has the same rule in SQL,
    inside the write's transaction.

    A mark without an `old` rises under its own token, and changes nothing under another one. One with an `old` replaces
    that token, unless the mark has risen above the old one; `issued` only rises. Any other note replaces what is equal
    to its `old`, but a definition that is decided stays.
    """
    new, old = write.new, write.old
    if isinstance(new, Mark):
        if kept is None:
            return new if old is None else None
        assert isinstance(kept, Mark)
        issued = max(kept.issued, new.issued)
        if old is None:
            return replace(kept, mark=max(kept.mark, new.mark), issued=issued) if kept.token == new.token else kept
        assert isinstance(old, Mark)
        replaces = kept.token == old.token and kept.mark <= old.mark
        return replace(kept, token=new.token, mark=new.mark, issued=issued) if replaces else kept
    if isinstance(kept, Definition) and kept.decided and new is not None:
        return kept
    return new if kept == old else kept


def carried_out(
    writes: Iterable[Write[Any]], kept: dict[tuple[Any, ...], Any]
) -> tuple[list[Any], dict[tuple[Any, ...], Any]]:
    """What is kept after each of these writes, and what has to be written, by their keys. `kept`: what is kept before;
    it is brought up to date."""
    results: list[Any] = []
    changed: dict[tuple[Any, ...], Any] = {}
    for each in writes:
        before = kept.get(each.key)
        results.append(after(before, each))
        if results[-1] != before:
            kept[each.key] = changed[each.key] = results[-1]
    return results, changed


class NotebookDatabase(TicketDatabase):
    """A ticket database made from few methods; an engine writes those that are abstract here, and `start_draw`.

    Every one of them raises a TicketDatabaseError and nothing else, and ends within the database's timeout. But for
    `look` and what says `anybody`, they work only under the incarnation that the last `look` found.
    """

    def __init__(self, name: str, offset: int, increment: int) -> None:
        self.name = name
        self.offset = offset
        self.increment = increment
        self._incarnation = ""
        self._readings: deque[tuple[float, int]] = deque(maxlen=READINGS_KEPT)

    # --- what an engine writes -------------------------------------------------------------------------------------

    @abstractmethod
    async def look(self, entry: ServerEntry | None) -> Look:
        """Connect if need be, write and commit what a ticket server announces (None: the program is none), and read all
        that a Look holds in the same transaction.

        It waits only while this process runs (see TicketDatabase.probe). Were the announcements read at another moment
        than the clock, a process that stood still in between would find that none of them stands.
        """

    @abstractmethod
    async def sequences(self, names: Iterable[str] | None) -> Sequence[tuple[Table, Position]]:
        """These sequences, or all, those that are missing left out; with where each of them stands now."""

    @abstractmethod
    async def clock(self) -> float:
        """The time of the database's clock, in seconds since 1970. Any incarnation may answer."""

    @abstractmethod
    async def read(self, book: Book, since: int | None = None, *, anybody: bool = False) -> tuple[list[Any], int]:
        """The notes of a book, and the number of the last change: it rises with each write. `since`: those that have
        changed since the change of that number, and maybe more; None: all."""

    @abstractmethod
    async def write(
        self,
        book: Book,
        writes: Sequence[Write[Any]],
        ring: int | None,
        *,
        entry: ServerEntry | None = None,
        anybody: bool = False,
    ) -> list[Any]:
        """Write these notes as `after` says, in one transaction. Returns what is kept then for each, None for nothing.

        `entry`: what a ticket server announces; written in the same transaction, if that changes a note.
        Raises RingChanged, and writes nothing, unless the ring record has the number `ring`, where one is given.
        """

    # --- what follows from it --------------------------------------------------------------------------------------

    def use_increment(self, increment: int) -> None:
        """See TicketDatabase.use_increment."""
        self.increment = increment

    async def probe(self) -> ProbeResult:
        """See TicketDatabase.probe."""
        found = await self.look(None if self.describe is None else self.describe())
        if self._incarnation != found.incarnation:  # no wait follows, so no draw begins before the caller knows it
            self._incarnation = found.incarnation
            self._readings.clear()  # it may count its changes from elsewhere
        now, mine = found.clock.seconds, self.instance
        standing = [each for each in found.servers if abs(each.at - now) <= USE_INTERVALS * each.probe_interval]
        older = {each.release for each in found.servers if each.uses is None and each.at >= now - OLDER_SECONDS}
        return ProbeResult(
            incarnation=found.incarnation,
            identity=found.identity,
            latency=found.latency,
            increment=None,
            offset=None,
            record=found.record,
            clock=found.clock,
            warnings=found.warnings,
            uses=tuple(use for each in standing if each.instance != mine for use in each.uses or ()),
            older=tuple(sorted(older)),
        )

    async def servers(self, within: float) -> list[ServerEntry]:
        """See TicketDatabase.servers."""
        clock = await self.clock()
        servers: list[ServerEntry] = (await self.read(Book.SERVERS, anybody=True))[0]
        return [replace(each, uses=()) for each in servers if each.at >= clock - within]

    async def in_use(self, seconds: float) -> list[str]:
        """See TicketDatabase.in_use: by the probes of another server."""

        async def probed() -> dict[str, float]:
            servers: list[ServerEntry] = (await self.read(Book.SERVERS, anybody=True))[0]
            return {each.instance: each.at for each in servers if each.instance != self.instance or not each.instance}

        first = await probed()
        await asyncio.sleep(seconds)
        later = await probed()
        return ["a ticket server that probes it"] if any(first.get(of) != at for of, at in later.items()) else []

    async def record_ring(self, old: RingRecord | None, new: RingRecord) -> RingRecord:
        """See TicketDatabase.record_ring. What the server announces is written in the same transaction."""
        entry = None if self.describe is None else self.describe()
        (kept,) = await self.write(Book.RING, [Write(new, old)], None, entry=entry, anybody=True)
        if kept is None:
            raise TicketDatabaseUnavailable("lost its ring record")
        return cast(RingRecord, kept)

    async def recorded_ring(self) -> RingRecord | None:
        """See TicketDatabase.recorded_ring."""
        return next(iter((await self.read(Book.RING, anybody=True))[0]), None)

    async def check_ring(self, number: int) -> None:
        """See TicketDatabase.check_ring."""
        if not any(record.number == number for record in (await self.read(Book.RING))[0]):
            raise RingChanged

    async def names(self) -> dict[str, str]:
        """See TicketDatabase.names."""
        return {table.sequence: table.created for table, _ in await self.sequences(None)}

    async def tables(self, names: Iterable[str]) -> dict[str, Table]:
        """See TicketDatabase.tables."""
        return {table.sequence: table for table, _ in await self.sequences(names)}

    async def positions(self, names: Iterable[str]) -> dict[str, Position]:
        """See TicketDatabase.positions."""
        return {table.sequence: position for table, position in await self.sequences(names)}

    async def definitions(self) -> dict[str, Definition]:
        """See TicketDatabase.definitions."""
        return {definition.key: definition for definition in (await self.read(Book.KINDS, anybody=True))[0]}

    async def define(self, definition: Definition, old: Definition | None = None) -> Definition:
        """See TicketDatabase.define."""
        (kept,) = await self.write(Book.KINDS, [Write(definition, old)], None)
        if kept is None:
            raise TicketDatabaseUnavailable("lost a definition")
        return cast(Definition, kept)

    async def forget_definition(self, definition: Definition) -> None:
        """See TicketDatabase.forget_definition."""
        await self.write(Book.KINDS, [Write(None, definition)], None)

    async def marks(self, changed_within: float | None = None, *, anybody: bool = True) -> list[Mark]:
        """See TicketDatabase.marks. What changed in so many seconds is what changed since a reading before that."""
        began, since = asyncio.get_running_loop().time(), None
        if changed_within is not None:
            earlier = (number for at, number in self._readings if at <= began - changed_within)
            since = max(earlier, default=None)
        marks, number = await self.read(Book.MARKS, since, anybody=anybody)
        self._readings.append((began, number))
        return [mark for mark in marks if mark.increment == self.increment]

    async def marks_of_all_rings(self) -> list[Mark]:
        """See TicketDatabase.marks_of_all_rings."""
        return (await self.read(Book.MARKS, anybody=True))[0]

    async def keep(self, marks: Iterable[Mark], ring: int) -> Mapping[tuple[str, int], Mark]:
        """See TicketDatabase.keep."""
        kept: list[Mark] = await self.write(Book.MARKS, [Write(mark) for mark in marks], ring)
        return {(mark.sequence, mark.offset): mark for mark in kept}

    async def supersede(self, old: Mark, new: Mark, ring: int) -> Mark:
        """See TicketDatabase.supersede."""
        (kept,) = await self.write(Book.MARKS, [Write(new, old)], ring)
        if kept is None:
            raise TicketDatabaseUnavailable("lost a row of its ledger")
        return cast(Mark, kept)

    async def supersede_all(self, replacements: Iterable[tuple[Mark, Mark]], ring: int) -> None:
        """See TicketDatabase.supersede_all."""
        await self.write(Book.MARKS, [Write(new, old) for old, new in replacements], ring)
