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

    def least(self, highest: int, ids: int) -> int:
        """The least tick to draw now; 0 where the counter stands at it or above.

        `highest`: the largest that is known drawn; `ids`: how far beyond it the draw goes. Raises StampedAhead, and
        TicketDatabaseBusy where this process's clock is wrong.
        """
        try:
            now = self._clock.now_ms()
        except (ClockAhead, ClockUnknown) as error:
            raise TicketDatabaseBusy(str(error)) from error
        kind, parameters = self._kind, self._parameters
        if highest + ids > kind.tick_at(parameters, self._clock.latest_ms()) + self.ids_at_once:
            raise StampedAhead
        first = kind.tick_at(parameters, now)
        return first if first > highest else 0
