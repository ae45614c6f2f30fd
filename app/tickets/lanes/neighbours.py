"""The neighbours of a lane: the sequence's reserve, and the clock of sequences whose tickets hold the time."""

from typing import Protocol

from app.tickets.lanes.id_guard import IdGuard


class Shelf(Protocol):
    """The lane's tickets in reserve."""

    def passed(self, ticket: int) -> None:
        """Drop smaller tickets: the lane hands out this ticket by itself, or a list that ends with it."""

    def went_back(self) -> None:
        """Drop all tickets: the database may have gone back in this sequence."""


class Stamps(Protocol):
    """The times in a lane's tickets. Each method raises TicketDatabaseBusy if this process's clock is wrong."""

    def room(self, guard: IdGuard) -> int:
        """How many ids may be drawn now from the database whose ids `guard` checks."""

    def least(self, guard: IdGuard, count: int) -> int:
        """The least tick that a draw of `count` ids may give now; 0 if the counter is at that tick or above."""

    def check(self, last: int) -> None:
        """Raise TicketDatabaseBusy if the drawn tick `last` is further ahead than may be drawn now."""

    def begins_long_moment(self, highest: int) -> bool:
        """Whether the lane has to read the position before the next draw. `highest`: the largest tick known."""
