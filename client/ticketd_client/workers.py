"""Threads for what nobody should wait for. They are daemons, made when first needed, and end with their owner."""

from __future__ import annotations

import _thread
import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue

from ticketd_client.forks import Lock

Job = Callable[[], None]
"""Catches its own errors."""

IDLE = 30.0
"""Seconds after which a thread that has had nothing to do ends."""


def start(work: Job) -> None:
    """Start a daemon thread. Raises RuntimeError where none can be had.

    `threading.Thread` waits for the thread to have begun. The child of a fork that interrupts that would wait for ever.
    """
    _thread.start_new_thread(work, ())


class Workers:
    """At most `most` threads. They hold no reference to this object or its owner, so that both can be collected."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._crew = _Crew()

    @property
    def lock(self) -> Lock:
        """What `run` and `close` wait for."""
        return self._crew.lock

    def begin_anew(self) -> None:
        """In the child of a fork: the threads are the parent's, and one of them may have held the lock."""
        closed = self._crew.closed
        self._crew = _Crew()
        self._crew.closed = closed

    def run(self, job: Job) -> None:
        """Have a thread do it; in the caller's own where none can be had, as while the interpreter ends."""
        crew = self._crew
        with crew.lock:
            closed = crew.closed
            if not closed:
                crew.free -= 1
                more = crew.free < 0 and crew.threads < self._most
                if more:
                    crew.free += 1
                    crew.threads += 1
                crew.jobs.put(job)
        if closed:
            job()
        elif more:
            try:
                start(crew.work)
            except RuntimeError:
                crew.short_of_one()

    def close(self) -> None:
        """Have the threads end when they have done what they were given. Waits for none."""
        crew = self._crew
        with crew.lock:
            crew.closed = True
            crew.jobs.put(None)


class _Crew:
    """What the threads share. `free`: those without a job, less the jobs without a thread."""

    def __init__(self) -> None:
        self.lock = threading.RLock()  # a finalizer may end this, or ask for more, while its thread is in here
        self.jobs: SimpleQueue[Job | None] = SimpleQueue()
        self.threads = 0
        self.free = 0
        self.closed = False

    def work(self) -> None:
        """The life of one thread."""
        while True:
            try:
                job = self.jobs.get(timeout=IDLE)
            except Empty:
                with self.lock:
                    if self.free <= 0 or self.closed:
                        continue
                    self.free -= 1
                    self.threads -= 1
                    return
            if job is None:
                self.jobs.put(None)  # for the next one
                return
            job()
            del job  # its owner may be collected while this thread waits
            with self.lock:
                self.free += 1

    def short_of_one(self) -> None:
        """A thread could not be started: do here what nobody else will."""
        with self.lock:
            self.threads -= 1
            self.free -= 1
            left = self.threads == 0
        while left:
            try:
                job = self.jobs.get_nowait()
            except Empty:
                return
            with self.lock:
                self.free += 1
            if job is not None:
                job()
