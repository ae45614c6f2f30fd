"""The times in a lane's tickets, for sequences whose ids hold the time.

Such a sequence's tickets are ticks: the time since the sequence's epoch, and a few lower bits that count. Before a draw
the lane advances the counter to the present tick, so one draw both stamps and counts. Each ticket comes only once. So
each pair of time and count comes only once, however many servers, databases and clocks there are.
"""

from collections.abc import Mapping

from app.common.errors import ClockAhead, ClockUnknown, TicketDatabaseBusy
from app.kinds.kind import TimedKind
from app.tickets.lanes.id_guard import IdGuard
from app.tickets.sources.server_clock import ServerClock

AHEAD_MS = 500
"""How far ahead of the clocks an id may be stamped, if requests want more ids than the counter has for the present.
Further requests wait. The unit of the kind's time counts if it is longer."""
MARK_MS = 1000
"""How far ahead of its tickets the lane's mark is kept. The counter stands that far ahead after its database has gone
back."""
LONG_MS = 1000
"""In a moment at least this long, another server may have stamped ids that this server has not heard of."""


class StampedAhead(TicketDatabaseBusy):
    """The database's counter stands too far ahead of the clock; the lane draws again when the time has come."""


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
        """How many ids one database can give together, at a moment in which nothing was drawn from it before. At least
        1; with a large increment, a request may have to wait even for one."""
        return max(1, (self._ticks_ahead + 1) // increment)

    def room(self, guard: IdGuard) -> int:
        """How many ids may be drawn now from the database whose ids `guard` checks. Raises TicketDatabaseBusy if this
        process's clock is wrong."""
        return guard.count_between(max(guard.highest, self._first() - 1), self._last())

    def check(self, last: int) -> None:
        """Raise StampedAhead if a drawn tick lies further ahead than may be drawn now. The draw is dropped.

        Then another server has advanced the counter since this server saw it, because the database had gone back.
        """
        if last > self._last():
            raise StampedAhead

    def begins_long_moment(self, highest: int) -> bool:
        """Whether the next draw is the first that this server knows of in a long moment.

        Then the lane has to read the counter's position first. A table that was truncated, and is advanced to the
        beginning of the moment, repeats the ids that other servers have stamped in it. Raises as `room` does.
        """
        return self._kind.unit_ms >= LONG_MS and self._first() > highest

    def least(self, guard: IdGuard, count: int) -> int:
        """The least tick to draw now; 0 if the counter is at that tick or above.

        `count`: how many ids the draw is for. Raises StampedAhead if there is no room for them, and as `room` does.
        """
        if self.room(guard) < count:
            raise StampedAhead
        first = self._first()
        return first if first > guard.highest else 0

    def _first(self) -> int:
        """The first tick of the present moment, or of the epoch if this process's clock is before it."""
        try:
            return max(self._kind.tick_at(self._parameters, self._clock.now_ms()), 0)
        except (ClockAhead, ClockUnknown) as error:
            raise TicketDatabaseBusy(str(error)) from error

    def _last(self) -> int:
        """The last tick that may be drawn now, by the latest clock: if this process's clock is behind, other servers
        have drawn later ticks."""
        return self._kind.tick_at(self._parameters, self._clock.latest_ms()) + self._ticks_ahead

    @property
    def _ticks_ahead(self) -> int:
        """How far the last tick that may be drawn now is ahead of the first one of the present moment."""
        return (max(AHEAD_MS, self._kind.unit_ms) // self._kind.unit_ms) << self._kind.counter_bits
