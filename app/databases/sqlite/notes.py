"""The notes in a file of the embedded pair, in the tables that releases before laid out and read."""

import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from app.databases.notebook import Book, Note
from app.databases.protocol import OLDER, Body, Mark, RingRecord, RingState, ServerEntry, Use
from app.kinds.definition import Definition

OWN_BODY = 0
"""The `offset_of` of the row that says which body the file itself holds."""
SAYS_SO = 0
"""The `offset_of` of the row by which a ticket server says that it announces bodies, whether it uses any or not."""
_MARK = "sequence, offset_of, increment_of, mark, issued, token"
_KINDS = "SELECT sequence, kind, parameters, 1, '' FROM _kinds"
_DEFINITIONS = "SELECT sequence, kind, parameters, decided, claimed_by FROM _definitions"
_RING = "SELECT number, increment_of, since, offsets, own_offset, state FROM _ring WHERE id = 1"


def read(connection: sqlite3.Connection, book: Book, key: tuple[Any, ...] | None = None) -> list[Any]:
    """The notes of a book; with a key, that one if it is there."""
    match book:
        case Book.MARKS:
            return list(_marks(connection, key))
        case Book.RING:
            record = _record(connection)
            return [] if record is None else [record]
        case Book.KINDS:
            return [each for of, each in _definitions(connection).items() if key is None or (of,) == key]
        case Book.SERVERS:
            return list(_servers(connection))


def put(connection: sqlite3.Connection, kept: Note | None, new: Note | None) -> None:
    """Write a note in the place of the one that is kept, None for none."""
    if isinstance(new, Mark):
        row = (new.sequence, new.offset, new.increment, new.mark, new.issued, new.token)
        connection.execute(f"INSERT OR REPLACE INTO {_marks_with(new.sequence)} VALUES (?, ?, ?, ?, ?, ?)", row)  # noqa: S608
    elif isinstance(new, RingRecord):
        _write_record(connection, new)
    elif isinstance(new, Definition):
        text = new.text()
        values = new.key, new.sequence, new.kind, text, int(new.decided), new.by
        connection.execute("INSERT OR REPLACE INTO _definitions VALUES (?, ?, ?, ?, ?, ?)", values)
        if new.decided and new.kind != "ticket":  # where servers of release 0.2.0 look
            connection.execute("INSERT OR IGNORE INTO _kinds VALUES (?, ?, ?)", (new.sequence, new.kind, text))
    elif isinstance(kept, Definition):
        connection.execute("DELETE FROM _definitions WHERE folded = ?", (kept.key,))


# --- marks, definitions ----------------------------------------------------------------------------------------------


def _marks(connection: sqlite3.Connection, key: tuple[Any, ...] | None) -> Iterator[Mark]:
    if key is not None:
        where = "sequence = ? AND offset_of = ? AND increment_of = ?"
        rows = connection.execute(f"SELECT {_MARK} FROM {_marks_with(key[0])} WHERE {where}", key)  # noqa: S608
    else:
        rows = connection.execute(f"SELECT {_MARK} FROM _high_water UNION ALL SELECT {_MARK} FROM _inner_high_water")  # noqa: S608
    return (Mark(*row) for row in rows)


def _marks_with(name: str) -> str:
    """The table that marks of this name lie in."""
    return "_inner_high_water" if name.startswith("_") else "_high_water"


def _definitions(connection: sqlite3.Connection) -> dict[str, Definition]:
    """Every definition by name in lower case; what a server of release 0.2.0 has decided in place of a claim."""
    found: dict[str, Definition] = {}
    for query in (_DEFINITIONS, _KINDS):
        for sequence, kind, text, decided, by in connection.execute(query).fetchall():
            definition = Definition.from_text(sequence, kind, text, decided=bool(decided), by=by)
            kept = found.get(definition.key)
            if kept is None or not kept.decided:
                found[definition.key] = definition
    return found


# --- the ring record -------------------------------------------------------------------------------------------------


def ring_number(connection: sqlite3.Connection) -> int | None:
    """The number of the ring record; None where there is none."""
    row = connection.execute("SELECT number FROM _ring WHERE id = 1").fetchone()
    return None if row is None else int(row[0])


