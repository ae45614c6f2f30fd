"""How long all client connections together may work in one turn of the event loop.

A turn in which they worked for longer would make everybody wait: each connection that is accepted, each answer of a
database, each /livez takes a few turns. So a connection that has more to do than there is time for stands in line.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable

SECONDS = 0.005
"""How long the connections work in one turn."""


class Turns:
    """The time of each turn of the event loop, and the line of those that wait for a later one.

    A connection asks `time_left` before it works, looks at `clock` after each small piece of its work, and calls
    `stand_in_line` where its time is over and its work is not. A request that is served by a coroutine awaits `wait`
    before it begins, and `wait_for_another` between the parts of an answer that is long.

    `clock`: seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self.clock = clock
        self._until: float | None = None
        """When the time of this turn is over; None before anybody has worked in it."""
        self._line: deque[Callable[[], None]] = deque()
        self._coroutines: deque[asyncio.Future[None]] = deque()

    def time_left(self) -> float:
        """By the clock, until when the connection that asks may work now. 0 where it has to stand in line."""
        now = self.clock()
        until = self._until
        if until is None:
            until = self._begin(now)
        if now >= until:
            return 0.0
        # where others wait, each gets a small share: a greedy connection would make the last in line wait for all
        return min(until, now + SECONDS / len(self._line)) if self._line else until

    def stand_in_line(self, go_on: Callable[[], None]) -> None:
        """Call `go_on` in a later turn, when it is this connection's. It may have to stand in line again."""
        self._line.append(go_on)
        self._begin_unless_begun()

    async def wait(self) -> None:
        """Return when a coroutine may work: at once while there is time in this turn, and no other coroutine waits."""
        if self._coroutines or not self.time_left():
            await self.wait_for_another()

    async def wait_for_another(self) -> None:
        """Return in a later turn, when it is this coroutine's."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._coroutines.append(future)
        self._begin_unless_begun()
        await future

    def _begin(self, now: float) -> float:
        self._until = until = now + SECONDS
        asyncio.get_running_loop().call_soon(self._next)
        return until

    def _next(self) -> None:
        """Another turn: work off the line, while there is time."""
        self._until = None
        line, coroutines = self._line, self._coroutines
        while line and self.time_left():
            line.popleft()()
        while coroutines:
            # one alone: it works only after this, so nobody knows yet how long
            future = coroutines.popleft()
            if not future.done():
                future.set_result(None)
                self._begin_unless_begun()
                break

    def _begin_unless_begun(self) -> None:
        if self._until is None:
            self._begin(self.clock())
