"""The ids that a lane has drawn and not issued yet, in the order in which they are issued."""

from collections import deque
from dataclasses import dataclass

from app.tickets.request import Block, Request, Shape

SINGLE, LIST = Shape.SINGLE, Shape.LIST  # to look a member of an Enum up takes as long as to call a function


@dataclass(slots=True)
class _Range:
    """The ids of one draw that are left: from `first` on, below `end`. drawn: the moment of the draw."""

    first: int
    end: int
    drawn: float


class Stock:
    """Ranges of ids in steps of the increment.

    step: the increment. size: how many ids there are. last: the largest that was taken. Every id that is added is
    larger than those that are there.
    """

    def __init__(self, step: int) -> None:
        self.step = step
        self.size = self.last = 0
        self._ranges: deque[_Range] = deque()
        self._last_of_blocks = 0

    @property
    def first(self) -> int | None:
        """The smallest id; None where there is none."""
        return self._ranges[0].first if self._ranges else None

    def add(self, first: int, count: int, now: float) -> None:
        """Add the ids `first`, `first + step`, …, `count` of them, at least one. now: the moment of the draw."""
        self._ranges.append(_Range(first, first + count * self.step, now))
        self.size += count

    def clear(self) -> int:
        """Drop everything; return how many ids that were."""
        return self.drop_above(0)

    def drop_above(self, limit: int) -> int:
        """Drop every id that is larger; return how many these were."""
        before, ranges, step = self.size, self._ranges, self.step
        while ranges and ranges[-1].end - step > limit:
            last = ranges[-1]
            kept = max(0, (limit - last.first) // step + 1)
            self.size -= (last.end - last.first) // step - kept
            last.end = last.first + kept * step
            if kept:
                break
            ranges.pop()
        return before - self.size

    def drop_older(self, moment: float) -> int:
        """Drop what was drawn before this moment; return how many ids these were."""
        before, ranges = self.size, self._ranges
        while ranges and ranges[0].drawn < moment:
            oldest = ranges.popleft()
            self.size -= (oldest.end - oldest.first) // self.step
        return before - self.size

    def has(self, request: Request) -> bool:
        """Whether there are ids for this request, whatever the limit."""
        if not request.is_block:
            return self.size >= request.count
        newest = self._ranges[-1] if self._ranges else None
        if newest is None or newest.first <= self._last_of_blocks:
            return False
        return newest.first + request.count * self.step <= newest.end

    def take(self, request: Request, limit: int) -> int | list[int] | Block | None:
        """Take what a request wants, in ids at or below the limit; None where that cannot be.

        Singles and lists get the smallest ids. A block is the beginning of the newest range, since its ids have to
        follow each other, and lies above the block before.
        """
        shape = request.shape
        if shape is SINGLE:
            return self.pop(limit)
        if not self._ranges:
            return None
        return self._take_list(request.count, limit) if shape is LIST else self._take_block(request, limit)

    def pop(self, limit: int, since: float = float("-inf")) -> int | None:
        """Take the smallest id, if it is at or below the limit and was drawn since then."""
        ranges = self._ranges
        if not ranges:
            return None
        smallest = ranges[0]
        first = smallest.first
        if first > limit or smallest.drawn < since:
            return None
        smallest.first = beyond = first + self.step
        self.size -= 1
        if first > self.last:  # a block may have gone before  # noqa: PLR1730 - max() takes twice as long
            self.last = first
        if beyond == smallest.end:
            ranges.popleft()
        return first

    def _take_block(self, request: Request, limit: int) -> Block | None:
        newest, count, step = self._ranges[-1], request.count, self.step
        first, last = newest.first, newest.first + (count - 1) * step
        if not self.has(request) or last > limit:
            return None
        newest.first = last + step
        self.size -= count
        self.last = self._last_of_blocks = last
        if newest.first == newest.end:
            self._ranges.pop()
        return Block(first, step, count)

    def _take_list(self, count: int, limit: int) -> list[int] | None:
        ranges, step, ids = self._ranges, self.step, list[int]()
        for each in ranges:
            ids += range(each.first, min(each.end, each.first + (count - len(ids)) * step), step)
            if len(ids) == count:
                break
        if len(ids) < count or ids[-1] > limit:
            return None
        beyond = ids[-1] + step
        while ranges and ranges[0].end <= beyond:
            ranges.popleft()
        if ranges:
            ranges[0].first = max(ranges[0].first, beyond)
        self.size -= count
        self.last = max(self.last, ids[-1])
        return ids
