"""Which process this is, for what must not be used in the child of a fork.

Python tells of its own forks, but other hooks may run before ours; and programs that fork without Python, as uWSGI does
for its workers, tell of none. So `take` looks at a page of memory that Linux empties in every child, which costs a
tenth of asking for the process's id; what does not come from memory asks for that.
"""

from __future__ import annotations

import mmap
import os
import sys
import threading
from collections.abc import Callable

WIPE_ON_FORK = 18
"""Linux's MADV_WIPEONFORK, which `mmap` has no name for."""


def _page() -> mmap.mmap | bytearray:
    if sys.platform == "linux":
        page = mmap.mmap(-1, mmap.PAGESIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        try:
            page.madvise(WIPE_ON_FORK)
        except OSError:  # an old kernel
            page.close()
        else:
            return page
    return bytearray(1)


at_home = _page()
"""`at_home[0]` is 1 in the process that memory is of; in a child of it 0 until that has begun anew. Where the system
cannot do that it is always 1, and of forks that Python does not tell of only `look` knows."""
at_home[0] = 1

_pid = os.getpid()
_lock = threading.Lock()
_begin_anew: list[Callable[[], None]] = []


def tell(begin_anew: Callable[[], None]) -> None:
    """Have this called in each child, before anything of its parent's is used there."""
    _begin_anew.append(begin_anew)


def in_a_child() -> bool:
    """Whether this is the child of a fork that nobody has told of."""
    return _pid != os.getpid()


def look() -> None:
    """Begin anew if this is the child of a fork that nobody has told of."""
    if in_a_child():
        with _lock:
            if in_a_child():
                _now()


def _in_the_child() -> None:
    global _lock  # noqa: PLW0603 - another thread of the parent may have held it
    _lock = threading.Lock()
    _now()


def _now() -> None:
    global _pid  # noqa: PLW0603
    for each in _begin_anew:
        each()
    _pid = os.getpid()
    at_home[0] = 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_the_child)
