"""Shares the event loop between all connections, so that no input holds up the others.

The event loop serves everybody: HTTP, health checks, the ticket databases. All connections together get a few
milliseconds, and no more in one turn of the loop. When they are over, a connection with more to do stands in line. The
loop sees to everything else before the next one in line goes on, with new time.
"""

import asyncio
import math
import time
from collections.abc import Callable
from typing import Any, Protocol
from weakref import WeakSet

TURN_SECONDS = 0.005
"""What all workers together take of one turn of the event loop. The last step of one worker, and one coroutine, may
exceed it."""

WINDOW_SECONDS = TURN_SECONDS / 2
"""The time that they take before one of them waits. The ends of two windows may fall into one turn."""

SLICE_SECONDS = 0.001
"""The longest time for which one worker runs before the next in line."""


class Worker(Protocol):
    """A connection, or anything else whose work clients decide about."""

    def work(self, until: float) -> bool:
        """Work until this time, by the clock of `Turns`, or until there is nothing more to do for now. Returns whether
        there is more. Raises nothing."""


class ClientGone(BaseException):
    """No client waits any more for the answer that a coroutine makes. No `except Exception` may answer it."""


class Turns:
    """The time that connections have, and the lines of those that wait for a later turn of the event loop.

    A connection calls `take` when it has something to do. A request that a coroutine serves awaits `wait` before it
    begins, and `wait_for_another` between the parts of an answer that is long.

    Args:
        clock: Seconds. The time that has passed is what counts, whatever it was spent on.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self.clock = clock
        self._end = -math.inf
        """When the present window is over. Turns of the loop in which nobody waits share a window, because each call of
        `_next` costs the loop another turn."""
        self._is_due = False
        """Whether `_next` is to be called in the next turn. Then no other window begins before that."""
        self._is_working = False
        self._newcomers: dict[Worker, None] = {}
        """Workers that have not begun with what they have to do. They do not wait for all of `_line`."""
        self._line: dict[Worker, None] = {}
        """Workers that have begun, and have more to do."""
        self._coroutines: dict[asyncio.Task[Any] | None, asyncio.Future[None]] = {}
        self._given_up: WeakSet[asyncio.Task[Any]] = WeakSet()

    def take(self, worker: Worker) -> bool:
        """Have a worker work now, if there is time left. Returns False if the worker has to wait; its `work` is called
        in a later turn then."""
        newcomers, line = self._newcomers, self._line
        someone_waits = newcomers or line
        if someone_waits and (worker in newcomers or worker in line):
            return False
        now = self.clock()
        if self._is_working or (now >= self._end and not self._begin(now)):
            newcomers[worker] = None
            self._go_on_soon()
            return False
        if someone_waits:
            self._work(worker, now, self._end)
            return True
        # the same as `_work`, for every request comes by here
        self._is_working = True
        try:
            if worker.work(now + SLICE_SECONDS):
                line[worker] = None
                self._go_on_soon()
        finally:
            self._is_working = False
        return True

    def take_later(self, worker: Worker) -> None:
        """Have a worker work in a later turn."""
        if worker not in self._line and worker not in self._newcomers:
            self._newcomers[worker] = None
            self._go_on_soon()

    async def wait(self) -> None:
        """Return when a coroutine may work: at once while there is time left, and no other coroutine waits. Raises
        ClientGone after `give_up`."""
        if self._coroutines or ((now := self.clock()) >= self._end and not self._begin(now)):
            await self.wait_for_another()

    async def wait_for_another(self) -> None:
        """Return in a later turn, when it is this coroutine's. Raises ClientGone after `give_up`."""
        task = asyncio.current_task()
        if task in self._given_up:
            raise ClientGone
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._coroutines[task] = future
        self._go_on_soon()
        await future

    def give_up(self, task: asyncio.Task[Any]) -> None:
        """Raise ClientGone where this task waits for its turn, because the client no longer waits for its answer."""
        self._given_up.add(task)
        future = self._coroutines.pop(task, None)
        if future is not None and not future.done():
            future.set_exception(ClientGone())

    def _begin(self, now: float) -> bool:
        """Begin another window in the middle of a turn, one at the most. Returns False if `_next` is due, which begins
        the next one."""
        if self._is_due:
            return False
        self._end = now + WINDOW_SECONDS
        self._go_on_soon()
        return True

    def _go_on_soon(self) -> None:
        if not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._next)

    def _next(self) -> None:
        """The event loop's next turn has come."""
        self._is_due = False
        first, second, coroutines = self._newcomers, self._line, self._coroutines
        now = self.clock()
        self._end = end = now + WINDOW_SECONDS
        if first or second or coroutines:
            self._go_on_soon()  # also where none is left: this turn has had its window
        while (first or second) and now < end:
            workers = first or second
            worker = next(iter(workers))
            del workers[worker]
            self._work(worker, now, end)
            now = self.clock()
            first, second = second, first  # neither line waits for the end of the other
        while coroutines:
            task = next(iter(coroutines))
            future = coroutines.pop(task)
            if not future.done():
                future.set_result(None)
                break  # the coroutine goes on after this, so the time that it takes is unknown

    def _work(self, worker: Worker, now: float, end: float) -> None:
        # where many wait, each gets a small share: greedy workers would make the last in line wait for all
        waiting = len(self._line) + len(self._newcomers)
        share = SLICE_SECONDS if waiting * SLICE_SECONDS <= WINDOW_SECONDS else WINDOW_SECONDS / waiting
        self._is_working = True
        try:
            if worker.work(min(end, now + share)):
                self._line[worker] = None
                self._go_on_soon()
        finally:
            self._is_working = False
