"""Shares the event loop between all connections, so that no input holds up the others.

The event loop serves everybody: HTTP, health checks, the ticket databases. All connections together get a few
milliseconds of one turn of the loop. A connection with more to do stands in a queue, and the loop sees to everything
else before the next one in the queue goes on.
"""

import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Protocol

TURN_SECONDS = 0.005
"""What all workers together take of one turn of the event loop. One worker's last step may exceed it."""
SLICE_SECONDS = 0.001
"""What one worker takes before the next in the queue goes on."""


class Worker(Protocol):
    """A connection, or anything else whose work clients decide about."""

    def work(self, until: float) -> bool:
        """Work until this time, by the clock of `Turns`, or until there is nothing more to do for now. Returns whether
        there is more. Raises nothing."""


class Turns:
    """One queue of workers for all connections of a server.

    Args:
        call_soon: The event loop's.
        clock: Seconds. The time that has passed is what counts, whatever it was spent on.
    """

    def __init__(
        self,
        call_soon: Callable[[Callable[[], None]], object],
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.clock = clock
        self._call_soon = call_soon
        self._queue: OrderedDict[Worker, None] = OrderedDict()
        self._has_begun = False
        self._is_working = False
        self._end = 0.0

    def __repr__(self) -> str:
        return f"<Turns, {len(self._queue)} waiting>"

    def take(self, worker: Worker) -> bool:
        """Have a worker work now, if the turn has time left and no other worker waits. Returns False if the worker has
        to wait; its `work` is called later then."""
        now = self.clock()
        if not self._has_begun:
            self._begin(now)
        if self._queue or self._is_working or now >= self._end:
            self._queue[worker] = None
            return False
        self._work(worker, now)
        return True

    def _begin(self, now: float) -> None:
        self._has_begun = True
        self._end = now + TURN_SECONDS
        self._call_soon(self._next)

    def _next(self) -> None:
        """The event loop's next turn has come."""
        queue = self._queue
        if not queue:
            self._has_begun = False
            return
        now = self.clock()
        self._begin(now)
        while queue and now < self._end:
            self._work(queue.popitem(last=False)[0], now)
            now = self.clock()

    def _work(self, worker: Worker, now: float) -> None:
        self._is_working = True
        try:
            if worker.work(min(now + SLICE_SECONDS, self._end)):
                self._queue[worker] = None
        finally:
            self._is_working = False
