"""A ticket database that is a schema of a PostgreSQL server: all sequences are rows of one table.

Draws have a connection of their own, probes another one, and questions and notes share a few.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from app.common.errors import (
    NoFurtherConnection,
    RingChanged,
    SequenceMissing,
    TicketDatabaseError,
    TicketDatabaseHung,
    TicketDatabaseSetWrong,
    TicketDatabaseUnavailable,
)
from app.common.sequences import Width, ceiling_of, is_table_name
from app.databases.note_text import record_of, server_of, text_of
from app.databases.notebook import Book, Look, Note, NotebookDatabase, Write, after, key_of
from app.databases.postgresql import sql
from app.databases.postgresql.connection import Connection, Line, Work
from app.databases.postgresql.draws import Draws, Wanted
from app.databases.postgresql.errors import MISSING_TABLE, SET_UP, code_of
from app.databases.postgresql.settings import warnings_of
from app.databases.postgresql.url import PostgreSQLURL
from app.databases.protocol import ClockReading, Drawn, Mark, Position, Residue, RingRecord, ServerEntry, Table
from app.kinds.definition import Definition

QUESTIONS_AT_ONCE = 3
"""Connections for questions and notes."""
RENEW_SECONDS = 10.0
"""The probe's connection is renewed so often: the name or address may lead to another server by now."""
STALE_SECONDS = 86_400.0
"""A ticket server that has not been seen for so long is forgotten."""
MOST_ROWS = 100_000
"""A database that lists more rows of one sort cannot be used."""
MOST_SERVERS = 2_000
LISTING = 64 * 1024 * 1024
"""Bytes that a listing may have: a mark with the longest name and token takes less than 400."""


