"""The times in the tickets of a lane: where a sequence's ids hold the time, its counter stands at it.

Such a counter's tickets are ticks: the time since the sequence's epoch, and below it a few bits that count. Before a
draw the counter is advanced to the present tick, so a draw stamps and counts at once. A ticket comes only once, so
the same time and count do, however many servers, databases and clocks there are.
"""

from collections.abc import Mapping

from app.common.errors import ClockAhead, ClockUnknown, TicketDatabaseBusy
from app.kinds.kind import TimedKind
from app.tickets.lanes.id_guard import IdGuard
from app.tickets.sources.server_clock import ServerClock

AHEAD_MS = 500
"""How far ahead of the clocks an id may be stamped, where more are drawn than the counter has for the time: beyond,
requests wait. It is at least the unit of the kind's time."""
MARK_MS = 1000
"""How far ahead of its tickets the lane's mark is kept. As far ahead it stands after its database has gone back."""
LONG_MS = 1000
"""A moment that is longer than others may have stamped in it before this server has heard of any of it."""


class StampedAhead(TicketDatabaseBusy):
    """The database's counter stands too far ahead of the clock; it is drawn from again when the time has come."""


class LaneStamps:
    """Stamps the draws of a lane."""

    def __init__(self, kind: TimedKind, parameters: Mapping[str, int], clock: ServerClock) -> None:
        self._kind = kind
        self._parameters = parameters
        self._clock = clock

    @property
    def ids_ahead(self) -> int:
        """How many ids ahead of the last one the lane's mark is kept."""
        return (max(MARK_MS, self._kind.unit_ms) // self._kind.unit_ms) << self._kind.counter_bits

    def most_at_once(self, increment: int) -> int:
        """How many ids one database can give together, at a moment in which nothing has been drawn from it before; at
        least 1, for which a request may have to wait where the increment is large."""
        return max(1, (self._ticks_ahead + 1) // increment)

    def room(self, guard: IdGuard) -> int:
        """How many ids may be drawn now from the database that `guard` checks. Raises TicketDatabaseBusy where this
        process's clock is wrong."""
        return guard.count_between(max(guard.highest, self._first() - 1), self._last())

    def check(self, last: int) -> None:
        """Raise StampedAhead where a tick that has come back lies further ahead than may be drawn now.

        Another server has advanced the counter since this one saw it: after the database had gone back, by a second or
        more. What was drawn there is dropped.
        """
        if last > self._last():
            raise StampedAhead

    def begins_long_moment(self, highest: int) -> bool:
        """Whether the next draw is the first that this server knows of in a moment that is long.

        Then the counter's position has to be read first: advanced to the beginning of the moment, a table that was
        truncated gives what others have stamped in it. Raises TicketDatabaseBusy as `room` does.
        """
        return self._kind.unit_ms >= LONG_MS and self._first() > highest

    def least(self, guard: IdGuard, count: int) -> int:
        """The least tick to draw now; 0 where the counter stands at it or above.

        `count`: how many ids the draw is for. Raises StampedAhead where there is no room for them, and as `room` does.
        """
        if self.room(guard) < count:
            raise StampedAhead
        first = self._first()
        return first if first > guard.highest else 0

    def _first(self) -> int:
        """The first tick of now; of the epoch, where this process's clock is before it."""
        try:
            return max(self._kind.tick_at(self._parameters, self._clock.now_ms()), 0)
        except (ClockAhead, ClockUnknown) as error:
            raise TicketDatabaseBusy(str(error)) from error

    def _last(self) -> int:
        """The last tick that may be drawn now. Where this process's clock is behind, others have drawn later ones."""
        return self._kind.tick_at(self._parameters, self._clock.latest_ms()) + self._ticks_ahead

    @property
    def _ticks_ahead(self) -> int:
        """How far the last tick that may be drawn now is ahead of the first one of the present moment."""
        return (max(AHEAD_MS, self._kind.unit_ms) // self._kind.unit_ms) << self._kind.counter_bits
