"""The session to one file of the embedded pair, see `app.databases.session`.

A commit is on the disk before it is answered (WAL, full synchronisation). One thread works on a file, so transactions
wait for each other without SQLite's own way, which is to sleep and to try again.
"""

import asyncio
import sqlite3
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from sqlite3 import Connection
from typing import Any, Concatenate, ParamSpec, TypeVar

from app import errors
from app.databases import session as base
from app.databases.examination import OLD_KINDS
from app.databases.record import new_word
from app.databases.session import Book, Counter, Drawn, Facts, Look, Mark, Marked, Note, Residue, RingRow, Want, Write
from app.databases.sqlite.folder import SQLiteAddress
from app.errors import DatabaseError, DatabaseFailed, DatabaseRefused, SequenceMissing

P = ParamSpec("P")
T = TypeVar("T")

LAYOUT = 2
"""The layout of the tables, in `PRAGMA user_version`. Releases before 1.0 wrote 1, and refuse a larger number."""
LATER = "was changed by a later release: install that release"
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
_MARK = """
UPDATE _ticket_notes SET high = MAX(high, ?3), issued = MAX(issued, ?4), sure = MAX(sure, ?5)
WHERE book = 'marks' AND name = ?1 AND tenure = ?2
"""


async def connect(address: SQLiteAddress, residue: Residue | None, seconds: float) -> "SQLiteSession":
    """Open a session to one file of a locked folder. See `app.databases.session.Connect`."""
    session = SQLiteSession(address, residue, seconds)
    await session.call(session.open)
    return session


def _in_a_transaction(
    work: Callable[Concatenate["SQLiteSession", Connection, P], T],
) -> Callable[Concatenate["SQLiteSession", P], Coroutine[Any, Any, T]]:
    """Make a method of a session from the work that it does in the file's thread."""

    async def method(self: "SQLiteSession", /, *values: P.args, **named: P.kwargs) -> T:
        return await self.run(lambda file: work(self, file, *values, **named))

    return method


