"""How fast a sequence's tickets are used, and how many tickets its reserve needs at that rate."""

import math

LARGEST_RESERVE = 1_000_000
"""The most tickets in reserve of one sequence."""
REFILL_BELOW = 0.9
"""The share of its size below which a reserve is refilled."""
RAMP = 10
"""The largest reserve, in multiples of the tickets used since the rate began: two requests are no rate yet."""
LOOK_SECONDS = 0.1
"""How often the rate is worked out, while requests come, in seconds."""
RATE_SECONDS = 2.0
"""The seconds after which an earlier rate counts for a third."""


class Demand:
    """The rate at which a sequence's tickets are used, worked out now and then. `seconds`: TICKETS_RESERVE_SECONDS.

    Every time here is a time of the reserve's clock.

    Attributes:
        rate: tickets a second.
        size: how many tickets the reserve should hold.
        refill_below: with fewer tickets than this the reserve is refilled.
        look_at: when the rate is worked out next.
        by_lanes: how many tickets requests wanted from the lanes, because the reserve was empty.
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
        """How many seconds `tickets` last at the present rate; None if there is no rate."""
        rate = self.rate if now < self._looked_at + self._seconds else 0.0
        return tickets / rate if rate > 0 else None
