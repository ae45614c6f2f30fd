"""Waits for others that count only the time in which this process ran.

A process that is stopped, swapped out or starved learns nothing about those it waits for, although its clock goes on:
their answers may lie in its sockets. `patience` is `asyncio.timeout` in slices. A slice that ends late does not count,
since the process stood still during it, and one more slice lets what has arrived be read first.
"""

import asyncio
from types import TracebackType

SLICES = 8
LATE = 0.5
"""A slice that ends later than this, in slices, does not count."""
STALLS = 64
"""Slices that may be late before they count all the same: a process that never runs in time must not wait for ever."""


class patience:
    """`async with patience(seconds):` raises TimeoutError after so many seconds in which this process ran."""

    def __init__(self, seconds: float) -> None:
        self._slice = max(seconds, 0.0) / SLICES
        self._left = SLICES
        self._stalls = STALLS
        self._timeout = asyncio.timeout(None)
        self._timer: asyncio.TimerHandle | None = None

    async def __aenter__(self) -> None:
        await self._timeout.__aenter__()
        self._next()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()
        await self._timeout.__aexit__(kind, error, traceback)

    def _next(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._slice, self._passed, loop, loop.time() + self._slice)

    def _passed(self, loop: asyncio.AbstractEventLoop, due: float) -> None:
        if loop.time() - due > LATE * self._slice and self._stalls:
            self._stalls -= 1
        else:
            self._left -= 1
        if self._left > 0:
            self._next()
        else:
            self._timer = None
            self._timeout.reschedule(loop.time())
