"""The folder of the embedded pair: two SQLite files, which one process uses.

Nobody watches the files while no process has them open, so a file may have gone back meanwhile. Each locking of the
folder therefore has a random word, and under another word each file is in another life. A server that ends cleanly
lowers the limits in both files to the positions first, so that the next life skips no id.
"""

import fcntl
import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import NamedTuple

from app.databases.address import Address
from app.databases.record import new_word
from app.errors import DatabaseRefused

FILES = ("odd.sqlite3", "even.sqlite3")
"""The embedded pair, in the order of the offsets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SQLiteAddress(Address):
    """One file of a locked folder.

    path: of the file. opening: the random word of the locking. inode: the device of the file and its number there, None
    where there is no file. thread: the one that works on the file, for every session.
    """

    path: Path
    opening: str
    inode: tuple[int, int] | None
    thread: ThreadPoolExecutor = field(default_factory=partial(ThreadPoolExecutor, 1), compare=False, repr=False)

    @property
    def name(self) -> str:
        """The name of the file."""
        return self.path.name

    def check(self) -> None:
        """Raise DatabaseRefused where the path leads to another file than when the folder was locked, or to none."""
        if _inode(self.path) != self.inode:
            raise DatabaseRefused(f"{self.path} was replaced or removed during use: restart the ticket server")


class Folder(NamedTuple):
    """A folder that this process has locked. addresses: of the two files. lock: the descriptor that holds the lock."""

    addresses: tuple[SQLiteAddress, ...]
    lock: int

    def close(self) -> None:
        """Unlock the folder. Close every session first."""
        os.close(self.lock)


def addresses(folder: Path, opening: str = "") -> tuple[SQLiteAddress, ...]:
    """Return the addresses of the two files, in the order of the offsets. opening: the word of the locking, if any."""
    paths = (folder.absolute() / name for name in FILES)
    return tuple(SQLiteAddress("", 0, "", "", path=path, opening=opening, inode=_inode(path)) for path in paths)


def lock_folder(path: Path) -> Folder:
    """Lock the folder for this process; make the folder and empty files where they are missing. It waits for the disk.

    Raises DatabaseRefused where another process has locked the folder, or where this process may not write to it.
    """
    path, lock = path.absolute(), -1
    try:
        path.mkdir(parents=True, exist_ok=True)
        lock = os.open(path / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        for name in FILES:
            os.close(os.open(path / name, os.O_RDWR | os.O_CREAT, 0o600))
        for each in (path, path.parent):  # so that a power cut spares the entries of what is new
            directory = os.open(each, os.O_RDONLY | os.O_DIRECTORY)
            os.fsync(directory)
            os.close(directory)
        return Folder(addresses(path, new_word()), lock)
    except OSError as error:
        if lock >= 0:
            os.close(lock)
        if isinstance(error, BlockingIOError):
            raise DatabaseRefused(f"another process uses {path}: stop it, or set another TICKETS_DATA_DIR") from error
        where = error.filename or path
        raise DatabaseRefused(f"user {os.geteuid()} cannot write to {where}: {error.strerror}") from error


def _inode(path: Path) -> tuple[int, int] | None:
    with suppress(OSError):
        found = path.stat()
        return found.st_dev, found.st_ino
    return None
