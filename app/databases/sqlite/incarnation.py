"""The incarnation of a SQLite file: whether it may have gone back since it was last drawn from.

The content of the file cannot tell, because it goes back with the file. So a second file beside it, `<file>-life`, has
a record with the incarnation's name. Each process that has the database open holds a shared lock on the second file. A
process that gets an exclusive lock knows that no other process has the database open.

- A process that opens the database and gets the exclusive lock is the first one. The incarnation goes on if the last
  process recorded how it left the database, and the database is still like that: the same inode, size, times and
  content, and no log beside it that SQLite would play back. Otherwise a new incarnation begins. The process writes the
  record to disk as `open` before it draws, and then makes the lock shared.
- A process that opens the database and gets only the shared lock joins the present incarnation. Nothing can have gone
  back under the processes that have the database open, if the files at the paths are the ones that they opened. The
  record names these files, too. If the files at the paths are others, the incarnation ends.
- A process that leaves closes the database and then tries for the exclusive lock. The last process gets it, plays the
  rest of the log into the database, and records how it leaves the database.

After SIGKILL the record says `open` although no process has the database open, so a new incarnation begins. If other
processes have the file open, the killed server ends nothing, because its commits are in the log that they read. A
record that is missing, damaged or torn begins a new incarnation, too. A record that an operator puts back together with
its database describes the database of that time. But the change time of a file cannot be put back, so it differs from
the record. Two things go unnoticed: a snapshot of the whole file system, and a file that is overwritten in place under
a frozen process that has it open.

Closing any descriptor of a file ends all of a process's POSIX locks on it, SQLite's own included. So the server reads
the database's content only under the exclusive lock.
"""

import contextlib
import hashlib
import json
import os
import secrets
import sqlite3
import sys
import time
from pathlib import Path
from typing import Any

from app.common.errors import TicketDatabaseBusy, TicketDatabaseUnavailable

_RECORD_SIZE = 512
"""Always as much, in place: a full disk cannot keep it from being written again."""
_WAIT_SECONDS = 0.005

if sys.platform == "win32":

    def _lock(descriptor: int, *, exclusive: bool) -> bool:
        """Everybody is alone: whoever opens the file while another process has it open begins another incarnation."""
        return True

