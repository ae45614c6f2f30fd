"""Who waits in a lane, and what it gets."""

import asyncio
from collections.abc import Sequence
from typing import Protocol

Tickets = Sequence[int]
"""What a request gets: a range, or at the very end of a sequence a list."""


class Waiter(Protocol):
    """A request in the queue, for `count` tickets, as a range if `whole`.

    `until`: when its time on this database is over, in the event loop's time.
    """

    @property
    def count(self) -> int: ...

    @property
    def whole(self) -> bool: ...

    @property
    def until(self) -> float: ...

    def is_gone(self) -> bool:
        """Whether nobody waits any more: it has its answer, or has gone away."""

    def answer(self, tickets: Tickets | None) -> None:
        """Increasing ids (a range if `whole` or one), or None: ask the next lane. At most one call, while not gone."""


class FutureWaiter:
    """A request in a task of its own, which awaits `future`."""

    __slots__ = ("__weakref__", "count", "future", "until", "whole")

    def __init__(self, count: int, whole: bool, until: float) -> None:
        self.count = count
        self.whole = whole
        self.until = until
        self.future: asyncio.Future[Tickets | None] = asyncio.get_running_loop().create_future()

    def is_gone(self) -> bool:
        """See Waiter.is_gone."""
        return self.future.done()

    def answer(self, tickets: Tickets | None) -> None:
        """See Waiter.answer."""
        self.future.set_result(tickets)


def fail_over(waiter: Waiter) -> None:
    """Send it on to the next lane, unless it has gone."""
    if not waiter.is_gone():
        waiter.answer(None)
