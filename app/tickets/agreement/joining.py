"""How a database that answers joins the ring that is recorded: the table that decides it. No I/O.

The ring is that of `record`, which some database records, or this server remembers. `ring_records` asks each database
for what the table needs, and does what the table says.
"""

from collections.abc import Mapping, Set
from enum import StrEnum, auto
from typing import NamedTuple, TypeVar

from app.databases.protocol import RingRecord, RingState
from app.tickets.agreement.record import UNKNOWN, contradiction_of_marks

K = TypeVar("K")


class Found(StrEnum):
    """The relation of a database to the ring, by its ring record or, without a record, by the marks that it keeps."""

    THIS_RING = auto()
    EARLIER_RING = auto()
    """A record of another increment, or of this ring before the database's offset belonged to it."""
    BEGUN = auto()
    """A record of an earlier ring that was never finished."""
    ANOTHER_PLACE = auto()
    """A record of any ring at another offset than the one at which the database is listed."""
    MARKS = auto()
    """Marks of this ring, which has had one increment and knows the database's offset."""
    OLD_MARKS = auto()
    """Marks that may be from before the ring grew."""
    WRONG_MARKS = auto()
    """Marks of another increment, or about the database's own offset."""
    NOTHING = auto()


class Joins(StrEnum):
    """How a database joins the ring."""

    AS_IT_IS = auto()
    RAISED = auto()
    """Its sequences are raised above everything that is known first."""
    ALL_RAISED = auto()
    """The sequences of every database are, because it holds tickets that may have any residue."""


class Comer(NamedTuple):
    """A database that answers: its name, the offset at which it is listed, and what it says about the ring.

    `holds`: whether it holds tickets, or, recorded in another place, tickets or marks. Asked only where JOINS needs it.
    `own`: the offset that it records. `wrong`: what is wrong with its marks, in words.
    """

    name: str
    offset: int
    found: Found
    holds: bool = False
    own: int = 0
    wrong: str = ""


JOINS = {
    # found:              it holds nothing, it holds tickets
    Found.THIS_RING: (Joins.AS_IT_IS, Joins.AS_IT_IS),
    Found.EARLIER_RING: (Joins.RAISED, Joins.RAISED),
    Found.BEGUN: (Joins.RAISED, Joins.ALL_RAISED),
    Found.ANOTHER_PLACE: (Joins.RAISED, None),
    Found.MARKS: (Joins.AS_IT_IS, Joins.AS_IT_IS),
    Found.OLD_MARKS: (Joins.RAISED, Joins.RAISED),
    Found.WRONG_MARKS: (None, None),
    Found.NOTHING: (Joins.RAISED, Joins.ALL_RAISED),
}
"""How each database joins; None where it is refused. `refusals` has the reasons, and more of them."""


def found_by_record(found: RingRecord, offset: int, record: RingRecord) -> Found:
    """The relation to the ring of a database at this offset, by its record `found`."""
    if found.own != offset:
        return Found.ANOTHER_PLACE
    if found.since == record.since and offset in record.offsets:
        return Found.THIS_RING
    return Found.BEGUN if found.state is RingState.FORMING else Found.EARLIER_RING


def found_by_marks(kept: Set[tuple[int, int]], offset: int, record: RingRecord) -> tuple[Found, str]:
    """The finding from the marks that a database keeps, given by offset and increment, and what is wrong with them."""
    current = {mark for mark in kept if mark[1] == record.increment}
    relevant = current if current and record.since > 1 else kept  # the others are from before the ring grew
    if wrong := contradiction_of_marks(relevant, record.increment, offset, 0):
        return Found.WRONG_MARKS, wrong
    if not kept:
        return Found.NOTHING, ""
    return (Found.MARKS if record.since == 1 and offset in record.offsets else Found.OLD_MARKS), ""


def refusals(comers: Mapping[K, Comer], *, all_answer: bool, recorded: bool) -> dict[K, str]:
    """Which of these databases may not join, each with the reason.

    `all_answer`: whether every listed database does. `recorded`: whether any database that can be asked records a ring;
    else only this server remembers it.
    """
    refused: dict[K, str] = {}
    misplaced = " and ".join(c.name for c in comers.values() if c.found is Found.ANOTHER_PLACE and c.holds)
    for key, comer in comers.items():
        if comer.found is Found.WRONG_MARKS:
            refused[key] = comer.wrong
        elif comer.found is Found.ANOTHER_PLACE and comer.holds:
            refused[key] = (
                f"was drawn at offset {comer.own}, and TICKETS_DATABASES lists it at {comer.offset}: put the URLs "
                "back in the order that they had"
            )
        elif comer.found is Found.ANOTHER_PLACE and not all_answer:  # a database that is away may have drawn its ids
            refused[key] = (
                f"is recorded at offset {comer.own}, holds no ticket, and is listed at {comer.offset}: it takes "
                "another place only where every database answers"
            )
        elif comer.found is Found.NOTHING and not recorded and not all_answer:
            refused[key] = UNKNOWN
        elif misplaced and comer.found in (Found.ANOTHER_PLACE, Found.OLD_MARKS, Found.NOTHING):
            # it might draw, from the beginning, the ids of a database that was drawn in its place
            refused[key] = f"holds no ticket, and its place is in doubt while {misplaced} had another one"
    return refused
