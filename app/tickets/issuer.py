"""The issuer of one sequence: it takes the databases in turn, and fails over between them.

A request goes to a lane that has ids in stock, else to the next lane in turn that is idle. A lane that cannot serve a
request hands it back, and the issuer gives it to the next lane that has not failed it. A request that every lane has
failed gets an error at once. While no lane can be tried because nothing is known yet, or because a look is under way,
requests wait for the sight to change.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence

from app.errors import (
    ClockAhead,
    DatabaseError,
    Exhausted,
    NoAnswer,
    NoTicketDatabase,
    SequenceBusy,
    SequenceExhausted,
    TicketError,
    Unverified,
)
from app.tickets.lane import Again, Lane
from app.tickets.request import Request
from app.tickets.sight import Sight, Status
from app.tickets.step import Pace

FEW = 8
"""So many are not worth waiting for."""
LONGEST_GATHERING = 0.002
"""Seconds for which few requests wait for more, at most."""
SHUNNING, LONGEST_SHUNNING = 1.0, 30.0
"""Seconds for which a lane that did not answer in time is passed over, the first time and at most."""


class Issuer:
    """Serves the requests for one sequence, see `source.Source`.

    sequence: as it was made. sight: of this server. pace: of the sequence's kind. make_lanes: makes the lane of each
    database, given what a lane calls with the requests that it hands back.
    """

    def __init__(self, sequence: str, sight: Sight, pace: Pace, make_lanes: Callable[[Again], Sequence[Lane]]) -> None:
        self.sequence, self._sight, self._accept = sequence, sight, pace.accept
        self.lanes = make_lanes(self._again)
        self._has_reserve = any(lane.has_reserve for lane in self.lanes)
        self._turn = 0
        self._errors: dict[int, TicketError] = {}
        self._gathered: list[Request] = []
        self._has_turn = False  # whether `_end_turn` will be called
        self._timer: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        self._parked: list[Request] = []
        self._shunned: dict[Lane, tuple[float, float]] = {}
        self._waking: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<issuer {self.sequence} parked {len(self._parked)} {list(self.lanes)}>"

    @property
    def issued(self) -> int:
        """See Source.issued."""
        return sum(lane.given for lane in self.lanes)

    def ready(self) -> int | None:
        """See Source.ready: from the stock of a lane, in turn."""
        if self._has_reserve and not self._gathered:
            lanes, turn = self.lanes, self._turn
            for place in range(turn - len(lanes), turn):
                issued = lanes[place].ready()
                if issued is not None:
                    self._turn = (turn + 1) % len(lanes)
                    return issued
        return None

    def _from_stock(self, request: Request) -> bool:
        """Answer a request from the stock of a lane, in turn; False where it has to wait."""
        for lane in self._in_turn():
            if lane.serve(request):
                self._turn = (self._turn + 1) % len(self.lanes)
                return True
        return False

    def _in_turn(self) -> Sequence[Lane]:
        """Return the lanes from the present one on."""
        return (*self.lanes[self._turn :], *self.lanes[: self._turn])

    def ask(self, request: Request) -> None:
        """See Source.ask. One lane serves those that come in one turn of the event loop, unless it has them in stock.

        A statement costs a database much the same for few ids as for many. So few wait a moment while more are under
        way, or where more were answered together last, since the clients of those come back.
        """
        try:
            self._accept(request)
        except TicketError as error:
            request.fail(error)
            return
        if self._has_reserve and self._from_stock(request):
            return
        self._gathered.append(request)
        if not self._has_turn:
            self._has_turn = True
            self._loop.call_soon(self._end_turn)

    def _expected(self) -> int:
        """How many clients are worth waiting for: those whose requests are under way, or were answered together."""
        waiting = [request.clients for lane in self.lanes for request in lane.waiting]
        return max(sum(waiting), *[lane.together for lane in self.lanes])

    def _end_turn(self) -> None:
        """Send what was gathered, unless it is worth waiting for more."""
        self._has_turn = False
        expected = self._expected()
        if expected <= FEW or sum([request.clients for request in self._gathered]) >= expected:
            self._send()
        elif self._timer is None:
            self._timer = self._loop.call_later(LONGEST_GATHERING, self._send)

    def _send(self) -> None:
        """Hand what was gathered to the next lane."""
        requests = self._take_gathered()
        lane = self._next_lane(0) if requests else None
        if lane is not None:
            lane.ask(requests)
        elif requests:
            self._park(requests)

    def _take_gathered(self) -> list[Request]:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        requests, self._gathered = self._gathered, []
        return requests

    async def end(self) -> list[Request]:
        """See Source.end."""
        requests = [*self._parked, *self._take_gathered()]
        for lane in self.lanes:
            requests += lane.waiting
            lane.waiting.clear()
        self._parked.clear()
        if self._waking is not None:
            self._waking.cancel()
            await asyncio.gather(self._waking, return_exceptions=True)
        await asyncio.gather(*(lane.end() for lane in self.lanes))
        for request in requests:
            request.encode = None
        return [request for request in requests if not request.is_over]

    # --- which lane --------------------------------------------------------------------------------------------------

    def _next_lane(self, tried: int) -> Lane | None:
        """The next lane in turn that is in sight and was not tried (as bits): an idle one, or the shortest queue."""
        count = len(self.lanes)
        self._turn = (self._turn + 1) % count
        lane = self.lanes[self._turn]
        if lane.task is None and lane.member.life is not None and not tried and not self._shunned:
            return lane
        there = [
            lane for lane in self._in_turn() if lane.member.life is not None and not tried >> lane.member.offset & 1
        ]
        now = self._sight.clock()
        self._shunned = {lane: each for lane, each in self._shunned.items() if now - each[0] < LONGEST_SHUNNING}
        there = [lane for lane in there if self._shunned.get(lane, (0.0, 0.0))[0] <= now] or there
        # a slower database is idle less often, and has the longer queue
        return min(there, key=lambda lane: (lane.task is not None, len(lane.waiting)), default=None)

    def _shun(self, lane: Lane) -> None:
        """Pass over a lane that did not answer in time, for 1, 2, 4 … 30 s, as long as another one is there."""
        now = self._sight.clock()
        until, delay = self._shunned.get(lane, (0.0, 0.0))
        if until <= now:
            delay = min(2 * delay, LONGEST_SHUNNING) if delay and now - until < LONGEST_SHUNNING else SHUNNING
            self._shunned[lane] = now + delay, delay

    def _again(self, lane: Lane, requests: Iterable[Request], error: TicketError) -> None:
        """A lane could not serve these requests: give them to another one, or fail them."""
        self._errors[lane.member.offset] = error
        lane.member.counts.failovers += isinstance(error, DatabaseError) and not isinstance(error, SequenceExhausted)
        if isinstance(error, (NoAnswer, SequenceBusy)):
            self._shun(lane)
        following: dict[Lane | None, list[Request]] = {}
        for request in requests:
            if not request.is_over:
                request.tried |= 1 << lane.member.offset
                following.setdefault(self._next_lane(request.tried), []).append(request)
        for other, handed in following.items():
            if other is not None:
                other.ask(handed, first=True)
            elif self._may_change() or isinstance(error, NoAnswer):
                for request in handed:
                    request.tried = 0
                self._park(handed)
            else:
                for request in handed:
                    request.fail(self._reason(request))

    def _may_change(self) -> bool:
        """Whether a look or a trial write is under way that may bring a database back into sight."""
        sight = self._sight
        return sight.is_settling or sight.stamp is None or any(each.doubtful or each.trying for each in sight.members)

    def _reason(self, request: Request) -> TicketError:
        """Why no lane can serve a request."""
        errors = [
            self._errors[offset] for offset in range(1, 1 + len(self._sight.members)) if request.tried >> offset & 1
        ]
        for error in errors:
            if isinstance(error, (Unverified, ClockAhead)):
                return error
        ended = [error for error in errors if isinstance(error, SequenceExhausted)]
        up = all(member.status is Status.UP for member in self._sight.members)
        if ended and (request.count > 1 or (up and len(ended) == len(errors))):
            many = f", or may have fewer than {request.count} left: single ones may still be there"
            return Exhausted(f"{self.sequence} is exhausted{many if request.count > 1 else ''}")
        last = next((str(error) for error in reversed(errors) if isinstance(error, DatabaseError)), "none is in sight")
        return NoTicketDatabase(f"no ticket database can draw for {self.sequence} now: {last}")

    # --- waiting -----------------------------------------------------------------------------------------------------

    def _park(self, requests: Iterable[Request]) -> None:
        """Let requests wait until the sight changes."""
        self._parked.extend(requests)
        if self._waking is None or self._waking.done():
            self._waking = self._loop.create_task(self._wake())

    async def _wake(self) -> None:
        while self._parked:
            await self._sight.moved()
            self._parked = [request for request in self._parked if not request.is_over]
            lane = self._next_lane(0)
            if lane is not None and self._sight.stamp is not None:
                parked, self._parked = self._parked, []
                lane.ask(parked, first=True)
            elif lane is None and not self._may_change():
                parked, self._parked = self._parked, []
                for request in parked:
                    request.fail(self._reason(request))
