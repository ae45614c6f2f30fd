"""What a sequence was made as, and which definition stands where ticket databases hold different ones. No I/O.

A database keeps a row about each sequence that a server has made: its name, its kind, and the kind's parameters. Such a
row never changes. A sequence whose table was made by hand has no row; it is of kind `ticket`.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from app.databases.session import Counter, Note
from app.errors import DatabaseError, InvalidRequest
from app.kinds.table import KINDS
from app.kinds.timed import TimedKind

TICKET = "ticket"
"""The kind of plain numbers."""
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}")


def key_of(name: str) -> str:
    """Return a name as the notebook has it, in lower case. Raises InvalidRequest where it cannot name a sequence."""
    if _NAME.fullmatch(name) is None:
        raise InvalidRequest("a sequence's name is 1 to 64 letters, digits and underscores, a letter first")
    return name.lower()


@dataclass(frozen=True, slots=True)
class Definition:
    """The kind of a sequence, and all parameters of that kind: for `ticket` the `bits` and the `start`."""

    kind: str
    parameters: Mapping[str, int] = field(default_factory=dict)

    @property
    def start(self) -> int:
        """The first id that may be given."""
        return self.parameters.get("start", 1) if self.kind == TICKET else 1

    @property
    def is_known(self) -> bool:
        """Whether this release can serve it."""
        return self == PLAIN or (self.kind in KINDS and KINDS[self.kind].holds(self.parameters))

    @property
    def counter_bits(self) -> int | None:
        """The width of the counters that ids are drawn from, in bits; None for a kind whose ids are made in memory.

        A tick needs a counter of 64 bits, whatever the length of the ids.
        """
        if self.kind == TICKET:
            return self.parameters.get("bits", 64)
        kind = KINDS.get(self.kind)
        return 64 if isinstance(kind, TimedKind) and kind.part == "shard" else None

    def agrees(self, other: "Definition") -> bool:
        """Whether both make the same sequence. A `start` is not compared, nor is anything with a table made by hand."""
        if self.kind != other.kind or not (self.parameters and other.parameters):
            return self.kind == other.kind
        return {**self.parameters, "start": 1} == {**other.parameters, "start": 1}

    def __str__(self) -> str:
        parameters = ", ".join(f"{name} {value}" for name, value in sorted(self.parameters.items()))
        return f"kind {self.kind}" + (f" with {parameters}" if parameters else "")


PLAIN = Definition(TICKET)
"""The definition of a sequence whose table was made by hand: the table says how wide it is."""


class Row(NamedTuple):
    """A row of DEFINITIONS: the name as it was made, the definition, and a random word of the request that made it."""

    name: str
    definition: Definition
    word: str

    def note(self) -> Note:
        """The row as the notebook keeps it."""
        kind, parameters = self.definition.kind, dict(self.definition.parameters)
        told = {"name": self.name, "kind": kind, "parameters": parameters, "word": self.word}
        return Note(text=json.dumps(told, sort_keys=True, separators=(",", ":")))

    @classmethod
    def load(cls, key: str, note: Note) -> "Row":
        """Read the row of this name. Raises ValueError where it is damaged."""
        try:
            told = json.loads(note.text)
            name, kind, parameters, word = told["name"], told["kind"], told["parameters"], told["word"]
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            raise ValueError("not a definition") from error
        if not (isinstance(name, str) and name.lower() == key and isinstance(kind, str) and isinstance(word, str)):
            raise ValueError("not the definition of this sequence")
        if not isinstance(parameters, dict) or not all(type(value) is int for value in parameters.values()):
            raise ValueError("not the parameters of a definition")
        return cls(name, Definition(kind, parameters), word)


@dataclass(frozen=True, slots=True)
class Seen:
    """What one database has of a sequence.

    counter: None where it has none; an error where it has one that cannot be served. row: None where it has none, or
    where it is damaged. at: when the server began to read, by the clock of the sight.
    """

    counter: Counter | DatabaseError | None = None
    row: Row | None = None
    is_damaged: bool = False
    at: float = float("-inf")

    @property
    def definition(self) -> Definition | None:
        """What the sequence is by this database alone; None where the database does not say."""
        if self.row is not None:
            return self.row.definition
        return PLAIN if isinstance(self.counter, Counter) else None

    @property
    def is_empty(self) -> bool:
        """Whether the database knows nothing of the sequence."""
        return self.counter is None and self.row is None and not self.is_damaged


def seen_of(key: str, counter: Counter | DatabaseError | None, note: Note | None, at: float) -> Seen:
    """Return what a database has of a sequence, from its counter and its row of DEFINITIONS."""
    try:
        return Seen(counter, Row.load(key, note) if note is not None else None, at=at)
    except ValueError:
        return Seen(counter, is_damaged=True, at=at)


class Settled(NamedTuple):
    """What stands where several databases were asked.

    name: as it was made. definition: what the database of the lowest offset says; None where nobody can say, and the
    reason then says why. row: to be copied to databases without one; None where there is none. reasons: why the
    sequence is not drawn on some databases, by their offsets.
    """

    name: str
    definition: Definition | None
    row: Row | None
    reason: str
    reasons: Mapping[int, str]


def settle(key: str, views: Mapping[int, Seen]) -> Settled:
    """Return what stands of a sequence. views: what each database has of it, by offset.

    The definition of the database with the lowest offset stands. Where that row is damaged, none does.
    """
    known = {offset: seen for offset, seen in sorted(views.items()) if not seen.is_empty}
    deciding = next((seen for seen in known.values() if seen.definition is not None or seen.is_damaged), Seen())
    standing = None if deciding.is_damaged else deciding.definition
    agreeing = [
        seen.row
        for seen in known.values()
        if seen.row is not None and standing is not None and standing.agrees(seen.row.definition)
    ]
    row = agreeing[0] if agreeing else None
    standing = row.definition if row is not None else standing
    reasons = {offset: why for offset, seen in known.items() if (why := _reason(seen, standing)) is not None}
    names = [seen.counter.name for seen in known.values() if isinstance(seen.counter, Counter)]
    name = row.name if row is not None else names[0] if names else key
    reason = next((why for why in reasons.values()), "") if standing is None else ""
    return Settled(name, standing, row, reason, reasons)


def _reason(seen: Seen, standing: Definition | None) -> str | None:
    """Why the sequence is not drawn from this database; None where it may be."""
    if seen.is_damaged:
        return "the row that defines it is damaged: restore that row from another ticket database"
    if isinstance(seen.counter, DatabaseError):
        return str(seen.counter)
    here = seen.definition
    if here is None or standing is None or standing.agrees(here):
        return None
    return (
        f"it is {here} here, and {standing} on a database of a lower offset, which counts; give this one's tables and "
        "its definition another name"
    )
