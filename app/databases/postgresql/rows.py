"""What PostgreSQL's rows mean."""

import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from typing import Any

from app.databases.postgresql import sql
from app.databases.postgresql.errors import POOLED, SET_UP, Lost
from app.databases.session import EMPTIED, ENDS, Counter, Facts, Look, Note, RingRow
from app.errors import (
    DatabaseError,
    DatabaseRefused,
    SequenceBusy,
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


def ring(found: Sequence[Any]) -> RingRow:
    """Read the ring row. Raises Lost."""
    if not found:
        raise Lost
    return RingRow(*found[0])


def notes(found: Iterable[Any]) -> dict[str, Note]:
    """Read rows of the notebook, by their names."""
    return {name: Note(*note) for name, *note in found}


def done(row: Any) -> tuple[str, bool]:
    """Read the stamp of the ring row, and whether a mark or write was done. Raises Lost."""
    stamp, is_done = row
    if stamp is None:
        raise Lost
    return stamp, is_done


def look(found: Sequence[Any]) -> Look:
    """Read what a look finds. Raises Lost, and DatabaseRefused where a table cannot be used."""
    (row,) = found
    if not row["direct"]:
        raise DatabaseRefused(POOLED)
    if row["body"] is None or not row["columns"]:
        raise Lost
    if not set(row["columns"]) >= sql.COLUMNS:
        needs = ", ".join(sorted(sql.COLUMNS))
        raise DatabaseRefused(f"has a table {sql.SEQUENCES} without the columns {needs}: move it away and {SET_UP}")
    for name in row["foreign"]:
        raise DatabaseRefused(f"has a table {name} of another release: its comment is not '{sql.LAYOUT}'")
    warnings = [words for setting, words in SETTINGS.items() if row[setting] == "off"]
    warnings += [
        f"{name} is UNLOGGED, so a crash empties it: ALTER TABLE {name} SET LOGGED" for name in row["unlogged"]
    ]
    version = f"PostgreSQL {row['version']}"
    facts = Facts(row["machine"], row["started"], row["births"], row["now"], version, tuple(warnings))
    ring_row = RingRow(*(row[each] for each in ("body", "ring_offset", "stamp", "text")))
    lives, heartbeats = (notes(json.loads(row[each] or "[]")) for each in ("lives", "heartbeats"))
    return Look(facts, ring_row, lives.get(facts.machine), heartbeats, row["floors"] or 0)


def counters(found: Sequence[Any]) -> dict[str, Counter | DatabaseError]:
    """Read sequences, by their names in lower case."""
    by_name: dict[str, Counter | DatabaseError] = {}
    for name, *rest in found:
        by_name[name.lower()] = SequenceUnusable(_TWINS) if name.lower() in by_name else _counter(name, *rest)
    return by_name


def _counter(
    name: str, number: int | None, bits: int | None, birth: str | None, *table: str
) -> Counter | DatabaseError:
    if not NAME.fullmatch(name):
        return SequenceUnusable("its name is not 1 to 64 letters, digits and _, a letter first")
    if bits not in ENDS or number is None or number < 0:
        return _unusable(number, bits)
    word = hashlib.sha256(f"{birth} {table}".encode()).hexdigest()[:16]
    return Counter(name, bits, ENDS[bits], min(number, ENDS[bits]), word, () if birth is not None else (_NO_BIRTH,))


def result(row: Any) -> int | DatabaseError:
    """Read the result of a change of a sequence: its new id, or the reason why the old one stayed."""
    last, locked, number, bits, is_emptied, is_there = row
    if locked > 1:
        return SequenceUnusable(_TWINS)
    if locked == 0:
        return SequenceBusy() if is_there else SequenceMissing()
    if last is not None:
        return int(last)
    if bits not in ENDS or number is None or number < 0:
        return _unusable(number, bits)
    return SequenceMissing(EMPTIED) if is_emptied else SequenceExhausted()


def _unusable(number: int | None, bits: int | None) -> SequenceUnusable:
    return SequenceUnusable(f"its id is {number} and its bits are {bits}: expected 0 or more, and 32, 53 or 64")
