"""What tables a MySQL or MariaDB ticket database has, where they stand, and how they are made and moved up."""

from collections.abc import Iterable
from contextlib import AbstractAsyncContextManager
from typing import Any

from app.databases import mysql_statements as sql
from app.databases.mysql_connection import MySQLConnection
from app.databases.protocol import Position, Table
from app.errors import SequenceMissing
from app.sequences import Width, ceiling_of, is_name

CRASH_SAFE_ENGINES = frozenset({"InnoDB"})
_WIDTHS = {"int": Width.INT, "bigint": Width.BIGINT}


class MySQLTables:
    """The half of a MySQL ticket database that knows tables."""

    offset: int
    increment: int

    def _question(self) -> AbstractAsyncContextManager[MySQLConnection]:
        raise NotImplementedError

    async def names(self) -> set[str]:
        """See TicketDatabase.names."""
        async with self._question() as connection:
            return {str(row[0]) for row in await connection.execute(sql.NAMES) if is_name(str(row[0]))}

    async def counters(self) -> dict[str, tuple[int, str]]:
        """See TicketDatabase.counters."""
        async with self._question() as connection:
            rows = await connection.execute(sql.COUNTERS)
        return {str(name): (int(counter), str(created)) for name, counter, created in rows if is_name(str(name))}

    async def tables(self, names: Iterable[str]) -> dict[str, Table]:
        """See TicketDatabase.tables."""
        wanted = sorted(names)
        found: dict[str, Table] = {}
        for start in range(0, len(wanted), 200):
            async with self._question() as connection:
                for row in await connection.execute(sql.tables(wanted[start : start + 200])):
                    table = _table(row)
                    if table is not None:
                        found[table.sequence] = table
        return found

    async def position(self, table: Table) -> Position:
        """See TicketDatabase.position."""
        largest_first, counter_then = sql.position(table.sequence)
        async with self._question() as connection:
            ((largest,),) = await connection.execute(largest_first)
            rows = await connection.execute(counter_then)
        if not rows:
            raise SequenceMissing("has no table for it")
        counter, created = rows[0]
        return Position(next_id=int(counter), largest=int(largest), created=str(created))

    async def make(self, sequence: str, width: Width, start: int) -> None:
        """See TicketDatabase.make."""
        async with self._question() as connection:
            await connection.execute(sql.make(sequence, width, start))

    async def raise_above(self, table: Table, above: int) -> None:
        """See TicketDatabase.raise_above."""
        async with self._question() as connection:
            await connection.execute(sql.raise_above(table.sequence, above))


def _table(row: tuple[Any, ...]) -> Table | None:
    """A `Table` from a row of `mysql_statements.tables`; None where the table is no sequence's."""
    name, engine, created, data_type, column_type, stub_length, collation, stub_key = row
    width = _WIDTHS.get(str(data_type).lower())
    if width is None or not is_name(str(name)):
        return None
    unsigned = "unsigned" in str(column_type).lower()
    ceiling = ceiling_of(width, unsigned=unsigned)
    warnings = []
    if str(engine) not in CRASH_SAFE_ENGINES:
        warnings.append(f"its engine {engine} is not crash-safe: a lost row is a ticket issued twice")
    if stub_key != "PRI":
        warnings.append("its keys deadlock under load: stub should be the primary key")
    return Table(
        sequence=str(name),
        width=width,
        ceiling=ceiling,
        rows_per_statement=_stubs(stub_length, collation),
        created=str(created),
        # an unsigned BIGINT goes on above the largest ticket there can be, so it never repeats that one
        repeats_ceiling=not (width is Width.BIGINT and unsigned),
        warnings=tuple(warnings),
    )


def _stubs(length: object, collation: object) -> int:
    """How many of the stubs stay distinct in a column of this length and collation."""
    if not length:
        return 1
    text = str(collation or "_bin")
    return len(sql.STUBS) if text.endswith(("_bin", "_cs")) or text == "binary" else sql.CASE_BLIND_STUBS
