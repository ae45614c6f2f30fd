"""The tickets of one sequence that are in memory, and how they come there before anybody waits for them.

Tickets lie on shelves, a shelf for a block or half of one. `take` pops from the front shelf without a lock: that a
ticket is popped once is the deque's promise. Who finds the front shelf empty takes the lock, moves the next one to the
front and, while that is used up, has another block fetched in the background. Only who finds no shelf at all waits.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass
from itertools import islice, repeat, starmap
from typing import TypeVar

from ticketd_client.answers import LARGEST_BLOCK, LARGEST_INCREMENT, Block, Ticket
from ticketd_client.clock import passed
from ticketd_client.errors import InvalidRequest, SequenceConflict, TicketsUnavailable
from ticketd_client.failover import Failover
from ticketd_client.forks import Life
from ticketd_client.given import Given
from ticketd_client.servers import Server

T = TypeVar("T")

FIRST_TARGET = 8
"""Tickets on a shelf before anything is known of the rate."""
FASTEST_GROWTH = 8
"""A shelf is at most so many times as large as the one before: one burst is not a rate yet."""
HORIZON = 1.0
"""Seconds that a shelf lasts at the present rate, if `prefetch` and `max_age` allow it."""
SHORTEST_USE = 0.001
"""Seconds; no rate is computed from less."""
Front = tuple[Callable[[], Ticket], float, Life]
"""How `take` gets a ticket from the front shelf, until when it may (on the clock `passed`), and in which process."""


@dataclass
class Limits:
    """What the caller has set, in tickets and seconds."""

    prefetch: int
    max_age: float
    timeout: float
    patience: float | None


class _Shelf:
    def __init__(self, tickets: Iterable[Ticket], expires: float) -> None:
        self.tickets = deque(tickets)
        self.size = len(self.tickets)
        self.expires = expires
        self.since = 0.0


class Pending(Future[T]):
    """A future whose waiter shares no lock with the thread that brings the result.

    A child of a fork that interrupts the waiter would wait for such a lock for ever, if that thread held it.
    """

    def __init__(self) -> None:
        super().__init__()
        self._came = threading.Lock()
        self._came.acquire()

    def comes(self, within: float) -> bool:
        """Wait so many seconds for the result; whether it is there. For one waiter."""
        return self._came.acquire(timeout=max(0.0, within))

    def set_result(self, result: T) -> None:
        super().set_result(result)
        self._came.release()

    def set_exception(self, exception: BaseException | None) -> None:
        super().set_exception(exception)
        self._came.release()


class _Waiter:
    def __init__(self, got: list[Ticket], need: int, deadline: float) -> None:
        self.got = got
        self.need = need
        self.deadline = deadline
        self.future: Pending[list[Ticket]] = Pending()


class Supply:
    """One sequence. `fronts`: where `take` looks for its front shelf; `run`: has a thread do something.

    `life` is that of the process whose tickets these are. In a child of it a call that the fork interrupted may still
    go on in here. Nothing of that is handed out: whoever takes a ticket looks at `life` last.
    """

    def __init__(
        self,
        sequence: str,
        failover: Failover,
        limits: Limits,
        fronts: dict[str, Front],
        run: Callable[[Callable[[], None]], None],
        *,
        life: Life,
    ) -> None:
        self.sequence = sequence
        self.life = life
        self.has_blocks = True
        self._failover = failover
        self._limits = limits
        self._fronts = fronts
        self._run = run
        self.lock = threading.RLock()
        self._busy = False
        self._to_be_emptied = False
        self._given = Given()
        self._front: _Shelf | None = None
        self._shelves: deque[_Shelf] = deque()
        self._waiters: deque[_Waiter] = deque()
        self._fetcher: object | None = None
        self._fetcher_thread = 0
        self._closed = False
        self._asked_before = 0.0
        self._half = max(1, limits.prefetch // 2)
        self._target = min(FIRST_TARGET, self._half)
        self._largest_block = LARGEST_BLOCK

    def take(self, got: list[Ticket], n: int, deadline: float, here: bool) -> list[Ticket] | Pending[list[Ticket]]:
        """`got` and so many tickets more that they are `n`; a future of them where none is left in memory.

        `here`: whether the caller's thread may wait, so that it can fetch them itself if nobody does yet. The future
        has a SequenceConflict where the sequence is of a kind without blocks.
        """
        fetcher = object()
        try:
            waiter = self._locked(lambda: self._join(got, n, deadline, fetcher))
            if waiter is not None and here and self._fetcher is fetcher:
                self._fetch_one(fetcher)
        finally:  # also at an interrupt from the keyboard
            if self._fetcher is fetcher:  # others have other deadlines: nobody fetches for them but the background
                self._fetch_in_background(fetcher)
        return got if waiter is None else waiter.future

    def take_singles(self, count: int, key: int | None, deadline: float) -> list[Ticket]:
        """Tickets in one request, without blocks. At most LARGEST_COUNT."""

        def question(server: Server, attempt: float) -> list[Ticket]:
            tickets = server.take(self.sequence, None if count == 1 else count, key, attempt)
            self._locked(lambda: self._given.take_singles(tickets))
            return tickets

        return self._failover.ask(question, deadline, self.trouble)

    @property
    def trouble(self) -> str:
        """What is wrong where there are none."""
        return f"no tickets of {self.sequence}"

    def drop(self) -> None:
        """Throw away what is in memory, and what was asked for before now."""
        with self.lock:
            self._asked_before = passed()
            self._to_be_emptied = True
            if not self._busy:
                self._empty()

    def close(self) -> None:
        """Hand out nothing from memory any more."""
        self._closed = True
        self.drop()

    def _locked(self, do: Callable[[], T]) -> T:
        """Do it with the lock held.

        A finalizer or a signal handler may interrupt that, in the same thread, and ask for a ticket: that is refused,
        for what it would find is half done. What it drops is dropped afterwards.
        """
        with self.lock:
            if self._busy:
                raise self._interrupting()
            try:
                self._busy = True
                return do()
            finally:
                self._busy = False
                if self._to_be_emptied:
                    self._empty()

    def _interrupting(self) -> TicketsUnavailable:
        return TicketsUnavailable(
            f"{self.trouble} for a finalizer or signal handler that interrupts a request for them"
        )

    # --- with the lock held ----------------------------------------------------------------------------------------

    def _join(self, got: list[Ticket], n: int, deadline: float, fetcher: object) -> _Waiter | None:
        """Add tickets from memory to `got`, wait for the others, and be the `fetcher` if one is wanted."""
        self._collect(got, n)
        waiter = None
        if len(got) < n:
            if self._fetcher is not None and self._fetcher_thread == threading.get_ident():
                raise self._interrupting()
            waiter = _Waiter(got, n - len(got), deadline)
            self._waiters.append(waiter)
        if self._fetcher is None and (waiter is not None or self._is_low()):
            self._fetcher, self._fetcher_thread = fetcher, threading.get_ident()
        return waiter

    def _empty(self) -> None:
        self._to_be_emptied = False
        self._front = None
        self._shelves.clear()
        self._fronts.pop(self.sequence, None)

    def _collect(self, got: list[Ticket], n: int) -> None:
        """Add tickets from the shelves to `got` until they are `n`."""
        now = passed()
        while len(got) < n and (self._front is not None or self._shelves):
            if self._front is not None and self._front.expires > now:
                try:
                    got.extend(starmap(self._front.tickets.popleft, repeat((), n - len(got))))
                except IndexError:  # others take from it as well, without the lock
                    pass
                else:
                    return
            self._next_shelf(now)

    def _next_shelf(self, now: float) -> None:
        """The front shelf is empty or too old. Its size and the time that it lasted are the rate."""
        front, self._front = self._front, None
        self._fronts.pop(self.sequence, None)
        if front is not None:
            left = len(front.tickets) if front.expires <= now else 0
            rate = (front.size - left) / max(now - front.since, SHORTEST_USE)
            wanted = int(rate * min(HORIZON, self._limits.max_age / 2))
            wanted = max(self._target // 2, min(wanted, self._target * FASTEST_GROWTH))
            self._target = max(1, min(wanted, self._half))
        if self._shelves:
            self._to_front(self._shelves.popleft(), now)

    def _to_front(self, shelf: _Shelf, now: float) -> None:
        shelf.since = now
        self._front = shelf
        if self.life[0]:  # else the child has a supply of its own, and this one does not stand in its way
            self._fronts[self.sequence] = (shelf.tickets.popleft, shelf.expires, self.life)

    def _stock(self) -> int:
        return sum(len(shelf.tickets) for shelf in self._shelves) + (len(self._front.tickets) if self._front else 0)

    def _is_low(self) -> bool:
        return self._limits.prefetch > 0 and self._stock() <= self._target

    def _next_size(self) -> int:
        """How many to ask for now; 0 where nothing is wanted."""
        need = sum(waiter.need for waiter in self._waiters)
        room = max(0, self._limits.prefetch - self._stock())
        if need:
            ahead = min(room, 2 * self._target if self._target > 1 else 1)
        else:
            ahead = min(room, self._target) if self._is_low() and not self._closed else 0
        return min(need + ahead, self._largest_block)

    def _plan(self, fetcher: object) -> tuple[int, list[_Waiter], float]:
        """How many to ask for, who waits for them, and until when. None are wanted where another one fetches."""
        now = time.monotonic()
        if self._fetcher is not fetcher:
            return 0, [], now
        self._fetcher_thread = threading.get_ident()
        asking = [each for each in self._waiters if each.deadline > now and not each.future.cancelled()]
        self._waiters = deque(asking)
        if not self._next_size():
            self._done(fetcher)
        deadline = max((waiter.deadline for waiter in asking), default=now + self._limits.timeout)
        return self._next_size(), asking, deadline

    def _done(self, fetcher: object) -> None:
        """This one need not go on fetching; from now on another thread may."""
        if self._fetcher is fetcher:
            self._fetcher = None

    def _send_away(self, asking: list[_Waiter], fetcher: object) -> None:
        self._waiters = deque(waiter for waiter in self._waiters if waiter not in asking)
        if not self._waiters:  # memory that is low is no reason to ask again at once
            self._done(fetcher)

    def _put(self, block: Block, began: float, fetcher: object) -> list[_Waiter]:
        """Give the block, asked for at `began`, to those who wait, and the rest to the shelves. Returns those who have
        what they want."""
        self._largest_block = min(LARGEST_BLOCK, LARGEST_INCREMENT // block.step)
        if began < self._asked_before:
            return []
        ids = iter(block.ids)
        served = []
        while self._waiters:
            waiter = self._waiters[0]
            before = len(waiter.got)
            waiter.got.extend(islice(ids, waiter.need))
            waiter.need -= len(waiter.got) - before
            if waiter.need:
                break
            served.append(self._waiters.popleft())
        rest = list(islice(ids, max(0, self._limits.prefetch - self._stock())))
        if rest and not self._closed:
            expires = began + self._limits.max_age
            # of one shelf the next block would come only when it is empty
            halves = (rest,) if self._stock() or len(rest) == 1 else (rest[: len(rest) // 2], rest[len(rest) // 2 :])
            self._shelves.extend(_Shelf(half, expires) for half in halves)
            if self._front is None:
                self._to_front(self._shelves.popleft(), passed())
        if not self._next_size():
            self._done(fetcher)
        return served

    # --- without it ------------------------------------------------------------------------------------------------

    def _fetch_in_background(self, fetcher: object) -> None:
        try:
            self._run(lambda: self._fetch(fetcher))
        except BaseException:  # an interrupt: who comes next fetches
            self._done(fetcher)
            raise
        if self._fetcher_thread == threading.get_ident():  # it has not begun
            self._fetcher_thread = 0

    def _fetch(self, fetcher: object) -> None:
        """Fetch blocks until nobody waits and enough is in memory."""
        try:
            while self._fetcher is fetcher:
                self._fetch_one(fetcher)
        except BaseException:
            self._done(fetcher)
            raise

    def _fetch_one(self, fetcher: object) -> None:
        """Fetch a block. Afterwards `self._fetcher` is another one or None if this one need not fetch more."""
        size, asking, deadline = self._locked(lambda: self._plan(fetcher))
        if not size:
            return
        try:
            block, began = self._failover.ask(lambda server, end: self._ask(server, size, end), deadline, self.trouble)
        except InvalidRequest as error:
            if size > 1:  # more than the increment allows, which only a block tells
                self._largest_block = 1
            else:
                self._failed(error, asking, fetcher)
        except SequenceConflict as error:
            self.has_blocks = False
            self._failed(error, asking, fetcher)
        except Exception as error:
            self._failed(error, asking, fetcher)
        else:
            for waiter in self._locked(lambda: self._put(block, began, fetcher)):
                if waiter.future.set_running_or_notify_cancel():  # else nobody gets these
                    waiter.future.set_result(waiter.got)

    def _ask(self, server: Server, size: int, deadline: float) -> tuple[Block, float]:
        began = passed()
        block = server.take_block(self.sequence, size, deadline)
        self._locked(lambda: self._given.take_block(block, server.url))
        return block, began

    def _failed(self, error: Exception, asking: list[_Waiter], fetcher: object) -> None:
        """Those who waited when this was asked have their answer. If others have come meanwhile, it is asked again."""
        self._locked(lambda: self._send_away(asking, fetcher))
        for waiter in asking:
            if waiter.future.set_running_or_notify_cancel():
                waiter.future.set_exception(error)
