"""The high-water marks that a MySQL or MariaDB ticket database keeps for the others."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from app.databases import mysql_statements as sql
from app.databases.mysql_connection import Rows
from app.databases.mysql_pool import MySQLPool
from app.databases.mysql_rows import sequence_name, token, whole
from app.databases.protocol import Mark
from app.errors import TicketDatabaseBusy, TicketDatabaseUnavailable

RETRIES = 5
"""How often a write is tried again after a deadlock."""
MARKS_PER_WRITE = 200


class MySQLLedger:
    """The third of a MySQL ticket database that knows marks."""

    _pool: MySQLPool
    _on_retry: Callable[[str], None]

    async def marks(self, changed_within: float | None = None) -> list[Mark]:
        """See TicketDatabase.marks."""
        statement = sql.MARKS if changed_within is None else sql.marks_changed(changed_within)
        async with self._pool.question(about_marks=True, anybody=True) as connection:
            return await connection.ask(statement, marks_of)

    async def reserve(self, marks: Iterable[Mark]) -> Mapping[tuple[str, int], Mark]:
        """See TicketDatabase.reserve."""
        # in one order whoever writes: two writes that lock rows in different orders deadlock
        wanted = sorted(marks, key=lambda mark: (mark.sequence, mark.offset))
        found: dict[tuple[str, int], Mark] = {}
        for start in range(0, len(wanted), MARKS_PER_WRITE):
            part = wanted[start : start + MARKS_PER_WRITE]
            rows = [(m.sequence, m.offset, m.increment, m.mark, m.issued, m.token) for m in part]
            keys = [(m.sequence, m.offset, m.increment) for m in part]
            for row in await self._write(f"{sql.reserve(rows)}; {sql.read_back(keys)}", keys):
                found[row.sequence, row.offset] = row
        return found

    async def renew(self, old: Mark, new: Mark) -> Mark:
        """See TicketDatabase.renew."""
        key = (old.sequence, old.offset, old.increment)
        rows = await self._write(
            f"{sql.renew(key, (old.token, old.mark), (new.token, new.mark), new.issued)}; {sql.read_back([key])}",
            [key],
        )
        return rows[0]

    async def _write(self, statements: str, keys: list[tuple[str, int, int]]) -> list[Mark]:
        """Run a write and the read after it, which gives the rows of these keys; a deadlock is tried again."""
        for _ in range(RETRIES):
            try:
                async with self._pool.question(about_marks=True) as connection:
                    await connection.start(statements)
                    await connection.next()
                    marks = connection.understand(marks_of)
            except TicketDatabaseBusy as error:
                self._on_retry(str(error))
            else:
                if {(mark.sequence, mark.offset, mark.increment) for mark in marks} != set(keys):
                    raise TicketDatabaseUnavailable("lost a row of its ledger")
                return marks
        raise TicketDatabaseBusy


def marks_of(rows: Rows) -> list[Mark]:
    """The marks in these rows of the ledger; see `mysql_rows` for what is raised where one is none."""
    return [mark_of(row) for row in rows]


def mark_of(row: tuple[Any, ...]) -> Mark:
    """A `Mark` from a row of the ledger; see `mysql_rows` for what is raised where it is none."""
    sequence, offset, increment, mark, issued, token_ = row
    return Mark(
        sequence_name(sequence),
        whole(offset, 1, sql.LARGEST_INCREMENT),
        whole(increment, 1, sql.LARGEST_INCREMENT),
        whole(mark),
        whole(issued),
        token(token_),
    )
