"""SQLite as a ticket database: the session to one file of the embedded pair."""

import sqlite3
import time
from collections.abc import Mapping, Sequence
from sqlite3 import Connection

from app.databases.address import Address
from app.databases.record import new_word
from app.databases.session import (
    EMPTIED,
    ENDS,
    Book,
    Counter,
    Drawn,
    Facts,
    Look,
    Mark,
    Marked,
    Note,
    Residue,
    RingRow,
    Want,
    Write,
)
from app.databases.sqlite.file import SQLiteFile
from app.databases.sqlite.folder import SQLiteAddress
from app.errors import DatabaseError, SequenceExhausted, SequenceMissing, SequenceUnusable

_COUNTERS = "SELECT name, bits, last, created FROM _sequences"
_MARK = """
UPDATE _ticket_notes SET high = MAX(high, ?3), issued = MAX(issued, ?4), sure = MAX(sure, ?5)
WHERE book = 'marks' AND name = ?1 AND tenure = ?2
"""
_NOTES = "SELECT name, high, issued, tenure, sure, text FROM _ticket_notes"


async def connect(address: Address, residue: Residue | None, seconds: float) -> "SQLiteSession":
    """Open a session to one file of a locked folder. See `app.databases.session.Connect`."""
    assert isinstance(address, SQLiteAddress)
    session = SQLiteSession(address, seconds, residue)
    await session.open()
    session.facts = session.facts_of((await session.read_ring()).body)
    return session


class SQLiteSession(SQLiteFile):
    """Implements `app.databases.session.Session`, where its methods are described."""

    facts: Facts

    def __init__(self, address: SQLiteAddress, seconds: float, residue: Residue | None) -> None:
        super().__init__(address, seconds)
        self.residue = residue
        self.life = ""

    def facts_of(self, body: str) -> Facts:
        """Return what the file says of itself. body: the word of its data.

        A file may have been replaced before the folder was locked, so the word of the locking is in `births`.
        """
        address, version = self.address, f"SQLite {sqlite3.sqlite_version}"
        return Facts(address.name, address.opened, f"{body} {address.opening}", time.time(), version)

    # --- counters ----------------------------------------------------------------------------------------------------

    async def draw(self, wanted: Sequence[Want]) -> list[Drawn | DatabaseError]:
        residue = self.residue
        assert residue is not None, "this session draws nothing"
        return await self.run(lambda file: [_draw(file, want, residue) for want in wanted], writes=True)

    async def sequences(self, names: Sequence[str] | None) -> dict[str, Counter | DatabaseError]:
        wanted = None if names is None else frozenset(names)
        return await self.run(lambda file: _counters(file, wanted))

    async def make(self, name: str, bits: int, above: int) -> None:
        statement = (
            "INSERT INTO _sequences SELECT ?1, ?2, ?3, ?4 "
            "WHERE NOT EXISTS (SELECT * FROM _sequences WHERE name = ?1 COLLATE NOCASE)"
        )
        row = (name, bits, min(above, ENDS[bits]), new_word())
        await self.run(lambda file: file.execute(statement, row), writes=True)

    async def raise_above(self, floors: Mapping[str, int]) -> dict[str, DatabaseError | None]:
        return await self.run(lambda file: {name: _raise(file, name, floors[name]) for name in floors}, writes=True)

    # --- the notebook ------------------------------------------------------------------------------------------------

    async def look(self, server: str, beat: Note) -> Look:
        def work(file: Connection) -> Look:
            self.address.check()
            _put(file, Book.HEARTBEATS, server, beat)
            ring = _ring(file)
            facts = self.facts_of(ring.body)
            beats = dict(_page(file, Book.HEARTBEATS, "", -1))
            floors = _note(file, Book.COUNTS, "floors") or Note()
            return Look(facts, ring, _note(file, Book.LIVES, facts.machine), beats, floors.high)

        return await self.run(work, writes=True)

    async def read(self, book: Book, names: Sequence[str]) -> dict[str, Note]:
        return await self.run(lambda file: {name: note for name in names if (note := _note(file, book, name))})

    async def page(self, book: Book, after: str, count: int) -> list[tuple[str, Note]]:
        return await self.run(lambda file: _page(file, book, after, count))

    async def read_ring(self) -> RingRow:
        return await self.run(_ring)

    async def write_ring(self, old: RingRow, new: RingRow) -> bool:
        def work(file: Connection) -> bool:
            if _ring(file) != old:
                return False
            file.execute("UPDATE _ticket_ring SET ring_offset = ?, stamp = ?, text = ?", new[1:])
            return True

        return await self.run(work, writes=True)

    async def mark(self, marks: Sequence[Mark], stamp: str) -> list[Marked]:
        def work(file: Connection) -> list[Marked]:
            if _ring(file).stamp != stamp:
                return [Marked.RING] * len(marks)
            return [Marked.DONE if file.execute(_MARK, mark).rowcount else Marked.TENURE for mark in marks]

        return await self.run(work, writes=True)

    async def write(self, writes: Sequence[Write], stamp: str | None) -> list[bool]:
        def work(file: Connection) -> list[bool]:
            fits = stamp in (None, _ring(file).stamp)
            return [fits and _write(file, write) for write in writes]

        return await self.run(work, writes=True)


