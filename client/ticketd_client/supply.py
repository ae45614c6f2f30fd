"""The tickets of one sequence that are in memory, and how they come there before anybody waits for them.

Tickets lie on shelves, a shelf for a block or half of one. `take` pops from the front shelf without a lock: the deque
gives each once. The call that finds the front shelf empty makes the next one the front and, while that is used up, has
another block fetched in the background. Only a call that finds no shelf at all waits.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import repeat, starmap
from typing import TypeVar

from ticketd_client.answers import LARGEST_BLOCK, LARGEST_COUNT, LARGEST_INCREMENT, Given, Ticket
from ticketd_client.clock import passed
from ticketd_client.errors import InvalidRequest, SequenceConflict, TicketError, TicketsUnavailable
from ticketd_client.failover import Failover
from ticketd_client.forks import Life, acquired, start
from ticketd_client.servers import Server

Tickets = TypeVar("Tickets", range, list[Ticket])

GROWTH = 8
"""A shelf is at most so many times as large as the one before: one burst is not a rate yet. The first has so many."""
HORIZON = 1.0
"""Seconds that a shelf lasts at the present rate, if `prefetch` and `max_age` allow it."""
Front = tuple[Callable[[], Ticket], float, Life]
"""How `take` gets a ticket from the front shelf, until when it may (on the clock `passed`), and in which process."""


class _Shelf:
    """`since`: when it became the front shelf; 0 before that, and when what it tells of the rate is known."""

    def __init__(self, tickets: range, expires: float) -> None:
        self.tickets: deque[Ticket] = deque(tickets)
        self.size = len(tickets)
        self.expires = expires
        self.since = 0.0


class Supply:
    """One sequence. `fronts`: where `take` looks for its front shelf. `life`: of the process that has the tickets."""

    def __init__(
        self, sequence: str, failover: Failover, fronts: dict[str, Front], life: Life, limits: tuple[int, float, float]
    ) -> None:
        self._sequence = sequence
        self._trouble = f"no tickets of {sequence}"
        self._failover = failover
        self._prefetch, self._max_age, self._timeout = limits
        self._fronts = fronts
        self._life = life
        self._given = Given()
        self._shelves: tuple[_Shelf, ...] = ()
        self._fetching = threading.RLock()  # who has it alone changes `_shelves`
        self._fetches_ahead = False
        self._has_blocks = True
        self._largest_block = LARGEST_BLOCK
        self._target = GROWTH
        self._closed = False

    def from_memory(self, n: int, key: int | None = None) -> list[Ticket]:
        """Up to `n` tickets that are there; of those with a key none is."""
        got: list[Ticket] = []
        now = passed()
        for shelf in self._shelves if key is None else ():
            if shelf.expires > now and shelf.tickets:
                shelf.since = shelf.since or now
                self._fronts[self._sequence] = (shelf.tickets.popleft, shelf.expires, self._life)
                with suppress(IndexError):  # no more there
                    got.extend(starmap(shelf.tickets.popleft, repeat((), n - len(got))))
                    break
            if shelf.since:
                self._learn(shelf, now)
        if self._closed:  # since this was called
            self._fronts.pop(self._sequence, None)
        if len(got) == n and not self._fetches_ahead and self._is_low():
            self._fetches_ahead = True
            start(self._fetch_ahead)
        return got

    def take(self, got: list[Ticket], n: int, key: int | None) -> list[Ticket]:
        """`got`, which came from memory, and as many tickets from the servers as it lacks of `n`."""
        deadline = time.monotonic() + self._timeout
        try:
            while len(got) < n:
                if key is not None or not self._has_blocks or (not self._prefetch and n <= LARGEST_COUNT):
                    wanted = min(n - len(got), LARGEST_COUNT)
                    count = wanted if wanted > 1 else None
                    got += self._failover.ask(partial(self._singles, count, key), deadline, self._trouble)
                else:
                    got += self._fetch(n - len(got), deadline)
        except TicketError:
            if self._life[0]:  # else this is a child, where nobody gets the tickets
                raise
        return got

    def close(self) -> None:
        """Hand out nothing from memory any more."""
        self._closed = True
        self._shelves = ()
        self._fronts.pop(self._sequence, None)

    def _stock(self) -> int:
        return sum(len(shelf.tickets) for shelf in self._shelves if shelf.expires > passed())

    def _is_low(self) -> bool:
        """Whether a block should be fetched ahead."""
        return self._has_blocks and not self._closed and self._stock() <= min(self._target, self._prefetch - 1)

    def _fetch_ahead(self) -> None:
        with suppress(Exception):  # a URL that fails is logged, and whoever asks next is told
            self._fetch(0, time.monotonic() + self._timeout)
        self._fetches_ahead = False

    def _fetch(self, need: int, deadline: float) -> list[Ticket]:
        """Up to `need` tickets of a block, the rest of which goes to memory, or of one that another thread fetches."""
        if self._fetching._is_owned():  # type: ignore[attr-defined]  # an RLock has it for Conditions
            raise TicketsUnavailable(f"{self._trouble} in the midst of a request of the same thread for them")
        try:
            if not acquired(self._fetching, deadline, self._life):
                raise self._failover.unavailable(f"{self._trouble} in {self._timeout:g} s")
            got = self.from_memory(need)
            return got if got or (not need and not self._is_low()) else self._ask(need, deadline)
        finally:
            try:  # noqa: SIM105 - nothing may stand before the release, for an interrupt could prevent it there
                self._fetching.release()
            except RuntimeError:  # it was not acquired
                pass

    def _ask(self, need: int, deadline: float) -> list[Ticket]:
        """Return `need` tickets of a new block, or an empty list where there are no blocks, or none of that size."""
        ahead = 2 * self._target if need and self._target > 1 else self._target
        size = min(need + max(0, min(ahead, self._prefetch - self._stock())), self._largest_block)
        began = passed()
        try:
            block = self._failover.ask(
                lambda server, end: self._new(server.take_block(self._sequence, size, end)), deadline, self._trouble
            )
        except InvalidRequest:
            if size == 1:
                raise
            self._largest_block = 1  # more than the increment allows, which only a block tells
        except SequenceConflict:
            self._has_blocks = False
        else:
            self._largest_block = min(LARGEST_BLOCK, LARGEST_INCREMENT // block.step)
            self._store(block[need:], began + self._max_age)
            return list(block[:need])
        return []

    def _store(self, ids: range, expires: float) -> None:
        """Put the tickets on shelves, behind those that are there."""
        kept = [shelf for shelf in self._shelves if shelf.tickets and shelf.expires > passed()]
        # of one shelf the next block would come only when it is empty
        half = 0 if kept else len(ids) // 2
        kept += [_Shelf(part, expires) for part in (ids[:half], ids[half:]) if part]
        if not self._closed:
            self._shelves = tuple(kept)

    def _learn(self, shelf: _Shelf, now: float) -> None:
        """The shelf is empty or too old. Its size and the time that it lasted are the rate."""
        lasted, shelf.since = max(now - shelf.since, 0.001), 0.0
        wanted = int((shelf.size - len(shelf.tickets)) / lasted * min(HORIZON, self._max_age / 2))
        wanted = max(self._target // 2, min(wanted, self._target * GROWTH))
        self._target = max(1, min(wanted, self._prefetch // 2))

    def _singles(self, count: int | None, key: int | None, server: Server, deadline: float) -> list[Ticket]:
        return self._new(server.take(self._sequence, count, key, deadline))

    def _new(self, tickets: Tickets) -> Tickets:
        self._given.take(tickets)
        return tickets
