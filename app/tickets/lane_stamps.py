"""The times in the tickets of a lane: where a sequence's ids hold the time, its counter stands at it.

Such a counter's tickets are ticks: the time since the sequence's epoch, and below it a few bits that count. Before a
draw the counter is advanced to the present tick, so a draw stamps and counts at once. A ticket comes only once, so
the same time and count do, however many servers, databases and clocks there are.
"""

from collections.abc import Mapping

from app.common.errors import ClockAhead, ClockUnknown, TicketDatabaseBusy
from app.kinds.kind import TimedKind
from app.tickets.server_clock import ServerClock

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

    @property
    def ids_at_once(self) -> int:
        """How many ids there are between the present tick and the last that may be drawn now."""
        return (max(AHEAD_MS, self._kind.unit_ms) // self._kind.unit_ms) << self._kind.counter_bits

    def room(self, highest: int) -> int:
        """How many ids may be drawn now beyond `highest`, the largest that is known drawn. Raises TicketDatabaseBusy
        where this process's clock is wrong."""
        return self._last() - max(highest, self._first() - 1)

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

    def least(self, highest: int, ids: int) -> int:
        """The least tick to draw now; 0 where the counter stands at it or above.

        `ids`: how far the draw goes. Raises StampedAhead where that is beyond what there is room for, and as `room`
        does.
        """
        first = self._first()
        if max(highest, first - 1) + ids > self._last():
            raise StampedAhead
        return first if first > highest else 0

    def _first(self) -> int:
        """The first tick of now; of the epoch, where this process's clock is before it."""
        try:
            return max(self._kind.tick_at(self._parameters, self._clock.now_ms()), 0)
        except (ClockAhead, ClockUnknown) as error:
            raise TicketDatabaseBusy(str(error)) from error

    def _last(self) -> int:
        """The last tick that may be drawn now. Where this process's clock is behind, others have drawn later ones."""
        return self._kind.tick_at(self._parameters, self._clock.latest_ms()) + self.ids_at_once
