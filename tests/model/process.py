"""A process in the model: it stands still, is killed and started again, between any two iterations of its loop."""

import asyncio
import math
import random
from collections.abc import Coroutine, Sequence
from functools import partial
from typing import Any, Protocol

from tests.fakes.ticket_database import FakeServer, FakeTicketDatabase, client_of
from tests.fakes.virtual_time import VirtualClock, VirtualLoop

LARGEST_BLOCK = 10_000


class Surroundings(Protocol):
    """The part of the world that a process uses."""

    clock: VirtualClock
    chance: random.Random
    errors: list[BaseException]

    def latency(self, *, slow: bool) -> tuple[float, float]: ...

    def toss_a_coin(self, heads: float = 0.5) -> bool: ...

    def on_loop_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None: ...


class Process:
    """An event loop, the tasks in it, and its connections to the databases that it lists, in this order."""

    loop: VirtualLoop

    def __init__(self, name: str, surroundings: Surroundings) -> None:
        self.name = name
        self.slow: set[FakeServer] = set()
        self.stands_until = 0.0
        self.well_since = 0.0
        self.stopped = True
        self.clients: list[FakeTicketDatabase] = []
        self.tasks: set[asyncio.Task[None]] = set()
        self._surroundings = surroundings
        self._wakes_at = 0.0
        self._armed: tuple[int, float] | None = None
        self._suspended_at: float | None = None

    def begin(self, listed: Sequence[FakeServer], increment: int | None) -> None:
        """Start it. `increment`: as it is set, None where it is not: then the number of databases until it knows."""
        self.loop = VirtualLoop(self._surroundings.clock)
        self.loop.set_exception_handler(self._surroundings.on_loop_error)
        self.clients = [
            self.connect(server, offset, increment or len(listed)) for offset, server in enumerate(listed, start=1)
        ]
        self.tasks = set()
        self.stopped = False
        self.stands_until = 0.0
        self._armed = None
        self._suspended_at = None
        self.well_since = self._surroundings.clock.now

    def connect(self, server: FakeServer, offset: int, increment: int) -> FakeTicketDatabase:
        """Its side of a database."""
        return self._client(server, offset, increment)

    def _client(self, server: FakeServer, offset: int, increment: int, **more: Any) -> FakeTicketDatabase:
        surroundings = self._surroundings
        return client_of(
            server,
            offset=offset,
            increment=increment,
            user=self.name,
            largest_block=LARGEST_BLOCK,
            latency=lambda: surroundings.latency(slow=server in self.slow),
            **more,
        )

    def stop(self) -> None:
        """SIGKILL: whatever it has not sent stays unsent."""
        if self.stopped:
            return
        self.stopped = True
        self.well_since = math.inf
        self.loop.iterations_left = None
        for client in self.clients:
            client.closed = True
        self.loop.run_until_idle()  # what was about to begin finds everything closed
        for _ in range(3):
            for task in asyncio.all_tasks(self.loop):
                task.cancel()
            self.loop.run_until_idle()
        self.loop.close()

    def spawn(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        task = self.loop.create_task(work)
        self.tasks.add(task)
        task.add_done_callback(partial(self._done, self.loop))
        self._wakes_at = 0.0
        return task

    def _done(self, loop: VirtualLoop, task: "asyncio.Task[None]") -> None:
        if loop is self.loop:
            self.tasks.discard(task)
            if not task.cancelled() and (error := task.exception()) is not None and not self.stopped:
                self._surroundings.errors.append(error)

    # --- its time --------------------------------------------------------------------------------------------------

    @property
    def frozen(self) -> bool:
        return self._surroundings.clock.now < self.stands_until

    def freeze(self, seconds: float = math.inf) -> None:
        """SIGSTOP, between two iterations of its event loop."""
        self.stands_until = max(self.stands_until, self._surroundings.clock.now + seconds)
        self.well_since = math.inf

    def suspend(self, seconds: float) -> None:
        """Its virtual machine is suspended: its monotonic clock stands still, too."""
        if self._suspended_at is None:
            self._suspended_at = self._surroundings.clock.now
        self.freeze(seconds)

    def freeze_after(self, iterations: int, seconds: float) -> None:
        """The same in the midst of what it does: after so many iterations more."""
        if not self.stopped:
            self._armed = (iterations, seconds)
            self.loop.iterations_left = iterations

    def disarm(self) -> None:
        self._armed = None
        if not self.stopped:
            self.loop.iterations_left = None

    def thaw(self) -> None:
        self.stands_until = 0.0
        self._awake()

    def _awake(self) -> None:
        if self._suspended_at is not None and not self.stopped:
            self.loop.suspended += self._surroundings.clock.now - self._suspended_at
            self._suspended_at = None
        if self.well_since == math.inf and not self.stopped:
            self.well_since = self._surroundings.clock.now
            self._wakes_at = 0.0

    @property
    def has_received(self) -> bool:
        """Whether something has come that it can look at now."""
        return self.loop.has_received and not self.stopped and not self.frozen

    def look_again(self) -> None:
        """Something was done to it from outside."""
        self._wakes_at = 0.0

    def run(self) -> float:
        """Do what can be done now; returns when there is something to do again, if nothing comes from outside."""
        now = self._surroundings.clock.now
        if self.stopped:
            return math.inf
        if now < self.stands_until:
            return self.stands_until
        self._awake()
        if self._wakes_at <= now + 1e-9 or self.loop.has_received:
            self._wakes_at = self.loop.run_until_idle()
            if self._armed is not None and self.loop.iterations_left is not None and self.loop.iterations_left <= 0:
                seconds = self._armed[1]
                self.disarm()
                self._wakes_at = 0.0
                self.freeze(seconds)
                return self.stands_until
        return self._wakes_at
