"""A ticket database of the embedded pair: one SQLite file.

All sequences stand in one table, because SQLite holds `Photos` and `photos` to be one. The draw itself is an UPDATE of
the sequence's row; every draw, move and read of this file comes from that row. One thread owns the connection; what
waits while it works is drawn in one transaction. The notes lie in the tables that releases before laid out.
"""

import asyncio
import contextlib
import sqlite3
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.common.errors import (
    ColumnExhausted,
    RingChanged,
    SequenceMissing,
    TicketDatabaseError,
    TicketDatabaseUnavailable,
)
from app.common.sequences import Width, ceiling_of
from app.databases.notebook import Book, Look, NotebookDatabase, Write, after
from app.databases.protocol import ClockReading, Draw, Drawn, Position, Residue, ServerEntry, Table
from app.databases.sqlite.connection import FileConnection
from app.databases.sqlite.notes import announce, forget, put, read, ring_number

_SEQUENCES = "SELECT name, bits, last, created FROM _sequences UNION ALL SELECT * FROM _inner_sequences"

_ABOVE = "MAX(last, :least - 1)"
_NEXT = f"{_ABOVE} + 1 + ((:offset - {_ABOVE} - 1) % :increment + :increment) % :increment"
"""The first id of an offset above the position, and not below `least`; beyond 2**63 - 1 it is a real number, and larger
still."""


@dataclass(frozen=True, slots=True)
class _Wanted:
    """A draw that waits; see TicketDatabase.start_draw."""

    residue: Residue
    table: Table
    count: int
    least: int


