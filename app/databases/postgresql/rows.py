"""What PostgreSQL's rows mean. Rows that no ticket server would write raise LookupError, TypeError or ValueError."""

import hashlib
import json
import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from app.databases.postgresql import sql
from app.databases.postgresql.errors import POOLED, SET_UP, Missing
from app.databases.session import EMPTIED, Counter, Facts, Look, Note, RingRow
from app.errors import (
    DatabaseError,
    DatabaseRefused,
    SequenceBusy,
    SequenceError,
    SequenceExhausted,
    SequenceMissing,
    SequenceUnusable,
)

NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}")
"""The name of a sequence."""
_TWINS = "has several rows by this name, compared without case: delete all but one of them"
_NO_BIRTH = (
    f"{sql.SEQUENCES} has no column birth, so a row that is deleted and inserted again is not seen to be another one: "
    f"ALTER TABLE {sql.SEQUENCES} ADD COLUMN birth text NOT NULL DEFAULT gen_random_uuid()::text"
)
SETTINGS = {
    "fsync": "fsync is off, so a crash of the machine loses tickets: set it on in postgresql.conf, and reload that",
    "full_page_writes": "full_page_writes is off, so a power cut may leave a page half written: set it on, as fsync",
    "synchronous_commit": "synchronous_commit is off in the session, so a crash loses tickets: set it on for this user",
}
"""The harm that each of these settings does where it is off."""
_REASONS: dict[str, Callable[[], SequenceError]] = {
    "missing": SequenceMissing,
    "emptied": partial(SequenceMissing, EMPTIED),
    "exhausted": SequenceExhausted,
    "busy": SequenceBusy,
}


def typed(row: Any, *kinds: Any) -> tuple[Any, ...]:
    """Return the values of a row. Raises TypeError, ValueError where they are not of these types."""
    if not all(isinstance(value, kind) for value, kind in zip(row, kinds, strict=True)):
        raise TypeError("a value is of another type")
    return tuple(row)


def ring(found: Sequence[Any]) -> RingRow:
    """Read the ring row. Raises Missing."""
    if not found:
        raise Missing
    (row,) = found
    return RingRow(*typed(row, str, int, str, str))


def notes(found: Sequence[Any]) -> list[tuple[str, Note]]:
    """Read rows of the notebook, each with its name."""
    rows = [typed(row, str, int, int, str | None, bool, str) for row in found]
    if any(high < 0 or issued < 0 for _, high, issued, *_ in rows):
        raise ValueError("a number is negative")
    return [(name, Note(*note)) for name, *note in rows]


def done(found: Sequence[Any]) -> tuple[str, frozenset[str]]:
    """Read the stamp of the ring row, and which marks or writes were done. Raises Missing."""
    ((stamp, names),) = found
    if stamp is None:
        raise Missing
    typed((stamp, *names), *[str] * (1 + len(names)))
    return stamp, frozenset(names)


def look(found: Sequence[Any]) -> Look:
    """Read what a look finds. Raises Missing, and DatabaseRefused where a table cannot be used."""
    (row,) = found
    if not row["direct"]:
        raise DatabaseRefused(POOLED)
    if row["body"] is None or not row["columns"]:
        raise Missing
    if not set(row["columns"]) >= sql.COLUMNS:
        needs = ", ".join(sorted(sql.COLUMNS))
        raise DatabaseRefused(f"has a table {sql.SEQUENCES} without the columns {needs}: move it away and {SET_UP}")
    for name in row["foreign"]:
        raise DatabaseRefused(f"has a table {name} of another release: its comment is not '{sql.LAYOUT}'")
    warnings = [words for setting, words in SETTINGS.items() if row[setting] == "off"]
    warnings += [
        f"{name} is UNLOGGED, so a crash empties it: ALTER TABLE {name} SET LOGGED" for name in row["unlogged"]
    ]
    started, now, version = int(row["started"]) / 1000, int(row["now"]) / 1000, f"PostgreSQL {row['version']}"
    facts = Facts(str(row["machine"]), started, str(row["births"]), now, version, tuple(warnings))
    ring_row = ring([[row[each] for each in ("body", "ring_offset", "stamp", "text")]])
    lives, heartbeats = (dict(notes(json.loads(row[each] or "[]"))) for each in ("lives", "heartbeats"))
    return Look(facts, ring_row, lives.get(facts.machine), heartbeats, int(row["floors"] or 0))


def counters(found: Sequence[Any]) -> dict[str, Counter | DatabaseError]:
    """Read sequences, by their names in lower case."""
    by_name: dict[str, Counter | DatabaseError] = {}
    for row in found:
        name, *rest = typed(row, str, int | None, int | None, str | None, str, str | None)
        by_name[name.lower()] = SequenceUnusable(_TWINS) if name.lower() in by_name else _counter(name, *rest)
    return by_name


def _counter(
    name: str, number: int | None, bits: int | None, birth: str | None, *table: str
) -> Counter | DatabaseError:
    if not NAME.fullmatch(name):
        return SequenceUnusable("its name is not 1 to 64 letters, digits and _, a letter first")
    if bits not in sql.ENDS or number is None or number < 0:
        return _unusable(number, bits)
    word = hashlib.sha256(f"{birth} {table}".encode()).hexdigest()[:16]
    warnings = () if birth is not None else (_NO_BIRTH,)
    return Counter(name, bits, sql.ENDS[bits], min(number, sql.ENDS[bits]), word, warnings)


def results(found: Sequence[Any]) -> dict[str, int | DatabaseError]:
    """Read the result for each sequence: the last id that was drawn, or the reason why none was."""
    by_name: dict[str, int | DatabaseError] = {}
    for row in found:
        name, last, word, number, bits = typed(row, str, int | None, str, int | None, int | None)
        if name in by_name:
            by_name[name] = SequenceUnusable(_TWINS)
        elif last is not None:
            by_name[name] = last
        else:
            by_name[name] = _unusable(number, bits) if word == "unusable" else _REASONS[word]()
    return by_name


def _unusable(number: int | None, bits: int | None) -> SequenceUnusable:
    return SequenceUnusable(f"its id is {number} and its bits are {bits}: expected 0 or more, and 32, 53 or 64")
