"""The tables of a MySQL or MariaDB ticket database: list them, read their positions, make and advance them."""

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from app.common.errors import SequenceMissing
from app.common.sequences import Width, ceiling_of, folded, is_table_name
from app.common.slices import sliced
from app.databases.inspection import Flaw
from app.databases.mysql import sequence_sql
from app.databases.mysql.books.rows import largest_id, moment, next_id, table_name
from app.databases.mysql.line import session_sql
from app.databases.mysql.line.bounds import MOST_TABLES, listing
from app.databases.mysql.line.driver import Rows
from app.databases.mysql.line.pool import MySQLPool
from app.databases.mysql.table import MySQLTable
from app.databases.protocol import Position, Table

CRASH_SAFE_ENGINES = frozenset({"InnoDB"})
MAKING = 4.0
"""A table is made in several synchronised writes: how many times longer than anything else it may take."""
T = TypeVar("T")
_WIDTHS = {"int": Width.INT, "bigint": Width.BIGINT}


class MySQLTables:
    """The part of a MySQL ticket database that knows tables."""

    _pool: MySQLPool
    _folds_names = False
    """Whether the server takes names that differ by case alone for one. It may still list them as they were given
    (`lower_case_table_names=2`): here they are in lower case."""

    def _by_name(self, found: Mapping[str, T]) -> Mapping[str, T]:
        return {folded(name): value for name, value in found.items()} if self._folds_names else found

    async def names(self) -> dict[str, str]:
        """See TicketDatabase.names."""
        async with self._pool.question() as connection:
            names = await connection.ask(sequence_sql.NAMES, names_of, listing(MOST_TABLES))
        found: dict[str, str] = {}
        for part in _parts(names, 200):
            async with self._pool.question() as connection:
                found.update(await connection.ask(sequence_sql.moments(part), moments_of, listing(len(part))))
        return dict(self._by_name(found))

    async def tables(self, names: Iterable[str]) -> dict[str, Table]:
        """See TicketDatabase.tables."""
        found: dict[str, Table] = {}
        for part in _parts(names, 50):
            async with self._pool.question() as connection:
                found.update(await connection.ask(sequence_sql.tables(part), tables_of, listing(len(part))))
        return {name: replace(table, sequence=name) for name, table in self._by_name(found).items()}

    async def positions(self, names: Iterable[str]) -> dict[str, Position]:
        """See TicketDatabase.positions."""
        found: dict[str, Position] = {}
        for part in _parts(names, 50):
            try:
                found |= await self._positions(part)
            except SequenceMissing:  # one of them has been dropped
                for name in part if len(part) > 1 else ():
                    with contextlib.suppress(SequenceMissing):
                        found |= await self._positions([name])
        return found

    async def _positions(self, names: Sequence[str]) -> dict[str, Position]:
        largest_first, counters_then = sequence_sql.positions(names)
        async with self._pool.question(times=MAKING) as connection:
            largest = await connection.ask(largest_first, largest_of, listing(len(names)))
            await connection.start(counters_then, listing(len(names)))
            return connection.understand(lambda rows: positions_of(largest, self._by_name(counters_by_name(rows))))

    async def make(self, sequence: str, width: Width, start: int) -> None:
        """See TicketDatabase.make."""
        async with self._pool.question(times=MAKING) as connection:
            await connection.execute(sequence_sql.make(sequence, width, start))

    async def advance(self, floors: Mapping[str, int]) -> None:
        """See TicketDatabase.advance. An explicit 0 would draw an id."""
        for part in _parts((name for name, floor in floors.items() if floor > 0), 50):
            advances = [sequence_sql.advance(name, floors[name]) for name in part]
            async with self._pool.question(times=MAKING) as connection:
                await connection.run(["BEGIN", *advances, "COMMIT"])


def names_of(rows: Rows) -> list[str]:
    """The names, from the rows of `sequence_sql.NAMES`; other tables are left out."""
    return [str(name) for (name,) in rows if is_table_name(str(name))]


def moments_of(rows: Rows) -> dict[str, str]:
    """When each table was made, from the rows of `sequence_sql.moments`."""
    return {table_name(name): moment(created) for name, created in rows}


def tables_of(rows: Rows) -> dict[str, Table]:
    """The sequences' tables by name, from the rows of `sequence_sql.tables`."""
    return {table.sequence: table for row in rows if (table := table_of(row)) is not None}


def largest_of(rows: Rows) -> dict[str, Any]:
    """MAX(id) of each table, from the rows of the first statement of `sequence_sql.positions`."""
    return {table_name(name): largest for name, largest in rows}


def counters_by_name(rows: Rows) -> dict[str, tuple[Any, Any]]:
    """The counter and the moment of each table, from the rows of the second statement of `sequence_sql.positions`."""
    return {table_name(name): (following, created) for name, following, created in rows}


def positions_of(largest: Mapping[str, Any], counters: Mapping[str, tuple[Any, Any]]) -> dict[str, Position]:
    """Positions by sequence, from what the two statements of `sequence_sql.positions` give."""
    return {
        name: Position(next_id(following), largest_id(largest[name]), moment(created))
        for name, (following, created) in counters.items()
    }


def not_crash_safe(rows: Rows) -> list[Flaw]:
    """The faults of the server's own tables, from the rows of `own_sql.ENGINES`."""
    return [
        Flaw(
            f"{name}: its engine {engine} is not crash-safe: a high-water mark that a crash loses may be a ticket "
            "issued twice",
            f"ALTER TABLE {session_sql.quoted(str(name))} ENGINE=InnoDB",
        )
        for name, engine in rows
        if str(engine) not in CRASH_SAFE_ENGINES
    ]


def table_of(row: tuple[Any, ...]) -> MySQLTable | None:
    """A `MySQLTable` from a row of `sequence_sql.tables`; None where the table is no sequence's."""
    name, engine, created, data_type, column_type, stub_length, stub_key, comment = row
    width = _WIDTHS.get(str(data_type).lower())
    if width is Width.BIGINT and comment == sequence_sql.JAVASCRIPT_COMMENT:
        width = Width.JAVASCRIPT
    if width is None or not is_table_name(str(name)):
        return None
    unsigned = "unsigned" in str(column_type).lower()
    bits = 32 if width is Width.INT else 64
    warnings = []
    if str(engine) not in CRASH_SAFE_ENGINES:
        warnings.append(f"its engine {engine} is not crash-safe: a lost row is a ticket issued twice")
    if stub_key != "PRI":
        warnings.append("its keys deadlock under load: stub should be the primary key")
    return MySQLTable(
        sequence=str(name),
        width=width,
        ceiling=ceiling_of(width, unsigned=unsigned),
        created=moment(created),
        warnings=tuple(warnings),
        column_end=2 ** (bits - (not unsigned)) - 1,
        rows_per_statement=len(sequence_sql.STUBS) if stub_length else 1,
        counts_rows=str(engine) != "InnoDB",
    )


def _parts(names: Iterable[str], size: int) -> Iterator[Sequence[str]]:
    """The names in parts, so that each question is answered in time however many there are."""
    return sliced(sorted(names), size)
