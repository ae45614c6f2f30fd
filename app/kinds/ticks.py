"""Ticks counted in memory, for the kinds whose ids this process makes by itself."""


class Ticks:
    """A tick is a time and a counter in one number: time * 2^counter_bits + counter. None comes twice or goes down.

    The counter runs over into the time: the 4,097th id of a millisecond is the next millisecond's first. How far that
    may run ahead of the clock is the caller's to judge, by `last`.
    """

    __slots__ = ("last",)

    def __init__(self) -> None:
        self.last = -1
        """The largest tick given; -1 before the first."""

    def next_moment(self, counter_bits: int) -> int:
        """The first tick of the moment after that of the last one given."""
        return (self.last >> counter_bits) + 1 << counter_bits

    def take(self, count: int, first: int) -> range:
        """The next `count` ticks: consecutive, above all before them, and none below `first`."""
        start = max(first, self.last + 1)
        self.last = start + count - 1
        return range(start, start + count)