class PostgreSQLDatabase(NotebookDatabase):
    """One schema as a ticket database. Several ticket servers may use it at once."""

    system = "postgresql"

    def __init__(self, url: PostgreSQLURL, offset: int, increment: int, timeout: float) -> None:
        super().__init__(url.name, offset, increment)
        self._probe = Line(url, timeout)
        self._drawing = Line(url, timeout)
        self._asking = [Line(url, timeout) for _ in range(QUESTIONS_AT_ONCE)]
        self._lines = [self._probe, self._drawing, *self._asking]
        self._draws = Draws(self._drawing, lambda: (self._incarnation, self.increment))
        self._checked: Connection | None = None
        self._forget = False

    def __repr__(self) -> str:
        return f"<PostgreSQLDatabase {self.name} offset {self.offset}>"

    @property
    def connections(self) -> int:
        """How many connections are open."""
        return sum(line.connection is not None for line in self._lines)

    @property
    def first_connection(self) -> Connection:
        """The first one of those for questions that is open."""
        return next(line.connection for line in self._asking if line.connection is not None)

    async def ask(self, work: Work[Any], *, anybody: bool = True, most: int = LISTING) -> Any:
        """What `work` returns, on a connection for questions that is free, if there is one."""
        life = None if anybody else self._life
        line = min(self._asking, key=lambda each: (each.busy > 0, each.connection is None, each.busy))
        try:
            return await line.run(work, life, most=most)
        except NoFurtherConnection:
            others = [each for each in self._asking if each.connection is not None]
            if not others:
                raise
            return await min(others, key=lambda each: each.busy).run(work, life, most=most)

    @property
    def _life(self) -> str:
        """Of the server and database that the last look found; a word that no connection has before the first."""
        return self._incarnation.partition("-")[0] or "none"

    # --- probes and draws ------------------------------------------------------------------------------------------

    async def look(self, entry: ServerEntry | None) -> Look:
        """See NotebookDatabase.look. A connection that was cut says nothing about the database, so another is tried."""
        old = self._probe.connection
        try:
            return await self._look(entry)
        except (TicketDatabaseHung, TicketDatabaseSetWrong):
            self._probe.drop()
            raise
        except TicketDatabaseUnavailable:
            self._probe.drop()
            if old is None:
                raise
        return await self._look(entry)

    async def _look(self, entry: ServerEntry | None) -> Look:
        known = self._probe.connection
        new = self._forget or known is None or time.monotonic() >= known.opened + RENEW_SECONDS
        asked: list[float] = []

        async def work(driver: Any) -> Any:
            if self._checked is not self._probe.connection:
                await _prepare_tables(driver)
                self._checked = self._probe.connection
            asked.append(time.monotonic())
            if entry is None:
                return await driver.fetchrow(sql.LOOK, MOST_SERVERS)
            values = MOST_SERVERS, entry.instance, text_of(entry), STALE_SECONDS
            return await driver.fetchrow(sql.LOOK_AND_ANNOUNCE, *values)

        row = await self._probe.run(work, most=LISTING, new=new)
        answered, found = time.monotonic(), self._probe.connection
        if found is None:
            raise TicketDatabaseUnavailable("broke the connection off")
        if self._forget and found is not known:
            self._forget = False
            for line in (self._drawing, *self._asking):
                await line.leave()
        return Look(
            incarnation=f"{found.life}-{row['node']}",
            identity=found.identity,
            latency=answered - asked[0],
            clock=ClockReading(row["clock"], asked[0], answered),
            record=None if row["record"] is None else record_of(row["record"]),
            servers=[server_of(text, at) for text, at in sql.parsed(row["servers"])],
            warnings=warnings_of(row),
        )

    async def clock(self) -> float:
        """See NotebookDatabase.clock."""
        return float(await self.ask(lambda c: c.fetchval(sql.CLOCK)))

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
        self._draws.start(Wanted(residue, table, count, least, self._incarnation, done))

    # --- sequences -------------------------------------------------------------------------------------------------

    async def sequences(self, names: Iterable[str] | None) -> Sequence[tuple[Table, Position]]:
        """See NotebookDatabase.sequences. A row whose name or width no ticket server would write is no sequence."""
        query, values = (sql.LIST, ()) if names is None else (sql.LIST_NAMED, (list(names),))
        rows = await self._listed(query, *values)
        found = []
        for name, last, bits, born in rows:
            if is_table_name(name) and bits in list(Width):
                width, created = Width(bits), born.replace("-", "")[:12]
                table = Table(name, width, ceiling_of(width, unsigned=True), created)
                found.append((table, Position(max(0, min(last, table.ceiling)) + 1, max(0, last), created)))
        return found

    async def _listed(self, query: str, *values: Any, anybody: bool = True) -> list[Any]:
        """The rows of a listing; none where the table is not there yet. Raises where there are too many."""
        try:
            rows: list[Any] = await self.ask(lambda c: c.fetch(query, MOST_ROWS + 1, *values), anybody=anybody)
        except TicketDatabaseUnavailable as error:
            if code_of(error.__cause__) == MISSING_TABLE:
                return []
            raise
        if len(rows) > MOST_ROWS:
            raise TicketDatabaseUnavailable(f"lists more than {MOST_ROWS} rows")
        return rows

    async def make(self, sequence: str, width: Width, start: int) -> None:
        """See TicketDatabase.make."""
        await self.ask(lambda c: c.execute(sql.MAKE, sequence, start - 1, int(width)))

    async def advance(self, floors: Mapping[str, int]) -> None:
        """See TicketDatabase.advance."""
        names, above = list(floors), list(floors.values())
        if names and await self.ask(lambda c: c.fetchval(sql.ADVANCE, names, above)) < len(names):
            raise SequenceMissing("has no such sequence")

    # --- notes -----------------------------------------------------------------------------------------------------

    async def read(self, book: Book, since: int | None = None, *, anybody: bool = False) -> tuple[list[Any], int]:
        """See NotebookDatabase.read. The number of a change is the transaction's."""
        match book:
            case Book.MARKS:
                rows = await self._listed(sql.MARKS, since or 0, anybody=anybody)
                return [Mark(*row[1:]) for row in rows if row[1] is not None], rows[0][0] if rows else 0
            case Book.RING:
                return [record_of(row[0]) for row in await self._listed(sql.RECORD, anybody=anybody)], 0
            case Book.KINDS:
                return [_definition_of(row) for row in await self._listed(sql.KINDS, anybody=anybody)], 0
            case Book.SERVERS:
                return [server_of(*row) for row in await self._listed(sql.SERVERS, anybody=anybody)], 0

    async def write(
        self,
        book: Book,
        writes: Sequence[Write[Any]],
        ring: int | None,
        *,
        entry: ServerEntry | None = None,
        anybody: bool = False,
    ) -> list[Any]:
        """See NotebookDatabase.write. Marks that rise are written by one statement; other notes are locked and read."""
        if not writes:
            return []
        rises = book is Book.MARKS and ring is not None and all(each.old is None for each in writes)
        if rises and len({each.key for each in writes}) == len(writes):
            marks = [each.new for each in writes if each.new is not None]
            return list(await self.ask(lambda c: _keep(c, marks, ring), anybody=anybody))

        async def work(driver: Any) -> list[Any]:
            async with driver.transaction():
                if ring is not None and await driver.fetchval(sql.FENCE) != ring:
                    raise RingChanged
                return await _write(driver, book, writes, entry)

        return list(await self.ask(work, anybody=anybody))

    async def in_use(self, seconds: float) -> list[str]:
        """See TicketDatabase.in_use: another connection of the same user, or a probe."""

        async def connected() -> list[str]:
            own = [line.connection.facts["process"] for line in self._lines if line.connection is not None]
            rows = await self.ask(lambda c: c.fetch(sql.OTHERS, [*own, c.get_server_pid()]))
            return [f"a connection of {name or 'another program'}" for (name,) in rows]

        before, probed = await connected(), await super().in_use(seconds)
        return list(dict.fromkeys([*before, *await connected(), *probed]))

    # --- the end ---------------------------------------------------------------------------------------------------

    def forget_connections(self) -> None:
        """See TicketDatabase.forget_connections."""
        self._forget = True

    async def close(self) -> None:
        """See TicketDatabase.close."""
        await self._draws.close()
        if self.instance and self._probe.connection is not None:
            with suppress(TicketDatabaseError):
                await self._probe.run(lambda c: c.execute(sql.FORGET_SERVER, self.instance))
        for line in self._lines:
            line.closed = True
            await line.leave()


