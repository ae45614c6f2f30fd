"""Which process this is, for what must not be used in the child of a fork.

A *life* is the memory of one process: `life[0]` is 1 in the process that made it and 0 in every child of that process.
Whatever must not be shared with a child (a shelf of tickets, a connection) keeps the life in which it was made.

Python tells of its own forks, but other hooks may run before ours; and programs that fork without Python, as uWSGI does
for its workers, tell of none. So a life is a page of memory that Linux empties in every child. Reading it costs a tenth
of asking for the process's id.

A fork may also come in the middle of a call, from a signal handler or while a greenlet waits. Then the parent and the
child both go on with the call, and hold the same tickets in it. So a call hands out a ticket with these two lines, in
the public function itself, after everything else:

    if ALIVE in life:
        return ticket

`life` was read before the ticket was taken. Signal handlers run where a function begins, a call returns or a loop goes
back; in Python 3.9 also after other operations, `life[0]` and the end of a `try` among them, but not after `in`. So
none runs in these two lines, which stand in no `try`: the process that handed the ticket out is the one that took it,
and the child, where `life[0]` is 0, takes another ticket.
"""

from __future__ import annotations

import mmap
import os
import sys
import threading
from collections.abc import Callable, Iterable
from typing import Protocol, Union

Life = Union[mmap.mmap, bytearray]
ALIVE = b"\1"
"""What the first byte of a life is in the process that made it."""


class Lock(Protocol):
    """A lock that the thread which holds it may take again: a fork may come from a handler that interrupts it."""

    def acquire(self, blocking: bool = ..., timeout: float = ...) -> bool:
        """See threading.RLock."""

    def release(self) -> None:
        """See threading.RLock."""


LONGEST_HOLD = 1.0
"""Seconds for which a fork waits for a lock. They are held for microseconds."""
WIPE_ON_FORK = 18
"""Linux's MADV_WIPEONFORK, which `mmap` has no name for."""


def _page() -> Life:
    """A page of zeros. Where the system cannot empty it in a child, only forks that Python tells of empty it."""
    if sys.platform == "linux":
        page = mmap.mmap(-1, mmap.PAGESIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        try:
            page.madvise(WIPE_ON_FORK)
        except OSError:  # an old kernel
            page.close()
        else:
            return page
    return bytearray(1)


_life = _page()
_life[0] = 1
_pid = os.getpid()
_lock = threading.RLock()  # a signal handler may interrupt the thread that holds it
_begin_anew: list[Callable[[], None]] = []
_locks: list[Callable[[], Iterable[Lock]]] = []
_held: dict[int, list[Lock]] = {}
"""The locks that a thread holds while it forks, by its number."""


def tell(begin_anew: Callable[[], None], locks: Callable[[], Iterable[Lock]] = tuple) -> None:
    """Have `begin_anew` called in each child, before anything of its parent's is used there.

    `locks`: those that a call which a fork interrupts may be waiting for. The thread that forks takes them first. Else
    another thread of the parent could hold one, and would not be there in the child to release it.
    """
    _begin_anew.append(begin_anew)
    _locks.append(locks)


def in_a_child() -> bool:
    """Whether this is the child of a fork that nobody has told of."""
    return not _life[0] or _pid != os.getpid()


def look() -> Life:
    """The life of this process. If this is the child of a fork that nobody has told of, it begins anew first."""
    if in_a_child():
        with _lock:
            if in_a_child():
                _now()
    return _life


def _before() -> None:
    held = _held.setdefault(threading.get_ident(), [])
    for locks in _locks:
        for lock in locks():
            if lock.acquire(timeout=LONGEST_HOLD):
                held.append(lock)


def _after() -> None:
    for lock in reversed(_held.pop(threading.get_ident(), [])):
        lock.release()


def _in_the_child() -> None:
    global _lock  # noqa: PLW0603 - another thread of the parent may have held it
    _lock = threading.RLock()
    _after()
    _held.clear()  # of the parent's other threads
    _now()


def _now() -> None:
    global _life, _pid  # noqa: PLW0603
    _life[0] = 0
    for each in _begin_anew:
        each()
    _pid = os.getpid()
    page = _page()
    _life = page
    page[0] = 1  # last: until then nothing can be kept under this life, should this process be forked here


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_after, after_in_child=_in_the_child)
