"""A ticket database that is a schema of a PostgreSQL server: all sequences are rows of one table."""

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from app.common.errors import (
    ColumnExhausted,
    RingChanged,
    SequenceMissing,
    SequenceUnavailable,
    TicketDatabaseBusy,
    TicketDatabaseUnavailable,
)
from app.common.sequences import Width, ceiling_of, is_table_name
from app.databases.networked import MOST_ROWS, MOST_SERVERS, STALE_SECONDS, NetworkedDatabase, Wanted
from app.databases.note_text import record_of, server_of, text_of
from app.databases.notebook import Book, Look, Note, Write, carried_out, key_of
from app.databases.postgresql import sql
from app.databases.postgresql.connection import PostgreSQLConnection
from app.databases.postgresql.errors import LOCKED, MISSING_TABLE, code_of
from app.databases.postgresql.settings import check_table, flaws_of
from app.databases.postgresql.url import PostgreSQLURL
from app.databases.protocol import ClockReading, Drawn, Mark, Position, RingRecord, ServerEntry, Table
from app.kinds.definition import Definition


class PostgreSQLDatabase(NetworkedDatabase[PostgreSQLConnection]):
    """One schema as a ticket database. Several ticket servers may use it at once."""

    system = "postgresql"

    def __init__(self, url: PostgreSQLURL, offset: int, increment: int, timeout: float) -> None:
        context = url.ssl_context()
        super().__init__(url.name, offset, increment, lambda: PostgreSQLConnection.open(url, context, timeout), timeout)

    # --- probes and draws ------------------------------------------------------------------------------------------

    async def prepare(self, connection: PostgreSQLConnection) -> None:
        """See NetworkedDatabase.prepare. Raises TicketDatabaseUnavailable on a standby."""
        driver = connection.driver
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

    async def look_on(self, connection: PostgreSQLConnection, entry: ServerEntry | None) -> Look:
        """See NetworkedDatabase.look_on. The incarnation ends with the number of the file that holds the sequences."""
        asked = time.monotonic()
        if entry is None:
            row = await connection.driver.fetchrow(sql.LOOK, MOST_SERVERS)
        else:
            values = MOST_SERVERS, entry.instance, text_of(entry), STALE_SECONDS
            row = await connection.driver.fetchrow(sql.LOOK_AND_ANNOUNCE, *values)
        answered = time.monotonic()
        return Look(
            incarnation=f"{connection.life}-{row['node']}",
            identity=connection.identity,
            latency=answered - asked,
            clock=ClockReading(row["clock"], asked, answered),
            record=None if row["record"] is None else record_of(row["record"]),
            servers=[server_of(text, at) for text, at in sql.parsed(row["servers"])],
            warnings=tuple(flaw.wrong for flaw in flaws_of(row)),
        )

    async def clock(self) -> float:
        """See NotebookDatabase.clock."""
        return float(await self.ask(lambda c: c.driver.fetchval(sql.CLOCK)))

    async def draw_all(self, wanted: Mapping[str, Wanted], incarnation: str) -> Mapping[str, Drawn]:
        """See NetworkedDatabase.draw_all. A row that another session has locked holds up its own sequence alone: after
        a third of the time the statement is sent again, and passes over the rows that are locked."""
        rows = [(name, *each.residue, each.least, each.more, each.table.last) for name, each in wanted.items()]
        columns = [list(column) for column in zip(*rows, strict=True)]
        try:
            found = await self.on_drawing(lambda c: c.driver.fetch(_DRAW, *columns))
        except TicketDatabaseBusy as error:
            if code_of(error.__cause__) != LOCKED:
                raise
            found = await self.on_drawing(lambda c: c.driver.fetch(_DRAW_UNLOCKED, *columns))
        node = incarnation.rpartition("-")[2]
        return {row["sequence"]: _drawn(row, wanted[row["sequence"]], node) for row in found}

    async def forget_server(self, connection: PostgreSQLConnection) -> None:
        """See NetworkedDatabase.forget_server."""
        await connection.driver.execute(sql.FORGET_SERVER, self.instance)

    # --- sequences -------------------------------------------------------------------------------------------------

    async def sequences(self, names: Iterable[str] | None) -> Sequence[tuple[Table, Position]]:
        """See NotebookDatabase.sequences. A row whose name or width no ticket server would write is no sequence."""
        query, values = (sql.LIST, ()) if names is None else (sql.LIST_NAMED, (list(names),))
        found = []
        for name, last, bits, born in await self._listed(query, *values):
            if is_table_name(name) and bits in list(Width):
                width, created = Width(bits), born.replace("-", "")[:12]
                table = Table(name, width, ceiling_of(width, unsigned=True), created)
                found.append((table, Position(max(0, min(last, table.ceiling)) + 1, max(0, last), created)))
        return found

    async def _listed(self, query: str, *values: Any, anybody: bool = True) -> list[Any]:
        """The rows of a listing; none where the table is not there yet. Raises where there are too many."""
        try:
            rows: list[Any] = await self.ask(lambda c: c.driver.fetch(query, MOST_ROWS + 1, *values), anybody=anybody)
        except TicketDatabaseUnavailable as error:
            if code_of(error.__cause__) == MISSING_TABLE:
                return []
            raise
        if len(rows) > MOST_ROWS:
            raise TicketDatabaseUnavailable(f"lists more than {MOST_ROWS} rows")
        return rows

    async def make(self, sequence: str, width: Width, start: int) -> None:
        """See TicketDatabase.make."""
        await self.ask(lambda c: c.driver.execute(sql.MAKE, sequence, start - 1, int(width)))

    async def advance(self, floors: Mapping[str, int]) -> None:
        """See TicketDatabase.advance."""
        names, above = list(floors), list(floors.values())
        if names and await self.ask(lambda c: c.driver.fetchval(sql.ADVANCE, names, above)) < len(names):
            raise SequenceMissing("has no such sequence")

    # --- notes -----------------------------------------------------------------------------------------------------

    async def read(self, book: Book, since: int | None = None, *, anybody: bool = False) -> tuple[list[Any], int]:
        """See NotebookDatabase.read. The number of a change is the transaction's."""
        match book:
            case Book.MARKS:
                since = 0 if since is None or anybody else since  # transactions of another life have other numbers
                rows = await self._listed(sql.MARKS, since, anybody=anybody)
                number = 0 if anybody or not rows else rows[0][0]
                return [Mark(*row[1:]) for row in rows if row[1] is not None], number
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
        marks = [each.new for each in writes if book is Book.MARKS and each.old is None and each.new is not None]
        if ring is not None and len(writes) == len(marks) == len({each.key for each in writes}):
            return list(await self.ask(lambda c: _keep(c.driver, marks, ring), anybody=anybody))

        async def work(connection: PostgreSQLConnection) -> list[Any]:
            async with connection.driver.transaction():
                if ring is not None and await connection.driver.fetchval(sql.FENCE) != ring:
                    raise RingChanged
                return await _write(connection.driver, book, writes, entry)

        return await self.ask(work, anybody=anybody)

    async def in_use(self, seconds: float) -> list[str]:
        """See TicketDatabase.in_use: another connection of the same user, or a probe."""

        async def others(connection: PostgreSQLConnection) -> list[str]:
            own = [each.facts["process"] for each in (connection, *self.open_connections)]
            rows = await connection.driver.fetch(sql.OTHERS, own)
            return [f"a connection of {name or 'another program'}" for (name,) in rows]

        before, probed = await self.ask(others), await super().in_use(seconds)
        return list(dict.fromkeys([*before, *await self.ask(others), *probed]))