class SQLiteSession:
    """Implements `app.databases.session.Session`, where its methods are described.

    It runs one call at a time, and none after a call has failed.
    """

    facts: Facts

    def __init__(self, address: SQLiteAddress, residue: Residue | None, seconds: float) -> None:
        """seconds: how long it waits for another process that has locked the file."""
        self.address = address
        self.residue = residue
        self.life = ""
        self._seconds = seconds
        self._connection: Connection | None = None
        self._end = asyncio.get_running_loop().create_future()

    async def run(self, work: Callable[[Connection], T]) -> T:
        """Run `work` in the thread, in a transaction, and commit it. Raises DatabaseFailed, DatabaseRefused."""
        return await self.call(partial(self._transaction, work))

    def abort(self) -> None:
        """Close the connection at once. The call under way ends with DatabaseFailed, even if the disk stands still."""
        if not self._end.done():
            self._end.set_result(None)
            if self._connection is not None:
                self._connection.interrupt()
            self.address.thread.submit(self._close)

    async def call(self, work: Callable[[], T]) -> T:
        """Run `work` in the thread; any error closes the connection. Raises DatabaseFailed, DatabaseRefused."""
        answer = asyncio.get_running_loop().run_in_executor(self.address.thread, work)
        try:
            await asyncio.wait([answer, self._end], return_when=asyncio.FIRST_COMPLETED)
            if self._end.done():
                raise DatabaseFailed("the connection to it was closed")
            return answer.result()
        except sqlite3.Error as error:
            self.abort()
            if getattr(error, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
                raise DatabaseRefused(f"says: {error}: restore the file, or remove it") from error
            raise DatabaseFailed(f"says: {error}") from error
        except BaseException:
            self.abort()
            raise
        finally:
            answer.cancel()  # nobody reads a result that comes later

    # --- in the thread -----------------------------------------------------------------------------------------------

    def _transaction(self, work: Callable[[Connection], T]) -> T:
        assert self._connection is not None
        self._connection.execute("BEGIN IMMEDIATE")
        if self._end.done():  # the caller gave up while this waited
            raise DatabaseFailed("the connection to it was closed")
        result = work(self._connection)
        self._connection.execute("COMMIT")
        return result

    def connect(self, mode: str = "ro") -> Connection:
        """Open the file as it is, by default for reading alone."""
        uri = f"{self.address.path.as_uri()}?mode={mode}"
        self._connection = sqlite3.connect(
            uri, uri=True, timeout=self._seconds, isolation_level=None, check_same_thread=False
        )
        return self._connection

    def open(self) -> None:
        """Open the file, and lay it out if it is new."""
        connection = self.connect("rw")
        self.address.check()
        if connection.execute("PRAGMA journal_mode = WAL").fetchone() != ("wal",):
            raise DatabaseRefused("is on a file system that cannot hold SQLite's WAL: set another TICKETS_DATA_DIR")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA fullfsync = ON")  # on macOS fsync alone does not reach the disk
        self._transaction(self._lay_out)

    def _lay_out(self, file: Connection) -> None:
        (layout,) = file.execute("PRAGMA user_version").fetchone()
        if layout > LAYOUT:
            raise DatabaseRefused(LATER)
        for statement in _TABLES.split(";"):
            file.execute(statement)
        (kinds,) = file.execute("SELECT count(*) FROM sqlite_master WHERE name = '_kinds'").fetchone()
        if layout == 1 and kinds and file.execute("SELECT 1 FROM _kinds").fetchone():
            raise DatabaseRefused(OLD_KINDS)
        if layout == 0:
            rows = [(name, bits, new_word()) for name, bits in FIRST_SEQUENCES.items()]
            file.executemany("INSERT INTO _sequences VALUES (?, ?, 0, ?)", rows)
        file.execute("INSERT OR IGNORE INTO _ticket_ring VALUES (1, ?, 0, '', '')", (new_word(),))
        if layout != LAYOUT:
            file.execute(f"PRAGMA user_version = {LAYOUT}")
        self.facts = self._facts(_ring(file))

    def _facts(self, ring: RingRow) -> Facts:
        """Return what the file says of itself.

        A file may have been replaced before the folder was locked, so the word of the locking is in `births`.
        """
        births, version = f"{ring.body} {self.address.opening}", f"SQLite {sqlite3.sqlite_version}"
        return Facts(self.address.name, 0.0, births, time.time(), version)

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()

    # --- counters ----------------------------------------------------------------------------------------------------

    @_in_a_transaction
    def draw(self, file: Connection, wanted: Sequence[Want]) -> list[Drawn | DatabaseError]:
        assert self.residue is not None, "this session draws nothing"
        return [_draw(file, want, self.residue) for want in wanted]

    @_in_a_transaction
    def sequences(self, file: Connection, names: Sequence[str] | None) -> dict[str, Counter | DatabaseError]:
        found: dict[str, Counter | DatabaseError] = {}
        for name in (name for (name,) in file.execute("SELECT name FROM _sequences").fetchall()):
            key = name.lower()
            if key in found:
                found[key] = errors.SequenceUnusable(f"there are two sequences {key}, whose names differ by case alone")
            elif names is None or key in names:
                found[key] = _counter(file, name) or SequenceMissing()
        return found

    @_in_a_transaction
    def make(self, file: Connection, name: str, bits: int, above: int) -> None:
        if not file.execute("SELECT 1 FROM _sequences WHERE name = ? COLLATE NOCASE", (name,)).fetchone():
            row = (name, bits, min(above, base.ENDS[bits]), new_word())
            file.execute("INSERT INTO _sequences VALUES (?, ?, ?, ?)", row)

    @_in_a_transaction
    def raise_above(self, file: Connection, floors: Mapping[str, int]) -> dict[str, DatabaseError | None]:
        raised = "UPDATE _sequences SET last = MAX(last, ?2) WHERE name = ?1"
        return {row[0]: None if file.execute(raised, row).rowcount else SequenceMissing() for row in floors.items()}

    # --- the notebook ------------------------------------------------------------------------------------------------

    @_in_a_transaction
    def look(self, file: Connection, server: str, beat: Note) -> Look:
        self.address.check()
        _put(file, Book.HEARTBEATS, server, beat)
        ring = _ring(file)
        facts = self._facts(ring)
        floors = _note(file, Book.COUNTS, "floors") or Note()
        beats = dict(_notes(file, Book.HEARTBEATS))
        return Look(facts, ring, _note(file, Book.LIVES, facts.machine), beats, floors.high)

    @_in_a_transaction
    def read(self, file: Connection, book: Book, names: Sequence[str]) -> dict[str, Note]:
        return {name: note for name in names if (note := _note(file, book, name))}

    @_in_a_transaction
    def page(self, file: Connection, book: Book, after: str, count: int) -> list[tuple[str, Note]]:
        return _notes(file, book, "name > ? ORDER BY name LIMIT ?", after, count)

    @_in_a_transaction
    def read_ring(self, file: Connection) -> RingRow:
        return _ring(file)

    @_in_a_transaction
    def write_ring(self, file: Connection, old: RingRow, new: RingRow) -> bool:
        if fits := _ring(file) == old:
            file.execute("UPDATE _ticket_ring SET ring_offset = ?, stamp = ?, text = ?", new[1:])
        return fits

    @_in_a_transaction
    def mark(self, file: Connection, marks: Sequence[Mark], stamp: str) -> list[Marked]:
        if _ring(file).stamp != stamp:
            return [Marked.RING] * len(marks)
        return [Marked.DONE if file.execute(_MARK, mark).rowcount else Marked.TENURE for mark in marks]

    @_in_a_transaction
    def write(self, file: Connection, writes: Sequence[Write], stamp: str | None) -> list[bool]:
        fits = stamp in (None, _ring(file).stamp)
        return [fits and _write(file, write) for write in writes]


def _draw(file: Connection, want: Want, residue: Residue) -> Drawn | DatabaseError:
    counter = _counter(file, want.sequence)
    is_another = counter is not None and want.birth not in ("", counter.birth)
    if counter is None or is_another or (want.drawn and counter.position < want.last):
        return SequenceMissing(None if counter is None else base.EMPTIED)
    position = max(counter.position, want.above)
    first = position + 1 + (residue.offset - position - 1) % residue.increment
    last = first + (want.count - 1) * residue.increment
    if last > min(counter.ceiling, want.ceiling):
        return errors.SequenceExhausted()
    file.execute("UPDATE _sequences SET last = ? WHERE name = ?", (last, want.sequence))
    return Drawn(first, want.count)


def _counter(file: Connection, name: str) -> Counter | None:
    row = file.execute("SELECT bits, last, created FROM _sequences WHERE name = ?", (name,)).fetchone()
    if row is None:
        return None
    bits, last, birth = row
    return Counter(name, bits, base.ENDS[bits], min(last, base.ENDS[bits]), birth)


def _ring(file: Connection) -> RingRow:
    return RingRow(*file.execute("SELECT body, ring_offset, stamp, text FROM _ticket_ring").fetchone())


def _note(file: Connection, book: Book, name: str) -> Note | None:
    return dict(_notes(file, book, "name = ?", name)).get(name)


def _notes(file: Connection, book: Book, chosen: str = "TRUE", *values: str | int) -> list[tuple[str, Note]]:
    statement = f"SELECT name, high, issued, tenure, sure, text FROM _ticket_notes WHERE book = ? AND {chosen}"  # noqa: S608
    rows = file.execute(statement, (book, *values))
    return [(name, Note(high, issued, tenure, bool(sure), text)) for name, high, issued, tenure, sure, text in rows]


def _put(file: Connection, book: Book, name: str, note: Note) -> None:
    file.execute("INSERT OR REPLACE INTO _ticket_notes VALUES (?, ?, ?, ?, ?, ?, ?)", (book, name, *note))


def _write(file: Connection, write: Write) -> bool:
    book, name, old, new = write
    if (fits := _note(file, book, name) == old) and new is not None:
        _put(file, book, name, new)
    elif fits:
        file.execute("DELETE FROM _ticket_notes WHERE book = ? AND name = ?", (book, name))
    return fits
