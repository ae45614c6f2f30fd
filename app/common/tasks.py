"""Background tasks of one owner. The event loop itself holds only weak references to tasks."""

import asyncio
from collections.abc import Coroutine


class Tasks:
    """The tasks that are running, oldest first."""

    def __init__(self) -> None:
        self._running: dict[asyncio.Task[None], None] = {}  # a set that keeps the order

    def spawn(self, work: Coroutine[None, None, None]) -> None:
        """Run this in a task."""
        task = asyncio.get_running_loop().create_task(work)
        self._running[task] = None
        task.add_done_callback(self._running.pop)

    async def wait(self, seconds: float | None = None) -> None:
        """Wait until the tasks that are running now have ended, or for this many seconds."""
        if self._running:
            await asyncio.wait(self._running, timeout=seconds)

    async def cancel(self) -> None:
        """Cancel the tasks that are running, and wait until they have ended."""
        for task in self._running:
            task.cancel()
        await self.wait()
