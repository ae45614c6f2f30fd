"""Which process this is, for what the child of a fork must not use.

A *life* is the memory of one process: `life[0]` is 1 in the process that made it, and 0 in every child of that process.
Whatever a child must not share (tickets in memory, a connection) keeps the life in which it was made. Not every program
reports its forks to Python. So a life is a page of memory that Linux empties in every child.

A fork may also come in the middle of a call, from a signal handler or while a greenlet waits. Then parent and child
both go on with it and hold the same tickets. So a call ends with these lines, `life` being read before all else:

    if ALIVE in life:
        return ticket

Signal handlers run where a function begins, a call returns or a loop goes back, and so not between the two. The child
has none of its parent's threads, one of which may have held a lock: every wait for a lock ends where the life ends.
"""

from __future__ import annotations

import _thread
import mmap
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from time import monotonic
from typing import Any, Union

Life = Union[mmap.mmap, bytearray]
ALIVE = b"\1"  # what the first byte of a life is in the process that made it
LONGEST_WAIT = 0.05  # seconds between two looks at whether this is still the process that asked


def _page() -> Life:
    """A page of zeros. Where the system cannot empty it in a child, only forks that Python reports empty it."""
    if sys.platform == "linux":
        page = mmap.mmap(-1, mmap.PAGESIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        with suppress(OSError):  # of an old kernel
            page.madvise(18)  # MADV_WIPEONFORK, which `mmap` has no name for
            return page
    return bytearray(1)


_life = _page()
_life[0] = 1
_pid = os.getpid()
begin_anew: list[Callable[[], object]] = []  # called in each child, before anything of its parent's is used there


def look() -> Life:
    """The life of this process. In the child of a fork that Python does not know of, it begins anew first."""
    if not _life[0] or _pid != os.getpid():
        _in_the_child()
    return _life


def _in_the_child() -> None:
    global _life, _pid
    _life[0] = 0
    for each in begin_anew:
        each()
    page = _page()
    _life, _pid = page, os.getpid()
    page[0] = 1  # last: until then nothing can be kept under this life, should this process be forked here


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_the_child)


def acquired(lock: Any, deadline: float, life: Life) -> bool:
    """Acquire the lock, to the deadline, while this is the process of that life; whether it is acquired."""
    while life[0] and (left := deadline - monotonic()) > 0:
        if lock.acquire(timeout=min(left, LONGEST_WAIT)):
            return True
    return False


def start(work: Callable[[], object]) -> None:
    """Have a new daemon thread do it; this one, where none can be had, as while the interpreter ends."""
    try:  # a `threading.Thread` waits until it has begun; the child of a fork that interrupts that would for ever
        _thread.start_new_thread(work, ())
    except RuntimeError:
        work()