async def _prepare_tables(driver: Any) -> None:
    """Make what is missing of the tables. Raises TicketDatabaseSetWrong where one of them cannot be used, which is left
    as it is, and TicketDatabaseUnavailable on a standby."""
    if await driver.fetchval("SELECT pg_is_in_recovery()"):
        raise TicketDatabaseUnavailable("is a standby, which takes no writes")
    rows = await driver.fetch(sql.FOUND_TABLES, list(sql.COLUMNS))
    for row in rows:
        check_table(row)
    if len(rows) < len(sql.COLUMNS):
        async with driver.transaction():
            await driver.execute(sql.CLOSE_KINDS_GATE)
            await driver.execute(sql.TABLES)
    await driver.execute(sql.MAKE_FENCE)


def check_table(row: Any) -> None:
    """Raise TicketDatabaseSetWrong where a table that `sql.FOUND_TABLES` shows cannot be used."""
    name = row["name"]
    missing = [column for column in sql.COLUMNS[name] if column not in row["columns"]]
    if row["kind"] != "r":
        raise TicketDatabaseSetWrong(f"has something else than a plain table under the name {name}", SET_UP)
    if missing or (name == sql.SEQUENCES and set(row["types"]) != sql.TYPES):
        needs = ", ".join(sorted(sql.TYPES)) if name == sql.SEQUENCES else ", ".join(sql.COLUMNS[name])
        raise TicketDatabaseSetWrong(f"has a table {name} without the columns {needs}", f"move it away and {SET_UP}")
    if row["persistence"] != "p":
        raise TicketDatabaseSetWrong(f"has {name} UNLOGGED: a crash empties it", f"ALTER TABLE {name} SET LOGGED")


async def _keep(driver: Any, marks: Sequence[Mark], ring: int | None) -> list[Mark]:
    columns = zip(*((m.sequence, m.offset, m.increment, m.mark, m.issued, m.token) for m in marks), strict=True)
    rows = await driver.fetch(sql.KEEP_MARKS, *map(list, columns), ring)
    if not rows:
        raise RingChanged
    kept = {(mark.sequence, mark.offset, mark.increment): mark for mark in (Mark(*row) for row in rows)}
    return [kept[mark.sequence, mark.offset, mark.increment] for mark in marks]


async def _write(driver: Any, book: Book, writes: Sequence[Write[Any]], entry: ServerEntry | None) -> list[Any]:
    """Within a transaction. What is kept is locked, or nobody else can write it: then `after` says what to write."""
    kept: dict[tuple[Any, ...], Any] = {}
    match book:
        case Book.MARKS:
            columns = [list(column) for column in zip(*sorted({each.key for each in writes}), strict=True)]
            marks = [Mark(*row) for row in await driver.fetch(sql.HELD_MARKS, *columns)]
            kept = {(mark.sequence, mark.offset, mark.increment): mark for mark in marks}
        case Book.RING:
            await driver.execute(sql.CLOSE_GATE)
            kept = {key_of(record): record for record in map(record_of, await driver.fetchval(sql.RECORDS))}
        case Book.KINDS:
            await driver.execute(sql.CLOSE_KINDS_GATE)
            definitions = [_definition_of(row) for row in await driver.fetch(sql.KINDS, MOST_ROWS)]
            kept = {(each.key,): each for each in definitions}
    results: list[Any] = []
    changed: dict[tuple[Any, ...], Note | None] = {}
    for each in writes:
        before = kept.get(each.key)
        results.append(after(before, each))
        if results[-1] != before:
            kept[each.key] = changed[each.key] = results[-1]
    await _put(driver, changed)
    if changed and entry is not None:
        await driver.execute(sql.SAY, entry.instance, text_of(entry))
    return results


async def _put(driver: Any, changed: Mapping[tuple[Any, ...], Note | None]) -> None:
    marks = [note for note in changed.values() if isinstance(note, Mark)]
    if marks:
        columns = zip(*((m.sequence, m.offset, m.increment, m.mark, m.issued, m.token) for m in marks), strict=True)
        await driver.execute(sql.REPLACE_MARKS, *map(list, columns))
    for key, note in changed.items():
        match note:
            case Definition():
                values = note.sequence, note.kind, note.text(), note.decided, note.by
                await driver.execute(sql.WRITE_KIND, note.key, *values)
            case None:
                await driver.execute(sql.FORGET_KIND, *key)
            case RingRecord():
                await driver.execute(sql.WRITE_RECORD, note.number, text_of(note))


def _definition_of(row: Any) -> Definition:
    sequence, kind, text, decided, by = row
    return Definition.from_text(sequence, kind, text, decided=decided, by=by)
