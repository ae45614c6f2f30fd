"""How fast the tickets of a sequence are used, and how many are to lie in reserve at that rate."""

import math

LARGEST_RESERVE = 1_000_000
"""Tickets in reserve of one sequence, at the most."""
REFILL_BELOW = 0.9
"""The share of its size below which a reserve is refilled."""
RAMP = 10
"""How many times what has been used since the rate began anew may lie in reserve: two requests are no rate yet."""
LOOK_SECONDS = 0.1
"""How often the rate is worked out, while there are requests."""
RATE_SECONDS = 2.0
"""The time in which a rate that is past counts for a third."""


class Demand:
    """The rate at which a sequence's tickets are used, worked out now and then. `seconds`: TICKETS_RESERVE_SECONDS.

    `rate`: tickets a second. `size`: how many are to lie in reserve; below `refill_below` it is refilled. `look_at`:
    when the rate is to be worked out again; every time here is the reserve's clock's. `by_lanes`: how many tickets
    lanes were asked for by requests, since there was nothing in reserve; the reserve counts them here.
    """

    def __init__(self, seconds: float) -> None:
        self.rate = 0.0
        self.size = 0
        self.refill_below = 0
        self.look_at = -math.inf
        self.by_lanes = 0
        self._seconds = seconds
        self._look_every = min(LOOK_SECONDS, seconds / 4)
        self._looked_at = -math.inf
        self._used_before = 0
        self._used_since = 0

    def __repr__(self) -> str:
        return f"<Demand of {self.rate:.1f} tickets a second: {self.size} in reserve>"

    def look(self, now: float, from_reserve: int) -> None:
        """Work out the rate and the size. `from_reserve`: how many tickets the reserve has handed out so far."""
        elapsed = now - self._looked_at
        used_so_far = self.by_lanes + from_reserve
        used, self._used_before = used_so_far - self._used_before, used_so_far
        self._looked_at, self.look_at = now, now + self._look_every
        if elapsed >= self._seconds:
            self.rate, self._used_since = 0.0, 0
        else:
            present = used / elapsed
            weight = 1.0 if self.rate == 0 else 1 - math.exp(-elapsed / RATE_SECONDS)
            self.rate += weight * (present - self.rate)
            self._used_since += used
        self.size = min(int(self.rate * self._seconds), RAMP * self._used_since, LARGEST_RESERVE)
        self.refill_below = math.ceil(REFILL_BELOW * self.size)

    def lasts(self, tickets: int, now: float) -> float | None:
        """For how many seconds so many tickets last at the present rate; None where there is none."""
        rate = self.rate if now < self._looked_at + self._seconds else 0.0
        return tickets / rate if rate > 0 else None
