"""A lane: one sequence on one ticket database.

Requests queue here while a statement is under way, and the next statement draws for all of them at once: first come,
first served. One request alone waits for nobody. The statement runs in a task of the lane's own, so a request that has
gone away cancels nothing; its ticket becomes a gap. A request whose time on this database is over is let go by `expire`
and asks the next lane.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Protocol

from app.databases.protocol import Draw, Table
from app.errors import (
    ColumnExhausted,
    MarkRefused,
    SequenceMissing,
    SequenceUnavailable,
    SequenceWentBack,
    TicketDatabaseBusy,
    TicketDatabaseError,
    TicketDatabaseHung,
    TicketDatabaseMisconfigured,
)
from app.fence import Fence, WrongResidue
from app.log import event
from app.metrics import Metrics
from app.ring import Member, Ring

log = logging.getLogger(__name__)

Tickets = Sequence[int]
"""What a request gets: a range, or at the very end of a sequence a list."""


class LaneState(StrEnum):
    """What a lane can be; `open` and `closed` both take requests."""

    CLOSED = "closed"
    OPEN = "open"
    SUSPENDED = "suspended"
    EXHAUSTED = "exhausted"


class LaneKeeper(Protocol):
    """The ledger, as far as a lane needs it."""

    async def open(self, lane: "Lane") -> None: ...

    async def reserve(self, lane: "Lane", last: int) -> None: ...

    def reserve_soon(self, lane: "Lane") -> None: ...

    def check(self, lane: "Lane") -> None: ...


class _Waiter:
    """A request in the queue: `None` as its result sends it on to the next lane."""

    __slots__ = ("count", "future", "until", "whole")

    def __init__(self, count: int, whole: bool, until: float, future: "asyncio.Future[Tickets | None]") -> None:
        self.count = count
        self.whole = whole
        self.until = until
        self.future = future


class Lane:
    """One sequence on one database: queue, statement under way, fence, and what the ledger holds for it.

    `token`, `mark`, `read_at` and the steps belong to the ledger. `must_rise`: the database may have gone back in this
    sequence, whatever its incarnation says. `listed`: the table as the catalog saw it last, `table`: as it was when
    the lane opened. `reason`: why the lane is suspended, in words. `missing`: because the
    database has no table for it. `tried`: whether a suspended lane has been tried again since; requests wait for that.
    `largest_whole`: close to the end, the largest block that may still be there.
    """

    def __init__(self, sequence: str, member: Member, ring: Ring, keeper: LaneKeeper, metrics: Metrics) -> None:
        self.sequence = sequence
        self.member = member
        self.state = LaneState.CLOSED
        self.reason: str | None = None
        self.listed: Table | None = None
        self.table: Table | None = None
        self.fence = Fence(member.database.offset, member.database.increment)
        self.token = ""
        self.mark = 0
        self.reserve_at = 0
        self.step = 0
        self.stepped_at = 0.0
        self.must_rise = False
        self.missing = False
        self.tried = False
        self.read_at = 0.0
        self.issued = 0
        self.largest_whole = member.database.largest_block
        self._one_by_one = False
        self._ring = ring
        self._keeper = keeper
        self._metrics = metrics
        self._queue: deque[_Waiter] = deque()
        self._under_way: Sequence[_Waiter] = ()
        self._pump_task: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<Lane {self.sequence} on {self.member.name} {self.state}, {len(self._queue)} waiting>"

    @property
    def can_be_asked(self) -> bool:
        return self.state is LaneState.OPEN or self.state is LaneState.CLOSED

    @property
    def about_to_be_tried(self) -> bool:
        """Whether it is suspended and the database, which is up, has not been asked for it since."""
        return self.state is LaneState.SUSPENDED and not self.tried and self.member.up

    def may_hold(self, count: int, whole: bool) -> bool:
        """Whether so many tickets may be left here; false where it is certain that they are not."""
        if self.state is LaneState.EXHAUSTED:
            return False
        if whole:
            return count <= self.largest_whole
        return count == 1 or not self._one_by_one or count <= self.fence.headroom()

    @property
    def waiting(self) -> bool:
        """Whether any request waits here."""
        return bool(self._queue or self._under_way)

    # --- the request's side ----------------------------------------------------------------------------------------

    def ask(self, count: int, whole: bool, until: float) -> "asyncio.Future[Tickets | None]":
        """Queue for `count` tickets. The future gives increasing ids (a range if `whole`), or None: ask the next lane.

        `until`: in the event loop's time; from then on `expire` lets the request go.
        """
        future: asyncio.Future[Tickets | None] = asyncio.get_running_loop().create_future()
        self._queue.append(_Waiter(count, whole, until, future))
        if self._pump_task is None:
            self._pump_task = asyncio.get_running_loop().create_task(self._pump())
            self._pump_task.add_done_callback(self._pump_ended)
        return future

    def expire(self, now: float) -> None:
        """Let go every request whose time on this database is over; it need not be the oldest one."""
        for waiter in (*self._under_way, *self._queue):
            if waiter.until <= now:
                _answer(waiter, None)

    def send_on(self) -> None:
        """Let every request go: this lane cannot serve now. What the statement under way draws becomes a gap."""
        for waiter in self._under_way:
            _answer(waiter, None)
        while self._queue:
            _answer(self._queue.popleft(), None)

    # --- the statement's side --------------------------------------------------------------------------------------

    async def _pump(self) -> None:
        while self._queue:
            batch, total = self._next_batch()
            if not batch:
                continue
            self._under_way = batch
            try:
                drawn = await self.draw(total)
            except ColumnExhausted as error:
                await self._draw_one_by_one(batch, error)
            except TicketDatabaseError as error:
                for waiter in batch:
                    _answer(waiter, None)
                self.report(error)
            else:
                self._hand_out(batch, drawn)
            self._under_way = ()
        self._pump_task = None  # here, not when the task is known to be done: who asks in between begins another

    def _pump_ended(self, task: "asyncio.Task[None]") -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            event(log, logging.ERROR, "a lane met an unknown error", exc_info=error, sequence=self.sequence)
        if error is not None or task.cancelled():
            self._pump_task = None
            self.send_on()
            self._under_way = ()

    def _next_batch(self) -> tuple[list[_Waiter], int]:
        """As many of those who wait as one statement can serve."""
        limit = self.member.database.largest_block
        batch: list[_Waiter] = []
        total = 0
        while self._queue and total + self._queue[0].count <= limit:
            waiter = self._queue.popleft()
            if waiter.future.done():
                continue  # it has been let go
            batch.append(waiter)
            total += waiter.count
            if self._one_by_one:
                break
        if not batch and self._queue and self._queue[0].count > limit:
            _answer(self._queue.popleft(), None)
        return batch, total

    async def draw(self, count: int) -> Draw:
        """Draw `count` tickets that may be handed out: past the fence, below a committed mark.

        Raises TicketDatabaseError; what was drawn then is dropped.
        """
        self._keeper.check(self)
        if self.state is not LaneState.OPEN:
            await self.open()
        if count > 1 and count > self.fence.headroom():
            raise ColumnExhausted("holds fewer further ids than were asked for")
        table, token = self.table, self.token
        assert table is not None
        highest = self.fence.highest
        began = time.perf_counter()
        drawn = await self.member.database.draw(table, count, highest)
        self._metrics.statement(self.member, time.perf_counter() - began, count)
        self.fence.check(drawn, highest)
        last = drawn.last
        self.fence.lift(last)
        if self.token != token or self.state is LaneState.CLOSED:
            raise MarkRefused("was closed while it drew")
        if last > self.mark:
            await self._keeper.reserve(self, last)
        elif last > self.reserve_at:
            self._keeper.reserve_soon(self)
        return drawn

    def _hand_out(self, batch: Iterable[_Waiter], drawn: Draw) -> None:
        next_id, step = drawn.first, drawn.step
        for waiter in batch:
            end = next_id + step * waiter.count
            if waiter.future.done():
                self._metrics.gap(self.member, "gone", waiter.count)
            else:
                waiter.future.set_result(range(next_id, end, step))
                self.issued += waiter.count
            next_id = end

    async def _draw_one_by_one(self, batch: Sequence[_Waiter], error: TicketDatabaseError) -> None:
        """Close to the end what no longer fits in one statement may fit in several: one ticket at a time."""
        self._one_by_one = True
        for waiter in batch:
            ids: list[int] = []
            try:
                if waiter.whole and waiter.count > 1:
                    self.largest_whole = min(self.largest_whole, waiter.count - 1)
                if not self.may_hold(waiter.count, waiter.whole):  # those that are left are not used up for it
                    _answer(waiter, None)
                    continue
                while len(ids) < waiter.count and not waiter.future.done():
                    ids.append((await self.draw(1)).first)
            except TicketDatabaseError as failure:
                for each in batch:
                    _answer(each, None)
                self.report(failure)
                return
            if not waiter.future.done():
                waiter.future.set_result(ids)
                self.issued += len(ids)

    async def open(self) -> None:
        """Open it with the ledger. Raises TicketDatabaseError."""
        await self._keeper.open(self)
        self.state = LaneState.OPEN

    # --- states ----------------------------------------------------------------------------------------------------

    def report(self, error: TicketDatabaseError) -> None:
        """Take the state that follows from an error on this lane, and tell the ring what is the database's own."""
        member = self.member
        if isinstance(error, ColumnExhausted):
            self._exhaust()
        elif isinstance(error, MarkRefused):
            self._metrics.violation(member, "mark")
            self.close()
        elif isinstance(error, SequenceUnavailable):
            if isinstance(error, SequenceWentBack):
                self._metrics.violation(member, "order")
            self.missing = isinstance(error, SequenceMissing)
            self.suspend(str(error), must_rise=isinstance(error, SequenceMissing | SequenceWentBack))
        elif isinstance(error, TicketDatabaseBusy):
            self._metrics.retry(member, str(error))
        elif isinstance(error, WrongResidue):
            self._metrics.violation(member, "residue")
            self._ring.quarantine(member, f"{error} (sequence {self.sequence})", residue_of=self.sequence)
        elif isinstance(error, TicketDatabaseMisconfigured):
            self._ring.quarantine(member, str(error))
        else:
            if isinstance(error, TicketDatabaseHung):  # or it may be this table alone, which a probe cannot tell
                self.suspend(str(error))
            self._ring.mark_down(member, str(error))
        if not isinstance(error, MarkRefused | ColumnExhausted):
            member.failovers += 1

    def _exhaust(self) -> None:
        if self.state is not LaneState.EXHAUSTED:
            event(log, logging.WARNING, "exhausted", sequence=self.sequence, database=self.member.name)
        self.state = LaneState.EXHAUSTED
        self._ring.lanes_changed()
        self.send_on()

    def suspend(self, reason: str, *, must_rise: bool = False) -> None:
        """Take no requests until `recover` succeeds."""
        self.must_rise |= must_rise
        if self.state is not LaneState.SUSPENDED:
            event(log, logging.WARNING, "suspended", sequence=self.sequence, database=self.member.name, reason=reason)
            self.tried = False
        self.state, self.reason = LaneState.SUSPENDED, reason
        self._ring.lanes_changed()
        self.send_on()
        self.member.wake.set()

    def close(self) -> None:
        """Open again, with the ledger, before the next draw; the end of the sequence is found again, too."""
        if self.state is LaneState.OPEN or self.state is LaneState.EXHAUSTED:
            self.state = LaneState.CLOSED
            self._ring.lanes_changed()

    async def recover(self) -> None:
        """Open a suspended lane and check one draw, which is dropped; then take requests again.

        Raises TicketDatabaseError; the lane is suspended still.
        """
        if self._pump_task is not None:
            return
        await self._keeper.open(self)
        table = self.table
        assert table is not None
        highest = self.fence.highest
        drawn = await self.member.database.draw(table, 1, highest)
        self.fence.check(drawn, highest)
        self.fence.lift(drawn.last)
        self._metrics.gap(self.member, "checked", 1)
        self.state, self.reason = LaneState.OPEN, None
        event(log, logging.INFO, "takes requests again", sequence=self.sequence, database=self.member.name)
        self._ring.lanes_changed()

    def recovery_failed(self, error: TicketDatabaseError) -> None:
        """Stay suspended, or take the state that the error calls for; whoever waited for it can go on."""
        if not self.tried:
            self.tried = True
            self._ring.lanes_changed()
        if isinstance(error, ColumnExhausted | TicketDatabaseMisconfigured):
            self.report(error)
            return
        self.missing = isinstance(error, SequenceMissing)
        self.must_rise |= isinstance(error, SequenceMissing | SequenceWentBack)
        self.reason = str(error)


def _answer(waiter: _Waiter, result: Tickets | None) -> None:
    if not waiter.future.done():
        waiter.future.set_result(result)
