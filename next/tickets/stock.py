"""The ids that a lane has drawn and not issued yet, in the order in which they are issued."""

from collections import deque

from next.tickets.request import Block, Request, Shape


class Stock:
    """Ranges of ids in steps of the increment, each with the moment at which it was drawn.

    step: the increment. Every id that is added is larger than those that are there.
    """

    def __init__(self, step: int) -> None:
        self.step = step
        self.size = 0
        """How many ids there are."""
        self._ranges: deque[tuple[int, int, float]] = deque()
        self._last_of_blocks = 0

    def add(self, first: int, count: int, now: float) -> None:
        """Add the ids `first`, `first + step`, …, `count` of them."""
        self._ranges.append((first, count, now))
        self.size += count

    def clear(self) -> None:
        """Drop everything."""
        self._ranges.clear()
        self.size = 0

    def drop_above(self, limit: int) -> None:
        """Drop every id that is larger."""
        while self._ranges:
            first, count, drawn = self._ranges[-1]
            kept = max(0, min(count, (limit - first) // self.step + 1))
            self.size -= count - kept
            self._ranges.pop()
            if kept:
                self._ranges.append((first, kept, drawn))
                return

    def drop_older(self, moment: float) -> None:
        """Drop what was drawn before this moment."""
        while self._ranges and self._ranges[0][2] < moment:
            self.size -= self._ranges.popleft()[1]

    @property
    def first(self) -> int | None:
        """The smallest id; None where there is none."""
        return self._ranges[0][0] if self._ranges else None

    def has(self, request: Request) -> bool:
        """Whether there are ids for this request, whatever the limit."""
        if request.is_block:
            return any(there >= request.count and first > self._last_of_blocks for first, there, _ in self._ranges)
        return self.size >= request.count

    def serve(self, request: Request, limit: int) -> int | None:
        """Answer a request with ids at or below the limit, and return the last of them; None where that cannot be."""
        answer: int | list[int] | Block
        if request.shape is Shape.SINGLE:
            one = self.take_one(limit)
            if one is None:
                return None
            answer = last = one
        elif request.shape is Shape.LIST:
            ids = self.take(request.count, limit)
            if ids is None:
                return None
            answer, last = ids, ids[-1]
        else:
            first = self.take_block(request.count, limit)
            if first is None:
                return None
            answer, last = Block(first, self.step, request.count), first + (request.count - 1) * self.step
        request.finish(answer)
        return last

    def take_one(self, limit: int) -> int | None:
        """Take the smallest id; None where there is none at or below the limit."""
        if not self._ranges:
            return None
        first, count, drawn = self._ranges[0]
        if first > limit:
            return None
        self.size -= 1
        if count == 1:
            self._ranges.popleft()
        else:
            self._ranges[0] = first + self.step, count - 1, drawn
        return first

    def take(self, count: int, limit: int) -> list[int] | None:
        """Take the smallest ids, so many; None where there are not so many at or below the limit."""
        if count > self.size or self._last_of(count) > limit:
            return None
        taken: list[int] = []
        while len(taken) < count:
            first, there, drawn = self._ranges.popleft()
            used = min(there, count - len(taken))
            taken += range(first, first + used * self.step, self.step)
            if used < there:
                self._ranges.appendleft((first + used * self.step, there - used, drawn))
        self.size -= count
        return taken

    def take_block(self, count: int, limit: int) -> int | None:
        """Take so many ids of one range and return the first; None where no range has them at or below the limit.

        The ids before and behind them stay. Each block lies above the block before.
        """
        for place, (first, there, drawn) in enumerate(self._ranges):
            if there >= count and first > self._last_of_blocks:
                last = first + (count - 1) * self.step
                if last > limit:
                    return None
                self._last_of_blocks = last
                del self._ranges[place]
                if there > count:
                    self._ranges.insert(place, (first + count * self.step, there - count, drawn))
                self.size -= count
                return first
        return None

    def _last_of(self, count: int) -> int:
        """The id that is the last of the smallest `count`."""
        for first, there, _ in self._ranges:
            if there >= count:
                return first + (count - 1) * self.step
            count -= there
        raise ValueError("the stock has fewer ids")
