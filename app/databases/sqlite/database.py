"""A ticket database of the embedded pair: one SQLite file.

All sequences stand in one table, because SQLite holds `Photos` and `photos` to be one. The draw itself is an UPDATE of
the sequence's row; every draw, move and read of this file comes from that row. One thread owns the connection; what
waits while it works is drawn in one transaction.
"""

import asyncio
import contextlib
import sqlite3
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from app.common.errors import (
    ColumnExhausted,
    SequenceMissing,
    TicketDatabaseError,
    TicketDatabaseUnavailable,
)
from app.common.sequences import Width, ceiling_of
from app.databases.protocol import (
    LARGEST_INCREMENT,
    ClockReading,
    Draw,
    Drawn,
    Position,
    ProbeResult,
    RingRecord,
    ServerEntry,
    Table,
    TicketDatabase,
    Use,
)
from app.databases.sqlite.connection import FileConnection
from app.databases.sqlite.marks import SQLiteLedger, refuse_another_ring
from app.databases.sqlite.ring_record import (
    announce,
    forget,
    older_in,
    record_in,
    servers_in,
    standing_uses_in,
    write_record,
)
from app.kinds.definition import Definition

T = TypeVar("T")

_SEQUENCES = "SELECT name, bits, last, created FROM _sequences UNION ALL SELECT * FROM _inner_sequences"
_KINDS = "SELECT sequence, kind, parameters, 1, '' FROM _kinds"
_DEFINITIONS = "SELECT sequence, kind, parameters, decided, claimed_by FROM _definitions"
_PROBED = "SELECT instance, at FROM _servers WHERE instance <> ? UNION ALL SELECT '', probed FROM _database"
"""When each ticket server but one has probed; those of releases that do not announce themselves in the last row."""

_ABOVE = "MAX(last, :least - 1)"
_NEXT = f"{_ABOVE} + 1 + ((:offset - {_ABOVE} - 1) % :increment + :increment) % :increment"
"""The first id of an offset above the position, and not below `least`; beyond 2**63 - 1 it is a real number, and larger
still."""


@dataclass(frozen=True, slots=True)
class _Wanted:
    """What is to be drawn, see TicketDatabase.start_draw."""

    table: Table
    count: int
    least: int


