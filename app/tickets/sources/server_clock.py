"""The time that ids are stamped with: this process's clock, compared with those of the ticket databases.

A server whose clock is ahead would write times into the databases that every other server had to wait for, and ids that
lie in the future. So it stamps nothing. One whose clock is behind harms nobody: a position never goes back.

The databases' clocks are read with every probe. In between, and while no database can be asked, they are reckoned
forward by the monotonic clock. That one stops while a virtual machine is suspended: then this process's clock looks too
far ahead, and nothing is stamped until the next probe. No promise rests on the reckoning; it only keeps a wrong clock
from being believed.
"""

import time
from collections.abc import Callable

from app.common.errors import ClockAhead, ClockUnknown
from app.databases.protocol import ClockReading

AHEAD_SECONDS = 1.0
"""A server whose clock is further ahead of every ticket database's stamps nothing."""
SHARP_SECONDS = 0.5
"""A reading that took longer says too little, and is left out."""
FRESH_SECONDS = 10.0
"""While there is a reading that is younger, older ones do not count: their database may be gone for good."""


class ServerClock:
    """This process's clock. `wall`: seconds since 1970; `steady`: seconds that only rise."""

    def __init__(self, wall: Callable[[], float] = time.time, steady: Callable[[], float] = time.monotonic) -> None:
        self._wall = wall
        self._steady = steady
        self._readings: dict[str, tuple[float, float]] = {}
        """By database: how far its clock is above the steady one, and when it was read by the latter."""
        self._databases = float("-inf")
        """How far the latest of the databases' clocks is above the steady one."""

    def note(self, database: str, reading: ClockReading) -> None:
        """Take what a probe of this database has read."""
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
        """What this process's clock says, right or wrong, in milliseconds since 1970."""
        return int(self._wall() * 1000)

    def latest_ms(self) -> int:
        """What the latest clock says, of this process and of the databases, in milliseconds since 1970."""
        wall, ahead = self._compare()
        return int(max(wall, wall - ahead) * 1000)

    @property
    def ahead(self) -> float:
        """How many seconds this process's clock is ahead of every database's; below 0 where it is behind one, and 0
        before any was read."""
        return self._compare()[1] if self._readings else 0.0

    def _compare(self) -> tuple[float, float]:
        wall = self._wall()
        return wall, wall - self._steady() - self._databases
