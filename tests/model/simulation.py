"""An asyncio event loop on virtual time, and the processes that run in it.

All the ticket servers of a schedule run in one real process and one loop. A context variable names the simulated
process that a callback belongs to: the task that waits decides, not the code that wakes it. So a process can be frozen
at any await: its callbacks are kept until it thaws, while everything else goes on. `looptime` has one clock for
everybody and polls real sockets, so it does not serve here.

A seed replays its schedule exactly. Time moves only when no callback is ready, and tasks have a hash of their own, so
that neither the addresses of objects nor the hash seed decide an order.
"""

import asyncio
import contextvars
import heapq
import itertools
import math
import random
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

BEGINNING = 1_700_000_000.0
"""The wall clock when a schedule begins, in seconds since 1970."""

STALLS = ((0.001, 40), (0.01, 25), (0.3, 12), (1.0, 12), (4.0, 8), (12.0, 3))
"""How long a process stands still, in seconds, with a weight for each."""

_process: contextvars.ContextVar["Process | None"] = contextvars.ContextVar("process", default=None)


class Stuck(Exception):
    """Nothing is left that could ever happen in the loop."""


class Soon(asyncio.Handle):
    """A callback, the process that it belongs to, and whether it came from outside of that process."""

    __slots__ = ("outer", "process")

    process: "Process | None"
    outer: bool


class Later(asyncio.TimerHandle):
    """A timer of a process. Its `when` is by the process's own monotonic clock."""

    __slots__ = ("outer", "process")

    process: "Process | None"
    outer: bool


class Task(asyncio.Task[Any]):
    """A task that knows its process, and whose hash is the number of the task in its loop."""

    def __init__(self, coroutine: Coroutine[Any, Any, Any], *, loop: "Loop", **more: Any) -> None:
        self.number = next(loop.numbers)
        context = more.get("context")
        self.process = _process.get() if context is None else context.get(_process)
        super().__init__(coroutine, loop=loop, **more)

    def __hash__(self) -> int:
        return self.number


class Process:
    """A simulated process: callbacks that stop and go together, and clocks of its own.

    stalls: how likely it is, before each callback, that the process stands still. The seed decides how long.
    """

    def __init__(self, loop: "Loop", name: str, *, stalls: float = 0.0) -> None:
        self.loop = loop
        self.name = name
        self.dead = False
        self.frozen = False
        self.lag = 0.0
        """For how many seconds the process was suspended. Its monotonic clock does not count them."""
        self.wall_ahead = 0.0
        """By how many seconds its wall clock is ahead of the true time."""
        self.wall_rate = 1.0
        """How fast its wall clock runs."""
        self._held: list[Soon | Later] = []
        self._thaws = 0.0
        self._suspended = 0.0
        self._origin = loop.chance.uniform(1e3, 1e6)
        self._tasks: list[Task] = []
        self.stalls = stalls

    def __repr__(self) -> str:
        return self.name

    @property
    def stalls(self) -> float:
        """How likely it is, before each callback, that the process stands still."""
        return self._stalls

    @stalls.setter
    def stalls(self, likely: float) -> None:
        self._stalls = likely
        self._callbacks_left = self._next_stall()

    def clock(self) -> float:
        """Seconds by a clock that counts suspension. Clocks of two processes cannot be compared."""
        return self._origin + self.loop.now + self.loop.slept

    def wall(self) -> float:
        """The process's wall clock, in seconds since 1970."""
        return BEGINNING + (self.loop.now + self.loop.slept) * self.wall_rate + self.wall_ahead

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Task:
        """Start a coroutine in this process."""
        context = contextvars.copy_context()
        context.run(_process.set, self)
        return Task(coroutine, loop=self.loop, context=context)

    def call(self, function: Callable[..., T], *args: Any) -> T:
        """Call a function as this process does."""
        current, self.loop.current = self.loop.current, self
        context = contextvars.copy_context()
        context.run(_process.set, self)
        try:
            return context.run(function, *args)
        finally:
            self.loop.current = current

    def freeze(self, seconds: float, *, suspend: bool = False) -> None:
        """Stop the process for so many seconds from now on.

        suspend: its monotonic clock stands still meanwhile, so its timers are late by so much.
        """
        thaws = self.loop.now + seconds
        if self.dead or thaws <= self._thaws:
            return
        if suspend:
            self._suspended += thaws - max(self._thaws, self.loop.now)
        self.frozen = True
        self._thaws = thaws
        self.loop.note(self, f"stands still for {seconds:g} s" + (", suspended" if suspend else ""))
        self.loop.after(seconds, self._thaw)

    def thaw(self) -> None:
        """End a standstill at once."""
        self._thaws = self.loop.now
        self._thaw()

    def _thaw(self) -> None:
        if not self.frozen or self.dead or self._thaws > self.loop.now + 1e-9:
            return
        self.frozen = False
        self.lag += self._suspended
        self._suspended = 0.0
        self._callbacks_left = self._next_stall()
        held, self._held = self._held, []
        outer = [handle for handle in held if handle.outer]
        self.loop.chance.shuffle(outer)
        for handle in [*(handle for handle in held if not handle.outer), *outer]:
            self.loop.again(handle)

    def kill(self) -> None:
        """End the process as `kill -9` does: none of its callbacks ever runs again."""
        self.dead = True
        self._tasks = [task for task in self.loop.tasks() if task.process is self]
        self.loop.note(self, "is killed")

    def wants(self, handle: "Soon | Later") -> bool:
        """Whether the process runs this callback now. Otherwise it keeps the callback until it thaws."""
        if not self.frozen and not self.dead:
            if self._callbacks_left > 0:
                self._callbacks_left -= 1
                return True
            lengths, weights = zip(*STALLS, strict=True)
            seconds = self.loop.chance.choices(lengths, weights)[0]
            self.freeze(seconds * self.loop.chance.uniform(0.5, 1.5), suspend=self.loop.chance.random() < 0.3)
        self._held.append(handle)
        return False

    def _next_stall(self) -> float:
        return math.ceil(self.loop.chance.expovariate(self._stalls)) if self._stalls else math.inf

    def bury(self) -> None:
        """Let a dead or frozen process run again, so that its tasks can be cancelled when the schedule is over."""
        self.dead = self.frozen = False
        self._stalls, self._callbacks_left = 0.0, math.inf
        for handle in self._held:
            self.loop.again(handle)
        self._held.clear()
        self._tasks.clear()