class SQLiteDatabase(SQLiteLedger, TicketDatabase):
    """One file of the embedded pair. Several server processes may use it at once."""

    system = "sqlite"

    def __init__(
        self, path: Path, offset: int, increment: int, timeout: float, file: FileConnection | None = None
    ) -> None:
        self.name = path.name
        self.offset = offset
        self.increment = increment
        self._path = path
        self._file = file or FileConnection(path, offset, increment, timeout)
        self._incarnation = ""
        self._describe: Callable[[], ServerEntry] | None = None
        self._waiting: list[tuple[_Wanted, str, Callable[[Drawn], None]]] = []
        self._working: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<SQLiteDatabase {self.name} offset {self.offset}>"

    @property
    def largest_block(self) -> int:
        """See TicketDatabase.largest_block."""
        return LARGEST_INCREMENT // self.increment

    @property
    def connections(self) -> int:
        """How many connections are open."""
        return int(self._file.is_open)

    # --- probes and draws ------------------------------------------------------------------------------------------

    async def probe(self) -> ProbeResult:
        """See TicketDatabase.probe. See `FileConnection.incarnation_of`."""
        began = time.monotonic()
        entry = None if self._describe is None else self._describe()
        incarnation, record, clock, uses, older = await self._file.run(lambda c: self._probe(c, entry))
        self._incarnation = incarnation  # nobody draws from another one before the caller knows
        return ProbeResult(
            incarnation=incarnation,
            increment=None,
            offset=None,
            record=record,
            clock=clock,
            identity=f"{self._path.resolve()}",
            latency=time.monotonic() - began,
            uses=uses,
            older=older,
        )

    def _probe(
        self, connection: sqlite3.Connection, entry: ServerEntry | None
    ) -> tuple[str, RingRecord | None, ClockReading, tuple[Use, ...], tuple[str, ...]]:
        since = time.monotonic()
        clock = ClockReading(time.time(), since, time.monotonic())  # the file has none but this machine's
        if entry is None:
            connection.execute("INSERT OR REPLACE INTO _probe VALUES (1, ?)", (clock.seconds,))
        else:
            announce(connection, entry, clock.seconds)
        uses = standing_uses_in(connection, "" if entry is None else entry.instance, clock.seconds)
        older = older_in(connection, clock.seconds)
        return self._file.incarnation_of(connection), record_in(connection), clock, uses, older

    def start_draw(self, table: Table, count: int, after: int, done: Callable[[Drawn], None], least: int = 0) -> None:
        """See TicketDatabase.start_draw."""
        self._waiting.append((_Wanted(table, count, least), self._incarnation, done))
        if self._working is None:
            self._working = asyncio.get_running_loop().create_task(self._work())

    async def _work(self) -> None:
        """Draw all that waits in one transaction, again and again until nothing waits."""
        try:
            while self._waiting:
                batch, self._waiting = self._waiting, []
                requested = [(wanted, incarnation) for wanted, incarnation, _ in batch]
                results: Sequence[Drawn]
                try:
                    results = await self._file.run(lambda c, w=requested: self._draw_all(c, w))  # type: ignore[misc]
                except TicketDatabaseError as error:
                    results = [error] * len(batch)
                for (*_, done), result in zip(batch, results, strict=True):
                    done(result)
        finally:
            self._working = None

    def _draw_all(self, connection: sqlite3.Connection, requested: list[tuple[_Wanted, str]]) -> list[Drawn]:
        current = self._file.incarnation_of(connection)
        if any(incarnation != current for _, incarnation in requested):  # it was opened again since the last probe
            raise TicketDatabaseUnavailable("is another file than before")
        return [self._draw_one(connection, wanted) for wanted, _ in requested]

    def _draw_one(self, connection: sqlite3.Connection, wanted: _Wanted) -> Drawn:
        """From the first id of its own residue above the position, whoever put that where it is: the increment may have
        changed since, or another process may not know yet that it has."""
        table, count, increment = wanted.table, wanted.count, self.increment
        if wanted.least > 1 and not table.holds(count, wanted.least, self.offset, increment):
            return ColumnExhausted("holds no further id for it")
        row = connection.execute(
            f"UPDATE {_sequences_with(table.sequence)} SET last = {_NEXT} + :more "  # noqa: S608
            f"WHERE name = :name AND {_NEXT} + :more <= :ceiling RETURNING last",
            {
                "increment": increment,
                "offset": self.offset,
                "least": wanted.least,
                "more": increment * (count - 1),
                "name": table.sequence,
                "ceiling": table.ceiling,
            },
        ).fetchone()
        if row is not None:
            return Draw(row[0] - increment * (count - 1), increment, count)
        if _row_of(connection, table.sequence):
            return ColumnExhausted("holds no further id for it")
        return SequenceMissing("has no such sequence")

    # --- the ring record ---------------------------------------------------------------------------------------------

    def use_increment(self, increment: int) -> None:
        """See TicketDatabase.use_increment."""
        self.increment = self._file.increment = increment

    async def record_ring(self, old: RingRecord | None, new: RingRecord) -> RingRecord:
        """See TicketDatabase.record_ring."""

        def write(connection: sqlite3.Connection) -> RingRecord:
            found = record_in(connection)
            if found != old:
                if found is None:
                    raise TicketDatabaseUnavailable("lost its ring record")
                return found
            write_record(connection, new)
            return new

        return await self._file.run(write)

    async def recorded_ring(self) -> RingRecord | None:
        """See TicketDatabase.recorded_ring."""
        return await self._file.run(record_in)

    async def check_ring(self, number: int) -> None:
        """See TicketDatabase.check_ring."""
        await self._file.run(lambda c: refuse_another_ring(c, number))

    async def in_use(self, seconds: float) -> list[str]:
        """See TicketDatabase.in_use: another process that has the file open, or a probe of it."""

        def probed(connection: sqlite3.Connection) -> dict[str, float]:
            rows = connection.execute(_PROBED, (self._describe().instance if self._describe is not None else "",))
            return dict(rows.fetchall())

        first = await self._file.run(probed)
        if await self._file.is_shared():
            return ["another process that has the file open"]
        await asyncio.sleep(seconds)
        later = await self._file.run(probed)
        probes = any(first.get(instance) != at for instance, at in later.items())
        return ["a ticket server that probes it"] if probes else []

    def announce(self, describe: Callable[[], ServerEntry]) -> None:
        """See TicketDatabase.announce."""
        self._describe = describe

    async def servers(self, within: float) -> list[ServerEntry]:
        """See TicketDatabase.servers."""
        since = time.time() - within
        return await self._file.run(lambda connection: servers_in(connection, since))

    # --- tables ----------------------------------------------------------------------------------------------------

    async def names(self) -> dict[str, str]:
        """See TicketDatabase.names."""
        return await self._file.run(lambda c: {name: created for name, *_, created in c.execute(_SEQUENCES)})

    async def counters(self, names: Iterable[str]) -> dict[str, tuple[int, str]]:
        """See TicketDatabase.counters."""
        requested = set(names)
        rows = await self._file.run(lambda c: c.execute(_SEQUENCES).fetchall())
        return {name: (max(1, last + 1), created) for name, _, last, created in rows if name in requested}

    async def tables(self, names: Iterable[str]) -> dict[str, Table]:
        """See TicketDatabase.tables."""
        requested = set(names)
        rows = await self._file.run(lambda c: c.execute(_SEQUENCES).fetchall())
        return {name: self._table(name, Width(bits), created) for name, bits, _, created in rows if name in requested}

    def _table(self, name: str, width: Width, created: str) -> Table:
        return Table(
            sequence=name,
            width=width,
            ceiling=ceiling_of(width, unsigned=True),
            rows_per_statement=self.largest_block,
            created=created,
            repeats_ceiling=False,
        )

    async def position(self, table: Table) -> Position:
        """See TicketDatabase.position."""

        def read(connection: sqlite3.Connection) -> Position:
            row = _row_of(connection, table.sequence)
            if row is None:
                raise SequenceMissing("has no such sequence")
            return Position(next_id=max(1, row[0] + 1), largest=max(0, row[0]), created=row[1])

        return await self._file.run(read)

    async def positions(self, tables: Iterable[Table]) -> dict[str, Position]:
        """See TicketDatabase.positions."""
        requested = {table.sequence for table in tables}
        rows = await self._file.run(lambda c: c.execute(_SEQUENCES).fetchall())
        return {
            name: Position(next_id=max(1, last + 1), largest=max(0, last), created=created)
            for name, _, last, created in rows
            if name in requested
        }

    async def make(self, sequence: str, width: Width, start: int) -> None:
        """See TicketDatabase.make."""
        row = (sequence, int(width), start - 1, uuid.uuid4().hex[:12])
        insert = f"INSERT OR IGNORE INTO {_sequences_with(sequence)} VALUES (?, ?, ?, ?)"  # noqa: S608
        await self._file.run(lambda c: c.execute(insert, row))

    async def advance(self, table: Table, above: int) -> None:
        """See TicketDatabase.advance."""
        await self.advance_all({table.sequence: above})

    async def advance_all(self, floors: Mapping[str, int]) -> None:
        """See TicketDatabase.advance_all."""
        requested = dict(floors)

        def write(connection: sqlite3.Connection) -> None:
            for name, floor in requested.items():
                advance = f"UPDATE {_sequences_with(name)} SET last = MAX(last, ?) WHERE name = ?"  # noqa: S608
                if not connection.execute(advance, (floor, name)).rowcount:
                    raise SequenceMissing("has no such sequence")

        if requested:
            await self._file.run(write)

    # --- definitions -----------------------------------------------------------------------------------------------

    async def definitions(self) -> dict[str, Definition]:
        """See TicketDatabase.definitions."""
        return await self._file.run(_all_defined)

    async def define(self, definition: Definition, old: Definition | None = None) -> Definition:
        """See TicketDatabase.define. What is decided of other kinds than `ticket` stands in `_kinds` too, where servers
        of release 0.2.0 look."""

        def write(connection: sqlite3.Connection) -> Definition:
            kept = _all_defined(connection).get(definition.key)
            if kept is not None and (kept != old or kept.decided):
                return kept
            text = definition.text()
            row = definition.key, definition.sequence, definition.kind, text, int(definition.decided), definition.by
            connection.execute("INSERT OR REPLACE INTO _definitions VALUES (?, ?, ?, ?, ?, ?)", row)
            if definition.decided and definition.kind != "ticket":
                connection.execute("INSERT OR IGNORE INTO _kinds VALUES (?, ?, ?)", (row[1], row[2], text))
            return definition

        return await self._file.run(write)

    async def forget_definition(self, definition: Definition) -> None:
        """See TicketDatabase.forget_definition."""

        def forget(connection: sqlite3.Connection) -> None:
            if _all_defined(connection).get(definition.key) == definition:
                connection.execute("DELETE FROM _definitions WHERE folded = ?", (definition.key,))

        await self._file.run(forget)

    def forget_connections(self) -> None:
        """See TicketDatabase.forget_connections. The file is checked against its path before every use anyway."""

    async def close(self) -> None:
        """See TicketDatabase.close."""
        if self._working is not None:
            await asyncio.gather(self._working, return_exceptions=True)
        if self._describe is not None and self._file.is_open:
            instance = self._describe().instance
            with contextlib.suppress(TicketDatabaseError):
                await self._file.run(lambda c: forget(c, instance))
        await self._file.close()


def _all_defined(connection: sqlite3.Connection) -> dict[str, Definition]:
    """Every definition by name in lower case; what a server of release 0.2.0 has decided in place of a claim."""
    found: dict[str, Definition] = {}
    for query in (_DEFINITIONS, _KINDS):
        for sequence, kind, text, decided, by in connection.execute(query).fetchall():
            definition = Definition.from_text(sequence, kind, text, decided=bool(decided), by=by)
            kept = found.get(definition.key)
            if kept is None or not kept.decided:
                found[definition.key] = definition
    return found


def _sequences_with(name: str) -> str:
    """The table that the row of this sequence lies in: a release before takes every row of the first for somebody's."""
    return "_inner_sequences" if name.startswith("_") else "_sequences"


def _row_of(connection: sqlite3.Connection, sequence: str) -> tuple[int, str] | None:
    """The sequence's position, and when it was made; None where it is missing."""
    query = f"SELECT last, created FROM {_sequences_with(sequence)} WHERE name = ?"  # noqa: S608
    row: tuple[int, str] | None = connection.execute(query, (sequence,)).fetchone()
    return row
