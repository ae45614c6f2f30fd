"""Event loops in virtual time: where every task waits for a timer, the clock jumps to it.

`@virtual_time` runs one asynchronous test so. `VirtualLoop` by itself is for several loops on one clock: each of them
runs until it is idle, and whoever holds them decides when the clock moves on, and which of them stands still.
"""

import asyncio
import functools
import math
import selectors
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

BEGINNING = 1_000.0
"""What every virtual clock says first."""


class VirtualClock:
    """Seconds that pass when somebody says so."""

    def __init__(self) -> None:
        self.now = BEGINNING

    def __call__(self) -> float:
        return self.now


class _IdleSelector(selectors.SelectSelector):
    """Looks at no file; tells the loop that owns it how long nothing is to be done."""

    def __init__(self) -> None:
        super().__init__()
        self.on_idle: Callable[[float], None] = lambda _: None

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None or timeout > 0:
            self.on_idle(math.inf if timeout is None else timeout)
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop on a virtual clock that never waits."""

    def __init__(self, clock: VirtualClock | None = None) -> None:
        selector = _IdleSelector()
        self.clock = clock or VirtualClock()
        self._wakes_at = math.inf
        super().__init__(selector)
        self._jumps = True
        selector.on_idle = self._on_idle

    def time(self) -> float:
        return self.clock.now

    def _on_idle(self, seconds: float) -> None:
        if not self._jumps:
            self._wakes_at = self.clock.now + seconds
            self.stop()
        elif seconds == math.inf:
            raise RuntimeError("every task waits for something that will never happen")
        else:
            self.clock.now += seconds

    def run_until_idle(self) -> float:
        """Do all that can be done without the clock moving; returns when the next timer is due."""
        self._jumps = False
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
