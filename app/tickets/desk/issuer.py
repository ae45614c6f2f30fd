"""The issuer: takes a sequence's turn, and has one lane after the other asked until one has tickets.

Mostly that is one call: the lane whose turn it is has tickets. Where it has not, the request comes back to `ask_next`,
and where all have been asked, or the sequence is not known, `_ask_again` waits in a task for what may change that.
"""

import asyncio
import logging
from collections.abc import Callable

from app.common.errors import (
    Draining,
    InvalidRequest,
    NoTicketDatabase,
    OutOfTime,
    SequenceExhausted,
    TicketError,
    TooManyAtOnce,
    UnknownError,
    Unverified,
)
from app.common.tasks import Tasks
from app.tickets.lanes.lane import Lane
from app.tickets.lanes.state import LaneState
from app.tickets.requests.request import Ids, TicketRequest
from app.tickets.reserve.reserve import Reserve
from app.tickets.reserve.reserves import Reserves
from app.tickets.ring.ring import UP, Member, Ring
from app.tickets.sequences.catalog import Catalog
from app.tickets.sequences.entry import Entry

log = logging.getLogger(__name__)

LARGEST_BLOCK = 10_000
"""The most tickets in a block, however many a database can draw at once."""
EXPIRY_SECONDS = 0.02
"""How often requests whose time on a database is over are looked for while any wait: one timer for all of them."""
FIRST_PAUSE = 0.005
LAST_PAUSE = 0.08
"""Seconds before every database is asked once more, doubled each time up to the second."""


