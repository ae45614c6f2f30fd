"""A ticket database of the embedded pair: one SQLite file.

WAL with full synchronisation: a committed draw survives a power cut. All sequences stand in one table, because SQLite
holds `Photos` and `photos` to be one. The draw itself is an UPDATE of the sequence's row; every draw, move and read of
this file comes from that row. One thread owns the connection; what waits while it works is done in one transaction.
"""

import asyncio
import errno
import sqlite3
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from app.databases.protocol import Draw, Drawn, Look, Mark, Position, RingRecord, RingState, Table
from app.databases.sqlite_life import FileLife
from app.errors import (
    ColumnExhausted,
    RingChanged,
    SequenceMissing,
    TicketDatabaseBusy,
    TicketDatabaseError,
    TicketDatabaseMisconfigured,
    TicketDatabaseUnavailable,
)
from app.patience import patience
from app.sequences import Width, ceiling_of

T = TypeVar("T")

EMBEDDED_FILES = ("odd.sqlite3", "even.sqlite3")
"""The embedded pair, in offset order, under TICKETS_DATA_DIR."""

LAYOUT_VERSION = 1
LARGEST_STEP = 65_535
"""The most that one draw may move a position: as far as on a MySQL server."""

FIRST_SEQUENCES = {
    "Tickets64": Width.BIGINT,
    "Tickets32": Width.INT,
    "photos": Width.BIGINT,
    "accounts": Width.BIGINT,
    "groups": Width.BIGINT,
    "offline_tasks": Width.BIGINT,
}
"""What a new file starts with, as mysql_init/ does for MySQL."""

_SCHEMA = """
CREATE TABLE IF NOT EXISTS _database (
    id INTEGER PRIMARY KEY CHECK (id = 1), life TEXT NOT NULL, offset INTEGER NOT NULL, increment INTEGER NOT NULL,
    probed REAL NOT NULL);
CREATE TABLE IF NOT EXISTS _sequences (
    name TEXT NOT NULL PRIMARY KEY, bits INTEGER NOT NULL, last INTEGER NOT NULL, created TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS _high_water (
    sequence TEXT NOT NULL, offset_of INTEGER NOT NULL, increment_of INTEGER NOT NULL, mark INTEGER NOT NULL,
    issued INTEGER NOT NULL, token TEXT NOT NULL, PRIMARY KEY (sequence, offset_of, increment_of));
"""
_RING_SCHEMA = """
CREATE TABLE IF NOT EXISTS _ring (
    id INTEGER PRIMARY KEY CHECK (id = 1), number INTEGER NOT NULL, increment_of INTEGER NOT NULL,
    since INTEGER NOT NULL, offsets TEXT NOT NULL, own_offset INTEGER NOT NULL, state TEXT NOT NULL)
"""
_RING = "SELECT number, increment_of, since, offsets, own_offset, state FROM _ring WHERE id = 1"
_MARKS = "SELECT sequence, offset_of, increment_of, mark, issued, token FROM _high_water"

_NEXT = "last + 1 + ((:offset - last - 1) % :increment + :increment) % :increment"
"""The first id of an offset above the position; beyond 2**63 - 1 it is a real number, and larger still."""


