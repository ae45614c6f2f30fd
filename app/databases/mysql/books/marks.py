"""The high-water marks that a MySQL or MariaDB ticket database keeps for the others."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

from app.common.errors import RingChanged, SequenceUnavailable, TicketDatabaseUnavailable
from app.common.slices import sliced
from app.databases.mysql.books import own_sql
from app.databases.mysql.books.book import MySQLBook
from app.databases.mysql.books.rows import mark_name, token, whole
from app.databases.mysql.line.bounds import MOST_MARKS, listing
from app.databases.mysql.line.connection import Question
from app.databases.mysql.line.driver import Rows
from app.databases.protocol import LARGEST_INCREMENT, Mark

MARKS_PER_WRITE = 200
ALL_MARKS = 20.0
"""All marks of all rings are read in one go, and rarely: how many times longer than anything else that may take."""


class MySQLLedger(MySQLBook):
    """The part of a MySQL ticket database that knows marks."""

    async def marks(self, changed_within: float | None = None, *, anybody: bool = True) -> list[Mark]:
        """See TicketDatabase.marks."""
        if changed_within is not None:
            async with self._pool.question(about_marks=True, anybody=anybody) as connection:
                changed = own_sql.marks_changed(self.increment, changed_within)
                return await connection.ask(changed, marks_of, listing(MOST_MARKS))
        found: list[Mark] = []
        for table in (own_sql.MARKS_TABLE, own_sql.INNER_MARKS_TABLE):
            found += await self._all_in(table, anybody=anybody)
        return found

    async def _all_in(self, table: str, *, anybody: bool) -> list[Mark]:
        """The marks of this increment in one of the tables."""
        found: list[Mark] = []
        while True:
            after = (found[-1].sequence, found[-1].offset) if found else ("", 0)
            async with self._pool.question(about_marks=True, anybody=anybody) as connection:
                ask = own_sql.marks_page(table, self.increment, after)
                page = await connection.ask(ask, marks_of, listing(own_sql.MARKS_PER_PAGE))
            found += page
            if len(page) < own_sql.MARKS_PER_PAGE:
                return found

    async def marks_of_all_rings(self) -> list[Mark]:
        """See TicketDatabase.marks_of_all_rings."""
        try:
            return await self._every_mark(own_sql.ALL_MARKS)
        except SequenceUnavailable:
            if not self._pool.anybody:
                raise
            return await self._every_mark(own_sql.marks_in(own_sql.MARKS_TABLE))  # all that an earlier layout has

    async def _every_mark(self, ask: str) -> list[Mark]:
        async with self._pool.question(about_marks=True, anybody=True, times=ALL_MARKS) as connection:
            return await connection.ask(ask, marks_of, listing(MOST_MARKS))

    async def keep(self, marks: Iterable[Mark], ring: int) -> Mapping[tuple[str, int], Mark]:
        """See TicketDatabase.keep."""
        requested = sorted(marks, key=_place)
        found: dict[tuple[str, int], Mark] = {}
        for table, of_table in groupby(requested, lambda mark: own_sql.marks_table_of(mark.sequence)):
            for part in sliced(list(of_table), MARKS_PER_WRITE):
                rows = [(m.sequence, m.offset, m.increment, m.mark, m.issued, m.token) for m in part]
                write = own_sql.keep(table, rows, ring)
                for row in await self._write_marks([write], ring, [row[:3] for row in rows]):
                    found[row.sequence, row.offset] = row
        return found

    async def supersede(self, old: Mark, new: Mark, ring: int) -> Mark:
        """See TicketDatabase.supersede."""
        key = old.sequence, old.offset, old.increment
        return (await self._write_marks([_replacement(old, new, ring)], ring, [key]))[0]

    async def supersede_all(self, replacements: Iterable[tuple[Mark, Mark]], ring: int) -> None:
        """See TicketDatabase.supersede_all. Each transaction keeps the row of the ring record locked from the first
        replacement on."""
        requested = sorted(replacements, key=lambda each: _place(each[0]))
        for part in sliced(requested, MARKS_PER_WRITE):
            writes = [_replacement(old, new, ring) for old, new in part]
            await self._write_marks(["BEGIN", *writes, "COMMIT"], ring)

    async def _write_marks(
        self, statements: Sequence[str], ring: int, keys: Sequence[tuple[str, int, int]] = ()
    ) -> list[Mark]:
        """Write, and read the rows of these keys, which lie in one table. Raises RingChanged, see `keep`.

        The number is read after the write: where it is still `ring` then, it was `ring` when the write was committed.
        """
        questions = [Question(own_sql.RING_NUMBER, number_of)]
        if keys:
            read_back = own_sql.read_back(own_sql.marks_table_of(keys[0][0]), keys)
            questions.append(Question(read_back, marks_of, listing(len(keys))))
        number, *found = await self._write(statements, *questions, about_marks=True)
        if number != ring:
            raise RingChanged
        marks: list[Mark] = found[0] if found else []
        if {(mark.sequence, mark.offset, mark.increment) for mark in marks} != set(keys):
            raise TicketDatabaseUnavailable("lost a row of its ledger")
        return marks


def _replacement(old: Mark, new: Mark, ring: int) -> str:
    """The statement that supersedes a mark."""
    key = old.sequence, old.offset, old.increment
    return own_sql.supersede(key, (old.token, old.mark), (new.token, new.mark), new.issued, ring)


def _place(mark: Mark) -> tuple[str, str, int]:
    """The place of a mark in a write. All servers use one order, because rows locked in two orders cause deadlocks."""
    return own_sql.marks_table_of(mark.sequence), mark.sequence, mark.offset


def number_of(rows: Rows) -> int | None:
    """The number of the ring record; None where there is none."""
    return whole(rows[0][0], 1) if rows else None


def marks_of(rows: Rows) -> list[Mark]:
    """The marks in these rows of the ledger; see `rows` for what is raised where one is none."""
    return [mark_of(row) for row in rows]


def mark_of(row: tuple[Any, ...]) -> Mark:
    """A `Mark` from a row of the ledger; see `rows` for what is raised where it is none."""
    sequence, offset, increment, mark, issued, token_ = row
    return Mark(
        mark_name(sequence),
        whole(offset, 1, LARGEST_INCREMENT),
        whole(increment, 1, LARGEST_INCREMENT),
        whole(mark),
        whole(issued),
        token(token_),
    )
