"""The time in ids: this server's clock, held against those of the ticket databases, and lanes whose numbers are ticks.

A server whose clock is ahead would make ids of the future, and would move counters to times for which all other servers
had to wait. So it stamps nothing. A server whose clock is behind does no harm, because a counter never goes back.

The ids of `instagram` and `instagram32` are made of ticks that lanes draw. A tick is the time since the epoch with some
lower bits that count. Before a draw the database raises the counter to the present tick, so one draw stamps and counts.
No tick comes twice, so no pair of a time and a count does, however many servers, databases and clocks there are.
"""

import time
from collections.abc import Callable

from app.databases.session import most_ids
from app.errors import ClockAhead, InvalidRequest, SequenceError
from app.kinds.kind import Parameters
from app.kinds.timed import TimedKind
from app.tickets.request import Request
from app.tickets.sight import Sight
from app.tickets.source import shard_of

MOST_AHEAD = 1.0
"""Seconds. A server stamps nothing if its clock is further ahead of the clock of every ticket database."""
SHARP = 0.5
"""Seconds. A reading that took longer does not count: it is too vague when the database read its clock."""
FRESH = 10.0  # seconds after which a reading no longer counts beside a newer one: its database may be gone for good
STEP_MS, SMALLEST_MS = 2_000, 1_000
"""How far ahead of the highest tick a limit is set: while a lane is used, and after an advance."""
AHEAD_MS = 500  # how far ahead of the clocks a tick may be drawn; one unit of the kind's time, if that is longer
WORTH_WAITING_MS = 1_000
"""A request waits in the lane for a counter that is so far ahead, or less. Otherwise another database is asked."""


class ServerClock:
    """Compares the clocks. steady: seconds by a clock that counts suspension. wall: seconds since 1970.

    Each look reads a database's clock. Between looks the server reckons that clock forward by its own steady clock. No
    id comes twice by a wrong reckoning; the comparison only finds a clock that is ahead.
    """

    def __init__(self, steady: Callable[[], float], wall: Callable[[], float] = time.time) -> None:
        self._steady, self._wall = steady, wall
        self._readings: dict[str, tuple[float, float]] = {}
        self._latest: float | None = None

    def noted(self, name: str, now: float, began: float, ended: float) -> None:
        """Take up what a look read.

        name: of the database. now: its clock, in seconds since 1970. began, ended: when the look began and ended, by
        the steady clock.
        """
        if ended - began <= SHARP:
            self._readings[name] = now - (began + ended) / 2, ended
            self._latest = max(above for above, at in self._readings.values() if ended - at < FRESH)

    def now_ms(self) -> int:
        """Return the time for ids, in milliseconds since 1970. Raises ClockAhead."""
        if self._latest is None:
            raise ClockAhead("no ticket database's clock has been read yet")
        if self.ahead > MOST_AHEAD:
            raise ClockAhead(f"this server's clock is {self.ahead:,.1f} s ahead of the ticket databases': set it right")
        return self.wall_ms()

    def wall_ms(self) -> int:
        """Return the time by this server's clock, right or wrong, in milliseconds since 1970."""
        return int(self._wall() * 1000)

    def latest_ms(self) -> int:
        """Return the time by the latest clock, this server's or a database's."""
        return self.wall_ms() + int(max(0.0, -self.ahead) * 1000)

    @property
    def ahead(self) -> float:
        """How many seconds this server's clock is ahead of every database's clock; below 0 if it is behind one of them.

        0 before any clock was read.
        """
        return 0.0 if self._latest is None else self._wall() - self._steady() - self._latest


class Stamps:
    """The pace of one sequence of ticks, see `step.Pace`. clock, sight: of this server."""

    def __init__(self, kind: TimedKind, parameters: Parameters, clock: ServerClock, sight: Sight) -> None:
        self.kind, self.parameters, self.clock, self._sight = kind, parameters, clock, sight

    def accept(self, request: Request) -> None:
        """See Pace.accept. The answer becomes ids of the shard that the request names."""
        shard = shard_of(self.kind, self.parameters, request)
        self.clock.now_ms()
        if (record := self._sight.record) is not None:
            step = record.increment
            most = min(self._most_ahead(step) // step, most_ids(step))
            if request.count > most:
                raise InvalidRequest(f"{request.sequence} gives at most {most} ids at once: count is {request.count}")

        encode = self.kind.encode
        request.encode = lambda drawn: (
            [encode(tick, shard) for tick in drawn] if isinstance(drawn, list) else encode(drawn, shard)
        )

    def step(self, rate: float, left: int, increment: int) -> int:
        """See Pace.step. The time that is left does not matter, because the lane stops at the last tick."""
        return self._ticks(STEP_MS if rate else SMALLEST_MS)

    def above(self) -> int:
        """See Pace.above. Raises ClockAhead."""
        return max(self.kind.tick_at(self.parameters, self.clock.now_ms()) - 1, 0)

    def room(self, highest: int, increment: int) -> int:
        """See Pace.room. Raises SequenceError if the counter is so far ahead that waiting for it takes too long.

        If this server's clock is behind, other servers have drawn later ticks. So the latest clock decides.
        """
        now = self.clock.latest_ms()
        last = self.kind.tick_at(self.parameters, now) + self._most_ahead(increment)
        ahead = self.kind.time_of(self.parameters, highest) - now
        if ahead > max(AHEAD_MS, self.kind.unit_ms) + WORTH_WAITING_MS:
            raise SequenceError(
                f"its counter is {ahead / 1000:,.1f} s ahead of the clocks, and is drawn from after that"
            )
        return max(0, last - highest) // increment

    def _ticks(self, ms: int) -> int:
        return max(ms // self.kind.unit_ms, 1) << self.kind.counter_bits

    def _most_ahead(self, increment: int) -> int:
        """How many ticks may be drawn ahead of the first tick of this moment. One id at least has room."""
        return max(self._ticks(AHEAD_MS), increment)
