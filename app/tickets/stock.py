"""The ids that a lane has drawn and not issued yet, in the order in which they are issued."""

from collections import deque
from dataclasses import dataclass

from app.tickets.request import Block, Request, Shape


@dataclass(slots=True)
class _Range:
    """Ids of one draw: `count` of them from `first` on, and the moment at which they were drawn."""

    first: int
    count: int
    drawn: float


class Stock:
    """Ranges of ids in steps of the increment.

    step: the increment. Every id that is added is larger than those that are there.
    """

    def __init__(self, step: int) -> None:
        self.step = step
        self._ranges: deque[_Range] = deque()
        self._last_of_blocks = 0

    @property
    def size(self) -> int:
        """How many ids there are."""
        return sum([each.count for each in self._ranges])

    def __bool__(self) -> bool:
        return bool(self._ranges)

    def add(self, first: int, count: int, now: float) -> None:
        """Add the ids `first`, `first + step`, …, `count` of them, at least one."""
        self._ranges.append(_Range(first, count, now))

    def clear(self) -> None:
        """Drop everything."""
        self._ranges.clear()

    def drop_above(self, limit: int) -> int:
        """Drop every id that is larger; return how many these were."""
        before = self.size
        while self._ranges and self._last(self._ranges[-1]) > limit:
            last = self._ranges[-1]
            last.count = max(0, (limit - last.first) // self.step + 1)
            if last.count:
                break
            self._ranges.pop()
        return before - self.size

    def drop_older(self, moment: float) -> int:
        """Drop what was drawn before this moment; return how many ids these were."""
        dropped = 0
        while self._ranges and self._ranges[0].drawn < moment:
            dropped += self._ranges.popleft().count
        return dropped

    @property
    def first(self) -> int | None:
        """The smallest id; None where there is none."""
        return self._ranges[0].first if self._ranges else None

    def has(self, request: Request) -> bool:
        """Whether there are ids for this request, whatever the limit."""
        if request.is_block:
            return self._place_of_block(request.count) is not None
        return self.size >= request.count

    def serve(self, request: Request, limit: int) -> int | None:
        """Answer a request with ids at or below the limit, and return the last of them; None where that cannot be."""
        if request.shape is Shape.SINGLE:
            smallest = self._ranges[0] if self._ranges else None
            if smallest is None or smallest.first > limit:
                return None
            first = smallest.first
            smallest.first = first + self.step
            smallest.count -= 1
            if not smallest.count:
                self._ranges.popleft()
            request.finish(first)
            return first
        if request.shape is Shape.LIST:
            ids = self._take(request.count, limit)
            if ids is None:
                return None
            request.finish(ids)
            return ids[-1]
        beginning = self._take_block(request.count, limit)
        if beginning is None:
            return None
        request.finish(Block(beginning, self.step, request.count))
        return beginning + (request.count - 1) * self.step

    def _take(self, count: int, limit: int) -> list[int] | None:
        """Take the smallest ids, so many; None where there are not so many at or below the limit."""
        if not self._reaches(count, limit):
            return None
        taken: list[int] = []
        while count:
            smallest = self._ranges[0]
            used = min(smallest.count, count)
            beyond = smallest.first + used * self.step
            taken += range(smallest.first, beyond, self.step)
            smallest.first, smallest.count = beyond, smallest.count - used
            count -= used
            if not smallest.count:
                self._ranges.popleft()
        return taken

    def _take_block(self, count: int, limit: int) -> int | None:
        """Take so many ids of one range and return the first; None where no range has them at or below the limit.

        The ids before and behind them stay. Each block lies above the block before.
        """
        place = self._place_of_block(count)
        if place is None:
            return None
        found = self._ranges[place]
        first, last = found.first, found.first + (count - 1) * self.step
        if last > limit:
            return None
        self._last_of_blocks = last
        found.first, found.count = last + self.step, found.count - count
        if not found.count:
            del self._ranges[place]
        return first

    def _place_of_block(self, count: int) -> int | None:
        """The place of the first range that a block can be taken from."""
        for place, each in enumerate(self._ranges):
            if each.count >= count and each.first > self._last_of_blocks:
                return place
        return None

    def _last(self, each: _Range) -> int:
        return each.first + (each.count - 1) * self.step

    def _reaches(self, count: int, limit: int) -> bool:
        """Whether there are so many ids at or below the limit."""
        for each in self._ranges:
            if each.count >= count:
                return each.first + (count - 1) * self.step <= limit
            count -= each.count
        return False
