"""A lane: one sequence on one ticket database.

Requests queue here while a statement is under way, and the next statement draws for all of them at once: first come,
first served. One request alone waits for nobody. The statement is the lane's own, so a request that has gone away
cancels nothing; its ticket becomes a gap. `expire` fails a request over to the next lane when its time on this database
is over.

The way of a batch is one chain: `_next` chooses it, `_send` sends the statement, `_came` checks what it brought and
`_hand_out` hands it out, which begins the next. Mostly no task takes part. Where a link has to wait, a task does that
and goes on with the same chain: `_prepare` before the statement (a lane that has to be opened, a position to be read),
the ledger's `reserve` after it (a mark to be committed). An error ends in `_failed`, wherever it comes from.

Batches and states are one class, long as it is: whether a batch is sent and what it brought is taken depends on the
state, a state that takes no requests sends the batches on, and a second object between them would cost each ticket a
look-up.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
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
from app.databases.protocol import Draw, Drawn, Residue, Table
from app.tickets.lanes.id_guard import IdGuard, WrongResidue
from app.tickets.lanes.marks import LaneMarks
from app.tickets.lanes.neighbours import Shelf, Stamps
from app.tickets.lanes.queue import SINGLY, Batch, LaneQueue
from app.tickets.lanes.state import CLOSED, EXHAUSTED, OPEN, RETIRED, SUSPENDED, LaneEvent, LaneState, after
from app.tickets.requests.observer import Observer
from app.tickets.requests.request import TicketRequest
from app.tickets.ring.ring import Member, Ring

log = logging.getLogger(__name__)


class LaneLedger(Protocol):
    """The ledger, as far as a lane needs it."""

    async def open(self, lane: "Lane") -> None: ...

    async def reserve(self, lane: "Lane", last: int, *, protected: bool) -> None: ...

    def reserve_soon(self, lane: "Lane") -> None: ...

    def check(self, lane: "Lane") -> None: ...


class _Sent(NamedTuple):
    """A lane as it was when a statement was sent, `at` by the performance counter.

    `protected`: whether any other database kept marks then.
    """

    highest: int
    token: str
    at: float
    protected: bool


class Lane:
    """One sequence on one database: its queue, the statement under way, its state.

    `residue`: the ids that it draws, in the ring that it was opened under. `marks`: what the ledger holds for it.
    `guard`: the check on ids. `listed`: the table as the catalog saw it last, `table`: as it was when the lane opened.
    `must_advance`: the database may have gone back in this sequence, whatever its incarnation says. `reason`: why the
    lane is suspended, in words; `missing`: because the database has no table for it; `tried`: whether it has been tried
    again since, which requests wait for. `largest_whole`, `largest_list`: close to the end, the largest block and list
    that may still be there, in tickets. `issued`: tickets handed out. `stamps`: for a counter whose tickets hold the
    time. `shelf`: what it tells the sequence's reserve, None where there is none.
    """

    def __init__(self, sequence: str, member: Member, ring: Ring, ledger: LaneLedger, observer: Observer) -> None:
        self.sequence = sequence
        self.member = member
        self.marks = LaneMarks()
        self.residue = Residue(member.database.offset, member.database.increment)
        self.guard = IdGuard(self.residue.offset, self.residue.increment)
        self.listed: Table | None = None
        self.table: Table | None = None
        self.stamps: Stamps | None = None
        self.shelf: Shelf | None = None
        self.must_advance = False
        self.reason: str | None = None
        self.missing = False
        self.tried = False
        self.issued = 0
        self.largest_whole = self.largest_list = member.database.largest_block
        self._state: LaneState = CLOSED
        self.can_be_asked = True
        """Whether its state lets it take requests."""
        self._ring = ring
        self._ledger = ledger
        self._observer = observer
        self._loop = asyncio.get_running_loop()
        self._queue = LaneQueue(self)
        self._busy = False
        self._opening = asyncio.Lock()
        self._in_company = False
        self._touch = 0
        self._task: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        busy = ", busy" * self._busy + ", collecting" * self._queue.is_collecting
        return f"<Lane {self.sequence} on {self.member.name} {self._state}, {len(self._queue)} waiting{busy}>"

    @property
    def state(self) -> LaneState:
        return self._state

    @property
    def is_open(self) -> bool:
        return self._state is OPEN

    @property
    def about_to_be_tried(self) -> bool:
        """Whether it is suspended and the database, which is up, has not been asked for it since."""
        return self._state is SUSPENDED and not self.tried and self.member.up

    def may_hold(self, count: int, whole: bool) -> bool:
        """Whether so many tickets may be left here; false where it is certain that they are not."""
        if self._state is EXHAUSTED:
            return False
        return count == 1 or count <= (self.largest_whole if whole else self.largest_list)

    @property
    def waiting(self) -> bool:
        """Whether any request waits here."""
        return bool(self._queue or self._queue.under_way)

    # --- the request's side ----------------------------------------------------------------------------------------

    def ask(self, request: TicketRequest) -> None:
        """Queue a request. It is answered later, at once only if the lane breaks over it; from its `until` on `expire`
        lets it go."""
        self._queue.add(request)
        if not self._busy:
            self._busy = True
            if self._in_company:  # others are about to ask, in this turn of the event loop, and can share the statement
                self._loop.call_soon(self._next)
            else:
                self._next()

    def expire(self, now: float) -> None:
        """Let go every request whose time on this database is over; it need not be the oldest one."""
        self._queue.fail_over_expired(now)

    def send_on(self) -> None:
        """Let every request go: this lane cannot serve now. What the statement under way draws becomes a gap."""
        self._queue.fail_over_all()

    # --- the way of a batch ----------------------------------------------------------------------------------------

    def _next(self) -> None:
        """Draw for those who wait. The lane is busy until it has come back and nobody waits."""
        try:
            batch, total = self._queue.next_batch(self._most_at_once())
            if not batch:
                self._busy = False
                return
            self._in_company = len(batch) > 1
            if self._is_ready():
                self._send(batch, total)
            else:
                self._wait_for(batch, self._prepare(), partial(self._send, batch, total))
        except Exception as error:
            self._broke(error)

    def _most_at_once(self) -> int:
        """How many tickets one statement may draw; one request may want more."""
        database = self.member.database
        if self.stamps is None:
            return database.largest_block
        try:
            room = self.stamps.room(self.guard)
        except TicketDatabaseError:
            return 1  # the statement is refused for that, later
        return max(1, min(database.largest_block, room))

    def _is_ready(self) -> bool:
        """Whether the statement can be sent as it is."""
        try:
            self._ledger.check(self)
            if self.stamps is not None and self.stamps.begins_long_moment(self.guard.highest):
                return False
        except TicketDatabaseError:
            return False
        return self._state is OPEN

    async def _prepare(self) -> None:
        """Do what is to be done before the statement can be sent. Raises TicketDatabaseError."""
        self._ledger.check(self)
        if self._state is SUSPENDED or self._state is RETIRED:
            raise SequenceUnavailable(self.reason)
        if self._state is EXHAUSTED:
            raise ColumnExhausted("holds no further id for it")
        if self._state is not OPEN:
            await self.open()
        if self.stamps is not None and self.stamps.begins_long_moment(self.guard.highest):
            await self._see_that_it_has_not_gone_back()
        if self._state is not OPEN:
            raise TicketDatabaseBusy("lost touch with it while its position was read")

    async def _see_that_it_has_not_gone_back(self) -> None:
        """Raise SequenceWentBack where the table stands below what is known issued."""
        highest, next_id = self.guard.highest, (await self.member.database.position(self.sequence)).next_id
        if next_id <= highest:
            raise SequenceWentBack(f"stands at {next_id} after {highest} had been issued")
        self.guard.advance(next_id - 1)

    def _send(self, batch: Batch, total: int) -> None:
        table = self.table
        assert table is not None
        highest = self.guard.highest
        least = 0
        if self.stamps is not None:
            try:
                least = self.stamps.least(self.guard, total)
            except TicketDatabaseError as error:
                self._failed(batch, error)
                return
        protected = self._ring.has_witness(self.member)
        sent = _Sent(highest, self.marks.token, time.perf_counter(), protected)
        came = partial(self._came, batch, sent)
        self.member.database.start_draw(self.residue, table, total, highest, came, least=least)

    def _came(self, batch: Batch, sent: _Sent, drawn: Drawn) -> None:
        """See what came back, unless the lane broke meanwhile: then they have been sent on, and others are under way.

        Raises nothing: whoever calls has the draws of other lanes to answer.
        """
        if self._queue.under_way is not batch:
            return
        try:
            self._observer.statement(self.member, self.sequence, batch, sent.at, drawn)
            if isinstance(drawn, Draw):
                self._take(batch, sent, drawn)
            else:
                self._failed(batch, drawn)
        except Exception as error:
            self._broke(error)

    def _take(self, batch: Batch, sent: _Sent, drawn: Draw) -> None:
        """Check what was drawn; hand it out, or first have a mark above it committed."""
        try:
            self._check(drawn, sent)
        except TicketDatabaseError as error:
            self._failed(batch, error)
            return
        if drawn.last > self.marks.mark:
            reserve = self._ledger.reserve(self, drawn.last, protected=sent.protected)
            self._wait_for(batch, reserve, partial(self._hand_out, batch, drawn))
            return
        if drawn.last > self.marks.reserve_at:
            self._ledger.reserve_soon(self)
        self._hand_out(batch, drawn)

    def _check(self, drawn: Draw, sent: _Sent) -> None:
        """Check the ids, and that the lane is still what it was when the statement was sent."""
        self.guard.check(drawn, sent.highest)
        self.guard.advance(drawn.last)
        if self.stamps is not None:
            self.stamps.check(drawn.last)
        if self.marks.token != sent.token or self._state is CLOSED:
            raise MarkRefused("was closed while it drew")

    def _hand_out(self, batch: Batch, drawn: Draw) -> None:
        """Give each request its tickets; then draw for the next ones."""
        next_id, step = drawn.first, drawn.step
        collecting, shelf = self._queue.is_collecting, self.shelf
        for request in batch:
            count = 1 if collecting else request.count
            end = next_id + step * count
            if request.lane is not self:
                self._observer.gap(self.member, "gone", count)
            elif not collecting:
                self.issued += count - request.gone
                if request.gone:
                    self._observer.gap(self.member, "gone", request.gone)
                if shelf is not None and not request.whole:
                    shelf.passed(end - step)
                request.answer(range(next_id, end, step))
            elif (tickets := self._queue.collect(next_id)) is not None:
                self.issued += len(tickets)
                if shelf is not None:
                    shelf.passed(tickets[-1])
                request.answer(tickets)
            next_id = end
        self._next()

    def _wait_for(self, batch: Batch, waiting: Coroutine[None, None, None], then: Callable[[], None]) -> None:
        """Go on with `then` after a wait, in a task."""
        self._task = self._loop.create_task(self._waited_for(batch, waiting, then))
        self._task.add_done_callback(self._finished)

    async def _waited_for(self, batch: Batch, waiting: Coroutine[None, None, None], then: Callable[[], None]) -> None:
        try:
            await waiting
        except TicketDatabaseError as error:
            self._failed(batch, error)
        else:
            then()

    def _finished(self, task: "asyncio.Task[None]") -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None or task.cancelled():
            self._broke(error)

    def _failed(self, batch: Batch, error: TicketDatabaseError) -> None:
        """Take the state that follows, send the batch on to the next lane; then draw for those who are left."""
        if not (isinstance(error, ColumnExhausted) and self._may_fit_in_parts(batch, error.given)):
            self._queue.stop_collecting()
            self.report(error)
            self._queue.fail_over(batch)
        self._next()

    def _broke(self, error: BaseException | None) -> None:
        """An error that this server does not know: nobody waits here for ever because of it."""
        if error is not None:
            event(log, logging.ERROR, "a lane met an unknown error", exc_info=error, sequence=self.sequence)
        self.send_on()
        self._queue.forget_statement()
        self._busy = bool(self._queue)  # who was sent on may have made room for others, who have asked at once
        if self._busy:
            self._loop.call_soon(self._next)

    def _may_fit_in_parts(self, batch: Batch, given: int) -> bool:
        """What did not fit into one statement: see that it is drawn in smaller ones. False where it is one ticket.

        Several requests are drawn for one by one. A short list is collected ticket by ticket. A block or a long list is
        sent on, so that what is left is not used up for it. `given`: see ColumnExhausted.
        """
        self.guard.advance(given)
        request = batch[0]
        if len(batch) > 1:
            self._queue.draw_one_by_one(batch)
        elif request.count == 1 or self._queue.is_collecting:
            return False
        elif request.whole:
            self.largest_whole = min(self.largest_whole, request.count - 1)
            self._queue.fail_over(batch)
        elif request.count > min(SINGLY, self.guard.headroom()):
            self.largest_list = min(self.largest_list, request.count - 1)
            self._queue.fail_over(batch)
        else:
            self._queue.draw_ticket_by_ticket()
        return True

    # --- states ----------------------------------------------------------------------------------------------------

    def _move(self, what: LaneEvent) -> None:
        before, self._state = self._state, after(self._state, what)
        self.can_be_asked = self._state is OPEN or self._state is CLOSED
        if self._state is not before and {before, self._state} != {CLOSED, OPEN}:
            self._ring.lanes_changed()

    async def open(self) -> None:
        """Open it with the ledger, unless that has been done meanwhile. Raises TicketDatabaseError.

        What closes it while it opens is no reason to begin again: the ledger looks itself, last of all, whether what it
        has read still counts.
        """
        async with self._opening:  # two at a time would take the marks from each other, and advance it twice
            if self._state is OPEN:
                return
            await self._ledger.open(self)
            if self._state is RETIRED:
                raise RingChanged
            self.largest_whole = self.largest_list = self.member.database.largest_block  # a column may be wider now
            self._move(LaneEvent.OPENED)

    def close(self) -> None:
        """Open again, with the ledger, before the next draw; the end of the sequence is found again, too."""
        self._touch += 1
        self._move(LaneEvent.LOST_TOUCH)

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
        if self._state is not EXHAUSTED:
            event(log, logging.WARNING, "exhausted", sequence=self.sequence, database=self.member.name)
        self._move(LaneEvent.ENDED)
        self.send_on()

    def suspend(self, reason: str, *, must_advance: bool = False) -> None:
        """Take no requests until `recover` succeeds."""
        self.must_advance |= must_advance
        if must_advance and self.shelf is not None:
            self.shelf.went_back()
        if self._state is not SUSPENDED:
            event(log, logging.WARNING, "suspended", sequence=self.sequence, database=self.member.name, reason=reason)
            self.tried = False
        self.reason = reason
        self._move(LaneEvent.FAILED)
        self.send_on()
        self.member.wake.set()

    def retire(self, reason: str = "is of another ring") -> None:
        """Its ring, or its sequence, is no more: take no requests ever again. What comes back under it is dropped."""
        self.reason = reason
        self.marks.adopt("")
        self._move(LaneEvent.LEFT_THE_RING)
        self.send_on()

    async def recover(self) -> None:
        """Open a suspended lane and check one draw, which is dropped; then take requests again.

        Raises TicketDatabaseError; the lane is suspended still.
        """
        if self._busy:
            return
        async with self._opening:
            if self._state is not SUSPENDED:
                return
            touch = self._touch
            await self._ledger.open(self)
            table = self.table
            assert table is not None
            highest = self.guard.highest
            drawn = await self.member.database.draw(self.residue, table, 1, highest)
            self.guard.check(drawn, highest)
            self.guard.advance(drawn.last)
            self._observer.gap(self.member, "checked", 1)
            if self._state is not SUSPENDED:  # its ring may have changed meanwhile
                return
            if self._touch != touch:
                raise TicketDatabaseBusy("lost touch with it while it was tried")
            self.reason = None
            self._move(LaneEvent.RECOVERED)
        event(log, logging.INFO, "takes requests again", sequence=self.sequence, database=self.member.name)

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
