"""Reads the counters of a database: which tables are sequences, where they stand, and when they were made.

TRUNCATE changes nothing that an ordinary account may read. So the birth of a table is the second of its creation and a
word that the ticket server keeps in its notes. The word holds only while the table has a row with the stub of raises.
A table without that row gets another word, and then the row, with the id 0, which does not move the counter.
"""

from collections import Counter as Tally
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from app.databases.mysql.errors import StatementFailed, sequence_error
from app.databases.mysql.login import Line
from app.databases.mysql.sql import literal, quoted
from app.databases.mysql.tables import NAME, Table, described, faults, tables_of, warnings, width
from app.databases.record import new_word
from app.databases.session import LARGEST_ID, Counter
from app.errors import DatabaseError, SequenceUnusable

RAISE_STUB = "!"
"""The stub of raises, which no draw uses."""
_AT_ONCE = 100
_NO_WORD = "none"
"""In the birth of a table without a word that nobody asked for by name. It is never part of a tenure."""
_Found = dict[str, Counter | DatabaseError]


class Standing(NamedTuple):
    """Where a table stands, see Counter. is_raised: whether it has the row of raises. word: what the notes have."""

    position: int
    created: str
    engine: str
    is_raised: bool
    word: str


async def read_counters(line: Line, names: Sequence[str] | None, *, has_notes: bool = True) -> _Found:
    """See Session.sequences. has_notes: whether the ticket server has made its notes there."""
    found, usable = await _tables(line, names)
    for name, standing in (await standings_of(line, list(usable), has_notes=has_notes)).items():
        found[name.lower()] = await _counter(line, usable[name], standing, is_asked=names is not None)
    return found


async def _counter(
    line: Line, table: Table, standing: Standing | DatabaseError, *, is_asked: bool
) -> Counter | DatabaseError:
    if isinstance(standing, DatabaseError):
        return standing
    word = standing.word
    if not (standing.is_raised and word):
        given = await _give_word(line, table.name, word) if is_asked else _NO_WORD
        if isinstance(given, DatabaseError):
            return given
        word = given
    bits, ceiling = width(table)
    birth, repair = f"{standing.created}.{word}", warnings(table, standing.engine)
    return Counter(table.name, bits, ceiling, min(standing.position, ceiling), birth, repair)


async def _tables(line: Line, names: Sequence[str] | None) -> tuple[_Found, dict[str, Table]]:
    """Return the errors of tables that cannot be served, and the tables that can be, by their names as made."""
    wrong: _Found = {}
    usable: dict[str, Table] = {}
    asked = "" if names is None else f" AND LOWER(TABLE_NAME) IN ({_literals(['', *names])})"
    listing = f"SELECT TABLE_NAME, TABLE_TYPE FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE(){asked}"  # noqa: S608
    kinds = {name: kind for name, kind in (await line.run([listing]))[0].rows if NAME.fullmatch(name)}
    times = Tally(name.lower() for name in kinds)
    for part in _parts(list(kinds)):
        columns, keys = await line.run(described(_literals(part)))
        for table in tables_of({name: kinds[name] for name in part}, columns.rows, keys.rows):
            why = next(faults(table), None)
            if times[table.name.lower()] > 1:
                why = f"other tables' names differ from {table.name} by case alone: rename them, or drop them"
            if why is None:
                usable[table.name] = table
            elif names is not None or table.is_like_one:
                wrong[table.name.lower()] = SequenceUnusable(why)
    return wrong, usable


async def standings_of(
    line: Line, tables: Sequence[str], *, has_notes: bool = True
) -> dict[str, Standing | DatabaseError]:
    """Return where these tables stand, by their names as they were made.

    The largest ids are read first. The other way round, a draw in between would lie above the position, and MySQL tells
    a counter that is one too low until somebody has opened the table.
    """
    found: dict[str, Standing | DatabaseError] = {}
    for part in _parts(tables):
        largest = (
            f"SELECT {literal(name)}, COALESCE(MAX(id), 0), "  # noqa: S608
            f"EXISTS (SELECT 1 FROM {quoted(name)} WHERE stub = '{RAISE_STUB}'), "
            f"{f'(SELECT text FROM _ticket_notes WHERE {_row(name)})' if has_notes else 'NULL'} FROM {quoted(name)}"  # noqa: S608
            for name in part
        )
        counters = (
            "SELECT TABLE_NAME, COALESCE(AUTO_INCREMENT, 1), UNIX_TIMESTAMP(CREATE_TIME), ENGINE "  # noqa: S608
            f"FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME IN ({_literals(part)})"
        )
        try:
            rows, live = await line.run([" UNION ALL ".join(largest), counters])
        except StatementFailed as error:
            if (wrong := sequence_error(error.number)) is None:
                raise
            if len(part) == 1:
                return {part[0]: wrong}
            for name in part:
                found |= await standings_of(line, [name], has_notes=has_notes)
            continue
        known = {name: rest for name, *rest in live.rows}
        for name, row, is_raised, word in rows.rows:
            if name in known:  # else somebody has dropped the table in between
                following, created, engine = known[name]
                position = min(max(int(row), int(following) - 1, 0), LARGEST_ID)
                found[name] = Standing(position, str(created), str(engine), bool(is_raised), word or "")
    return found


async def _give_word(line: Line, table: str, old: str) -> str | DatabaseError:
    """Give a table another word, and its row, unless another server has done so since `old` was read.

    The row depends on the word: a server that stood still must not put the row back into a table that was emptied
    meanwhile. Returns the word that the table has.
    """
    word = literal(new_word())
    packet = [
        "BEGIN",
        f"INSERT INTO _ticket_notes (book, name, text) VALUES ('births', {literal(table.lower())}, {word}) "  # noqa: S608
        f"ON DUPLICATE KEY UPDATE text = IF(text = {literal(old)}, VALUES(text), text)",
        f"REPLACE INTO {quoted(table)} (id, stub) SELECT 0, '{RAISE_STUB}' FROM _ticket_notes "  # noqa: S608
        f"WHERE {_row(table)} AND text = {word}",
        f"SELECT text FROM _ticket_notes WHERE {_row(table)}",  # noqa: S608
        "COMMIT",
    ]
    try:
        return str((await line.run(packet))[3].rows[0][0])
    except StatementFailed as error:
        if (wrong := sequence_error(error.number)) is None:
            raise
        await line.run(["ROLLBACK"])
        return wrong


def _row(table: str) -> str:
    return f"book = 'births' AND name = {literal(table.lower())}"


def _parts(names: Sequence[str]) -> Iterator[Sequence[str]]:
    return (names[start : start + _AT_ONCE] for start in range(0, len(names), _AT_ONCE))


def _literals(names: Sequence[str]) -> str:
    return ", ".join(map(literal, names))
