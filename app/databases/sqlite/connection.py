"""The connection to one file of the embedded pair, and the thread that owns it.

WAL with full synchronisation: a committed draw survives a power cut. A new file is laid out here. An error drops the
connection: nobody knows how the file is then.
"""

import asyncio
import errno
import sqlite3
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from app.common.errors import (
    TicketDatabaseBusy,
    TicketDatabaseError,
    TicketDatabaseMisconfigured,
    TicketDatabaseUnavailable,
)
from app.common.patience import patience
from app.common.sequences import Width
from app.databases.sqlite.incarnation import FileIncarnation

T = TypeVar("T")

LAYOUT_VERSION = 1
"""Of a file that an older release cannot use. Tables that it does not know do it no harm."""

STALE_SECONDS = 86_400.0
"""A ticket server that has not been seen for so long is forgotten."""

FIRST_SEQUENCES = {
    "Tickets64": Width.BIGINT,
    "Tickets32": Width.INT,
    "photos": Width.BIGINT,
    "accounts": Width.BIGINT,
    "groups": Width.BIGINT,
    "offline_tasks": Width.BIGINT,
}
"""The sequences of a new file, as mysql_init/ makes them on MySQL."""

_SCHEMA = """
CREATE TABLE IF NOT EXISTS _database (
    id INTEGER PRIMARY KEY CHECK (id = 1), life TEXT NOT NULL, offset INTEGER NOT NULL, increment INTEGER NOT NULL,
    probed REAL NOT NULL);
CREATE TABLE IF NOT EXISTS _sequences (
    name TEXT NOT NULL PRIMARY KEY, bits INTEGER NOT NULL, last INTEGER NOT NULL, created TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS _high_water (
    sequence TEXT NOT NULL, offset_of INTEGER NOT NULL, increment_of INTEGER NOT NULL, mark INTEGER NOT NULL,
    issued INTEGER NOT NULL, token TEXT NOT NULL, PRIMARY KEY (sequence, offset_of, increment_of));
"""
_LATER_SCHEMA = """
CREATE TABLE IF NOT EXISTS _ring (
    id INTEGER PRIMARY KEY CHECK (id = 1), number INTEGER NOT NULL, increment_of INTEGER NOT NULL,
    since INTEGER NOT NULL, offsets TEXT NOT NULL, own_offset INTEGER NOT NULL, state TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS _inner_sequences (
    name TEXT NOT NULL PRIMARY KEY, bits INTEGER NOT NULL, last INTEGER NOT NULL, created TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS _inner_high_water (
    sequence TEXT NOT NULL, offset_of INTEGER NOT NULL, increment_of INTEGER NOT NULL, mark INTEGER NOT NULL,
    issued INTEGER NOT NULL, token TEXT NOT NULL, PRIMARY KEY (sequence, offset_of, increment_of));
CREATE TABLE IF NOT EXISTS _probe (id INTEGER PRIMARY KEY CHECK (id = 1), at REAL NOT NULL);
CREATE TABLE IF NOT EXISTS _servers (
    instance TEXT NOT NULL PRIMARY KEY, of_release TEXT NOT NULL, kinds TEXT NOT NULL, probe_interval REAL NOT NULL,
    reserve_window REAL NOT NULL DEFAULT 0, at REAL NOT NULL);
CREATE TABLE IF NOT EXISTS _kinds (
    sequence TEXT NOT NULL PRIMARY KEY, kind TEXT NOT NULL, parameters TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS _bodies (
    offset_of INTEGER PRIMARY KEY, number INTEGER NOT NULL, word TEXT NOT NULL, place TEXT NOT NULL,
    life TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS _ring_more (
    id INTEGER PRIMARY KEY CHECK (id = 1), number INTEGER NOT NULL, increments TEXT NOT NULL, alive REAL,
    alive_by TEXT NOT NULL DEFAULT '');
CREATE TABLE IF NOT EXISTS _in_use (
    instance TEXT NOT NULL, offset_of INTEGER NOT NULL, word TEXT NOT NULL, place TEXT NOT NULL, server TEXT NOT NULL,
    probe_interval REAL NOT NULL, at REAL NOT NULL, PRIMARY KEY (instance, offset_of));
CREATE TABLE IF NOT EXISTS _definitions (
    folded TEXT NOT NULL PRIMARY KEY, sequence TEXT NOT NULL, kind TEXT NOT NULL, parameters TEXT NOT NULL,
    decided INTEGER NOT NULL, claimed_by TEXT NOT NULL);
"""
"""Made where it is missing whenever a file is opened: releases before have laid it out without."""