else:
    import fcntl

    def _lock(descriptor: int, *, exclusive: bool) -> bool:
        """Take the lock, or change to it, if nobody's lock is in the way; in changing it may be lost."""
        try:
            fcntl.flock(descriptor, (fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH) | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


class FileIncarnation:
    """One hold on the incarnation of a database file: taken before the file is opened, left after it is closed."""

    def __init__(self, path: Path, timeout: float) -> None:
        """Take the lock and see whether the incarnation goes on; `settle` is to follow.

        `path`: of the database file. `timeout`: seconds to wait for the lock. Raises TicketDatabaseBusy, OSError.
        """
        self._path = os.fspath(path)
        self._timeout = timeout
        self._record: dict[str, Any] = {}
        self._descriptor, self._alone = self._take()

    @property
    def name(self) -> str:
        """The incarnation of the file, the same in every process that has the file open."""
        return str(self._record["life"])

    @property
    def inode(self) -> int:
        """Of the database file."""
        return int(self._record["files"][0])

    def settle(self) -> None:
        """The database has been opened, and nothing drawn yet: make the incarnation known, or see that it is this
        file's.

        Raises TicketDatabaseUnavailable, TicketDatabaseBusy, OSError.
        """
        files = self._files()
        if self._alone:
            self._write({"life": self.name, "files": files})
            mine = _lock(self._descriptor, exclusive=False) and self._names(self._descriptor)
            if not mine or self._read() != self._record:  # in changing the lock another one may have come between
                raise TicketDatabaseBusy("is being opened by another process")
            self._alone = False
        elif files != self._record["files"]:
            self._end(self._descriptor)
            raise TicketDatabaseUnavailable("is another file than other processes have open")

    def holds(self) -> bool:
        """Whether the paths still name the files that were opened."""
        try:
            return self._files() == self._record["files"] and self._names(self._descriptor)
        except OSError:
            return False

    def is_shared(self) -> bool:
        """Whether another process has the file open as well, a frozen one included."""
        alone = _lock(self._descriptor, exclusive=True)
        _lock(self._descriptor, exclusive=False)  # a change of the lock that fails has given up what there was
        return not alone

    def drop(self) -> None:
        """The database has been closed and may not be as it should: another incarnation follows, if nobody is left."""
        os.close(self._descriptor)

    def leave(self) -> None:
        """The database has been closed, and all is well: the last one to leave writes down how it leaves the file."""
        try:
            with contextlib.suppress(OSError, sqlite3.Error):  # then the next incarnation is another one
                if self.inode == os.stat(self._path).st_ino and _lock(self._descriptor, exclusive=True):
                    self._write_how_it_is_left()
        finally:
            os.close(self._descriptor)

    # --- the lock --------------------------------------------------------------------------------------------------

    def _take(self) -> tuple[int, bool]:
        """The descriptor, and whether its lock is exclusive. Sets the record to what the incarnation is."""
        deadline = time.monotonic() + self._timeout
        while True:
            descriptor = os.open(f"{self._path}-life", os.O_RDWR | os.O_CREAT, 0o644)
            try:
                alone = _lock(descriptor, exclusive=True)
                if (alone or _lock(descriptor, exclusive=False)) and self._names(descriptor):
                    record = self._read(descriptor)
                    if alone:
                        name = record["life"] if self._goes_on(record) else secrets.token_hex(8)
                        self._record = {"life": name}
                        return descriptor, True
                    if "files" in record:
                        self._record = record
                        return descriptor, False
                    if time.monotonic() > deadline:
                        self._end(descriptor)  # somebody has the database open, and this is not what he has written
                if time.monotonic() > deadline:
                    raise TicketDatabaseBusy("is being opened by another process")
            except BaseException:
                os.close(descriptor)
                raise
            os.close(descriptor)
            time.sleep(_WAIT_SECONDS)  # somebody is opening it or leaving it, which is a matter of milliseconds

    def _end(self, descriptor: int) -> None:
        """Take the record away: whoever holds it notices, and all open the file again, in another incarnation."""
        if self._names(descriptor):
            os.unlink(f"{self._path}-life")

    def _names(self, descriptor: int) -> bool:
        """Whether the record's path still names this file."""
        try:
            return os.path.samestat(os.fstat(descriptor), os.stat(f"{self._path}-life"))
        except FileNotFoundError:
            return False

    # --- the record ------------------------------------------------------------------------------------------------

    def _read(self, descriptor: int | None = None) -> dict[str, Any]:
        """The record, or an empty one where it is missing or damaged."""
        descriptor = self._descriptor if descriptor is None else descriptor
        os.lseek(descriptor, 0, os.SEEK_SET)
        digest, _, text = os.read(descriptor, _RECORD_SIZE).partition(b" ")
        if digest.decode("latin-1") != hashlib.sha256(text).hexdigest():
            return {}
        record: dict[str, Any] = json.loads(text)
        return record

    def _write(self, record: dict[str, Any]) -> None:
        """On disk when it returns, and so is the file's name in its folder."""
        text = json.dumps(record).encode().ljust(_RECORD_SIZE - 65)
        os.lseek(self._descriptor, 0, os.SEEK_SET)
        if os.write(self._descriptor, hashlib.sha256(text).hexdigest().encode() + b" " + text) != _RECORD_SIZE:
            raise TicketDatabaseUnavailable("has a full disk")
        os.fsync(self._descriptor)
        if sys.platform != "win32":
            folder = os.open(os.path.dirname(os.path.abspath(self._path)), os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
        self._record = record

    # --- the database's files --------------------------------------------------------------------------------------

    def _files(self) -> list[int]:
        """The inodes of what is the database while it is open; those of the log and its index stay while anybody has
        it open, and where they are lost, so is what only they had."""
        return [os.stat(self._path + ending).st_ino for ending in ("", "-wal", "-shm")]

    def _goes_on(self, record: dict[str, Any]) -> bool:
        return "left" in record and self._nothing_to_play_back() and record["left"] == self._fingerprint()

    def _nothing_to_play_back(self) -> bool:
        for ending in ("-wal", "-journal"):
            with contextlib.suppress(FileNotFoundError):
                if os.stat(self._path + ending).st_size:
                    return False
        return True

    def _fingerprint(self) -> list[Any] | None:
        try:
            with open(self._path, "rb") as file:
                status = os.fstat(file.fileno())
                times = [status.st_mtime_ns, status.st_ctime_ns]
                return [status.st_ino, status.st_size, *times, hashlib.file_digest(file, "sha256").hexdigest()]
        except FileNotFoundError:
            return None

    def _write_how_it_is_left(self) -> None:
        if not self._names(self._descriptor) or self._read() != self._record:
            return
        if not self._nothing_to_play_back():  # somebody who only reads kept the last close from doing it
            with contextlib.closing(sqlite3.connect(self._path, timeout=self._timeout)) as connection:
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        if self._nothing_to_play_back():
            self._write({"life": self.name, "left": self._fingerprint()})