class TicketIssuer:
    """Issues tickets. `attempt`: seconds for one attempt on one database; `timeout`: for the whole request;
    `may_draw`: whether a database that is up may draw at all. `reserves`: those of the catalog's sequences."""

    def __init__(
        self,
        ring: Ring,
        catalog: Catalog,
        may_draw: Callable[[Member], bool],
        reserves: Reserves,
        *,
        attempt: float,
        timeout: float,
    ) -> None:
        self._ring = ring
        self._catalog = catalog
        self._may_draw = may_draw
        self._loop = asyncio.get_running_loop()  # kept: on the way of a ticket it takes too long to ask for it
        self._attempt = attempt
        self._timeout = timeout
        self._asked: set[Lane | Reserve] = set()
        """Where requests may wait whose time there ends."""
        self._expiry: asyncio.TimerHandle | None = None
        self._tasks = Tasks()
        self._waiting: dict[TicketRequest, None] = {}
        """Those that a task waits for, oldest first."""
        self._closed = False
        self.draws_ahead = reserves.seconds > 0
        reserves.serve(self)

    def __repr__(self) -> str:
        timer = ", looks for expired ones" if self._expiry is not None else ""
        return f"<TicketIssuer {len(self._waiting)} waiting, {len(self._asked)} lanes asked{timer}>"

    @property
    def increment(self) -> int:
        """The step between the ids of one block."""
        return self._ring.members[0].database.increment

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
        elif (entry.source is None and request.address is None) or self._is_for_lanes(entry, request):
            if entry.reserve is None or request.whole:
                request.turn = iter(self._ring.take_turn(entry.rotation))
                self._ask(request, now)
            elif not entry.reserve.takes(request):
                self._ask_and_refill(entry, request, now)

    def ready(self, sequence: str, count: int, singly: bool) -> Ids | None:
        """So many tickets from what was drawn ahead, increasing, all from one database; None where there are none.
        `singly`: from whichever databases."""
        entry = self._catalog.entries.get(sequence)
        if entry is None or entry.reserve is None:
            return None
        return entry.reserve.take_singly(count) if singly else entry.reserve.take(count)

    def _ask_and_refill(self, entry: Entry, request: TicketRequest, now: float) -> None:
        """Ask the lanes, and then for what is missing in reserve: who asks first has the smaller tickets."""
        request.turn = iter(self._ring.take_turn(entry.rotation))
        self._ask(request, now)
        if entry.reserve is not None and not request.whole:
            entry.reserve.refill()

    def ask_lane(self, lane: Lane, request: TicketRequest) -> None:
        """See LaneAsker.ask_lane."""
        request.until = request.deadline = self._loop.time() + self._attempt
        lane.ask(request)
        self._asked.add(lane)
        if self._expiry is None:
            self._expiry = self._loop.call_later(EXPIRY_SECONDS, self._expire)

    def waits(self, reserve: Reserve, request: TicketRequest) -> None:
        """See LaneAsker.waits."""
        request.until = min(self._loop.time() + self._attempt, request.deadline)
        self._asked.add(reserve)
        if self._expiry is None:
            self._expiry = self._loop.call_later(EXPIRY_SECONDS, self._expire)

    def ask_lanes(self, request: TicketRequest) -> None:
        """See LaneAsker.ask_lanes. The sequence may be of another ring by now."""
        entry, now = self._catalog.entries.get(request.sequence), self._loop.time()
        if entry is None or now >= request.deadline:
            self._wait_for(request)
        else:
            self._ask_and_refill(entry, request, now)

    def _is_for_lanes(self, entry: Entry, request: TicketRequest) -> bool:
        """Whether the lanes are to be asked. Else the sequence's source settles the request, or it is refused here."""
        if entry.source is not None:
            return not entry.source.takes(request)
        request.desk.refuse(request, InvalidRequest(f"{entry.name} is of kind ticket, which has no shards"))
        return False

    def ask_next(self, request: TicketRequest) -> None:
        """The lane that was asked could not serve the request: ask the next one in this turn."""
        now = self._loop.time()
        if now < request.deadline:
            self._ask(request, now)
        else:
            request.desk.refuse(request, OutOfTime())

    def _ask(self, request: TicketRequest, now: float) -> None:
        turn = request.turn
        assert turn is not None
        for lane in turn:
            if lane.can_be_asked and lane.member.status is UP:
                until = now + self._attempt
                request.until = until if until < request.deadline else request.deadline
                lane.ask(request)
                self._asked.add(lane)
                if self._expiry is None:
                    self._expiry = self._loop.call_later(EXPIRY_SECONDS, self._expire)
                return
        self._wait_for(request)

    def _wait_for(self, request: TicketRequest) -> None:
        if self._closed:
            request.desk.refuse(request, Draining())
        else:
            self._waiting[request] = None
            self._tasks.spawn(self._ask_again(request))

    async def _ask_again(self, request: TicketRequest) -> None:
        """Nobody could serve the request: wait for what may change that, and ask all lanes once more."""
        now = self._loop.time
        refusal: TicketError | None = None
        try:
            # looked up each time: a change of the ring gives every sequence another entry
            name = request.sequence
            entry = self._catalog.entries.get(name) or await self._catalog.find(name, request.deadline - now())
            request.sequence = entry.name  # as the databases fold it
            if request.turn is not None:
                if self._from_reserve(entry, request):
                    del self._waiting[request]
                    return
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
        elif not request.settled and self._goes_to_lanes(entry, request) and not self._from_reserve(entry, request):
            self._ask_and_refill(entry, request, now())

    def _from_reserve(self, entry: Entry, request: TicketRequest) -> bool:
        """True where what was drawn ahead, which may be handed out by now, serves the request, or soon will."""
        reserve = entry.reserve
        if reserve is None or entry.source is not None or request.whole or request.settled:
            return False
        return reserve.takes(request)

    def _goes_to_lanes(self, entry: Entry, request: TicketRequest) -> bool:
        """The same for one that was not known at first, or has been asked for on the lanes before."""
        return (
            request.turn is not None
            or (entry.source is None and request.address is None)
            or self._is_for_lanes(entry, request)
        )

    async def _wait(self, request: TicketRequest, entry: Entry) -> None:
        """Wait until another round may find a lane. Raises TooManyAtOnce, SequenceExhausted and OutOfTime, and
        NoTicketDatabase where none will: Unverified where the settings forbid those that could draw.

        While a database may draw, what it failed with is momentary (a deadlock, a mark that another server has taken):
        it is asked again until the request's time is over.
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
            if left <= pause:  # and not by the clock: a timer may go off a little early, again and again
                raise OutOfTime
            request.pause = min(2 * pause, LAST_PAUSE)

    def _raise_if_too_many(self, entry: Entry, request: TicketRequest) -> None:
        """Raise TooManyAtOnce where no database can ever draw so many tickets in one statement."""
        most = max(member.database.largest_block for member in self._ring.members)
        if request.count > most:
            raise TooManyAtOnce(f"{entry.name} gives {most} tickets at once at the most: count is {request.count}")

    def _raise_if_exhausted(self, entry: Entry, request: TicketRequest) -> None:
        lanes = entry.rotation.lanes
        if not all(lane.member.up for lane in lanes):
            return  # one that is away might still have some
        if all(lane.state is LaneState.EXHAUSTED for lane in lanes):
            raise SequenceExhausted(f"{entry.name} is exhausted: every id up to {entry.ceiling} has been used")
        if not any(lane.may_hold(request.count, request.whole) for lane in lanes):
            raise SequenceExhausted(
                f"{entry.name} is near its end: {request.count} tickets at once may not be left on one database"
            )

    def _expire(self) -> None:
        """Fail over the requests whose time on a database is over; again a moment later, while any wait."""
        now = self._loop.time()
        asked, self._asked, self._expiry = self._asked, set(), None
        try:
            for lane in asked:
                lane.expire(now)  # whom it lets go may ask other lanes, and start the timer, at once
        finally:
            self._asked |= {lane for lane in asked if lane.waiting}
            if self._asked and self._expiry is None:
                self._expiry = self._loop.call_later(EXPIRY_SECONDS, self._expire)

    async def close(self) -> None:
        """End the tasks that wait on behalf of requests, and refuse those; none is waited for any more."""
        self._closed = True
        await self._tasks.cancel()
        waiting, self._waiting = self._waiting, {}
        for request in waiting:
            request.desk.refuse(request, Draining())
