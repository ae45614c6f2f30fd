"""What a decision about the ring rests on, and what it says: the words of `agreement`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, StrEnum
from functools import lru_cache
from typing import NamedTuple

from app.databases.record import Record
from app.databases.session import RingRow
from app.errors import DatabaseRefused
from app.tickets.heartbeats import Server
from app.tickets.sight import Member


@dataclass(frozen=True, slots=True)
class Entry:
    """What the last look at one entry of the list of ticket databases found.

    Attributes:
        offset, name: of the entry.
        row: the ring row; None where the database did not answer.
        life: the life in which it answered.
        failure: why it did not answer.
        refused: whether it did not because it is not what it should be.
        used: whether this server has it in sight in this life.
        in_sight_for: for how many seconds it has been in sight in this life.
        unchanged_for: for how many seconds this server has seen the ring row as it is.
    """

    offset: int
    name: str
    row: RingRow | None = None
    life: str = ""
    failure: str = "no look has ended yet"
    refused: bool = False
    used: bool = False
    in_sight_for: float = 0.0
    unchanged_for: float = 0.0

    @property
    def body(self) -> str:
        """The word of the data that it holds, empty where it did not answer."""
        return self.row.body if self.row is not None else ""


@dataclass(frozen=True, slots=True)
class Situation:
    """All that a decision rests on.

    Attributes:
        entries: the whole list, in the order of offsets.
        increment: TICKETS_INCREMENT, None where it is unset.
        me: this server's name, and the word of its process.
        word: a random word, for a new record.
        servers: the other live servers.
        seen: the highest record that this server has seen since its start.
        number: the largest number of any record that it has seen.
        grow_quiet: for how many seconds no `ticketd grow` has shown itself; 0 where this is one.
    """

    entries: Sequence[Entry]
    increment: int | None
    me: tuple[str, str]
    word: str
    servers: Sequence[Server] = ()
    seen: Record | None = None
    number: int = 0
    grow_quiet: float = 0.0


def entry_of(member: Member, now: float) -> Entry:
    """Return what a decision needs to know of a member."""
    life, row = member.found, member.row
    return Entry(
        member.offset,
        member.name,
        row,
        life,
        str(member.error),
        isinstance(member.error, DatabaseRefused),
        used=row is not None and member.life == life,
        in_sight_for=now - member.steady[1] if life and member.steady[0] == life else 0.0,
        unchanged_for=now - member.row_since if row is not None else 0.0,
    )


class Standing(Enum):
    """How an entry of the list stands to the ring."""

    IN = "in"
    LAGS = "lags"
    """It stays in the ring, and lacks the highest record."""
    UNFINISHED = "unfinished"
    """The ring has begun to take its body in, and the body has no record of that yet."""
    NEW = "new"
    """Its body may be taken in: as a replacement, or at a free offset."""
    WAITS = "waits"
    """There is no ring yet."""
    QUARANTINED = "quarantined"
    DOWN = "down"


class Verdict(NamedTuple):
    """How an entry stands, and why; the reason is empty where it is in."""

    standing: Standing
    reason: str = ""


class Kind(StrEnum):
    """What a write is for."""

    FORM = "form the ring"
    DRAW = "finish the forming"
    BRING_UP = "bring a database up to the ring's record"
    TAKE_IN = "begin to take bodies in"
    FINISH = "finish to take a body in"
    TAKE_BACK = "take back what `ticketd grow` left"


@dataclass(frozen=True, slots=True)
class Step:
    """One write: this record on the database of this offset. level: the offsets to make level first, none if empty."""

    kind: Kind
    offset: int
    record: Record
    level: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Agreement:
    """A decision.

    Attributes:
        record: the record to go by; None where this server may not draw at all.
        verdicts: how each entry stands, by its offset.
        step: the write that comes next, None where there is none.
        seen, number: for the next situation.
    """

    record: Record | None
    verdicts: Mapping[int, Verdict]
    step: Step | None
    seen: Record | None
    number: int


@lru_cache(maxsize=256)
def read_record(stamp: str, text: str) -> Record | None:
    """Return the record of a ring row, None where it has none. Raises ValueError where the record is damaged."""
    if not stamp and not text:
        return None
    record = Record.load(text)
    offsets = list(record.offsets)
    is_sound = offsets == sorted(set(offsets)) and record.number > 0 and record.increment > 0
    if record.stamp != stamp or not is_sound:
        raise ValueError("not a ring record")
    return record
