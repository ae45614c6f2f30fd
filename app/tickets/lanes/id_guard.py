"""The check on ids: the rules that every id must keep before it is handed out. Decisions only, no I/O.

An `IdGuard` belongs to one sequence on one database, and so to one lane, which has one statement under way at a time.
An id that breaks a rule is dropped. The rule decides whether the lane or its database stops drawing.
"""

from app.common.errors import ColumnExhausted, SequenceWentBack, TicketDatabaseMisconfigured, TicketDatabaseUnavailable
from app.databases.protocol import Draw


class WrongResidue(TicketDatabaseMisconfigured):
    """The database gave an id that belongs to another database's offset."""


class IdGuard:
    """Checks the draws of one sequence on one database against its offset, the ids known issued, and its ceiling."""

    __slots__ = ("_increment", "_residue", "ceiling", "highest", "last_allowed")

    def __init__(self, offset: int, increment: int) -> None:
        self._increment = increment
        self._residue = offset % increment
        self.highest = 0
        """The floor: the largest id that was received, or that any server is known to have issued. 0 before the
        first."""
        self.ceiling = 0
        self.last_allowed = 0

    def set_ceiling(self, ceiling: int, last: int) -> None:
        """Where the sequence ends, and the last id that its table gives there."""
        self.ceiling, self.last_allowed = ceiling, last

    def advance(self, floor: int) -> None:
        """Let no id at or below `floor` pass from now on."""
        self.highest = max(self.highest, floor)

    def next_after(self, number: int) -> int:
        """The smallest id of this database's residue that is larger than `number`."""
        return number + 1 + (self._residue - number - 1) % self._increment

    def count_between(self, above: int, last: int) -> int:
        """How many ids of this database's residue are larger than `above` and not larger than `last`."""
        return max(0, (last - self.next_after(above)) // self._increment + 1)

    def headroom(self) -> int:
        """How many ids are left for this database."""
        return self.count_between(self.highest, self.last_allowed)

    def check(self, draw: Draw, highest_when_sent: int) -> None:
        """Return if every id of the draw may be handed out. `highest_when_sent`: the floor when the statement was sent.

        Raises TicketDatabaseUnavailable if nothing was drawn (zero), WrongResidue if the ids are not of this database's
        offset, SequenceWentBack if they are not above the floor, and ColumnExhausted if they are beyond the last
        id that its table gives. The message has both ids.
        """
        first, last = draw.first, draw.last
        if first <= 0:
            raise TicketDatabaseUnavailable("answered a draw without an id")
        if first % self._increment != self._residue or draw.step % self._increment:
            residue = first % self._increment
            raise WrongResidue(f"gave id {first}: {residue} modulo {self._increment}, not {self._residue}")
        if first <= highest_when_sent:
            raise SequenceWentBack(f"gave id {first} after {highest_when_sent} had been issued")
        if last > self.last_allowed:
            raise ColumnExhausted(f"gave ids up to {last}; the last one that may be issued is {self.last_allowed}")