def _record(connection: sqlite3.Connection) -> RingRecord | None:
    row = connection.execute(_RING).fetchone()
    if row is None:
        return None
    number, increment, since, offsets, own, state = row
    bodies = {offset: rest for offset, *rest in connection.execute("SELECT * FROM _bodies")}
    _, word, _, life = bodies.pop(OWN_BODY, (0, "", "", ""))
    increments = connection.execute("SELECT increments FROM _ring_more").fetchone() or ("",)
    return RingRecord(
        number,
        increment,
        since,
        _numbers(offsets),
        own,
        RingState(state),
        tuple(sorted((offset, Body(of, name, place)) for offset, (of, name, place, _) in bodies.items())),
        word,
        life,
        former=tuple(sorted(set(_numbers(increments[0])) - {increment})),
    )


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(each) for each in text.split(",") if each)


def _write_record(connection: sqlite3.Connection, new: RingRecord) -> None:
    offsets = ",".join(map(str, new.offsets))
    row = (new.number, new.increment, new.since, offsets, new.own, str(new.state))
    connection.execute("INSERT OR REPLACE INTO _ring VALUES (1, ?, ?, ?, ?, ?, ?)", row)
    connection.execute("DELETE FROM _bodies")
    heard = [(offset, body.number, body.word, body.place, "") for offset, body in new.bodies]
    bodies = [(OWN_BODY, 0, new.body, "", new.life), *heard]
    connection.executemany("INSERT INTO _bodies VALUES (?, ?, ?, ?, ?)", bodies)
    increments = ",".join(map(str, (new.increment, *new.former)))
    connection.execute(
        "INSERT OR REPLACE INTO _ring_more (id, number, increments) VALUES (1, ?, ?)", (new.number, increments)
    )
    connection.execute("UPDATE _database SET increment = ?", (new.increment,))


# --- the servers -----------------------------------------------------------------------------------------------------


def announce(connection: sqlite3.Connection, entry: ServerEntry | None, now: float) -> None:
    """Write what a ticket server announces, or what any program that probes writes. `now`: seconds since 1970."""
    if entry is None:
        connection.execute("INSERT OR REPLACE INTO _probe VALUES (1, ?)", (now,))
        return
    row = (entry.instance, entry.release, ",".join(entry.kinds), entry.probe_interval, entry.reserve_window, now)
    connection.execute("INSERT OR REPLACE INTO _servers VALUES (?, ?, ?, ?, ?, ?)", row)
    connection.execute("DELETE FROM _in_use WHERE instance = ?", row[:1])
    uses = [(SAYS_SO, "", "", ""), *((use.offset, use.word, use.place, use.server) for use in entry.uses or ())]
    rows = [(entry.instance, *use, entry.probe_interval, now) for use in uses]
    connection.executemany("INSERT INTO _in_use VALUES (?, ?, ?, ?, ?, ?, ?)", rows)


def forget(connection: sqlite3.Connection, instance: str) -> None:
    """Take away what a ticket server has announced."""
    for table in ("_in_use", "_servers"):
        connection.execute(f"DELETE FROM {table} WHERE instance = ?", (instance,))  # noqa: S608


def _servers(connection: sqlite3.Connection) -> Iterator[ServerEntry]:
    """Each ticket server, seen when it renewed what it announces; one that announces no bodies when it probed. Those
    that do not announce themselves are one."""
    said: dict[str, tuple[float, list[Use]]] = {}
    for instance, *use, at in connection.execute("SELECT instance, offset_of, word, place, server, at FROM _in_use"):
        uses = said.setdefault(instance, (at, []))[1]
        if use[1]:
            uses.append(Use(*use))
    for instance, release, kinds, interval, window, at in connection.execute("SELECT * FROM _servers"):
        of_kinds = tuple(kinds.split(",")) if kinds else ()
        entry = ServerEntry(instance, release, of_kinds, interval, window, at, uses=None)
        renewed = said.get(instance)
        yield entry if renewed is None else replace(entry, at=renewed[0], uses=tuple(renewed[1]))
    for (at,) in connection.execute("SELECT probed FROM _database WHERE probed > 0"):
        yield ServerEntry("", OLDER, (), 0, at=at, uses=None)
