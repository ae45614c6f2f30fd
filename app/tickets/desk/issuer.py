"""The issuer: asks the supply of a sequence, then one lane after the other, until one of them has tickets.

Mostly that is one call, because the lane whose turn it is has tickets. A lane or a supply that cannot serve a request
gives it back through the desk's `fail_over`, and `ask_next` asks the next lane. When all lanes have been asked, or the
sequence is not known, `_ask_again` waits in a task for a change, and begins another round.
"""

import asyncio
import logging
from collections.abc import Callable

from app.common.errors import (
    Draining,
    NoTicketDatabase,
    OutOfTime,
    SequenceExhausted,
    TicketError,
    TooManyAtOnce,
    UnknownError,
    Unverified,
)
from app.common.tasks import Tasks
from app.tickets.lanes.attempts import Attempts
from app.tickets.lanes.state import LaneState
from app.tickets.requests.request import Ids, TicketRequest
from app.tickets.ring.ring import UP, Member, Ring
from app.tickets.sequences.catalog import Catalog
from app.tickets.sequences.entry import Entry

log = logging.getLogger(__name__)

LARGEST_BLOCK = 10_000
"""The most tickets in a block, however many a database can draw at once."""
FIRST_PAUSE = 0.005
LAST_PAUSE = 0.08
"""Seconds before the next round; the pause doubles with each round, from the first value up to the second."""