class FileConnection:
    """The file at `path`. `offset`, `increment`: what a new one is laid out for. `timeout`: seconds a transaction."""

    _BEGIN = "BEGIN IMMEDIATE"

    def __init__(self, path: Path, offset: int, increment: int, timeout: float) -> None:
        self._path = path
        self._offset = offset
        self.increment = increment
        self._timeout = timeout
        self._connection: sqlite3.Connection | None = None
        self._incarnation: FileIncarnation | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=path.stem)

    @property
    def is_open(self) -> bool:
        return self._connection is not None

    async def run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run `work` in one transaction of its own and commit it; raises TicketDatabaseError only."""
        loop = asyncio.get_running_loop()
        try:
            async with patience(self._timeout):
                return await loop.run_in_executor(self._thread, self._transaction, work)
        except TimeoutError as error:
            raise TicketDatabaseUnavailable("did not answer in time") from error
        except RuntimeError as error:  # the executor has been shut down
            raise TicketDatabaseUnavailable("is being left") from error

    def _transaction(self, work: Callable[[sqlite3.Connection], T]) -> T:
        try:
            connection = self._same_file() or self._open()
            connection.execute(self._BEGIN)
            try:
                result = work(connection)
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise
        except sqlite3.Error as error:
            raise self._translated(error) from error
        except OSError as error:
            self._drop()
            full = error.errno in (errno.ENOSPC, errno.EDQUOT)
            raise TicketDatabaseUnavailable("has a full disk" if full else "cannot be opened") from error
        return result

    def _same_file(self) -> sqlite3.Connection | None:
        """The open connection, while the paths still name the files that it was opened to."""
        if self._incarnation is not None and not self._incarnation.holds():
            self._drop()
            raise TicketDatabaseUnavailable("is another file than before")
        return self._connection

    def _translated(self, error: sqlite3.Error) -> TicketDatabaseError:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            return TicketDatabaseBusy("is locked by another process")
        self._drop()
        words = {
            sqlite3.SQLITE_FULL: "has a full disk",
            sqlite3.SQLITE_READONLY: "is read-only",
            sqlite3.SQLITE_CANTOPEN: "cannot be opened",
            sqlite3.SQLITE_CORRUPT: "is damaged",
            sqlite3.SQLITE_NOTADB: "is not a database",
            sqlite3.SQLITE_IOERR: "cannot be read or written",
        }
        return TicketDatabaseUnavailable(words.get(code, "cannot be used"))

    def _open(self) -> sqlite3.Connection:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        incarnation = FileIncarnation(self._path, self._timeout / 2)
        try:
            connection = self._connect()
            try:
                incarnation.settle()
            except BaseException:
                connection.close()
                raise
        except BaseException:
            incarnation.drop()
            raise
        self._incarnation, self._connection = incarnation, connection
        return connection

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self._path, timeout=self._timeout, isolation_level=None, check_same_thread=False)
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
            version = int(connection.execute("PRAGMA user_version").fetchone()[0])
            if version > LAYOUT_VERSION:
                raise TicketDatabaseMisconfigured(f"has layout version {version}, newer than {LAYOUT_VERSION}")
            if version == 0:
                connection.execute("BEGIN IMMEDIATE")
                for statement in _SCHEMA.split(";")[:-1]:
                    connection.execute(statement)
                connection.execute(
                    "INSERT OR IGNORE INTO _database VALUES (1, ?, ?, ?, 0)",
                    (uuid.uuid4().hex, self._offset, self.increment),
                )
                for name, width in FIRST_SEQUENCES.items():
                    row = (name, int(width), 0, uuid.uuid4().hex[:12])
                    connection.execute("INSERT OR IGNORE INTO _sequences VALUES (?, ?, ?, ?)", row)
                connection.execute(f"PRAGMA user_version = {LAYOUT_VERSION}")
                connection.execute("COMMIT")
            for statement in _LATER_SCHEMA.split(";")[:-1]:
                connection.execute(statement)
            for table in ("_servers", "_in_use"):
                connection.execute(f"DELETE FROM {table} WHERE at < ?", (time.time() - STALE_SECONDS,))  # noqa: S608
            (made_for,) = connection.execute("SELECT offset FROM _database").fetchone()
            if made_for != self._offset:
                raise TicketDatabaseMisconfigured(f"was made for offset {made_for}, expected {self._offset}")
        except BaseException:
            connection.close()
            raise
        return connection

    def _drop(self) -> None:
        """After an error: nobody knows how the file is."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        if self._incarnation is not None:
            self._incarnation.drop()
            self._incarnation = None

    def _leave(self) -> None:
        if self._connection is not None and self._incarnation is not None and self._incarnation.holds():
            self._connection.close()
            self._incarnation.leave()
            self._connection = self._incarnation = None
        self._drop()

    def incarnation_of(self, connection: sqlite3.Connection) -> str:
        """The name that the file was given when it was laid out, its inode, and what the file beside it says."""
        (made_as,) = connection.execute("SELECT life FROM _database").fetchone()
        assert self._incarnation is not None
        return f"{made_as[:16]}-{self._incarnation.inode}-{self._incarnation.name}"

    async def is_shared(self) -> bool:
        """Whether another process has the file open."""
        return self._incarnation is not None and await asyncio.to_thread(self._incarnation.is_shared)

    async def close(self) -> None:
        """Leave the file as one that was closed cleanly."""
        await asyncio.get_running_loop().run_in_executor(self._thread, self._leave)
        self._thread.shutdown(wait=False)


class ReadFile(FileConnection):
    """The file opened for reading alone: nothing is laid out in it, it has no life here, and it is not kept open from
    anybody. Tables that the release which opened it last did not know are empty."""

    _BEGIN = "BEGIN"

    def _open(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            f"{self._path.absolute().as_uri()}?mode=ro",
            uri=True,
            timeout=5,
            isolation_level=None,
            check_same_thread=False,
        )
        try:
            there = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
            for statement in (_SCHEMA + _LATER_SCHEMA).split(";")[:-1]:
                begin, _, rest = statement.partition("CREATE TABLE IF NOT EXISTS ")
                if rest.split()[0] not in there:
                    connection.execute(f"{begin}CREATE TEMP TABLE {rest}")
            connection.execute("PRAGMA query_only = ON")
        except BaseException:
            connection.close()
            raise
        self._connection = connection
        return connection

    def _same_file(self) -> sqlite3.Connection | None:
        return self._connection
