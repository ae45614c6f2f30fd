"""A connection to one file of the embedded pair: how it is opened and laid out, and how the file's thread works on it.

A commit is on the disk before it is answered (WAL, full synchronisation). One thread works on a file, so transactions
wait for each other without SQLite's own way, which is to sleep and to try again.
"""

import asyncio
import sqlite3
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from app.databases.examination import OLD_KINDS
from app.databases.record import new_word
from app.databases.sqlite.folder import SQLiteAddress
from app.errors import DatabaseFailed, DatabaseRefused

T = TypeVar("T")

LAYOUT = 2
"""The layout of the tables, in `PRAGMA user_version`. Releases before 1.0 wrote 1, and refuse a larger number."""
FIRST_SEQUENCES = {"Tickets64": 64, "Tickets32": 32, "photos": 64, "accounts": 64, "groups": 64, "offline_tasks": 64}
"""The sequences of a new file with their bits, as `mysql_init/` makes them on MySQL."""

# `_sequences` is the table of releases before 1.0, so a file of theirs goes on where it was. `created` is the birth.
_TABLES = """
CREATE TABLE IF NOT EXISTS _sequences (
    name TEXT NOT NULL PRIMARY KEY, bits INTEGER NOT NULL, last INTEGER NOT NULL, created TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS _ticket_notes (
    book TEXT NOT NULL, name TEXT NOT NULL, high INTEGER NOT NULL, issued INTEGER NOT NULL, tenure TEXT,
    sure INTEGER NOT NULL, text TEXT NOT NULL, PRIMARY KEY (book, name)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS _ticket_ring (
    one INTEGER PRIMARY KEY CHECK (one = 1), body TEXT NOT NULL, ring_offset INTEGER NOT NULL, stamp TEXT NOT NULL,
    text TEXT NOT NULL)
"""


class SQLiteFile:
    """One connection. It runs one call at a time, and none after a call has failed."""

    def __init__(self, address: SQLiteAddress, seconds: float) -> None:
        """seconds: how long it waits for another process that has locked the file."""
        self.address = address
        self._seconds = seconds
        self._connection: sqlite3.Connection | None = None
        self._end = asyncio.get_running_loop().create_future()

    async def open(self) -> None:
        """Open the file, and lay it out if it is new. Raises DatabaseFailed, DatabaseRefused."""
        await self._call(self._open)

    async def run(self, work: Callable[[sqlite3.Connection], T], *, writes: bool = False) -> T:
        """Run `work` in the thread, in a transaction of its own, and commit it. Raises DatabaseFailed, DatabaseRefused.

        writes: whether `work` writes.
        """
        return await self._call(partial(self._transaction, work, "BEGIN IMMEDIATE" if writes else "BEGIN"))

    def abort(self) -> None:
        """Close the connection at once. The call under way ends with DatabaseFailed, even if the disk stands still."""
        if not self._end.done():
            self._end.set_result(None)
            if self._connection is not None:
                self._connection.interrupt()
            self.address.thread.submit(self._close)

    async def _call(self, work: Callable[[], T]) -> T:
        """Run `work` in the thread, and translate its errors. After any error the connection is closed."""
        try:
            answer = asyncio.get_running_loop().run_in_executor(self.address.thread, work)
            try:
                await asyncio.wait([answer, self._end], return_when=asyncio.FIRST_COMPLETED)
                if self._end.done():
                    raise DatabaseFailed("the connection to it was closed")
                return await answer
            finally:
                answer.cancel()  # nobody reads a result that comes later
        except sqlite3.Error as error:
            self.abort()
            if getattr(error, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
                raise DatabaseRefused(f"says: {error}: restore the file, or remove it") from error
            raise DatabaseFailed(f"says: {error}") from error
        except BaseException:
            self.abort()
            raise

    # --- in the thread -----------------------------------------------------------------------------------------------

    def _transaction(self, work: Callable[[sqlite3.Connection], T], begin: str) -> T:
        assert self._connection is not None
        self._connection.execute(begin)
        if self._end.done():  # the caller gave up while this waited
            raise DatabaseFailed("the connection to it was closed")
        result = work(self._connection)
        self._connection.execute("COMMIT")
        return result

    def _open(self) -> None:
        uri = f"{self.address.path.as_uri()}?mode=rw"
        self._connection = connection = sqlite3.connect(
            uri, uri=True, timeout=self._seconds, isolation_level=None, check_same_thread=False
        )
        self.address.check()
        if connection.execute("PRAGMA journal_mode = WAL").fetchone() != ("wal",):
            raise DatabaseRefused(
                "lies on a file system that cannot hold a WAL of SQLite: set another TICKETS_DATA_DIR"
            )
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA fullfsync = ON")  # on macOS fsync alone does not reach the disk
        self._transaction(self._lay_out, "BEGIN IMMEDIATE")

    def _lay_out(self, connection: sqlite3.Connection) -> None:
        (layout,) = connection.execute("PRAGMA user_version").fetchone()
        if layout > LAYOUT:
            raise DatabaseRefused("was changed by a later release: install that release")
        for statement in _TABLES.split(";"):
            connection.execute(statement)
        (kinds,) = connection.execute("SELECT count(*) FROM sqlite_master WHERE name = '_kinds'").fetchone()
        if kinds and layout == 1 and connection.execute("SELECT 1 FROM _kinds").fetchone() is not None:
            raise DatabaseRefused(OLD_KINDS)
        if layout == 0:
            rows = [(name, bits, new_word()) for name, bits in FIRST_SEQUENCES.items()]
            connection.executemany("INSERT INTO _sequences VALUES (?, ?, 0, ?)", rows)
        connection.execute("INSERT OR IGNORE INTO _ticket_ring VALUES (1, ?, 0, '', '')", (new_word(),))
        if layout != LAYOUT:
            connection.execute(f"PRAGMA user_version = {LAYOUT}")

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
