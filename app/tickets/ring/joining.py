"""What is done with a database that answers where a ring is recorded: the table that decides it. No I/O.

The ring is that of `record`, which some database or this server itself remembers. `agreement` asks each database for
what the table needs, and does what the table says.
"""

from collections.abc import Mapping, Set
from dataclasses import dataclass
from enum import StrEnum, auto
from typing import NamedTuple, TypeVar

from app.databases.protocol import RingRecord, RingState
from app.tickets.ring.record import UNKNOWN, contradiction_of_marks

K = TypeVar("K")


class Found(StrEnum):
    """The ring record that a database itself has."""

    THIS_RING = auto()
    EARLIER_RING = auto()
    """A ring of another increment, or this ring before the database's offset belonged to it."""
    BEGUN = auto()
    """An earlier ring that was begun, and never finished, before its first draw."""
    ANOTHER_PLACE = auto()
    """Any ring, at another offset than the one at which the database is listed."""
    NOTHING = auto()


class Marks(StrEnum):
    """The marks about databases that a database without a record keeps."""

    NONE = auto()
    CONTRADICT = auto()
    """They are of another increment, or about the database's own offset."""
    AGREE = auto()
    """They agree, in a ring that has had one increment and that the database's offset belongs to."""
    ARE_OLD = auto()
    """They agree, but they may be from before the ring grew."""


class Joins(StrEnum):
    """How a database joins the ring."""

    AS_IT_IS = auto()
    RAISED = auto()
    """Its sequences are raised above everything that is known first."""
    ALL_RAISED = auto()
    """The sequences of every database are: it holds tickets that may have any residue."""
    REFUSED = auto()


class Verdict(NamedTuple):
    """How a database joins; `reason`: why it is refused."""

    joins: Joins
    reason: str = ""

    @property
    def is_raised(self) -> bool:
        return self.joins in (Joins.RAISED, Joins.ALL_RAISED)


@dataclass(frozen=True, slots=True)
class Comer:
    """A database that answers: its name, the offset at which it is listed, and what it holds.

    `own`: the offset that its record names. `contradiction`: what is wrong with its marks, in words. `holds`: whether
    it holds tickets; where it is recorded in another place, tickets or marks.
    """

    name: str
    offset: int
    found: Found
    own: int = 0
    marks: Marks = Marks.NONE
    contradiction: str = ""
    holds: bool = False


def found_in(found: RingRecord | None, offset: int, record: RingRecord) -> Found:
    """What a database that is listed at this offset records."""
    if found is None:
        return Found.NOTHING
    if found.own != offset:
        return Found.ANOTHER_PLACE
    if found.since == record.since and offset in record.offsets:
        return Found.THIS_RING
    return Found.BEGUN if found.state is RingState.FORMING else Found.EARLIER_RING


def marks_of(kept: Set[tuple[int, int]], offset: int, record: RingRecord) -> tuple[Marks, str]:
    """What the marks of a database without a record say, and what is wrong with them. `kept`: offset and increment of
    each."""
    current = {(about, increment) for about, increment in kept if increment == record.increment}
    relevant = current if current and record.since > 1 else kept  # else they are from before the ring grew
    if reason := contradiction_of_marks(relevant, record.increment, offset, 0):
        return Marks.CONTRADICT, reason
    if not kept:
        return Marks.NONE, ""
    return (Marks.AGREE if record.since == 1 and offset in record.offsets else Marks.ARE_OLD), ""


def join(comer: Comer, *, all_answer: bool, recorded: bool) -> Verdict:
    """What is done with this database. `all_answer`: whether every listed database does. `recorded`: whether any
    database that can be asked records a ring; else only this server remembers it."""
    reason = ""
    match comer.found, comer.marks, comer.holds:
        case (Found.THIS_RING, _, _) | (Found.NOTHING, Marks.AGREE, _):
            joins = Joins.AS_IT_IS
        case (Found.EARLIER_RING, _, _) | (Found.NOTHING, Marks.ARE_OLD, _):
            joins = Joins.RAISED
        case Found.BEGUN, _, holds:
            joins = Joins.ALL_RAISED if holds else Joins.RAISED
        case Found.ANOTHER_PLACE, _, False if all_answer:
            joins = Joins.RAISED
        case Found.ANOTHER_PLACE, _, False:  # a database that cannot be asked may have drawn its ids
            joins = Joins.REFUSED
            reason = (
                f"is recorded at offset {comer.own}, holds no ticket, and is listed at {comer.offset}: it takes "
                "another place only where every database answers"
            )
        case Found.ANOTHER_PLACE, _, True:
            joins = Joins.REFUSED
            reason = (
                f"was drawn at offset {comer.own}, and TICKETS_DATABASES lists it at {comer.offset}: put the URLs "
                "back in the order that they had"
            )
        case Found.NOTHING, Marks.NONE, holds if recorded or all_answer:
            joins = Joins.ALL_RAISED if holds else Joins.RAISED
        case Found.NOTHING, Marks.NONE, _:
            joins, reason = Joins.REFUSED, UNKNOWN
        case _:
            joins, reason = Joins.REFUSED, comer.contradiction
    return Verdict(joins, reason)


def join_all(comers: Mapping[K, Comer], *, all_answer: bool, recorded: bool) -> dict[K, Verdict]:
    """What is done with each of these databases, see `join`; `comers` without the databases whose body may not be used.

    Beside a database that was drawn in another place, one that would be raised and is in no place of its own is
    refused: it might draw, from the beginning, the ids of that database.
    """
    verdicts = {key: join(comer, all_answer=all_answer, recorded=recorded) for key, comer in comers.items()}
    misplaced = " and ".join(c.name for c in comers.values() if c.found is Found.ANOTHER_PLACE and c.holds)
    if misplaced:
        reason = f"holds no ticket, and its place is in doubt while {misplaced} had another one"
        for key, comer in comers.items():
            if verdicts[key].is_raised and comer.found in (Found.NOTHING, Found.ANOTHER_PLACE):
                verdicts[key] = Verdict(Joins.REFUSED, reason)
    return verdicts
