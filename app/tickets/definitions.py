"""What a sequence was made as, and which definition stands where ticket databases hold different ones. No I/O.

A database keeps a row about each sequence that a server has made. Such a row never changes. A sequence whose table was
made by hand has no row; it is of kind `ticket`, and the table says how wide it is.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from pydantic import TypeAdapter

from app.databases.session import Counter, Note
from app.errors import DatabaseError, InvalidRequest, SequenceUnusable
from app.kinds.table import KINDS
from app.kinds.timed import TimedKind

Key = TypeVar("Key")

TICKET = "ticket"  # the kind of plain numbers
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}")


def key_of(name: str) -> str:
    """Return a name as the notebook has it, in lower case. Raises InvalidRequest where it cannot name a sequence."""
    if _NAME.fullmatch(name) is None:
        raise InvalidRequest("a sequence's name is 1 to 64 letters, digits and underscores, a letter first")
    return name.lower()


@dataclass(frozen=True, slots=True)
class Definition:
    """The kind and the parameters that a server made a sequence with, or that a table made by hand has.

    parameters: all of the kind, for `ticket` the `bits` and the `start`; none for a table made by hand. name: as it was
    made. word: a random word of the request that made it, which is not compared; empty for a table made by hand.
    """

    kind: str
    parameters: Mapping[str, int] = field(default_factory=dict)
    name: str = ""
    word: str = field(default="", compare=False)

    @property
    def start(self) -> int:
        """The first id that may be given."""
        return self.parameters.get("start", 1)

    @property
    def is_known(self) -> bool:
        """Whether this release can serve it."""
        is_by_hand = self.kind == TICKET and not self.parameters
        return is_by_hand or (self.kind in KINDS and KINDS[self.kind].holds(self.parameters))

    @property
    def counter_bits(self) -> int | None:
        """The width of the counters that ids are drawn from, in bits; None for a kind whose ids are made in memory.

        A tick needs a counter of 64 bits, whatever the length of the ids.
        """
        if self.kind == TICKET:
            return self.parameters.get("bits", 64)
        kind = KINDS.get(self.kind)
        return 64 if isinstance(kind, TimedKind) and kind.part == "shard" else None

    def capped(self, counter: Counter) -> Counter:
        """Return a counter of the sequence as it may be drawn from: a counter of ticks ends with the last tick."""
        kind = KINDS.get(self.kind)
        last = kind.last_tick if isinstance(kind, TimedKind) else counter.ceiling
        return counter._replace(ceiling=min(counter.ceiling, last))

    def agrees(self, other: "Definition") -> bool:
        """Whether both make the same sequence. A `start` is not compared, nor is anything with a table made by hand."""
        if self.kind != other.kind or not (self.parameters and other.parameters):
            return self.kind == other.kind
        return {**self.parameters, "start": 1} == {**other.parameters, "start": 1}

    def __str__(self) -> str:
        parameters = ", ".join(f"{name} {value}" for name, value in sorted(self.parameters.items()))
        return f"kind {self.kind}" + (f" with {parameters}" if parameters else "")

    def note(self) -> Note:
        """Return the row that the notebook keeps of it."""
        return Note(text=_ROW.dump_json(self).decode())


_ROW = TypeAdapter(Definition)


@dataclass(frozen=True, slots=True)
class Seen:
    """What one database has of a sequence.

    counter: None where it has none; an error where it has one that cannot be served. row: None where it has none; an
    error where the row is damaged. at: when the server began to read, by the clock of the sight.
    """

    counter: Counter | DatabaseError | None = None
    row: Definition | DatabaseError | None = None
    at: float = float("-inf")

    @property
    def definition(self) -> Definition | DatabaseError | None:
        """The definition that this database alone gives: an error if its row is damaged, None if it has nothing."""
        if self.row is None and isinstance(self.counter, Counter):
            return Definition(TICKET, name=self.counter.name)
        return self.row


def seen_of(key: str, counter: Counter | DatabaseError | None, note: Note | None, at: float) -> Seen:
    """Return what a database has of a sequence, from its counter and its row of DEFINITIONS. key: in lower case."""
    if note is None:
        return Seen(counter, None, at)
    try:
        row = _ROW.validate_json(note.text, strict=True)
        if row.name.lower() != key or not row.word or (row.kind, row.parameters) == (TICKET, {}):
            raise ValueError("not the row of this sequence")
    except ValueError:
        text = "the row that defines it is damaged: restore that row from another ticket database"
        return Seen(counter, SequenceUnusable(text), at)
    return Seen(counter, row, at)


def settle(views: Mapping[Key, Seen]) -> tuple[Definition | None, dict[Key, str]]:
    """Return the definition that stands, and why the sequence is not drawn from some databases.

    views: what each database has of it, in the order of their offsets. The definition of the first one stands. Where
    that row is damaged, none does. A row stands before a table made by hand that agrees with it, and is copied to the
    databases without one.
    """
    standing = next((seen.definition for seen in views.values() if seen.definition is not None), None)
    if isinstance(standing, DatabaseError):
        standing = None
    if standing is not None:
        rows = [seen.row for seen in views.values() if isinstance(seen.row, Definition)]
        standing = next((row for row in rows if standing.agrees(row)), standing)
    return standing, {key: why for key, seen in views.items() if (why := _reason(seen, standing)) is not None}


def _reason(seen: Seen, standing: Definition | None) -> str | None:
    """Why the sequence is not drawn from this database; None where it may be."""
    for each in (seen.row, seen.counter):
        if isinstance(each, DatabaseError):
            return str(each)
    here = seen.definition
    if not isinstance(here, Definition) or standing is None or standing.agrees(here):
        return None
    which = f"it is {here} here, and {standing} on a database of a lower offset, which counts"
    return f"{which}; give this one's tables and its definition another name"
