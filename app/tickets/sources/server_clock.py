"""The time in ids: this process's clock, compared with the clocks of the ticket databases.

A server whose clock is ahead would make ids that lie in the future, and move the databases' positions to times for
which every other server would have to wait. So it stamps nothing. A server whose clock is behind does no harm, because
a position never goes back.

The server reads the databases' clocks with every probe. Between probes it reckons them forward by the monotonic clock.
The monotonic clock stops while a virtual machine is suspended. Then this process's clock looks too far ahead, and the
server stamps nothing until the next probe. No promise rests on the reckoning; it only exposes a wrong clock.
"""

import time
from collections.abc import Callable

from app.common.errors import ClockAhead, ClockUnknown
from app.databases.protocol import ClockReading

AHEAD_SECONDS = 1.0
"""A server stamps nothing if its clock is ahead of every ticket database's clock by more than this."""
SHARP_SECONDS = 0.5
"""A reading that took longer is too vague, and does not count."""
FRESH_SECONDS = 10.0
"""Older readings do not count while a younger one exists, because their database may be gone for good."""


class ServerClock:
    """This process's clock. `wall`: seconds since 1970; `steady`: seconds that only rise."""

    def __init__(self, wall: Callable[[], float] = time.time, steady: Callable[[], float] = time.monotonic) -> None:
        self._wall = wall
        self._steady = steady
        self._readings: dict[str, tuple[float, float]] = {}
        """By database: its clock minus the steady clock, and when it was read, by the steady clock."""
        self._databases = float("-inf")
        """The latest of the databases' clocks minus the steady clock."""

    def note(self, database: str, reading: ClockReading) -> None:
        """Take the reading of a database's clock that came with a probe."""
        if reading.until - reading.since > SHARP_SECONDS:
            return
        self._readings[database] = reading.seconds - (reading.since + reading.until) / 2, reading.until
        fresh = [above for above, at in self._readings.values() if reading.until - at < FRESH_SECONDS]
        self._databases = max(fresh)

    def now_ms(self) -> int:
        """Milliseconds since 1970. Raises ClockAhead, and ClockUnknown before any database's clock was read."""
        wall, ahead = self._compare()
        if ahead > AHEAD_SECONDS:
            if not self._readings:
                raise ClockUnknown
            raise ClockAhead(f"this server's clock is {ahead:,.1f} s ahead of the ticket databases'")
        return int(wall * 1000)

    def wall_ms(self) -> int:
        """The time by this process's clock, right or wrong, in milliseconds since 1970."""
        return int(self._wall() * 1000)

    def latest_ms(self) -> int:
        """The time by the latest clock, this process's or a database's, in milliseconds since 1970."""
        wall, ahead = self._compare()
        return int(max(wall, wall - ahead) * 1000)

    @property
    def ahead(self) -> float:
        """How many seconds this process's clock is ahead of every database's clock. Below 0 if it is behind one of
        them; 0 before any was read."""
        return self._compare()[1] if self._readings else 0.0

    def _compare(self) -> tuple[float, float]:
        wall = self._wall()
        return wall, wall - self._steady() - self._databases
