"""A lane: one sequence on one ticket database.

Requests queue here while a statement is under way. The next statement draws for all of them at once: first come, first
served. A single request is sent at once. The statement belongs to the lane, so a client that goes away cancels nothing,
and its ticket becomes a gap. `expire` fails a request over to the next lane when its time on this database is over.

A batch takes one way: `_next` chooses it, `_send` sends the statement, `_came` checks the draw, and `_hand_out` answers
the requests, then begins the next batch. A task takes part only where a step has to wait: `_prepare` before the
statement, if the lane has to be opened or a position read; the ledger's `set_mark` after it, if a mark has to be
committed. Every error ends in `_failed`.

The states of the lane are in `state`. `Lane` inherits them, because a second object would cost each ticket a look-up.
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
    SequenceUnavailable,
    SequenceWentBack,
    TicketDatabaseBusy,
    TicketDatabaseError,
)
from app.common.log import event
from app.databases.protocol import Draw, Drawn
from app.tickets.lanes.id_guard import IdGuard
from app.tickets.lanes.queue import SINGLY, Batch, LaneQueue
from app.tickets.lanes.state import CLOSED, EXHAUSTED, OPEN, RETIRED, StatefulLane
from app.tickets.requests.observer import Observer
from app.tickets.requests.request import TicketRequest
from app.tickets.ring.ring import Member, Ring

log = logging.getLogger(__name__)


class LaneLedger(Protocol):
    """The ledger, as far as a lane needs it."""

    async def open(self, lane: "Lane") -> None: ...

    async def set_mark(self, lane: "Lane", last: int, *, protected: bool) -> None: ...

    def set_mark_soon(self, lane: "Lane") -> None: ...

    def check(self, lane: "Lane") -> None: ...


class Stamps(Protocol):
    """The times in a lane's tickets. Each method raises TicketDatabaseBusy if this process's clock is wrong."""

    def room(self, guard: IdGuard) -> int:
        """How many ids may be drawn now from the database whose ids `guard` checks."""

    def least(self, guard: IdGuard, count: int) -> int:
        """The least tick that a draw of `count` ids may give now; 0 if the counter is at that tick or above."""

    def check(self, last: int) -> None:
        """Raise TicketDatabaseBusy if the drawn tick `last` is further ahead than may be drawn now."""

    def begins_long_moment(self, highest: int) -> bool:
        """Whether the lane has to read the position before the next draw. `highest`: the largest tick known."""


class _Sent(NamedTuple):
    """A lane as it was when a statement was sent.

    `highest`: the floor of its ids. `token`: of its marks. `at`: when, by the performance counter. `protected`: whether
    any other database kept marks then.
    """

    highest: int
    token: str
    at: float
    protected: bool


class Lane(StatefulLane):
    """One sequence on one database: its queue, and the statement under way.

    Attributes:
        issued: how many tickets it has handed out.
        stamps: the times in its tickets, None if its tickets hold none.
    """

    def __init__(self, sequence: str, member: Member, ring: Ring, ledger: LaneLedger, observer: Observer) -> None:
        super().__init__(sequence, member, ring, observer)
        self.stamps: Stamps | None = None
        self.issued = 0
        self._ledger = ledger
        self._loop = asyncio.get_running_loop()
        self._queue = LaneQueue(self)
        self._in_company = False
        """Whether the last statement drew for several requests."""
        self._task: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        busy = ", busy" * self._busy + ", collecting" * self._queue.is_collecting
        return f"<Lane {self.sequence} on {self.member.name} {self._state}, {len(self._queue)} waiting{busy}>"

    @property
    def waiting(self) -> bool:
        """Whether any request waits here."""
        return bool(self._queue or self._queue.under_way)

    # --- the request's side ----------------------------------------------------------------------------------------

    def ask(self, request: TicketRequest) -> None:
        """Queue a request. It is answered later, or at once if the lane fails over it. `expire` lets it go from its
        `until` on."""
        self._queue.add(request)
        if not self._busy:
            self._busy = True
            if self._in_company:  # other requests may come in this turn of the event loop, and share the statement
                self._loop.call_soon(self._next)
            else:
                self._next()

    def expire(self, now: float) -> None:
        """Let every request go whose time on this database is over."""
        self._queue.fail_over_expired(now)

    def send_on(self) -> None:
        """See StatefulLane.send_on."""
        self._queue.fail_over_all()

    async def _open_with_ledger(self) -> None:
        """See StatefulLane._open_with_ledger."""
        await self._ledger.open(self)

    # --- the way of a batch ----------------------------------------------------------------------------------------

    def _next(self) -> None:
        """Draw for the requests that wait. The lane is busy until the draw has come back and no request waits."""
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
        """How many tickets one statement may draw. A single request may want more."""
        database = self.member.database
        if self.stamps is None:
            return database.largest_block
        try:
            room = self.stamps.room(self.guard)
        except TicketDatabaseError:
            return 1  # `_send` refuses the statement for the same reason
        return max(1, min(database.largest_block, room))

    def _is_ready(self) -> bool:
        """Whether the statement can be sent without `_prepare`."""
        try:
            self._ledger.check(self)
            if self.stamps is not None and self.stamps.begins_long_moment(self.guard.highest):
                return False
        except TicketDatabaseError:
            return False
        return self._state is OPEN

    async def _prepare(self) -> None:
        """Open the lane and read its position, as far as the statement needs it. Raises TicketDatabaseError."""
        self._ledger.check(self)
        if self.is_suspended or self._state is RETIRED:
            raise SequenceUnavailable(self.reason)
        if self._state is EXHAUSTED:
            raise ColumnExhausted("holds no further id for it")
        if self._state is not OPEN:
            await self.open()
        if self.stamps is not None and self.stamps.begins_long_moment(self.guard.highest):
            await self._see_that_it_has_not_gone_back()
        if self._state is not OPEN:
            raise TicketDatabaseBusy("the lane was closed while reading its position; retry")

    async def _see_that_it_has_not_gone_back(self) -> None:
        """Raise SequenceWentBack if the table's position is at or below an id that is known issued."""
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
        """Take the answer to a statement. If the batch has been sent on meanwhile, another one is under way.

        Raises nothing, because the caller has the draws of other lanes to answer.
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
        """Check a draw, and hand it out. If it is above the mark, have the ledger commit a higher mark first."""
        try:
            self._check(drawn, sent)
        except TicketDatabaseError as error:
            self._failed(batch, error)
            return
        if drawn.last > self.marks.mark:
            setting = self._ledger.set_mark(self, drawn.last, protected=sent.protected)
            self._wait_for(batch, setting, partial(self._hand_out, batch, drawn))
            return
        if drawn.last > self.marks.next_mark_at:
            self._ledger.set_mark_soon(self)
        self._hand_out(batch, drawn)

    def _check(self, drawn: Draw, sent: _Sent) -> None:
        """Check the ids, and that the lane has not been closed or opened anew since the statement was sent."""
        self.guard.check(drawn, sent.highest)
        self.guard.advance(drawn.last)
        if self.stamps is not None:
            self.stamps.check(drawn.last)
        if self.marks.token != sent.token or self._state is CLOSED:
            raise MarkRefused("was closed while it drew")

    def _hand_out(self, batch: Batch, drawn: Draw) -> None:
        """Give each request its tickets. Then draw for the next requests."""
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
        """Take the state that follows from the error, and send the batch on. Then draw for the other requests."""
        if not (isinstance(error, ColumnExhausted) and self._may_fit_in_parts(batch, error.given)):
            self._queue.stop_collecting()
            self.report(error)
            self._queue.fail_over(batch)
        self._next()

    def _broke(self, error: BaseException | None) -> None:
        """Send every request on after an error that this server does not know, so that no request waits for ever."""
        if error is not None:
            event(log, logging.ERROR, "a lane met an unknown error", exc_info=error, sequence=self.sequence)
        self.send_on()
        self._queue.forget_statement()
        self._busy = bool(self._queue)  # a client that was told may have asked again at once
        if self._busy:
            self._loop.call_soon(self._next)

    def _may_fit_in_parts(self, batch: Batch, given: int) -> bool:
        """Whether a batch that did not fit into one statement may fit in parts. If so, see to it. False for one ticket.

        Several requests are drawn for one by one. A short list is collected ticket by ticket. A block or a long list is
        sent on to the next lane, so that it does not use up the last tickets. `given`: see ColumnExhausted.
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
