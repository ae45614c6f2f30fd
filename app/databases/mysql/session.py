"""The session of MySQL and MariaDB, see `app.databases.session`."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from app.databases.examination import OLD_KINDS
from app.databases.mysql.facts import prepare, read_facts
from app.databases.mysql.login import Line, Rows, StatementFailed, literal, quoted
from app.databases.mysql.tables import BITS_53, Draw, Standing, raising, read_counters, standings_of
from app.databases.mysql.url import MySQLAddress
from app.databases.record import new_word
from app.databases.session import (
    EMPTIED,
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
from app.errors import DatabaseError, DatabaseFailed, DatabaseRefused, SequenceBusy, SequenceError, SequenceMissing

RING = "SELECT body, ring_offset, stamp, text FROM _ticket_ring WHERE one = 1"
_COLUMNS = "name, high, issued, tenure, sure, text"
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
"""The statements that make those of the own tables that are missing. word: of a new body."""
_OLD_KINDS = (
    ["SELECT 1 FROM _definitions WHERE decided = 1 AND kind <> 'ticket' LIMIT 1"],
    ["SELECT 1 FROM _kinds LIMIT 1"],
)
"""Statements that find kinds of sequences in the tables of releases before 1.0."""
_WIDTHS = {32: "INT UNSIGNED", 53: f"BIGINT UNSIGNED COMMENT '{BITS_53}'", 64: "BIGINT UNSIGNED"}
_ATTEMPTS = 3


async def connect(address: MySQLAddress, residue: Residue | None, seconds: float) -> "MySQLSession":
    """See `app.databases.session.Connect`. It has no deadline: the caller cancels it."""
    line = Line(address)
    try:
        await line.open(seconds)
        facts = await prepare(line, residue, seconds)
        ring = (await line.step(RING)).rows if " " in facts.births else ()  # where there are two own tables
        if not ring:
            await line.run([each.format(word=new_word()) for each in MAKE_OWN_TABLES])
            facts, ring = await read_facts(line, residue), (await line.step(RING)).rows
        if not _ring(ring).stamp:
            old = await line.run_each(_OLD_KINDS)
            if any(isinstance(each, list) and each[0].rows for each in old):
                raise DatabaseRefused(OLD_KINDS)
    except BaseException:
        line.close()
        raise
    return MySQLSession(line, residue, facts)


class MySQLSession:
    """Implements `app.databases.session.Session`, where its methods are described."""

    def __init__(self, line: Line, residue: Residue | None, facts: Facts) -> None:
        self._line = line
        self.residue = residue
        self.facts = facts
        self.life = ""

    def abort(self) -> None:
        self._line.close()

    # --- counters ----------------------------------------------------------------------------------------------------

    async def draw(self, wanted: Sequence[Want]) -> list[Drawn | DatabaseError]:
        assert self.residue is not None, "this session draws nothing"
        draws = [Draw(self._line, want, self.residue) for want in wanted]
        if looking := [draw for draw in draws if draw.has_to_look]:
            standings = await standings_of(self._line, [draw.want.sequence for draw in looking])
            for draw in looking:
                standing = standings.get(draw.want.sequence)
                if isinstance(standing, Standing):  # else the draw itself says what is wrong
                    draw.known = max(standing.position, draw.want.above)
        order = sorted(draws, key=lambda draw: draw.want.sequence)
        send = self._line.run_each if len(order) == 1 else self._line.commit_each
        outcomes = dict(zip(order, await send([draw.statements() for draw in order]), strict=True))
        results: list[Drawn | DatabaseError] = []
        for draw in draws:
            outcome = outcomes[draw]
            result = outcome if isinstance(outcome, SequenceError) else draw.result(outcome)
            results += await self.draw([result]) if isinstance(result, Want) else [result]
        return results

    async def sequences(self, names: Sequence[str] | None) -> dict[str, Counter | DatabaseError]:
        return await read_counters(self._line, names)

    async def make(self, name: str, bits: int, above: int) -> None:
        named = f"TABLE_SCHEMA = DATABASE() AND LOWER(TABLE_NAME) = {literal(name.lower())}"
        if (await self._line.step(f"SELECT 1 FROM information_schema.TABLES WHERE {named}")).rows:  # noqa: S608
            return
        statement = (
            f"CREATE TABLE IF NOT EXISTS {quoted(name)} (id {_WIDTHS[bits]} NOT NULL AUTO_INCREMENT, "
            "stub CHAR(1) CHARACTER SET ascii COLLATE ascii_bin NOT NULL DEFAULT '', PRIMARY KEY (stub), KEY id (id)) "
            f"ENGINE=InnoDB AUTO_INCREMENT={above + 1}"
        )
        (outcome,) = await self._line.run_each([[statement]])
        if isinstance(outcome, SequenceError):
            raise outcome

    async def raise_above(self, floors: Mapping[str, int]) -> dict[str, DatabaseError | None]:
        statements = [[raising(self._line, name, floor)] if floor > 0 else [] for name, floor in floors.items()]
        results: dict[str, DatabaseError | None] = {}
        for name, outcome in zip(floors, await self._line.run_each(statements), strict=True):
            if isinstance(outcome, SequenceError):
                results[name] = outcome
            else:
                results[name] = None if all(each.affected for each in outcome) else SequenceMissing(EMPTIED)
        return results

    # --- the notebook ------------------------------------------------------------------------------------------------

    async def look(self, server: str, beat: Note) -> Look:
        books = literal(Book.HEARTBEATS, Book.LIVES, Book.COUNTS)
        write = f"REPLACE INTO _ticket_notes (book, {_COLUMNS}) VALUES ({literal(Book.HEARTBEATS, server, *beat)})"  # noqa: S608
        read = f"SELECT book, {_COLUMNS} FROM _ticket_notes WHERE book IN ({books})"  # noqa: S608
        _, ring, found = await self._line.run([write, RING, read])
        rows = {(book, name): _note(*rest) for book, name, *rest in found.rows}
        return Look(
            await read_facts(self._line, self.residue),
            _ring(ring.rows),
            rows.get((Book.LIVES, self.facts.machine)),
            {name: note for (book, name), note in rows.items() if book == Book.HEARTBEATS},
            rows.get((Book.COUNTS, "floors"), Note()).high,
        )

    async def read(self, book: Book, names: Sequence[str]) -> dict[str, Note]:
        return dict(await self._notes(book, f"name IN ({literal('', *names)})"))

    async def page(self, book: Book, after: str, count: int) -> list[tuple[str, Note]]:
        return await self._notes(book, f"name > {literal(after)} ORDER BY name LIMIT {count}")

    async def _notes(self, book: Book, chosen: str) -> list[tuple[str, Note]]:
        question = f"SELECT {_COLUMNS} FROM _ticket_notes WHERE book = '{book}' AND {chosen}"  # noqa: S608
        return [(name, _note(*rest)) for name, *rest in (await self._line.step(question)).rows]

    async def read_ring(self) -> RingRow:
        return _ring((await self._line.step(RING)).rows)

    async def write_ring(self, old: RingRow, new: RingRow) -> bool:
        return (await self._commit([("", of_ring(old, new))]))[0]

    async def mark(self, marks: Sequence[Mark], stamp: str) -> list[Marked]:
        done = await self._commit((mark.name, of_mark(mark, stamp)) for mark in marks)
        # A stamp never comes back. So if it is still this one, it was this one when the marks were refused.
        is_same = all(done) or (await self.read_ring()).stamp == stamp
        return [Marked.DONE if each else Marked.TENURE if is_same else Marked.RING for each in done]

    async def write(self, writes: Sequence[Write], stamp: str | None) -> list[bool]:
        return await self._commit((f"{each.book} {each.name}", of_write(each, stamp)) for each in writes)

    async def _commit(self, statements: Iterable[tuple[str, str]]) -> list[bool]:
        """Run statements in one commit; return for each, in their order, whether it found or made a row.

        Each comes with what they are sorted by: every server takes its locks in that order. A deadlock, a wait for a
        lock or a killed statement leaves nothing behind, so all are sent again, twice at most.
        """
        order = sorted((row, number, text) for number, (row, text) in enumerate(statements))
        packet = ["BEGIN", *(text for _, _, text in order), "COMMIT"]
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                _, *results, _ = await self._line.run(packet)
                break
            except StatementFailed as error:
                if attempt == _ATTEMPTS or not isinstance(error.wrong, SequenceBusy):
                    raise
                await self._line.run(["ROLLBACK"])
        done = {number: result.affected > 0 for (_, number, _), result in zip(order, results, strict=True)}
        return [done[number] for number in range(len(done))]


def _note(high: int, issued: int, tenure: str | None, sure: int, text: str) -> Note:
    return Note(high, issued, tenure, bool(sure), text)


def _ring(rows: Rows) -> RingRow:
    if not rows:
        raise DatabaseFailed("has lost the row of its table _ticket_ring")
    return RingRow(*rows[0])


# --- statements: each finds or makes one row if it is done ------------------------------------------------------------


def of_write(write: Write, stamp: str | None) -> str:
    """Return the statement of a write. Raises DatabaseFailed where a new row would not keep a value exactly."""
    book, name, old, new = write
    if old is not None:
        verb = "DELETE FROM _ticket_notes" if new is None else f"UPDATE _ticket_notes SET {_set(new._asdict())}"  # noqa: S608
        return f"{verb} WHERE {_at(book, name)} AND {_are(old._asdict())} AND {_under(stamp)}"
    assert new is not None, "a write that changes nothing"
    # IGNORE passes over a row that is there, and shortens values. A name with a space at its end is no other name.
    is_short = len(name) <= 80 and len(new.tenure or "") <= 200 and len(new.text) <= 4000
    if not (is_short and f"{name}{new.tenure}".isascii() and name == name.rstrip(" ") != ""):
        raise DatabaseFailed("cannot keep a row with this name, tenure or text exactly")
    row = literal(book, name, *new)
    return f"INSERT IGNORE INTO _ticket_notes (book, {_COLUMNS}) SELECT {row} FROM DUAL WHERE {_under(stamp)}"  # noqa: S608


def of_mark(mark: Mark, stamp: str) -> str:
    """Return the statement of a mark."""
    return (
        f"UPDATE _ticket_notes SET high = GREATEST(high, {mark.limit}), issued = GREATEST(issued, {mark.issued}), "  # noqa: S608
        f"sure = sure OR {int(mark.sure)} WHERE {_at(Book.MARKS, mark.name)} AND {_are({'tenure': mark.tenure})} "
        f"AND {_under(stamp)}"
    )


def of_ring(old: RingRow, new: RingRow) -> str:
    """Return the statement that replaces the ring row."""
    was, becomes = (dict(zip(("body", "ring_offset", "stamp", "text"), row, strict=True)) for row in (old, new))
    return f"UPDATE _ticket_ring SET {_set(becomes)} WHERE one = 1 AND {_are(was)}"  # noqa: S608


def _at(book: Book, name: str) -> str:
    return f"book = {literal(book)} AND name = {literal(name)}"


def _set(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{column} = {literal(value)}" for column, value in values.items())


def _are(values: Mapping[str, Any]) -> str:
    """Return the condition that columns hold exactly these values; collations pass over spaces at the end."""
    return " AND ".join(f"CAST({each} AS BINARY) <=> CAST({literal(values[each])} AS BINARY)" for each in values)


def _under(stamp: str | None) -> str:
    """Return the condition that the ring row has this stamp, which locks the ring row until the commit."""
    ring = "SELECT CAST(stamp AS BINARY) FROM _ticket_ring WHERE one = 1 LOCK IN SHARE MODE"
    return "TRUE" if stamp is None else f"({ring}) = CAST({literal(stamp)} AS BINARY)"