class SQLiteDatabase:
    """One file of the embedded pair. Several server processes may use it at once."""

    def __init__(self, path: Path, offset: int, increment: int, timeout: float) -> None:
        self.name = path.name
        self.offset = offset
        self.increment = increment
        self._path = path
        self._timeout = timeout
        self._connection: sqlite3.Connection | None = None
        self._life: FileLife | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=path.stem)
        self._incarnation = ""
        self._waiting: list[tuple[Table, int, str, asyncio.Future[Draw]]] = []
        self._working: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<SQLiteDatabase {self.name} offset {self.offset}>"

    @property
    def largest_block(self) -> int:
        """See TicketDatabase.largest_block."""
        return LARGEST_STEP // self.increment

    @property
    def connections(self) -> int:
        """How many connections are open."""
        return int(self._connection is not None)

    # --- the thread ------------------------------------------------------------------------------------------------

    async def _in_thread(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run `work` in one transaction of its own and commit it; raises TicketDatabaseError only."""
        loop = asyncio.get_running_loop()
        try:
            async with patience(self._timeout):
                return await loop.run_in_executor(self._thread, self._transaction, work)
        except TimeoutError as error:
            raise TicketDatabaseUnavailable("did not answer in time") from error
        except RuntimeError as error:  # the executor has been shut down
            raise TicketDatabaseUnavailable("is being left") from error

    def _transaction(self, work: Callable[[sqlite3.Connection], T]) -> T:
        try:
            connection = self._same_file() or self._open()
            connection.execute("BEGIN IMMEDIATE")
            try:
                result = work(connection)
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise
        except sqlite3.Error as error:
            raise self._translated(error) from error
        except OSError as error:
            self._drop()
            full = error.errno in (errno.ENOSPC, errno.EDQUOT)
            raise TicketDatabaseUnavailable("has a full disk" if full else "cannot be opened") from error
        return result

    def _same_file(self) -> sqlite3.Connection | None:
        """The open connection, while the paths still name the files that it was opened to."""
        if self._life is not None and not self._life.holds():
            self._drop()
            raise TicketDatabaseUnavailable("is another file than before")
        return self._connection

    def _translated(self, error: sqlite3.Error) -> TicketDatabaseError:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            return TicketDatabaseBusy("is locked by another process")
        self._drop()
        words = {
            sqlite3.SQLITE_FULL: "has a full disk",
            sqlite3.SQLITE_READONLY: "is read-only",
            sqlite3.SQLITE_CANTOPEN: "cannot be opened",
            sqlite3.SQLITE_CORRUPT: "is damaged",
            sqlite3.SQLITE_NOTADB: "is not a database",
            sqlite3.SQLITE_IOERR: "cannot be read or written",
        }
        return TicketDatabaseUnavailable(words.get(code, "cannot be used"))

    def _open(self) -> sqlite3.Connection:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        life = FileLife(self._path, self._timeout / 2)
        try:
            connection = self._connect()
            try:
                life.settle()
            except BaseException:
                connection.close()
                raise
        except BaseException:
            life.drop()
            raise
        self._life, self._connection = life, connection
        return connection

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self._path, timeout=self._timeout, isolation_level=None, check_same_thread=False)
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
            version = int(connection.execute("PRAGMA user_version").fetchone()[0])
            if version > LAYOUT_VERSION:
                raise TicketDatabaseMisconfigured(f"has layout version {version}, newer than {LAYOUT_VERSION}")
            if version == 0:
                connection.execute("BEGIN IMMEDIATE")
                for statement in _SCHEMA.split(";")[:-1]:
                    connection.execute(statement)
                connection.execute(
                    "INSERT OR IGNORE INTO _database VALUES (1, ?, ?, ?, 0)",
                    (uuid.uuid4().hex, self.offset, self.increment),
                )
                for name, width in FIRST_SEQUENCES.items():
                    row = (name, int(width), 0, uuid.uuid4().hex[:12])
                    connection.execute("INSERT OR IGNORE INTO _sequences VALUES (?, ?, ?, ?)", row)
                connection.execute(f"PRAGMA user_version = {LAYOUT_VERSION}")
                connection.execute("COMMIT")
            connection.execute(_RING_SCHEMA)
            (made_for,) = connection.execute("SELECT offset FROM _database").fetchone()
            if made_for != self.offset:
                raise TicketDatabaseMisconfigured(f"was made for offset {made_for}, wanted {self.offset}")
        except BaseException:
            connection.close()
            raise
        return connection

    def _drop(self) -> None:
        """After an error: nobody knows how the file is."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        if self._life is not None:
            self._life.drop()
            self._life = None

    def _leave(self) -> None:
        if self._connection is not None and self._life is not None and self._life.holds():
            self._connection.close()
            self._life.leave()
            self._connection = self._life = None
        self._drop()

    # --- probes and draws ------------------------------------------------------------------------------------------

    async def look(self) -> Look:
        """See TicketDatabase.look. The incarnation is the file's own name for its life, its inode, and its
        life as the file beside it has it."""
        began = time.monotonic()
        incarnation, record = await self._in_thread(self._probe)
        self._incarnation = incarnation  # nobody draws from another one before the caller knows
        return Look(
            incarnation=incarnation,
            increment=None,
            offset=None,
            record=record,
            identity=f"{self._path.resolve()}",
            version=f"SQLite {sqlite3.sqlite_version}",
            now=time.time(),
            latency=time.monotonic() - began,
        )

    def _probe(self, connection: sqlite3.Connection) -> tuple[str, RingRecord | None]:
        connection.execute("UPDATE _database SET probed = ?", (time.time(),))
        return self._incarnation_of(connection), record_in(connection)

    def _incarnation_of(self, connection: sqlite3.Connection) -> str:
        (life,) = connection.execute("SELECT life FROM _database").fetchone()
        assert self._life is not None
        return f"{life[:16]}-{self._life.inode}-{self._life.name}"

    def draw_at_once(self, table: Table, count: int, after: int, done: Callable[[Drawn], None]) -> bool:
        """See TicketDatabase.draw_at_once; the file is written by a thread, and never at once."""
        return False

    async def draw(self, table: Table, count: int, after: int) -> Draw:
        """See TicketDatabase.draw."""
        future: asyncio.Future[Draw] = asyncio.get_running_loop().create_future()
        self._waiting.append((table, count, self._incarnation, future))
        if self._working is None:
            self._working = asyncio.create_task(self._work())
        return await future

    async def _work(self) -> None:
        """Draw all that waits in one transaction, again and again until nothing waits."""
        try:
            while self._waiting:
                batch, self._waiting = self._waiting, []
                wanted = [(table, count, incarnation) for table, count, incarnation, _ in batch]
                try:
                    drawn = await self._in_thread(lambda c, w=wanted: self._draw_all(c, w))  # type: ignore[misc]
                except TicketDatabaseError as error:
                    drawn = [error] * len(batch)
                for (*_, future), result in zip(batch, drawn, strict=True):
                    if future.done():
                        continue
                    if isinstance(result, Draw):
                        future.set_result(result)
                    else:
                        future.set_exception(result)
        finally:
            self._working = None

    def _draw_all(
        self, connection: sqlite3.Connection, wanted: list[tuple[Table, int, str]]
    ) -> list[Draw | TicketDatabaseError]:
        current = self._incarnation_of(connection)
        if any(incarnation != current for *_, incarnation in wanted):  # it was opened again since the last look
            raise TicketDatabaseUnavailable("is another file than before")
        return [self._draw_one(connection, table, count) for table, count, _ in wanted]

    def _draw_one(self, connection: sqlite3.Connection, table: Table, count: int) -> Draw | TicketDatabaseError:
        """From the first id of its own residue above the position, whoever put that where it is: the increment may have
        changed since, or another process may not know yet that it has."""
        increment = self.increment
        row = connection.execute(
            f"UPDATE _sequences SET last = {_NEXT} + :more WHERE name = :name AND {_NEXT} + :more <= :ceiling "  # noqa: S608
            "RETURNING last",
            {
                "increment": increment,
                "offset": self.offset,
                "more": increment * (count - 1),
                "name": table.sequence,
                "ceiling": table.ceiling,
            },
        ).fetchone()
        if row is not None:
            return Draw(row[0] - increment * (count - 1), increment, count)
        if connection.execute("SELECT 1 FROM _sequences WHERE name = ?", (table.sequence,)).fetchone():
            return ColumnExhausted("holds no further id for it")
        return SequenceMissing("has no such sequence")

    # --- the ring record ---------------------------------------------------------------------------------------------

    def use_increment(self, increment: int) -> None:
        """See TicketDatabase.use_increment."""
        self.increment = increment

    async def record_ring(self, old: RingRecord | None, new: RingRecord) -> RingRecord:
        """See TicketDatabase.record_ring."""

        def write(connection: sqlite3.Connection) -> RingRecord:
            found = record_in(connection)
            if found != old:
                if found is None:
                    raise TicketDatabaseUnavailable("lost its ring record")
                return found
            offsets = ",".join(map(str, new.offsets))
            row = (new.number, new.increment, new.since, offsets, new.own, str(new.state))
            connection.execute("INSERT OR REPLACE INTO _ring VALUES (1, ?, ?, ?, ?, ?, ?)", row)
            connection.execute("UPDATE _database SET increment = ?", (new.increment,))
            return new

        return await self._in_thread(write)

    async def check_ring(self, number: int) -> None:
        """See TicketDatabase.check_ring."""
        await self._in_thread(lambda c: self._refuse_another_ring(c, number))

    async def in_use(self, seconds: float) -> list[str]:
        """See TicketDatabase.in_use: another process that has the file open, or a probe of it."""

        def probed(connection: sqlite3.Connection) -> float:
            return float(connection.execute("SELECT probed FROM _database").fetchone()[0])

        first = await self._in_thread(probed)
        if self._life is not None and await asyncio.to_thread(self._life.is_shared):
            return ["another process that has the file open"]
        await asyncio.sleep(seconds)
        return ["a ticket server that probes it"] if await self._in_thread(probed) != first else []

    # --- tables ----------------------------------------------------------------------------------------------------

    async def names(self) -> dict[str, str]:
        """See TicketDatabase.names."""
        return await self._in_thread(lambda c: dict(c.execute("SELECT name, created FROM _sequences").fetchall()))

    async def counters(self, names: Iterable[str]) -> dict[str, tuple[int, str]]:
        """See TicketDatabase.counters."""
        wanted = set(names)
        query = "SELECT name, last, created FROM _sequences"
        rows = await self._in_thread(lambda c: c.execute(query).fetchall())
        return {name: (max(1, last + 1), created) for name, last, created in rows if name in wanted}

    async def tables(self, names: Iterable[str]) -> dict[str, Table]:
        """See TicketDatabase.tables."""
        wanted = set(names)

        def read(connection: sqlite3.Connection) -> dict[str, Table]:
            rows = connection.execute("SELECT name, bits, created FROM _sequences").fetchall()
            return {name: self._table(name, Width(bits), created) for name, bits, created in rows if name in wanted}

        return await self._in_thread(read)

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
            row = connection.execute(
                "SELECT last, created FROM _sequences WHERE name = ?", (table.sequence,)
            ).fetchone()
            if row is None:
                raise SequenceMissing("has no such sequence")
            return Position(next_id=max(1, row[0] + 1), largest=max(0, row[0]), created=row[1])

        return await self._in_thread(read)

    async def positions(self, tables: Iterable[Table]) -> dict[str, Position]:
        """See TicketDatabase.positions."""
        wanted = {table.sequence for table in tables}
        query = "SELECT name, last, created FROM _sequences"
        rows = await self._in_thread(lambda c: c.execute(query).fetchall())
        return {
            name: Position(next_id=max(1, last + 1), largest=max(0, last), created=created)
            for name, last, created in rows
            if name in wanted
        }

    async def make(self, sequence: str, width: Width, start: int) -> None:
        """See TicketDatabase.make."""
        row = (sequence, int(width), start - 1, uuid.uuid4().hex[:12])
        await self._in_thread(lambda c: c.execute("INSERT OR IGNORE INTO _sequences VALUES (?, ?, ?, ?)", row))

    async def raise_above(self, table: Table, above: int) -> None:
        """See TicketDatabase.raise_above."""
        await self.raise_all_above({table.sequence: above})

    async def raise_all_above(self, floors: Mapping[str, int]) -> None:
        """See TicketDatabase.raise_all_above."""
        rows = [(floor, name) for name, floor in floors.items()]

        def write(connection: sqlite3.Connection) -> None:
            statement = "UPDATE _sequences SET last = MAX(last, ?) WHERE name = ?"
            if connection.executemany(statement, rows).rowcount < len(rows):
                raise SequenceMissing("has no such sequence")

        if rows:
            await self._in_thread(write)

    # --- the ledger ------------------------------------------------------------------------------------------------

    async def marks(self, changed_within: float | None = None) -> list[Mark]:
        """See TicketDatabase.marks. Reading all of them costs no more than choosing."""
        increment = self.increment
        return [mark for mark in await self.marks_of_all_rings() if mark.increment == increment]

    async def marks_of_all_rings(self) -> list[Mark]:
        """See TicketDatabase.marks_of_all_rings."""
        return await self._in_thread(lambda c: [Mark(*row) for row in c.execute(_MARKS)])

    def _refuse_another_ring(self, connection: sqlite3.Connection, ring: int) -> None:
        record = record_in(connection)
        if record is None or record.number != ring:
            raise RingChanged

    async def reserve(self, marks: Iterable[Mark], ring: int) -> Mapping[tuple[str, int], Mark]:
        """See TicketDatabase.reserve."""
        wanted = list(marks)

        def write(connection: sqlite3.Connection) -> dict[tuple[str, int], Mark]:
            self._refuse_another_ring(connection, ring)
            for m in wanted:
                connection.execute(
                    "INSERT INTO _high_water VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET "
                    "mark = MAX(mark, excluded.mark), issued = MAX(issued, excluded.issued) "
                    "WHERE token = excluded.token",
                    (m.sequence, m.offset, m.increment, m.mark, m.issued, m.token),
                )
            return {(m.sequence, m.offset): self._mark(connection, m) for m in wanted}

        return await self._in_thread(write)

    async def renew(self, old: Mark, new: Mark, ring: int) -> Mark:
        """See TicketDatabase.renew."""

        def write(connection: sqlite3.Connection) -> Mark:
            self._renew(connection, [(old, new)], ring)
            return self._mark(connection, old)

        return await self._in_thread(write)

    async def renew_all(self, renewals: Iterable[tuple[Mark, Mark]], ring: int) -> None:
        """See TicketDatabase.renew_all."""
        wanted = list(renewals)
        await self._in_thread(lambda c: self._renew(c, wanted, ring))

    def _renew(self, connection: sqlite3.Connection, renewals: list[tuple[Mark, Mark]], ring: int) -> None:
        self._refuse_another_ring(connection, ring)
        connection.executemany(
            "UPDATE _high_water SET token = ?, mark = ?, issued = MAX(issued, ?) "
            "WHERE sequence = ? AND offset_of = ? AND increment_of = ? AND token = ? AND mark <= ?",
            [
                (new.token, new.mark, new.issued, old.sequence, old.offset, old.increment, old.token, old.mark)
                for old, new in renewals
            ],
        )

    def _mark(self, connection: sqlite3.Connection, key: Mark) -> Mark:
        row = connection.execute(
            f"{_MARKS} WHERE sequence = ? AND offset_of = ? AND increment_of = ?",
            (key.sequence, key.offset, key.increment),
        ).fetchone()
        if row is None:
            raise TicketDatabaseUnavailable("lost a row of its ledger")
        return Mark(*row)

    def forget_connections(self) -> None:
        """See TicketDatabase.forget_connections. The file is held against its path before every use anyway."""

    async def close(self) -> None:
        """See TicketDatabase.close."""
        if self._working is not None:
            await asyncio.gather(self._working, return_exceptions=True)
        await asyncio.get_running_loop().run_in_executor(self._thread, self._leave)
        self._thread.shutdown(wait=False)


def record_in(connection: sqlite3.Connection) -> RingRecord | None:
    """The ring that this file records; None where it records none."""
    row = connection.execute(_RING).fetchone()
    if row is None:
        return None
    number, increment, since, offsets, own, state = row
    used = tuple(int(offset) for offset in offsets.split(",") if offset)
    return RingRecord(number, increment, since, used, own, RingState(state))