class Loop(asyncio.BaseEventLoop):
    """The event loop of one schedule. `chance` decides all that is left to chance.

    now: the true time in seconds, 0.0 when the schedule begins. slept: for how long all machines were suspended.
    errors: what no code of the ticket server caught. trace: what happened, a line each, None where nobody wants it.
    """

    _stopping: bool

    def __init__(self, chance: random.Random) -> None:
        super().__init__()
        self.chance = chance
        self.now = 0.0
        self.slept = 0.0
        self.errors: list[str] = []
        self.trace: list[str] | None = None
        self.numbers = itertools.count(1)
        self.processes: list[Process] = []
        self.current: Process | None = None
        """The process whose callback runs."""
        self._queue: deque[Soon | Later] = deque()
        self._timers: list[tuple[float, int, Later]] = []
        self._order = itertools.count()
        self._outside = contextvars.Context()
        self.set_task_factory(lambda loop, coroutine, **more: Task(coroutine, loop=self, **more))
        self.set_exception_handler(lambda _loop, context: self._error(context))

    # --- what asyncio asks of a loop ---------------------------------------------------------------------------------

    def time(self) -> float:
        """The monotonic clock of the process that runs."""
        process = self.current
        return self.now if process is None else self.now - process.lag

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> Soon:
        """Run a callback in the next turn."""
        if context is None:
            context = contextvars.copy_context()
        handle = Soon(callback, args, self, context)
        handle.process = process = context.get(_process)
        handle.outer = process is not self.current
        self._queue.append(handle)
        return handle

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> Later:
        """Run a callback when the clock of its process says `when`."""
        if context is None:
            context = contextvars.copy_context()
        handle = Later(when, callback, args, self, context)
        handle.process = context.get(_process)
        handle.outer = True
        self._schedule(handle)
        return handle

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> Later:
        """Run a callback after so many seconds by the clock of its process."""
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """A cancelled timer is passed over when its time has come."""

    def _run_once(self) -> None:
        queue = self._queue
        if not queue and not self._stopping:
            self._advance()
        for _ in range(len(queue)):
            handle = queue.popleft()
            if handle._cancelled:
                continue
            process = handle.process
            if process is not None and not process.wants(handle):
                continue
            self.current = process
            handle._run()
            self.current = None

    # --- what the model asks of it -----------------------------------------------------------------------------------

    def process(self, name: str, *, stalls: float = 0.0) -> Process:
        """Make a process."""
        process = Process(self, name, stalls=stalls)
        self.processes.append(process)
        return process

    def after(self, seconds: float, callback: Callable[..., object], *args: Any) -> None:
        """Call something that belongs to no process after so many seconds."""
        handle = Later(self.now + seconds, callback, args, self, self._outside)
        handle.process, handle.outer = None, True
        self._schedule(handle)

    def again(self, handle: "Soon | Later") -> None:
        """Take up a callback that a process kept: a timer that is not due by the clock of its process waits on."""
        if isinstance(handle, Later):
            self._schedule(handle)
        else:
            self._queue.append(handle)

    def tasks(self) -> list[Task]:
        """All tasks that are not done, in the order in which they began."""
        return sorted(
            (each for each in asyncio.all_tasks(self) if isinstance(each, Task)), key=lambda task: task.number
        )

    def note(self, who: object, what: str) -> None:
        """Write a line of the trace."""
        if self.trace is not None:
            self.trace.append(f"{self.now:11.6f}  {who}: {what}")

    def end(self) -> None:
        """End all that runs, and close the loop. Nothing that happens from now on belongs to the schedule."""
        self.trace = None
        errors = len(self.errors)
        for process in self.processes:
            process.bury()
        self._timers.clear()
        for _ in range(200):
            left = self.tasks()
            if not left:
                break
            for task in left:
                task.cancel()
            self.run_until_complete(asyncio.sleep(0))
        del self.errors[errors:]
        self.close()

    def _schedule(self, handle: Later) -> None:
        lag = handle.process.lag if handle.process is not None else 0.0
        when = handle.when() + lag
        if when <= self.now:
            self._queue.append(handle)
        else:
            heapq.heappush(self._timers, (when, next(self._order), handle))

    def _advance(self) -> None:
        timers = self._timers
        while timers and not self._queue:
            when, _, handle = heapq.heappop(timers)
            if not handle._cancelled:
                self.now = max(self.now, when)
                self._schedule(handle)
        while timers and timers[0][0] <= self.now:
            handle = heapq.heappop(timers)[2]
            if not handle._cancelled:
                self._schedule(handle)
        if not self._queue:
            raise Stuck

    def _error(self, context: dict[str, Any]) -> None:
        error = context.get("exception")
        self.errors.append(f"{self.now:.6f}  {self.current}: {context.get('message')}: {error!r}")
