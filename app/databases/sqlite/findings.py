"""What `ticketd doctor` finds in a file of the embedded pair, which it opens for reading alone, beside a server."""

import sqlite3
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from app.databases.address import Address
from app.databases.examination import Examination, Severity
from app.databases.sqlite.file import LAYOUT, SQLiteFile
from app.databases.sqlite.folder import FILES, SQLiteAddress
from app.databases.sqlite.session import SQLiteSession


def embedded_files(folder: Path) -> Sequence[SQLiteAddress]:
    """Return the addresses of the embedded pair, to be examined; the folder is not locked, and need not be there."""
    paths = [folder.absolute() / name for name in FILES]
    return [SQLiteAddress("", 0, "", path.name, path=path, opening="", opened=0.0, inode=(0, 0)) for path in paths]


class _ReadFile(SQLiteFile):
    """A file that is opened for reading alone."""

    def _open(self) -> None:
        uri = f"{self.address.path.as_uri()}?mode=ro"
        self._connection = sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False)


async def examine(address: Address, seconds: float) -> Examination:
    """Examine a file. Raises DatabaseFailed, DatabaseRefused where it is no file of the ticket server."""
    assert isinstance(address, SQLiteAddress)
    now = time.time()
    found = Examination(f"SQLite {sqlite3.sqlite_version}", str(address.path), now, now, now)
    if not address.path.exists():
        found.add(Severity.NOTE, "file", f"{address.path} is not there yet: `ticketd serve` makes it")
        return found
    status = address.path.stat()
    found.machine = f"{status.st_dev}:{status.st_ino}"
    file = await _ReadFile.open(address, seconds)
    try:
        await _examine_file(file, found)
    finally:
        file.abort()
    return found


async def _examine_file(file: SQLiteFile, found: Examination) -> None:
    ((layout,),) = await _rows(file, "PRAGMA user_version")
    if layout > LAYOUT:
        found.unread = "was changed by a later release: install that release"
        return
    checks = await _rows(file, "PRAGMA quick_check")
    if checks != [("ok",)]:
        found.add(Severity.WRONG, "file", f"it is damaged ({checks[0][0]}): restore it, or remove it")
    tables = [name for (name,) in await _rows(file, "SELECT name FROM sqlite_master")]
    if layout == LAYOUT:
        session = SQLiteSession(file, None, "")
        await found.read(session)
        found.counters = await session.sequences(None)
        found.add_old_tables(tables)
    elif "_kinds" in tables and await _rows(file, "SELECT 1 FROM _kinds"):
        found.unread = "holds sequences of kinds that a release before 1.0 made: see Upgrade notes"


async def _rows(file: SQLiteFile, question: str) -> list[tuple[Any, ...]]:
    return await file.run(lambda connection: connection.execute(question).fetchall())
