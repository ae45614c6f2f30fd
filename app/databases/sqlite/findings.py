"""What `ticketd doctor` finds in a file of the embedded pair, which it opens for reading alone, beside a server."""

import sqlite3
import time
from typing import Any

from app.databases.address import Address
from app.databases.examination import Examination, Severity
from app.databases.sqlite.file import LAYOUT
from app.databases.sqlite.folder import SQLiteAddress
from app.databases.sqlite.session import SQLiteSession


class _Reader(SQLiteSession):
    """A file that is opened for reading alone."""

    def _open(self) -> None:
        uri = f"{self.address.path.as_uri()}?mode=ro"
        self._connection = sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False)


async def examine(address: Address, seconds: float) -> Examination:
    """Examine a file. Raises DatabaseFailed, DatabaseRefused where it is no file of the ticket server."""
    assert isinstance(address, SQLiteAddress)
    now = time.time()
    found = Examination(f"SQLite {sqlite3.sqlite_version}", str(address.path), now, now, now)
    if address.inode is None:
        found.add(Severity.NOTE, "file", f"{address.path} is not there yet: `ticketd serve` makes it")
        return found
    found.machine = ":".join(map(str, address.inode))
    reader = _Reader(address, seconds, None)
    try:
        await reader.open()
        await _examine_file(reader, found)
    finally:
        reader.abort()
    return found


async def _examine_file(reader: _Reader, found: Examination) -> None:
    ((layout,),) = await _rows(reader, "PRAGMA user_version")
    if layout > LAYOUT:
        found.unread = "was changed by a later release: install that release"
        return
    checks = await _rows(reader, "PRAGMA quick_check")
    if checks != [("ok",)]:
        found.add(Severity.WRONG, "file", f"it is damaged ({checks[0][0]}): restore it, or remove it")
    tables = [name for (name,) in await _rows(reader, "SELECT name FROM sqlite_master")]
    if layout == LAYOUT:
        await found.read(reader)
        found.counters = await reader.sequences(None)
        found.add_old_tables(tables)
    elif "_kinds" in tables and await _rows(reader, "SELECT 1 FROM _kinds"):
        found.unread = "holds sequences of kinds that a release before 1.0 made: see Upgrade notes"


async def _rows(reader: _Reader, question: str) -> list[tuple[Any, ...]]:
    return await reader.run(lambda connection: connection.execute(question).fetchall())
