"""Clocks that are wrong: what a server's wall clock says when the true time is known."""

from collections.abc import Callable

from tests.fakes.ticket_database import TRUE_TIME

RIGHT_SECONDS = 0.25
"""A clock that is no further from the truth is right."""
DRIFTS = (-20_000.0, -1_000.0, -100.0, 100.0, 1_000.0, 20_000.0)
"""Parts per million."""
JUMPS = (0.003, 0.05, 0.4, 0.9, 1.3, 5.0, 60.0, 3_600.0, 86_400.0, 31_536_000.0)


class Wall:
    """A server's clock in seconds since 1970. It may be set and it may drift; `jumps`: how often it was set."""

    def __init__(self, now: Callable[[], float], off: float) -> None:
        self._now = now
        self._off = off
        self._set_at = now()
        self._drift = 0.0
        self.jumps = 0

    def __call__(self) -> float:
        return TRUE_TIME + self._now() + self.off

    @property
    def off(self) -> float:
        """Seconds that it is ahead of the true time."""
        return self._off + self._drift * (self._now() - self._set_at)

    @property
    def right(self) -> bool:
        return abs(self.off) <= RIGHT_SECONDS

    def set(self, off: float) -> None:
        """It is so far ahead from now on, and drifts no more."""
        self._off, self._set_at, self._drift = off, self._now(), 0.0
        self.jumps += 1

    def drift(self, ppm: float) -> None:
        """It goes on at another rate."""
        self._off, self._set_at, self._drift = self.off, self._now(), ppm / 1e6
