"""A check-up of one file of the embedded pair, opened for reading alone."""

import sqlite3
from pathlib import Path

from app.common.errors import TicketDatabaseError
from app.databases.inspection import LOOK_SECONDS, Inspection, Inspector
from app.databases.sqlite.connection import LAYOUT_VERSION, ReadFile
from app.databases.sqlite.database import SQLiteDatabase

_ADVICE = {
    sqlite3.SQLITE_CANTOPEN: "let this user read and write the file and its folder",
    sqlite3.SQLITE_BUSY: "end that process",
}


_COLUMNS = "SELECT name, bits FROM _sequences UNION SELECT name, bits FROM _inner_sequences"


class SQLiteInspector(Inspector):
    """Looks at one SQLite file."""

    def __init__(self, path: Path, offset: int, increment: int) -> None:
        self._path = path
        self._file = ReadFile(path, offset, increment, LOOK_SECONDS)
        found = Inspection(path.name, offset, increment, known_layout=LAYOUT_VERSION)
        super().__init__(found, SQLiteDatabase(path, offset, increment, LOOK_SECONDS, file=self._file))
        found.made_for = "rename the files back: odd.sqlite3 has offset 1, even.sqlite3 has offset 2"
        found.set_offset, found.set_increment = offset, increment

    async def begin(self) -> bool:
        """See Inspector.begin."""
        found = self.inspection
        found.product = f"SQLite {sqlite3.sqlite_version}"
        if not self._path.exists():
            found.note = f"{self._path} is not there yet; `ticketd serve` makes it"
            return False
        await self._file.run(self._read_settings)
        return found.layout <= LAYOUT_VERSION  # whatever is in a newer one, this version does not know

    def _read_settings(self, connection: sqlite3.Connection) -> None:
        found = self.inspection
        status = self._path.stat()
        found.identity = f"{status.st_dev}:{status.st_ino}"
        found.layout = int(connection.execute("PRAGMA user_version").fetchone()[0])
        if found.layout <= LAYOUT_VERSION:
            made_for = connection.execute("SELECT offset, increment FROM _database").fetchone()
            found.set_offset, found.set_increment = made_for
            for name, bits in connection.execute(_COLUMNS):
                found.columns[name] = f"{bits} bits"

    def explain(self, error: TicketDatabaseError) -> tuple[str, str]:
        """See Inspector.explain."""
        code = getattr(error.__cause__, "sqlite_errorcode", 0) & 0xFF
        if code in _ADVICE or error.__cause__ is None:
            return str(error), _ADVICE.get(code, "end what has it open")
        return (
            "is damaged, or not a ticket database",
            "move it away: `ticketd serve` makes it anew, above the other one's marks",
        )
