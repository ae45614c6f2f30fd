"""Times and counters that only rise, for the random kinds that keep an order."""

from collections.abc import Callable

from app.common.errors import SequenceExhausted

TIME_BITS = 48
"""Of a UUID's and a ULID's milliseconds: they end in the year 10889."""


class Increasing:
    """Pairs of a time in ms and a counter, each above the one before, whatever the clock does.

    A new millisecond begins with a new seed. Within one, and while the clock has gone back, the counter goes on by 1.
    Where it is full, the next millisecond begins early.
    """

    __slots__ = ("_counter", "_limit", "_ms", "_seed")

    def __init__(self, counter_bits: int, seed: Callable[[], int]) -> None:
        self._limit = 1 << counter_bits
        self._seed = seed
        self._ms = -1
        self._counter = 0

    def take(self, count: int, now_ms: int) -> list[tuple[int, int]]:
        """The next `count` pairs. SequenceExhausted: the time has no further millisecond."""
        taken = []
        for _ in range(count):
            if now_ms > self._ms:
                self._ms, self._counter = now_ms, self._seed()
            elif self._counter + 1 < self._limit:
                self._counter += 1
            else:
                self._ms, self._counter = self._ms + 1, self._seed()
            if self._ms >> TIME_BITS:
                raise SequenceExhausted("a time of 48 bits has come to its end")
            taken.append((self._ms, self._counter))
        return taken