class SQLiteDatabase(NotebookDatabase):
    """One file of the embedded pair. Several server processes may use it at once."""

    system = "sqlite"

    def __init__(
        self, path: Path, offset: int, increment: int, timeout: float, file: FileConnection | None = None
    ) -> None:
        super().__init__(path.name, offset, increment)
        self._path = path
        self._file = file or FileConnection(path, offset, increment, timeout)
        self._waiting: list[tuple[_Wanted, str, Callable[[Drawn], None]]] = []
        self._working: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<SQLiteDatabase {self.name} offset {self.offset}>"

    @property
    def connections(self) -> int:
        """How many connections are open."""
        return int(self._file.is_open)

    # --- probes and draws ------------------------------------------------------------------------------------------

    async def look(self, entry: ServerEntry | None) -> Look:
        """See NotebookDatabase.look. See `FileConnection.incarnation_of`."""

        def write(connection: sqlite3.Connection) -> tuple[str, ClockReading, list[Any], list[Any]]:
            since = time.monotonic()
            clock = ClockReading(time.time(), since, time.monotonic())  # the file has none but this machine's
            announce(connection, entry, clock.seconds)
            records, servers = read(connection, Book.RING), read(connection, Book.SERVERS)
            return self._file.incarnation_of(connection), clock, records, servers

        began = time.monotonic()
        incarnation, clock, records, servers = await self._file.run(write)
        latency, record = time.monotonic() - began, next(iter(records), None)
        return Look(incarnation, f"{self._path.resolve()}", latency, clock, record, servers)

    async def clock(self) -> float:
        """See NotebookDatabase.clock."""
        return time.time()

    def start_draw(
        self,
        residue: Residue,
        table: Table,
        count: int,
        after: int,
        done: Callable[[Drawn], None],
        *,
        least: int = 0,
    ) -> None:
        """See TicketDatabase.start_draw."""
        self._waiting.append((_Wanted(residue, table, count, least), self._incarnation, done))
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
        ring = ring_number(connection)
        return [self._draw_one(connection, wanted, ring) for wanted, _ in requested]

    def _draw_one(self, connection: sqlite3.Connection, wanted: _Wanted, ring: int | None) -> Drawn:
        """From the first id of its own residue above the position, whoever put that where it is: the increment may have
        changed since, or another process may not know yet that it has."""
        (offset, increment, number), table, count = wanted.residue, wanted.table, wanted.count
        if increment != self.increment or ring not in (None, number):
            return RingChanged()
        if wanted.least > table.last:  # which may be more than SQLite can count
            return ColumnExhausted("holds no further id for it")
        row = connection.execute(
            f"UPDATE {_sequences_with(table.sequence)} SET last = {_NEXT} + :more "  # noqa: S608
            f"WHERE name = :name AND {_NEXT} + :more <= :ceiling RETURNING last",
            {
                "increment": increment,
                "offset": offset,
                "least": wanted.least,
                "more": increment * (count - 1),
                "name": table.sequence,
                "ceiling": table.ceiling,
            },
        ).fetchone()
        if row is not None:
            return Draw(row[0] - increment * (count - 1), increment, count)
        if (kept := _row_of(connection, table.sequence)) is not None:
            return ColumnExhausted("holds no further id for it", kept[0])
        return SequenceMissing("has no such sequence")

    def use_increment(self, increment: int) -> None:
        """See TicketDatabase.use_increment."""
        self.increment = self._file.increment = increment

    # --- notes -----------------------------------------------------------------------------------------------------

    async def read(self, book: Book, since: int | None = None, *, anybody: bool = False) -> tuple[list[Any], int]:
        """See NotebookDatabase.read. Reading all of them costs no more than choosing."""

        def work(connection: sqlite3.Connection) -> tuple[list[Any], int]:
            self._refuse_another(connection, anybody=anybody)
            return read(connection, book), 0

        return await self._file.run(work)

    async def write(
        self,
        book: Book,
        writes: Sequence[Write[Any]],
        ring: int | None,
        *,
        entry: ServerEntry | None = None,
        anybody: bool = False,
    ) -> list[Any]:
        """See NotebookDatabase.write."""

        def work(connection: sqlite3.Connection) -> list[Any]:
            self._refuse_another(connection, anybody=anybody)
            if ring is not None and ring_number(connection) != ring:
                raise RingChanged
            results = []
            for each in writes:
                kept = next(iter(read(connection, book, each.key)), None)
                results.append(after(kept, each))
                if results[-1] != kept:
                    put(connection, kept, results[-1])
                    if entry is not None:
                        announce(connection, entry, time.time())
            return results

        return await self._file.run(work)

    def _refuse_another(self, connection: sqlite3.Connection, *, anybody: bool) -> None:
        if not anybody and self._file.incarnation_of(connection) != self._incarnation:
            raise TicketDatabaseUnavailable("is another file than before")

    async def in_use(self, seconds: float) -> list[str]:
        """See TicketDatabase.in_use: another process that has the file open, or a probe of it."""
        await self.read(Book.RING, anybody=True)  # opens it
        shared = await self._file.is_shared()
        probed = [] if shared else await super().in_use(seconds)
        if shared or await self._file.is_shared():
            return ["another process that has the file open"]
        return probed

    # --- sequences -------------------------------------------------------------------------------------------------

    async def sequences(self, names: Iterable[str] | None) -> Sequence[tuple[Table, Position]]:
        """See NotebookDatabase.sequences."""
        requested = None if names is None else set(names)
        rows = await self._file.run(lambda c: c.execute(_SEQUENCES).fetchall())
        return [
            (
                Table(name, Width(bits), ceiling_of(Width(bits), unsigned=True), created),
                Position(next_id=max(1, last + 1), largest=max(0, last), created=created),
            )
            for name, bits, last, created in rows
            if requested is None or name in requested
        ]

    async def make(self, sequence: str, width: Width, start: int) -> None:
        """See TicketDatabase.make."""
        row = (sequence, int(width), start - 1, uuid.uuid4().hex[:12])
        insert = f"INSERT OR IGNORE INTO {_sequences_with(sequence)} VALUES (?, ?, ?, ?)"  # noqa: S608
        await self._file.run(lambda c: c.execute(insert, row))

    async def advance(self, floors: Mapping[str, int]) -> None:
        """See TicketDatabase.advance."""
        requested = dict(floors)

        def write(connection: sqlite3.Connection) -> None:
            for name, floor in requested.items():
                advance = f"UPDATE {_sequences_with(name)} SET last = MAX(last, ?) WHERE name = ?"  # noqa: S608
                if not connection.execute(advance, (floor, name)).rowcount:
                    raise SequenceMissing("has no such sequence")

        if requested:
            await self._file.run(write)

    def forget_connections(self) -> None:
        """See TicketDatabase.forget_connections. The file is checked against its path before every use anyway."""

    async def close(self) -> None:
        """See TicketDatabase.close."""
        if self._working is not None:
            await asyncio.gather(self._working, return_exceptions=True)
        if self.instance and self._file.is_open:
            with contextlib.suppress(TicketDatabaseError):
                await self._file.run(lambda c: forget(c, self.instance))
        await self._file.close()


def _sequences_with(name: str) -> str:
    """The table that the row of this sequence lies in: a release before takes every row of the first for somebody's."""
    return "_inner_sequences" if name.startswith("_") else "_sequences"


def _row_of(connection: sqlite3.Connection, sequence: str) -> tuple[int, str] | None:
    """The sequence's position, and when it was made; None where it is missing."""
    query = f"SELECT last, created FROM {_sequences_with(sequence)} WHERE name = ?"  # noqa: S608
    row: tuple[int, str] | None = connection.execute(query, (sequence,)).fetchone()
    return row
