"""What may stand beside a lane: the sequence's reserve, and the clock of sequences whose tickets hold the time."""

from typing import Protocol

from app.tickets.lanes.id_guard import IdGuard


class Shelf(Protocol):
    """What the reserve holds of a lane's tickets."""

    def passed(self, ticket: int) -> None:
        """The lane has handed out this ticket by itself, so smaller ones on the shelf must not follow."""

    def went_back(self) -> None:
        """The database may have gone back in this sequence, so what it gave before must not follow."""


class Stamps(Protocol):
    """The times in the tickets of a lane. Where this process's clock is wrong each method raises TicketDatabaseBusy."""

    def room(self, guard: IdGuard) -> int:
        """How many ids may be drawn now from the database that `guard` checks."""

    def least(self, guard: IdGuard, count: int) -> int:
        """The least tick that a draw of `count` ids may give now; 0 where the counter stands at it or above."""

    def check(self, last: int) -> None:
        """Raise TicketDatabaseBusy where the tick `last` that came back is further ahead than may be drawn now."""

    def begins_long_moment(self, highest: int) -> bool:
        """Whether the position has to be read before the next draw, `highest` being the largest tick known."""
