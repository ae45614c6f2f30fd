"""The statements on the notebook, and how several of them go in one commit."""

from collections.abc import Iterable, Sequence
from typing import Any

from app.databases.mysql.errors import BUSY, StatementFailed
from app.databases.mysql.login import Line
from app.databases.mysql.sql import checked, literal, same
from app.databases.session import Book, Mark, Note, RingRow, Write
from app.errors import DatabaseFailed

COLUMNS = "name, high, issued, tenure, sure, text"
_ATTEMPTS = 3


def note_of(row: Sequence[Any]) -> Note:
    """Return the note of a row, whose columns are COLUMNS without the name."""
    high, issued, tenure, sure, text = row
    return Note(int(high), int(issued), tenure, bool(sure), text)


def ring_of(rows: Sequence[Sequence[Any]]) -> RingRow:
    """Return the ring row from the answer to `sql.RING`."""
    if not rows:
        raise DatabaseFailed("has lost the row of its table _ticket_ring")
    return RingRow(*rows[0])


def _name(name: str) -> str:
    if not name or name.endswith(" "):  # to the database, two names that differ by this are one
        raise DatabaseFailed("cannot keep a row without a name, or with a name that ends in a space")
    return checked(name, 80)


def _values(note: Note) -> list[str]:
    tenure = "NULL" if note.tenure is None else checked(note.tenure, 200)
    return [str(note.high), str(note.issued), tenure, str(int(note.sure)), checked(note.text, 4000, "utf-8")]


def _assignments(note: Note) -> str:
    return ", ".join(map(" = ".join, zip(COLUMNS.split(", ")[1:], _values(note), strict=True)))


def _is(book: Book, name: str, old: Note) -> str:
    numbers = f"high = {old.high} AND issued = {old.issued} AND sure = {int(old.sure)}"
    return f"{_at(book, name)} AND {numbers} AND {same('tenure', old.tenure)} AND {same('text', old.text)}"


def _at(book: Book, name: str) -> str:
    return f"book = '{book}' AND name = {_name(name)}"


def _under(stamp: str | None, *, mariadb: bool) -> str:
    """Return the condition that the ring row has this stamp, which locks the ring row until the commit."""
    if stamp is None:
        return ""
    ring = f"SELECT CONCAT(stamp, '.') FROM _ticket_ring WHERE one = 1 {_share(mariadb)}"  # noqa: S608
    return f" AND ({ring}) = {literal(stamp + '.')}"


def _share(mariadb: bool) -> str:
    return "LOCK IN SHARE MODE" if mariadb else "FOR SHARE"


def of_beat(server: str, note: Note) -> str:
    """Return the statement that writes a heartbeat, whatever is there."""
    return (
        f"INSERT INTO _ticket_notes (book, {COLUMNS}) VALUES ('{Book.HEARTBEATS}', {_name(server)}, "  # noqa: S608
        f"{', '.join(_values(note))}) ON DUPLICATE KEY UPDATE {_assignments(note)}"
    )


def of_write(write: Write, stamp: str | None, *, mariadb: bool) -> str:
    """Return the statement of a write. It finds or makes one row if the write is done, and otherwise none."""
    book, name, old, new = write
    if old is not None:
        where = f"WHERE {_is(book, name, old)}{_under(stamp, mariadb=mariadb)}"
        if new is None:
            return f"DELETE FROM _ticket_notes {where}"  # noqa: S608
        return f"UPDATE _ticket_notes SET {_assignments(new)} {where}"  # noqa: S608
    assert new is not None, "a write that changes nothing"
    ring = "one = 1" if stamp is None else f"one = 1 AND {same('stamp', stamp)}"
    # IGNORE passes over the row that is there. A value that does not fit was refused before.
    return (
        f"INSERT IGNORE INTO _ticket_notes (book, {COLUMNS}) SELECT '{book}', {_name(name)}, {', '.join(_values(new))} "  # noqa: S608
        f"FROM _ticket_ring WHERE {ring}{'' if stamp is None else ' ' + _share(mariadb)}"
    )


def of_mark(mark: Mark, stamp: str, *, mariadb: bool) -> str:
    """Return the statement of a mark. It finds one row if the mark is made, and otherwise none."""
    return (
        f"UPDATE _ticket_notes SET high = GREATEST(high, {mark.limit}), issued = GREATEST(issued, {mark.issued}), "  # noqa: S608
        f"sure = sure OR {int(mark.sure)} WHERE {_at(Book.MARKS, mark.name)} AND {same('tenure', mark.tenure)}"
        f"{_under(stamp, mariadb=mariadb)}"
    )


def of_ring(old: RingRow, new: RingRow) -> str:
    """Return the statement that replaces the ring row. It finds one row if it does, and otherwise none."""
    values = (
        f"ring_offset = {new.offset}, stamp = {checked(new.stamp, 200)}, text = {checked(new.text, 1 << 20, 'utf-8')}"
    )
    was = f"{same('body', old.body)} AND {same('stamp', old.stamp)} AND {same('text', old.text)}"
    return f"UPDATE _ticket_ring SET {values} WHERE one = 1 AND ring_offset = {old.offset} AND {was}"  # noqa: S608


async def commit(line: Line, statements: Iterable[tuple[tuple[str, ...], str]]) -> list[bool]:
    """Run statements in one packet and one commit; return for each, in their order, whether it found or made a row.

    Each comes with what they are sorted by: every server takes its locks in that order. A deadlock, a wait for a lock
    or a killed statement leaves nothing behind, so all are sent again, twice at most.
    """
    order = sorted(enumerate(statements), key=lambda each: each[1][0])
    packet = [text for _, (_, text) in order]
    if len(order) > 1:
        packet = ["BEGIN", *packet, "COMMIT"]
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            results = await line.run(packet)
            break
        except StatementFailed as error:
            if error.number not in BUSY or attempt == _ATTEMPTS:
                line.abort()
                raise
            await line.run(["ROLLBACK"])
    if len(order) > 1:
        results = results[1:-1]
    done = {number: result.affected > 0 for (number, _), result in zip(order, results, strict=True)}
    return [done[number] for number in range(len(done))]
