"""The time in ids: this server's wall clock, held against the clocks of the ticket databases.

A server whose clock is ahead would make ids of the future, and would move counters to times for which all other servers
had to wait. So it stamps nothing. A server whose clock is behind does no harm, because a counter never goes back.

Each look reads a database's clock. Between looks the server reckons that clock forward by its own steady clock. No id
comes twice by a wrong reckoning; the comparison only finds a clock that is ahead.
"""

import time
from collections.abc import Callable

from app.errors import ClockAhead

MOST_AHEAD = 1.0
"""Seconds. A server stamps nothing if its clock is further ahead of the clock of every ticket database."""
SHARP = 0.5
"""Seconds. A reading that took longer does not count: it is too vague when the database read its clock."""
FRESH = 10.0
"""Seconds after which a reading no longer counts beside a newer one: its database may be gone for good."""


class ServerClock:
    """Compares the clocks. steady: seconds by a clock that counts suspension. wall: seconds since 1970."""

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

    def earliest_ms(self) -> int:
        """Return the time by this server's clock or by the latest clock of the databases, whichever is behind."""
        return self.wall_ms() - int(max(0.0, self.ahead) * 1000)

    @property
    def ahead(self) -> float:
        """How many seconds this server's clock is ahead of every database's clock; below 0 if it is behind one of them.

        0 before any clock was read.
        """
        return 0.0 if self._latest is None else self._wall() - self._steady() - self._latest
