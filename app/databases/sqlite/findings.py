"""What `ticketd doctor` finds in a file of the embedded pair, which it opens for reading alone, beside a server."""

import sqlite3
import time

from app.databases.address import Address
from app.databases.examination import Examination, Severity
from app.databases.sqlite.folder import SQLiteAddress
from app.databases.sqlite.session import LAYOUT, SQLiteSession


class _Reader(SQLiteSession):
    """A file that is opened for reading alone."""

    def _open(self) -> None:
        self._connection = self._connect("ro")


async def examine(address: Address, seconds: float) -> Examination:
    """Examine a file. Raises DatabaseFailed, DatabaseRefused where it is no file of the ticket server."""
    assert isinstance(address, SQLiteAddress)
    now = time.time()
    found = Examination(f"SQLite {sqlite3.sqlite_version}", str(address.path), now, now, now)
    if address.inode is None:
        found.add(Severity.NOTE, "file", f"{address.path} is not there yet: `ticketd serve` makes it")
        return found
    found.machine = ":".join(map(str, address.inode))
    reader = _Reader(address, None, seconds)
    try:
        await reader.open()
        await _examine_file(reader, found)
    finally:
        reader.abort()
    return found


async def _examine_file(reader: _Reader, found: Examination) -> None:
    questions = ("PRAGMA user_version", "PRAGMA quick_check", "SELECT name FROM sqlite_master")
    ((layout,),), checks, tables = await reader.run(lambda file: [file.execute(each).fetchall() for each in questions])
    if layout > LAYOUT:
        found.unread = "was changed by a later release: install that release"
        return
    if checks != [("ok",)]:
        found.add(Severity.WRONG, "file", f"it is damaged ({checks[0][0]}): restore it, or remove it")
    if layout == LAYOUT:
        await found.read(reader)
        found.counters = await reader.sequences(None)
        found.add_old_tables(name for (name,) in tables)
