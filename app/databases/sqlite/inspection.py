"""A check-up of one file of the embedded pair, opened for reading alone."""

import asyncio
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from app.common.sequences import Width, ceiling_of
from app.databases.inspection import SERVERS_SECONDS, InspectedTable, Inspection
from app.databases.protocol import Mark, Position, Table
from app.databases.sqlite.connection import LAYOUT_VERSION
from app.databases.sqlite.ring_record import earlier_record_in, record_in, servers_in
from app.kinds.definition import Definition

SEQUENCES_TABLES = ("_sequences", "_inner_sequences")
MARKS_TABLES = ("_high_water", "_inner_high_water")


class SQLiteInspector:
    """Looks at one SQLite file."""

    def __init__(self, path: Path, offset: int, increment: int) -> None:
        self.inspection = Inspection(path.name, offset, increment, known_layout=LAYOUT_VERSION)
        self.inspection.made_for = True
        self.inspection.set_offset, self.inspection.set_increment = offset, increment
        self._path = path

    async def inspect(self) -> None:
        """See Inspector.look."""
        await asyncio.to_thread(self._look)

    def _look(self) -> None:
        found = self.inspection
        found.product = f"SQLite {sqlite3.sqlite_version}"
        if not self._path.exists():
            found.note = f"{self._path} is not there yet; `ticketd serve` makes it"
            return
        self._read(self._read_everything)

    def _read(self, work: Callable[[sqlite3.Connection], None]) -> None:
        found = self.inspection
        try:
            connection = sqlite3.connect(f"{self._path.absolute().as_uri()}?mode=ro", uri=True, timeout=5)
            try:
                connection.execute("PRAGMA query_only = ON")
                work(connection)
            finally:
                connection.close()
        except sqlite3.DatabaseError as error:
            code = getattr(error, "sqlite_errorcode", 0) & 0xFF
            if code == sqlite3.SQLITE_CANTOPEN:
                found.trouble, found.advice = "cannot be opened", "let this user read and write the file and its folder"
            elif code == sqlite3.SQLITE_BUSY:
                found.trouble, found.advice = "is locked by another process", "end that process"
            else:
                found.trouble = "is damaged, or not a ticket database"
                found.advice = "move it away: `ticketd serve` makes it anew, above the other one's marks"

    def _read_everything(self, connection: sqlite3.Connection) -> None:
        found = self.inspection
        status = self._path.stat()
        found.identity = f"{status.st_dev}:{status.st_ino}"
        found.layout = int(connection.execute("PRAGMA user_version").fetchone()[0])
        if found.layout > LAYOUT_VERSION:
            return  # whatever is in it, this version does not know
        found.set_offset, found.set_increment = connection.execute("SELECT offset, increment FROM _database").fetchone()
        if _has(connection, "_ring"):
            read = record_in if _has(connection, "_bodies") else earlier_record_in
            found.record = read(connection)
        marks = [row for table in MARKS_TABLES for row in _rows(connection, table)]
        found.marks = tuple(Mark(*row) for row in marks)
        for name, bits, _, created in sorted(row for table in SEQUENCES_TABLES for row in _rows(connection, table)):
            width = Width(bits)
            table = Table(name, width, ceiling_of(width, unsigned=True), 1, created, repeats_ceiling=False)
            found.tables[name] = InspectedTable(table, f"{bits} bits", "SQLite")
        found.definitions = {row[0]: Definition.from_text(*row) for row in _rows(connection, "_kinds")}
        since = time.time() - SERVERS_SECONDS
        found.servers = tuple(servers_in(connection, since)) if _has(connection, "_servers") else ()

    async def read_positions(self) -> None:
        """See Inspector.read_positions."""
        if self.inspection.tables and self.inspection.seen:
            await asyncio.to_thread(self._read, self._read_positions)

    def _read_positions(self, connection: sqlite3.Connection) -> None:
        for name, _, last, created in (row for table in SEQUENCES_TABLES for row in _rows(connection, table)):
            self.inspection.positions[name] = Position(max(1, last + 1), max(0, last), created)

    async def close(self) -> None:
        """See Inspector.close."""


def _has(connection: sqlite3.Connection, table: str) -> bool:
    return bool(connection.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (table,)).fetchone())


def _rows(connection: sqlite3.Connection, table: str) -> list[tuple[Any, ...]]:
    """The rows of a table; none of one that the release which opened the file last did not know."""
    if (table.startswith("_inner") or table == "_kinds") and not _has(connection, table):
        return []
    return connection.execute(f"SELECT * FROM {table}").fetchall()  # noqa: S608 - a constant