_DRAW, _DRAW_UNLOCKED = sql.draw(), sql.draw(skip_locked=True)


def _drawn(row: Any, wanted: Wanted, node: str) -> Drawn:
    """The result of the statement for one sequence. Tickets from a table that was made again become a gap."""
    if str(row["node"]) != node:
        return TicketDatabaseUnavailable("had its table of sequences made anew")
    if row["last"] is not None:
        return wanted.ending_at(row["last"])
    if row["number"] not in (None, wanted.residue.ring):
        return RingChanged()
    if row["held"]:
        return ColumnExhausted("holds no further id for it", max(0, row["position"]))
    if row["there"]:
        return SequenceUnavailable("has its row locked by another session")
    return SequenceMissing("has no such sequence")


def _columns(marks: Iterable[Mark]) -> list[list[Any]]:
    rows = [(mark.sequence, mark.offset, mark.increment, mark.mark, mark.issued, mark.token) for mark in marks]
    return [list(column) for column in zip(*rows, strict=True)]


async def _keep(driver: Any, marks: Sequence[Mark], ring: int) -> list[Mark]:
    rows = await driver.fetch(sql.KEEP_MARKS, *_columns(marks), ring)
    kept = {key_of(mark): mark for mark in (Mark(*row) for row in rows)}
    if not kept:
        raise RingChanged
    return [kept[key_of(mark)] for mark in marks]


async def _write(driver: Any, book: Book, writes: Sequence[Write[Any]], entry: ServerEntry | None) -> list[Any]:
    """Lock and read the notes that are kept, then write the changed ones; within a transaction."""
    kept: list[Any] = []
    match book:
        case Book.MARKS:
            columns = [list(column) for column in zip(*sorted({each.key for each in writes}), strict=True)]
            kept = [Mark(*row) for row in await driver.fetch(sql.HELD_MARKS, *columns)]
        case Book.RING:
            await driver.execute(sql.CLOSE_GATE)
            kept = [record_of(row[0]) for row in await driver.fetch(sql.RECORD, 1)]
        case Book.KINDS:
            await driver.execute(sql.CLOSE_KINDS_GATE)
            kept = [_definition_of(row) for row in await driver.fetch(sql.KINDS, MOST_ROWS)]
    results, changed = carried_out(writes, {key_of(note): note for note in kept})
    await _put(driver, changed)
    if changed and entry is not None:
        await driver.execute(sql.SAY, entry.instance, text_of(entry))
    return results


async def _put(driver: Any, changed: Mapping[tuple[Any, ...], Note | None]) -> None:
    marks = [note for note in changed.values() if isinstance(note, Mark)]
    if marks:
        await driver.execute(sql.REPLACE_MARKS, *_columns(marks))
    for key, note in changed.items():
        if isinstance(note, Definition):
            values = note.sequence, note.kind, note.text(), note.decided, note.by
            await driver.execute(sql.WRITE_KIND, note.key, *values)
        elif isinstance(note, RingRecord):
            await driver.execute(sql.WRITE_RECORD, note.number, text_of(note))
        elif note is None:
            await driver.execute(sql.FORGET_KIND, *key)


def _definition_of(row: Any) -> Definition:
    sequence, kind, text, decided, by = row
    return Definition.from_text(sequence, kind, text, decided=decided, by=by)