class TicketIssuer:
    """Issues tickets: the supply of the sequence first, then its lanes in turn."""

    def __init__(
        self,
        ring: Ring,
        catalog: Catalog,
        may_draw: Callable[[Member], bool],
        attempts: Attempts,
        *,
        timeout: float,
        draws_ahead: bool,
    ) -> None:
        """Args:
        may_draw: whether the settings let a database that is up draw.
        attempts: ends attempts on one database.
        timeout: seconds for a whole request.
        draws_ahead: whether sequences of this server may have a reserve.
        """
        self._ring = ring
        self._catalog = catalog
        self._may_draw = may_draw
        self._loop = asyncio.get_running_loop()  # kept: on the way of a ticket it takes too long to ask for it
        self._attempts = attempts
        self._attempt, self._watched = attempts.seconds, attempts.watched
        self._timeout = timeout
        self._tasks = Tasks()
        self._waiting: dict[TicketRequest, None] = {}
        """The requests that wait in a task each, oldest first."""
        self._closed = False
        self.draws_ahead = draws_ahead

    def __repr__(self) -> str:
        return f"<TicketIssuer {len(self._waiting)} waiting, {self._attempts}>"

    @property
    def increment(self) -> int:
        """The step between the ids of one block."""
        return self._ring.increment

    @property
    def largest_block(self) -> int:
        """The most tickets that one block can have on any of the databases."""
        return min(LARGEST_BLOCK, *(member.database.largest_block for member in self._ring.members))

    def issue(self, request: TicketRequest) -> None:
        """Have a request served within its time: its `desk` answers or refuses it."""
        now = self._loop.time()
        request.deadline = now + self._timeout
        entry = self._catalog.entries.get(request.sequence)
        if entry is None:
            request.sequence = self._catalog.given(request.sequence)
            entry = self._catalog.entries.get(request.sequence)
        if entry is None:
            self._wait_for(request)
        elif not entry.supply.takes(request):
            request.turn = iter(self._ring.take_turn(entry.rotation))
            self._ask(request, now)

    def ready(self, sequence: str, count: int, singly: bool) -> Ids | None:
        """See Supply.ready; None also if the sequence is not known."""
        entry = self._catalog.entries.get(sequence)
        return None if entry is None else entry.supply.ready(count, singly)

    def ask_next(self, request: TicketRequest) -> None:
        """A lane or a supply could not serve the request: ask the next lane in this turn, or the first in a new one."""
        now = self._loop.time()
        if now >= request.deadline:
            request.desk.refuse(request, OutOfTime())
            return
        if request.turn is None:
            entry = self._catalog.entries.get(request.sequence)
            if entry is None:  # the ring has changed since the supply took the request
                self._wait_for(request)
                return
            request.turn = iter(self._ring.take_turn(entry.rotation))
        self._ask(request, now)

    def _ask(self, request: TicketRequest, now: float) -> None:
        turn = request.turn
        assert turn is not None
        for lane in turn:
            if lane.can_be_asked and lane.member.status is UP:
                until = now + self._attempt
                request.until = until if until < request.deadline else request.deadline
                lane.ask(request)
                if lane not in self._watched:
                    self._attempts.watch(lane)
                return
        self._wait_for(request)

    def _wait_for(self, request: TicketRequest) -> None:
        if self._closed:
            request.desk.refuse(request, Draining())
        else:
            self._waiting[request] = None
            self._tasks.spawn(self._ask_again(request))

    async def _ask_again(self, request: TicketRequest) -> None:
        """No lane could serve the request: wait for a change that may help, then begin another round."""
        now = self._loop.time
        refusal: TicketError | None = None
        try:
            # looked up each time: a change of the ring gives every sequence another entry
            name = request.sequence
            entry = self._catalog.entries.get(name) or await self._catalog.find(name, request.deadline - now())
            request.sequence = entry.name  # as the databases fold it
            if request.turn is not None and not self._answered_from_memory(entry, request):
                request.turn = None
                await self._wait(request, entry)
            if now() >= request.deadline:
                raise OutOfTime
        except TicketError as error:
            refusal = error
        except Exception:
            log.exception("a request met an unknown error")
            refusal = UnknownError()
        del self._waiting[request]
        if refusal is not None:
            request.desk.refuse(request, refusal)
        elif not request.settled and not entry.supply.takes(request):
            self.ask_next(request)

    def _answered_from_memory(self, entry: Entry, request: TicketRequest) -> bool:
        """Whether the request needs no further round: it is settled, if need be with tickets that were drawn ahead and
        may be handed out by now."""
        tickets = None if request.whole or request.settled else entry.supply.ready(request.count, False)
        if tickets is not None:
            request.desk.answer(request, tickets)
        return request.settled

    async def _wait(self, request: TicketRequest, entry: Entry) -> None:
        """Wait until another round may find a lane.

        While a database may draw, its failure is momentary, for example a deadlock, or a mark that another server has
        taken. So it is asked again until the request's time is over.

        Raises TooManyAtOnce, SequenceExhausted, OutOfTime; NoTicketDatabase if no round will find a lane: Unverified if
        only the settings forbid the draw.
        """
        self._raise_if_too_many(entry, request)
        self._raise_if_exhausted(entry, request)
        lanes = self._ring.take_turn(entry.rotation)
        if not any(self._may_draw(lane.member) for lane in lanes):
            expected = any(lane.about_to_be_tried for lane in entry.rotation.lanes)
            left = request.deadline - self._loop.time()
            if not await self._ring.wait_for_change(left, expected=expected):
                error = Unverified if lanes else NoTicketDatabase
                raise error(f"no ticket database can draw for {entry.name} now")
        else:
            pause, left = request.pause or FIRST_PAUSE, request.deadline - self._loop.time()
            await asyncio.sleep(min(pause, left))
            if left <= pause:  # the clock cannot tell, because a timer may go off a little early
                raise OutOfTime
            request.pause = min(2 * pause, LAST_PAUSE)

    def _raise_if_too_many(self, entry: Entry, request: TicketRequest) -> None:
        """Raise TooManyAtOnce if no database can ever draw the request's tickets in one statement."""
        most = max(member.database.largest_block for member in self._ring.members)
        if request.count > most:
            raise TooManyAtOnce(f"{entry.name} gives {most} tickets at once at the most: count is {request.count}")

    def _raise_if_exhausted(self, entry: Entry, request: TicketRequest) -> None:
        lanes = entry.rotation.lanes
        if not all(lane.member.up for lane in lanes):
            return  # a database that is away might still have ids
        if all(lane.state is LaneState.EXHAUSTED for lane in lanes):
            raise SequenceExhausted(f"{entry.name} is exhausted: every id up to {entry.ceiling} has been used")
        if not any(lane.may_hold(request.count, request.whole) for lane in lanes):
            raise SequenceExhausted(
                f"{entry.name} is near its end: {request.count} tickets at once may not be left on one database"
            )

    async def close(self) -> None:
        """End the tasks that wait for another round, and refuse their requests."""
        self._closed = True
        await self._tasks.cancel()
        waiting, self._waiting = self._waiting, {}
        for request in waiting:
            request.desk.refuse(request, Draining())
