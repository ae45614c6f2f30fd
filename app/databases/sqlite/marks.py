"""The high-water marks that a file of the embedded pair keeps for the other one."""

import sqlite3
from collections.abc import Iterable, Mapping

from app.common.errors import RingChanged, TicketDatabaseUnavailable
from app.databases.protocol import Mark
from app.databases.sqlite.connection import FileConnection

_MARK = "sequence, offset_of, increment_of, mark, issued, token"
_MARKS = f"SELECT {_MARK} FROM _high_water UNION ALL SELECT {_MARK} FROM _inner_high_water"  # noqa: S608 - constants


class SQLiteLedger:
    """The part of a file's database that knows marks."""

    increment: int
    _file: FileConnection
    _incarnation: str

    async def marks(self, changed_within: float | None = None, *, anybody: bool = True) -> list[Mark]:
        """See TicketDatabase.marks. Reading all of them costs no more than choosing."""
        increment, incarnation = self.increment, self._incarnation

        def read(connection: sqlite3.Connection) -> list[Mark]:
            if not anybody and self._file.incarnation_of(connection) != incarnation:
                raise TicketDatabaseUnavailable("is another file than before")
            return [Mark(*row) for row in connection.execute(_MARKS)]

        return [mark for mark in await self._file.run(read) if mark.increment == increment]

    async def marks_of_all_rings(self) -> list[Mark]:
        """See TicketDatabase.marks_of_all_rings."""
        return await self._file.run(lambda c: [Mark(*row) for row in c.execute(_MARKS)])

    async def reserve(self, marks: Iterable[Mark], ring: int) -> Mapping[tuple[str, int], Mark]:
        """See TicketDatabase.reserve."""
        requested = list(marks)

        def write(connection: sqlite3.Connection) -> dict[tuple[str, int], Mark]:
            refuse_another_ring(connection, ring)
            for m in requested:
                connection.execute(
                    f"INSERT INTO {_marks_with(m.sequence)} VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET "  # noqa: S608
                    "mark = MAX(mark, excluded.mark), issued = MAX(issued, excluded.issued) "
                    "WHERE token = excluded.token",
                    (m.sequence, m.offset, m.increment, m.mark, m.issued, m.token),
                )
            return {(m.sequence, m.offset): self._mark(connection, m) for m in requested}

        return await self._file.run(write)

    async def supersede(self, old: Mark, new: Mark, ring: int) -> Mark:
        """See TicketDatabase.supersede."""

        def write(connection: sqlite3.Connection) -> Mark:
            self._supersede(connection, [(old, new)], ring)
            return self._mark(connection, old)

        return await self._file.run(write)

    async def supersede_all(self, replacements: Iterable[tuple[Mark, Mark]], ring: int) -> None:
        """See TicketDatabase.supersede_all."""
        requested = list(replacements)
        await self._file.run(lambda c: self._supersede(c, requested, ring))

    def _supersede(self, connection: sqlite3.Connection, replacements: list[tuple[Mark, Mark]], ring: int) -> None:
        refuse_another_ring(connection, ring)
        for old, new in replacements:
            connection.execute(
                f"UPDATE {_marks_with(old.sequence)} SET token = ?, mark = ?, issued = MAX(issued, ?) "  # noqa: S608
                "WHERE sequence = ? AND offset_of = ? AND increment_of = ? AND token = ? AND mark <= ?",
                (new.token, new.mark, new.issued, old.sequence, old.offset, old.increment, old.token, old.mark),
            )

    def _mark(self, connection: sqlite3.Connection, key: Mark) -> Mark:
        row = connection.execute(
            f"SELECT {_MARK} FROM {_marks_with(key.sequence)} "  # noqa: S608
            "WHERE sequence = ? AND offset_of = ? AND increment_of = ?",
            (key.sequence, key.offset, key.increment),
        ).fetchone()
        if row is None:
            raise TicketDatabaseUnavailable("lost a row of its ledger")
        return Mark(*row)


def _marks_with(name: str) -> str:
    """The table that marks of this name lie in."""
    return "_inner_high_water" if name.startswith("_") else "_high_water"


def refuse_another_ring(connection: sqlite3.Connection, ring: int) -> None:
    """Raise RingChanged unless the file records a ring, and it has this number."""
    if connection.execute("SELECT number FROM _ring WHERE id = 1").fetchone() != (ring,):
        raise RingChanged
