"""The notebook: its statements, and how several of them go in one commit."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from app.databases.mysql.errors import StatementFailed
from app.databases.mysql.login import Line, literal
from app.databases.session import Book, Mark, Marked, Note, RingRow, Write
from app.errors import DatabaseFailed, SequenceBusy

RING = "SELECT body, ring_offset, stamp, text FROM _ticket_ring WHERE one = 1"
_ASCII = "CHARACTER SET ascii COLLATE ascii_bin"
_TEXT = "CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL"
MAKE_OWN_TABLES = (
    f"CREATE TABLE IF NOT EXISTS _ticket_ring (one TINYINT NOT NULL PRIMARY KEY, body VARCHAR(64) {_ASCII} NOT NULL, "
    f"ring_offset BIGINT UNSIGNED NOT NULL, stamp VARCHAR(200) {_ASCII} NOT NULL, text MEDIUMTEXT {_TEXT}) "
    f"ENGINE=InnoDB COMMENT='layout 1'",
    f"CREATE TABLE IF NOT EXISTS _ticket_notes (book VARCHAR(16) {_ASCII}, name VARCHAR(80) {_ASCII}, "
    "high BIGINT UNSIGNED NOT NULL DEFAULT 0, issued BIGINT UNSIGNED NOT NULL DEFAULT 0, "
    f"tenure VARCHAR(200) {_ASCII}, sure TINYINT NOT NULL DEFAULT 0, text VARCHAR(4000) {_TEXT} DEFAULT '', "
    f"PRIMARY KEY (book, name)) ENGINE=InnoDB COMMENT='layout 1'",
    "INSERT IGNORE INTO _ticket_ring (one, body, ring_offset, stamp, text) VALUES (1, '{word}', 0, '', '')",
)
"""What makes what is missing of the own tables. word: of a new body."""
COLUMNS = "name, high, issued, tenure, sure, text"
_ATTEMPTS = 3


def note_of(row: Sequence[Any]) -> Note:
    """Return the note of a row, whose columns are COLUMNS without the name."""
    high, issued, tenure, sure, text = row
    return Note(high, issued, tenure, bool(sure), text)


def ring_of(rows: Sequence[Sequence[Any]]) -> RingRow:
    """Return the ring row from the answer to `RING`."""
    if not rows:
        raise DatabaseFailed("has lost the row of its table _ticket_ring")
    return RingRow(*rows[0])


def _set(values: Mapping[str, Any]) -> str:
    """Return what gives columns these values."""
    return ", ".join(f"{column} = {literal(value)}" for column, value in values.items())


def _are(values: Mapping[str, Any]) -> str:
    """Return the condition that columns hold exactly these values.

    With nothing behind them, the collations pass over spaces at the end of either side.
    """
    texts = {f"CONCAT({column}, '.')": f"{value}." for column, value in values.items() if isinstance(value, str)}
    others = {column: value for column, value in values.items() if not isinstance(value, str)}
    return " AND ".join(f"{column} <=> {literal(value)}" for column, value in {**texts, **others}.items())


def _at(book: Book, name: str) -> str:
    return f"book = {literal(book)} AND name = {literal(name)}"


def _under(stamp: str | None) -> str:
    """Return the condition that the ring row has this stamp, which locks the ring row until the commit."""
    if stamp is None:
        return "TRUE"
    ring = "SELECT CONCAT(stamp, '.') FROM _ticket_ring WHERE one = 1 LOCK IN SHARE MODE"
    return f"({ring}) = {literal(stamp + '.')}"


def _row(book: Book, name: str, note: Note) -> str:
    """Return the values of a new row. Raises DatabaseFailed where a column would not keep one of them exactly."""
    tenure = note.tenure or ""
    fits = 0 < len(name) <= 80 and len(tenure) <= 200 and len(note.text) <= 4000
    # To the database, two names that differ by a space at the end are one.
    if not fits or not (name + tenure).isascii() or name.endswith(" "):
        raise DatabaseFailed("cannot keep a row with this name, tenure or text exactly")
    return literal(book, name, *note)


def of_beat(server: str, note: Note) -> str:
    """Return the statement that writes a heartbeat, whatever is there."""
    return (
        f"INSERT INTO _ticket_notes (book, {COLUMNS}) VALUES ({_row(Book.HEARTBEATS, server, note)}) "  # noqa: S608
        f"ON DUPLICATE KEY UPDATE {_set(note._asdict())}"
    )


def of_write(write: Write, stamp: str | None) -> str:
    """Return the statement of a write. It finds or makes one row if the write is done, and otherwise none."""
    book, name, old, new = write
    if old is None:
        assert new is not None, "a write that changes nothing"
        # IGNORE passes over the row that is there. `_row` has refused a value that does not fit.
        row = _row(book, name, new)
        return f"INSERT IGNORE INTO _ticket_notes (book, {COLUMNS}) SELECT {row} FROM DUAL WHERE {_under(stamp)}"  # noqa: S608
    where = f"WHERE {_at(book, name)} AND {_are(old._asdict())} AND {_under(stamp)}"
    if new is None:
        return f"DELETE FROM _ticket_notes {where}"  # noqa: S608
    return f"UPDATE _ticket_notes SET {_set(new._asdict())} {where}"  # noqa: S608


def of_mark(mark: Mark, stamp: str) -> str:
    """Return the statement of a mark. It finds one row if the mark is made, and otherwise none."""
    return (
        f"UPDATE _ticket_notes SET high = GREATEST(high, {mark.limit}), issued = GREATEST(issued, {mark.issued}), "  # noqa: S608
        f"sure = sure OR {int(mark.sure)} WHERE {_at(Book.MARKS, mark.name)} AND {_are({'tenure': mark.tenure})} "
        f"AND {_under(stamp)}"
    )


def of_ring(old: RingRow, new: RingRow) -> str:
    """Return the statement that replaces the ring row. It finds one row if it does, and otherwise none."""
    columns = ("body", "ring_offset", "stamp", "text")
    was, becomes = (dict(zip(columns, row, strict=True)) for row in (old, new))
    return f"UPDATE _ticket_ring SET {_set(becomes)} WHERE one = 1 AND {_are(was)}"  # noqa: S608


class Notebook:
    """The notebook and the ring row, as `app.databases.session.Session` describes them."""

    def __init__(self, line: Line) -> None:
        self._line = line

    async def read(self, book: Book, names: Sequence[str]) -> dict[str, Note]:
        return dict(await self._notes(book, f"name IN ({literal('', *names)})"))

    async def page(self, book: Book, after: str, count: int) -> list[tuple[str, Note]]:
        return await self._notes(book, f"name > {literal(after)} ORDER BY name LIMIT {count}")

    async def _notes(self, book: Book, chosen: str) -> list[tuple[str, Note]]:
        question = f"SELECT {COLUMNS} FROM _ticket_notes WHERE book = '{book}' AND {chosen}"  # noqa: S608
        return [(name, note_of(rest)) for name, *rest in (await self._line.step(question)).rows]

    async def read_ring(self) -> RingRow:
        return ring_of((await self._line.step(RING)).rows)

    async def write_ring(self, old: RingRow, new: RingRow) -> bool:
        return (await self._commit([((), of_ring(old, new))]))[0]

    async def mark(self, marks: Sequence[Mark], stamp: str) -> list[Marked]:
        done = await self._commit(((mark.name,), of_mark(mark, stamp)) for mark in marks)
        # A stamp never comes back. So if it is still this one, it was this one when the marks were refused.
        is_same = all(done) or (await self.read_ring()).stamp == stamp
        return [Marked.DONE if each else Marked.TENURE if is_same else Marked.RING for each in done]

    async def write(self, writes: Sequence[Write], stamp: str | None) -> list[bool]:
        return await self._commit((each[:2], of_write(each, stamp)) for each in writes)

    async def _commit(self, statements: Iterable[tuple[tuple[str, ...], str]]) -> list[bool]:
        """Run statements in one packet and one commit; return for each, in their order, whether it found or made a row.

        Each comes with what they are sorted by: every server takes its locks in that order. A deadlock, a wait for a
        lock or a killed statement leaves nothing behind, so all are sent again, twice at most.
        """
        order = sorted(enumerate(statements), key=lambda each: each[1][0])
        packet = ["BEGIN", *(text for _, (_, text) in order), "COMMIT"]
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                _, *results, _ = await self._line.run(packet)
                break
            except StatementFailed as error:
                if attempt == _ATTEMPTS or not isinstance(error.wrong, SequenceBusy):
                    raise
                await self._line.run(["ROLLBACK"])
        done = {number: result.affected > 0 for (number, _), result in zip(order, results, strict=True)}
        return [done[number] for number in range(len(done))]
