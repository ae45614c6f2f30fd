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


class Callback(asyncio.TimerHandle):
    """A callback of a process. `when` is by the monotonic clock of the process, minus infinity for the next turn.

    outer: whether it came from outside of the process, as an answer or a timer does.
    """

    __slots__ = ("outer", "process")

    def __init__(
        self, when: float, work: Callable[..., object], args: Any, loop: "Loop", context: contextvars.Context
    ) -> None:
        super().__init__(when, work, args, loop, context)
        self.process = context.get(_process)
        self.outer = self.process is not loop.current or when > -math.inf


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

    stalls: how likely it is, before each callback, that the process stands still; the seed decides how long. lag: for
    how many seconds it was suspended, which its monotonic clock does not count. wall_ahead: by how many seconds its
    wall clock is ahead of the true time. wall_rate: how fast that runs.
    """

    def __init__(self, loop: "Loop", name: str, *, stalls: float = 0.0) -> None:
        self.loop = loop
        self.name = name
        self.dead = self.frozen = False
        self.lag = self.wall_ahead = 0.0
        self.wall_rate = 1.0
        self._held: list[Callback] = []
        self._thaws = self._suspended = 0.0
        self._origin = loop.chance.uniform(1e3, 1e6)
        self._tasks: list[Task] = []
        self._stalls = stalls
        self._callbacks_left = self._next_stall()

    def __repr__(self) -> str:
        return self.name

    def clock(self) -> float:
        """Seconds by a clock that counts suspension. Clocks of two processes cannot be compared."""
        return self._origin + self.loop.now + self.loop.slept

    def wall(self) -> float:
        """The process's wall clock, in seconds since 1970."""
        return BEGINNING + (self.loop.now + self.loop.slept) * self.wall_rate + self.wall_ahead

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Task:
        """Start a coroutine in this process."""
        return Task(coroutine, loop=self.loop, context=self._context())

    def call(self, function: Callable[..., T], *args: Any) -> T:
        """Call a function as this process does."""
        current, self.loop.current = self.loop.current, self
        try:
            return self._context().run(function, *args)
        finally:
            self.loop.current = current

    def _context(self) -> contextvars.Context:
        context = contextvars.copy_context()
        context.run(_process.set, self)
        return context

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

    def calm(self) -> None:
        """End a standstill at once. The process stands still no more by chance."""
        self._stalls, self._callbacks_left = 0.0, math.inf
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
        outer = [each for each in held if each.outer]
        self.loop.chance.shuffle(outer)
        for each in [*(each for each in held if not each.outer), *outer]:
            self.loop.schedule(each)

    def kill(self) -> None:
        """End the process as `kill -9` does: none of its callbacks ever runs again."""
        self.dead = True
        self._tasks = [task for task in self.loop.tasks() if task.process is self]
        self.loop.note(self, "is killed")

    def wants(self, callback: Callback) -> bool:
        """Whether the process runs this callback now. Otherwise it keeps the callback until it thaws."""
        if not self.frozen and not self.dead:
            if self._callbacks_left > 0:
                self._callbacks_left -= 1
                return True
            lengths, weights = zip(*STALLS, strict=True)
            seconds = self.loop.chance.choices(lengths, weights)[0]
            self.freeze(seconds * self.loop.chance.uniform(0.5, 1.5), suspend=self.loop.chance.random() < 0.3)
        self._held.append(callback)
        return False

    def _next_stall(self) -> float:
        return math.ceil(self.loop.chance.expovariate(self._stalls)) if self._stalls else math.inf

    def bury(self) -> None:
        """Let a dead or frozen process run again, so that its tasks can be cancelled when the schedule is over."""
        self.dead, self.frozen = False, True
        self.calm()
        self._tasks.clear()


class Loop(asyncio.BaseEventLoop):
    """The event loop of one schedule. `chance` decides all that is left to chance.

    now: the true time in seconds, 0.0 when the schedule begins. slept: for how long all machines were suspended.
    current: the process whose callback runs.
    errors: what no code of the ticket server caught. trace: what happened, a line each, None where nobody wants it.
    """

    _stopping: bool

    def __init__(self, chance: random.Random) -> None:
        super().__init__()
        self.chance = chance
        self.now = self.slept = 0.0
        self.errors: list[str] = []
        self.trace: list[str] | None = None
        self.numbers = itertools.count(1)
        self.processes: list[Process] = []
        self.current: Process | None = None
        self._queue: deque[Callback] = deque()
        self._timers: list[tuple[float, int, Callback]] = []
        self._order = itertools.count()
        self._outside = contextvars.Context()
        self.set_task_factory(lambda loop, coroutine, **more: Task(coroutine, loop=self, **more))

    # --- what asyncio asks of a loop ---------------------------------------------------------------------------------

    def time(self) -> float:
        """The monotonic clock of the process that runs."""
        process = self.current
        return self.now if process is None else self.now - process.lag

    def call_soon(  # type: ignore[override]
        self, work: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> Callback:
        """Run a callback in the next turn."""
        return self.call_at(-math.inf, work, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, work: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> Callback:
        """Run a callback when the clock of its process says `when`."""
        callback = Callback(when, work, args, self, contextvars.copy_context() if context is None else context)
        self.schedule(callback)
        return callback

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Keep what no code of the ticket server caught."""
        self.errors.append(f"{self.now:.6f}  {self.current}: {context.get('message')}: {context.get('exception')!r}")

    def _run_once(self) -> None:
        queue = self._queue
        if not queue and not self._stopping:
            self._advance()
        for _ in range(len(queue)):
            callback = queue.popleft()
            process = callback.process
            if callback._cancelled or (process is not None and not process.wants(callback)):
                continue
            self.current = process
            callback._run()
            self.current = None

    # --- what the model asks of it -----------------------------------------------------------------------------------

    def process(self, name: str, *, stalls: float = 0.0) -> Process:
        """Make a process."""
        process = Process(self, name, stalls=stalls)
        self.processes.append(process)
        return process

    def after(self, seconds: float, work: Callable[..., object], *args: Any) -> None:
        """Call something that belongs to no process after so many seconds."""
        self.schedule(Callback(self.now + seconds, work, args, self, self._outside))

    def schedule(self, callback: Callback) -> None:
        """Let a callback run once it is due by the clock of its process."""
        when = callback.when() + (callback.process.lag if callback.process is not None else 0.0)
        if when <= self.now:
            self._queue.append(callback)
        else:
            heapq.heappush(self._timers, (when, next(self._order), callback))

    def tasks(self) -> list[Task]:
        """All tasks that are not done, in the order in which they began."""
        tasks = [each for each in asyncio.all_tasks(self) if isinstance(each, Task)]
        return sorted(tasks, key=lambda task: task.number)

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
            if not (left := self.tasks()):
                break
            for task in left:
                task.cancel()
            self.run_until_complete(asyncio.sleep(0))
        del self.errors[errors:]
        self.close()

    def _advance(self) -> None:
        timers = self._timers
        while timers and (not self._queue or timers[0][0] <= self.now):
            when, _, callback = heapq.heappop(timers)
            if not callback._cancelled:
                self.now = max(self.now, when)
                self.schedule(callback)
        if not self._queue:
            raise RuntimeError("nothing is left that could ever happen")
