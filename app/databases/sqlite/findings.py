"""What `ticketd doctor` finds in a file of the embedded pair, which it opens for reading alone, beside a server."""

import sqlite3
import time

from app.databases.examination import Examination, Severity
from app.databases.sqlite.folder import SQLiteAddress
from app.databases.sqlite.session import LATER, LAYOUT, SQLiteSession


async def examine(address: SQLiteAddress, seconds: float) -> Examination:
    """Examine a file. Raises DatabaseFailed, DatabaseRefused where it is no file of the ticket server."""
    now = time.time()
    found = Examination(f"SQLite {sqlite3.sqlite_version}", str(address.path), now, now, now)
    if address.inode is None:
        found.add(Severity.NOTE, "file", f"{address.path} is not there yet: `ticketd serve` makes it")
        return found
    found.machine = ":".join(map(str, address.inode))
    questions = ("PRAGMA user_version", "PRAGMA quick_check", "SELECT name FROM sqlite_master")
    session = SQLiteSession(address, None, seconds)
    try:
        await session.call(session.connect)
        read = await session.run(lambda file: [file.execute(each).fetchall() for each in questions])
        ((layout,),), checks, tables = read
        if layout <= LAYOUT and checks != [("ok",)]:
            found.add(Severity.WRONG, "file", f"it is damaged ({checks[0][0]}): restore it, or remove it")
        if layout > LAYOUT:
            found.unread = LATER
        elif layout == LAYOUT:
            await found.read(session)
            found.counters = await session.sequences(None)
            found.add_old_tables(name for (name,) in tables)
    finally:
        session.abort()
    return found