# --- inside a transaction ---------------------------------------------------------------------------------------------


def _draw(file: Connection, want: Want, residue: Residue) -> Drawn | DatabaseError:
    counter = _counter(file, want.sequence)
    if isinstance(counter, DatabaseError):
        return counter
    if want.drawn and counter.position < want.last:
        return SequenceMissing(EMPTIED)
    position = max(counter.position, want.above)
    first = position + 1 + (residue.offset - position - 1) % residue.increment
    last = first + (want.count - 1) * residue.increment
    if last > min(counter.ceiling, want.ceiling):
        return SequenceExhausted(f"{want.sequence} has no {want.count} ids left")
    file.execute("UPDATE _sequences SET last = ? WHERE name = ?", (last, want.sequence))
    return Drawn(first, want.count)


def _raise(file: Connection, name: str, floor: int) -> DatabaseError | None:
    counter = _counter(file, name)
    if isinstance(counter, DatabaseError):
        return counter
    file.execute("UPDATE _sequences SET last = MAX(last, ?) WHERE name = ?", (min(floor, counter.ceiling), name))
    return None


def _counter(file: Connection, name: str) -> Counter | DatabaseError:
    row = file.execute(f"{_COUNTERS} WHERE name = ?", (name,)).fetchone()
    return SequenceMissing(f"there is no sequence {name}") if row is None else _as_counter(*row)


def _counters(file: Connection, names: frozenset[str] | None) -> dict[str, Counter | DatabaseError]:
    found: dict[str, Counter | DatabaseError] = {}
    for row in file.execute(_COUNTERS):
        name = row[0].lower()
        if name in found:
            found[name] = SequenceUnusable(f"there are two sequences {name}, whose names differ by case alone")
        elif names is None or name in names:
            found[name] = _as_counter(*row)
    return found


def _as_counter(name: str, bits: int, position: int, birth: str) -> Counter | DatabaseError:
    if bits not in ENDS:
        return SequenceUnusable(f"{name} has {bits} bits, and not 32, 53 or 64")
    return Counter(name, bits, ENDS[bits], position, birth)


def _ring(file: Connection) -> RingRow:
    return RingRow(*file.execute("SELECT body, ring_offset, stamp, text FROM _ticket_ring").fetchone())


def _note(file: Connection, book: Book, name: str) -> Note | None:
    statement = f"{_NOTES} WHERE book = ? AND name = ?"
    return next((note for _, note in _notes(file, statement, book, name)), None)


def _page(file: Connection, book: Book, after: str, count: int) -> list[tuple[str, Note]]:
    return _notes(file, f"{_NOTES} WHERE book = ? AND name > ? ORDER BY name LIMIT ?", book, after, count)


def _notes(file: Connection, statement: str, *values: str | int) -> list[tuple[str, Note]]:
    rows = file.execute(statement, values)
    return [(name, Note(high, issued, tenure, bool(sure), text)) for name, high, issued, tenure, sure, text in rows]


def _put(file: Connection, book: Book, name: str, note: Note | None) -> None:
    if note is None:
        file.execute("DELETE FROM _ticket_notes WHERE book = ? AND name = ?", (book, name))
    else:
        file.execute("INSERT OR REPLACE INTO _ticket_notes VALUES (?, ?, ?, ?, ?, ?, ?)", (book, name, *note))


def _write(file: Connection, write: Write) -> bool:
    if _note(file, write.book, write.name) != write.old:
        return False
    _put(file, write.book, write.name, write.new)
    return True
