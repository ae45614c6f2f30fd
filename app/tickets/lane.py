"""A lane: one sequence on one ticket database.

Requests queue here while a statement is under way, and the next statement draws for all of them at once: first come,
first served. One request alone waits for nobody. The statement is the lane's own, so a request that has gone away
cancels nothing; its ticket becomes a gap. `expire` fails a request over to the next lane when its time on this database
is over.

A ticket mostly takes the short way: `ask` sends the statement, its answer comes to `_came`, which hands out what it
brought; no task takes part. Whatever has to wait for more than that is seen to by a task: a lane that has to be opened,
a mark to be reserved, a database without a connection to spare, an error.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Coroutine, Iterable, Sequence
from enum import StrEnum
from functools import partial
from typing import NamedTuple, Protocol

from app.common.errors import (
    ColumnExhausted,
    MarkRefused,
    RingChanged,
    SequenceMissing,
    SequenceUnavailable,
    SequenceWentBack,
    TicketDatabaseBusy,
    TicketDatabaseError,
    TicketDatabaseHung,
    TicketDatabaseMisconfigured,
)
from app.common.log import event
from app.databases.protocol import ROOM, Draw, Drawn, Table
from app.tickets.id_guard import IdGuard, WrongResidue
from app.tickets.observer import Observer
from app.tickets.ring import Member, Ring
from app.tickets.waiters import Tickets, Waiter, fail_over

log = logging.getLogger(__name__)

LAST_TICKETS = 1_000_000
"""With fewer left, the position is read before several tickets are drawn in one statement: one that runs past the end
of the column uses up what is left, and what this server knows is as old as the last probes, while others draw."""
SINGLY = 64
"""The longest list that is drawn one ticket at a time where several are not certain to fit."""


class LaneState(StrEnum):
    """What a lane can be; `open` and `closed` both take requests."""

    CLOSED = "closed"
    OPEN = "open"
    SUSPENDED = "suspended"
    EXHAUSTED = "exhausted"


class LaneLedger(Protocol):
    """The ledger, as far as a lane needs it."""

    async def open(self, lane: "Lane") -> None: ...

    async def reserve(self, lane: "Lane", last: int, *, protected: bool) -> None: ...

    def reserve_soon(self, lane: "Lane") -> None: ...

    def check(self, lane: "Lane") -> None: ...


class _Sent(NamedTuple):
    """A lane as it was when a statement for so many `tickets` was sent, `at` by the performance counter.

    `protected`: whether any other database kept marks then.
    """

    highest: int
    token: str
    at: float
    tickets: int
    protected: bool


class Lane:
    """One sequence on one database: queue, statement under way, check on ids, and what the ledger holds for it.

    `token`, `mark`, `read_at` and the steps belong to the ledger. `must_advance`: the database may have gone back in
    this sequence, whatever its incarnation says. `listed`: the table as the catalog saw it last, `table`: as it was
    when the lane opened. `reason`: why the lane is suspended, in words. `missing`: because the
    database has no table for it. `tried`: whether a suspended lane has been tried again since; requests wait for that.
    `largest_whole`, `largest_list`: close to the end, the largest block and list that may still be there. `ring`: the
    number of the ring record that it was opened under. `unverified`: the databases that could not be asked for its
    marks when it opened.
    """

    def __init__(self, sequence: str, member: Member, ring: Ring, ledger: LaneLedger, observer: Observer) -> None:
        self.sequence = sequence
        self.member = member
        self.state = LaneState.CLOSED
        self.reason: str | None = None
        self.listed: Table | None = None
        self.table: Table | None = None
        self.guard = IdGuard(member.database.offset, member.database.increment)
        self.token = ""
        self.mark = 0
        self.reserve_at = 0
        self.step = 0
        self.stepped_at = 0.0
        self.must_advance = False
        self.missing = False
        self.tried = False
        self.read_at = 0.0
        self.ring = 0
        self.unverified = ""
        self.issued = 0
        self.largest_whole = self.largest_list = member.database.largest_block
        self._ring = ring
        self._ledger = ledger
        self._observer = observer
        self._queue: deque[Waiter] = deque()
        self._under_way: Sequence[Waiter] = ()
        self._busy = False
        self._opening = asyncio.Lock()
        self._in_company = False
        self._task: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<Lane {self.sequence} on {self.member.name} {self.state}, {len(self._queue)} waiting>"

    @property
    def is_open(self) -> bool:
        return self.state is LaneState.OPEN

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
        return count == 1 or count <= (self.largest_whole if whole else self.largest_list)

    @property
    def waiting(self) -> bool:
        """Whether any request waits here."""
        return bool(self._queue or self._under_way)

    # --- the request's side ----------------------------------------------------------------------------------------

    def ask(self, waiter: Waiter) -> None:
        """Queue a request. It is answered later, at once only if the lane breaks over it; from its `until` on `expire`
        lets it go."""
        self._queue.append(waiter)
        if not self._busy:
            self._busy = True
            if self._in_company:  # others are about to ask, in this turn of the event loop, and can share the statement
                asyncio.get_running_loop().call_soon(self._next)
            else:
                self._next()

    def expire(self, now: float) -> None:
        """Let go every request whose time on this database is over; it need not be the oldest one."""
        for waiter in (*self._under_way, *self._queue):
            if waiter.until <= now:
                fail_over(waiter)

    def send_on(self) -> None:
        """Let every request go: this lane cannot serve now. What the statement under way draws becomes a gap."""
        for waiter in self._under_way:
            fail_over(waiter)
        while self._queue:
            fail_over(self._queue.popleft())

    # --- the statement's side --------------------------------------------------------------------------------------

    def _next(self) -> None:
        """Draw for those who wait. The lane is busy until it has come back and nobody waits."""
        try:
            while self._queue:
                batch, total = self._next_batch()
                if batch:
                    self._in_company = len(batch) > 1
                    self._under_way = batch
                    if not self._draws_at_once(batch, total):
                        self._see_to(self.draw(total))
                    return
            self._busy = False
        except Exception as error:
            self._broke(error)

    def _draws_at_once(self, batch: Sequence[Waiter], total: int) -> bool:
        """Send the statement now, if nothing is to be done before."""
        try:
            self._ledger.check(self)
        except TicketDatabaseError:
            return False
        table, highest = self.table, self.guard.highest
        if self.state is not LaneState.OPEN or table is None or (total > 1 and self.guard.headroom() < LAST_TICKETS):
            return False
        came = partial(self._came, batch, self._sent(total))
        return self.member.database.draw_at_once(table, total, highest, came)

    def _came(self, batch: Sequence[Waiter], sent: _Sent, drawn: Drawn) -> None:
        """What was sent at once has come back."""
        if self._under_way is not batch:  # the lane broke meanwhile: they have been sent on, and others are under way
            return
        try:
            if isinstance(drawn, TicketDatabaseError):
                raise drawn
            self._take_in(drawn, sent)
            if drawn.last > self.mark:
                self._see_to(self._reserved(drawn, sent))
                return
            if drawn.last > self.reserve_at:
                self._ledger.reserve_soon(self)
            self._hand_out(batch, drawn)
        except TicketDatabaseError as error:
            self._see_to(_failed(error))
        except Exception as error:
            self._broke(error)
        else:
            self._under_way = ()
            self._next()

    def _see_to(self, drawing: Coroutine[None, None, Draw]) -> None:
        self._task = asyncio.get_running_loop().create_task(self._finish(drawing))
        self._task.add_done_callback(self._finished)

    async def _finish(self, drawing: Coroutine[None, None, Draw]) -> None:
        """Hand out what is drawn for those under way, or send them on; then draw for the next."""
        batch = self._under_way
        try:
            drawn = await drawing
        except ColumnExhausted:
            await self._draw_each(batch)
        except TicketDatabaseError as error:
            for waiter in batch:
                fail_over(waiter)
            self.report(error)
        else:
            self._hand_out(batch, drawn)
        self._under_way = ()
        self._next()

    def _finished(self, task: "asyncio.Task[None]") -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None or task.cancelled():
            self._broke(error)

    def _broke(self, error: BaseException | None) -> None:
        """An error that this server does not know: nobody waits here for ever because of it."""
        if error is not None:
            event(log, logging.ERROR, "a lane met an unknown error", exc_info=error, sequence=self.sequence)
        self.send_on()
        self._under_way = ()
        self._busy = False

    def _next_batch(self) -> tuple[list[Waiter], int]:
        """As many of those who wait as one statement can serve."""
        limit = self.member.database.largest_block
        batch: list[Waiter] = []
        total = 0
        while self._queue and total + self._queue[0].count <= limit:
            waiter = self._queue.popleft()
            if waiter.is_gone():
                continue
            batch.append(waiter)
            total += waiter.count
        if not batch and self._queue and self._queue[0].count > limit:
            fail_over(self._queue.popleft())
        return batch, total

    async def draw(self, count: int) -> Draw:
        """Draw `count` tickets that may be handed out: checked, and below a committed mark.

        Raises TicketDatabaseError; what was drawn then is dropped.
        """
        self._ledger.check(self)
        if self.state is LaneState.SUSPENDED:
            raise SequenceUnavailable(self.reason)
        if self.state is not LaneState.OPEN:
            await self.open()
        table = self.table
        assert table is not None
        if count > 1 and self.guard.headroom() < LAST_TICKETS:
            await self._make_sure_of(table, count)
        sent = self._sent(count)
        drawn = await self.member.database.draw(table, count, sent.highest)
        self._take_in(drawn, sent)
        return await self._reserved(drawn, sent)

    def _sent(self, tickets: int) -> _Sent:
        protected = self._ring.has_witness(self.member)
        return _Sent(self.guard.highest, self.token, time.perf_counter(), tickets, protected)

    def _take_in(self, drawn: Draw, sent: _Sent) -> None:
        """Check what came back, and that the lane is still what it was when the statement was sent."""
        self._observer.statement(self.member, time.perf_counter() - sent.at, sent.tickets)
        self.guard.check(drawn, sent.highest)
        self.guard.advance(drawn.last)
        if self.token != sent.token or self.state is LaneState.CLOSED:
            raise MarkRefused("was closed while it drew")

    async def _reserved(self, drawn: Draw, sent: _Sent) -> Draw:
        """The same, once a mark above it is committed."""
        last = drawn.last
        if last > self.mark:
            await self._ledger.reserve(self, last, protected=sent.protected)
        elif last > self.reserve_at:
            self._ledger.reserve_soon(self)
        return drawn

    def _hand_out(self, batch: Iterable[Waiter], drawn: Draw) -> None:
        next_id, step = drawn.first, drawn.step
        for waiter in batch:
            end = next_id + step * waiter.count
            if waiter.is_gone():
                self._observer.gap(self.member, "gone", waiter.count)
            else:
                waiter.answer(range(next_id, end, step))
                self.issued += waiter.count
            next_id = end

    async def _make_sure_of(self, table: Table, count: int) -> None:
        """Raise ColumnExhausted unless so many tickets in one statement end before the column does, whatever others
        draw between this look and the statement."""
        if self.guard.headroom() >= count:
            self.guard.advance((await self.member.database.position(table)).next_id - 1)
        if self.guard.headroom() < ROOM * count:
            raise ColumnExhausted("may hold fewer further ids than were asked for")

    async def _draw_each(self, batch: Sequence[Waiter]) -> None:
        """Close to the end, what several wait for together no longer fits in one statement: each by itself."""
        for waiter in batch:
            if waiter.is_gone():
                continue
            try:
                tickets = await self._draw_for(waiter, tried=len(batch) == 1)
            except TicketDatabaseError as failure:
                for each in batch:
                    fail_over(each)
                self.report(failure)
                return
            if tickets is None:  # those that are left are not used up for it
                fail_over(waiter)
            elif not waiter.is_gone():
                waiter.answer(tickets)
                self.issued += len(tickets)

    async def _draw_for(self, waiter: Waiter, *, tried: bool) -> Tickets | None:
        """One request's tickets, a short list's one at a time if need be; None if it is too large for what is left."""
        count = waiter.count
        if not tried:
            try:
                drawn = await self.draw(count)
                return range(drawn.first, drawn.last + 1, drawn.step)
            except ColumnExhausted:
                if count == 1:
                    raise
        if count > 1 and waiter.whole:
            self.largest_whole = min(self.largest_whole, count - 1)
            return None
        if count > 1 and count > min(SINGLY, self.guard.headroom()):
            self.largest_list = min(self.largest_list, count - 1)
            return None
        ids: list[int] = []
        while len(ids) < count and not waiter.is_gone():
            ids.append((await self.draw(1)).first)
        return ids

    async def open(self) -> None:
        """Open it with the ledger, unless that has been done meanwhile. Raises TicketDatabaseError."""
        async with self._opening:  # two at a time would take the marks from each other, and move it up twice
            if self.state is LaneState.OPEN:
                return
            await self._ledger.open(self)
            self.largest_whole = self.largest_list = self.member.database.largest_block  # a column may be wider now
            self.state = LaneState.OPEN

    # --- states ----------------------------------------------------------------------------------------------------

    def report(self, error: TicketDatabaseError) -> None:
        """Take the state that follows from an error on this lane, and tell the ring what is the database's own."""
        member = self.member
        if isinstance(error, ColumnExhausted):
            self._exhaust()
        elif isinstance(error, MarkRefused):
            self._observer.violation(member, "mark")
            self.close()
        elif isinstance(error, RingChanged):
            self._observer.violation(member, "ring")
            self.close()
            member.wake.set()
        elif isinstance(error, SequenceUnavailable):
            if isinstance(error, SequenceWentBack):
                self._observer.violation(member, "order")
            self.missing = isinstance(error, SequenceMissing)
            self.suspend(str(error), must_advance=isinstance(error, SequenceMissing | SequenceWentBack))
        elif isinstance(error, TicketDatabaseBusy):
            self._observer.retry(member, str(error))
        elif isinstance(error, WrongResidue):
            self._observer.violation(member, "residue")
            self._ring.quarantine(member, f"{error} (sequence {self.sequence})", residue_of=self.sequence)
        elif isinstance(error, TicketDatabaseMisconfigured):
            self._ring.quarantine(member, str(error))
        else:
            if isinstance(error, TicketDatabaseHung):  # or it may be this table alone, which a probe cannot tell
                self.suspend(str(error))
            self._ring.mark_down(member, str(error))
        if not isinstance(error, MarkRefused | RingChanged | ColumnExhausted):
            member.failovers += 1

    def _exhaust(self) -> None:
        if self.state is not LaneState.EXHAUSTED:
            event(log, logging.WARNING, "exhausted", sequence=self.sequence, database=self.member.name)
        self.state = LaneState.EXHAUSTED
        self._ring.lanes_changed()
        self.send_on()

    def suspend(self, reason: str, *, must_advance: bool = False) -> None:
        """Take no requests until `recover` succeeds."""
        self.must_advance |= must_advance
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

    def retire(self) -> None:
        """Its ring is no more: take no requests ever again. What comes back under it is dropped."""
        self.state, self.reason, self.tried = LaneState.SUSPENDED, "is of another ring", True
        self.token = ""
        self._ring.lanes_changed()
        self.send_on()

    async def recover(self) -> None:
        """Open a suspended lane and check one draw, which is dropped; then take requests again.

        Raises TicketDatabaseError; the lane is suspended still.
        """
        if self._busy:
            return
        async with self._opening:
            if self.state is not LaneState.SUSPENDED:
                return
            await self._ledger.open(self)
            table = self.table
            assert table is not None
            highest = self.guard.highest
            drawn = await self.member.database.draw(table, 1, highest)
            self.guard.check(drawn, highest)
            self.guard.advance(drawn.last)
            self._observer.gap(self.member, "checked", 1)
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
        self.must_advance |= isinstance(error, SequenceMissing | SequenceWentBack)
        self.reason = str(error)


async def _failed(error: TicketDatabaseError) -> Draw:
    raise error
