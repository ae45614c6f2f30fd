"""Event loops in virtual time: where every task waits for a timer, the clock jumps to it.

`@virtual_time` runs one asynchronous test so. `VirtualLoop` by itself is for several loops on one clock: each of them
runs until it is idle, and whoever holds them decides when the clock moves on, and which of them stands still.

What happens outside every loop (a packet arrives at a server) is an event of the clock's own: it happens at its time,
whether a loop stands still or not. What such an event sends to a loop lies there until the loop looks, as in a socket:
an iteration of the loop takes what has come first, then the timers that are due.
"""

import asyncio
import functools
import heapq
import itertools
import math
import selectors
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

BEGINNING = 1_000.0
"""The time at which every virtual clock begins."""


class VirtualClock:
    """Seconds that pass when somebody says so, and what happens at which of them."""

    def __init__(self) -> None:
        self.now = BEGINNING
        self._events: list[tuple[float, int, Callable[[], object]]] = []
        self._numbers = itertools.count()

    def __call__(self) -> float:
        return self.now

    def at(self, when: float, event: Callable[[], object]) -> None:
        """Have this happen then, whatever loops stand still."""
        heapq.heappush(self._events, (when, next(self._numbers), event))

    @property
    def next_event(self) -> float:
        return self._events[0][0] if self._events else math.inf

    def run_due(self) -> None:
        """Let everything happen whose time has come."""
        while self._events and self._events[0][0] <= self.now:
            heapq.heappop(self._events)[2]()


class _IdleSelector(selectors.SelectSelector):
    """Looks at no file; tells the loop that owns it how long nothing is to be done."""

    def __init__(self) -> None:
        super().__init__()
        self.on_select: Callable[[float], None] = lambda _: None

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self.on_select(math.inf if timeout is None else timeout)
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop on a virtual clock that never waits.

    `iterations_left`: after so many further iterations it stops, wherever its tasks are; None: it does not.
    `suspended`: seconds for which its own clock has stood still, as a virtual machine's does while it is suspended.
    """

    def __init__(self, clock: VirtualClock | None = None) -> None:
        selector = _IdleSelector()
        self.clock = clock or VirtualClock()
        self.iterations_left: int | None = None
        self.suspended = 0.0
        self._received: list[Callable[[], object]] = []
        self._wakes_at = math.inf
        super().__init__(selector)
        self._jumps = True
        selector.on_select = self._on_select

    def time(self) -> float:
        return self.clock.now - self.suspended

    def receive(self, callback: Callable[[], object]) -> None:
        """Something has come from outside; the loop sees it when it looks the next time, if it lives still."""
        if not self.is_closed():
            self._received.append(callback)

    @property
    def has_received(self) -> bool:
        """Whether something lies there that the loop has not seen."""
        return bool(self._received)

    def _on_select(self, seconds: float) -> None:
        self.clock.run_due()
        if seconds > 0 and not self._received:
            self._on_idle(seconds)
        elif self.iterations_left is not None:
            self.iterations_left -= 1
            if self.iterations_left <= 0:
                self.stop()

    def _on_idle(self, seconds: float) -> None:
        if not self._jumps:
            self._wakes_at = self.clock.now + seconds
            self.stop()
            return
        wakes_at = min(self.clock.now + seconds, self.clock.next_event)
        if wakes_at == math.inf:
            raise RuntimeError("every task waits for something that will never happen")
        self.clock.now = wakes_at
        self.clock.run_due()

    def _process_events(self, event_list: Iterable[object]) -> None:
        """Before the timers that are due, which the base class sees to after this."""
        received, self._received = self._received, []
        for callback in received:
            self.call_soon(callback)

    def run_until_idle(self) -> float:
        """Do all that can be done without the clock moving, or so many iterations as are left.

        Returns when the next timer is due.
        """
        self._jumps = False
        self._wakes_at = self.clock.now
        try:
            self.run_forever()
        finally:
            self._jumps = True
        return self._wakes_at


def run(scenario: Coroutine[Any, Any, T]) -> T:
    """Run `scenario` to its end on a virtual loop of its own."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(scenario)


def virtual_time(test: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, T]:
    """An asynchronous test in virtual time; a wait that nothing can end is an error."""

    @functools.wraps(test)
    def in_virtual_time(*args: P.args, **kwargs: P.kwargs) -> T:
        return run(test(*args, **kwargs))

    return in_virtual_time


async def settled(*futures: Awaitable[Any]) -> None:
    """Let everything happen that needs no time to pass."""
    for _ in range(50):
        await asyncio.sleep(0)
