"""Log an event that a stranger can cause at once, then at most one line a minute, so that no stranger fills the log."""

import asyncio
from collections.abc import Callable

SUM_SECONDS = 60.0
"""How often the events since the last line are summed up in one."""


class SummedLog:
    """Calls `tell` at the first event, and at most once in SUM_SECONDS after that, where there were further ones."""

    def __init__(self, tell: Callable[[], None]) -> None:
        self._tell = tell
        self._is_due = False
        self._timer: asyncio.TimerHandle | None = None

    def add(self) -> None:
        """An event has happened. To be called in an event loop."""
        self._is_due = True
        if self._timer is None:
            self._sum_up()

    def _sum_up(self) -> None:
        self._timer = None
        if self._is_due:
            self._is_due = False
            self._timer = asyncio.get_running_loop().call_later(SUM_SECONDS, self._sum_up)
            self._tell()
