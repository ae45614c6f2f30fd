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
from app.tickets.lane import Lane
from app.tickets.request import Request
from app.tickets.sight import Sight, Status

SHUNNING, LONGEST_SHUNNING = 1.0, 30.0
"""Seconds for which a lane that did not answer in time is passed over, the first time and at most."""


class Issuer:
    """Serves the requests for one sequence.

    sequence: as it was made. sight: of this server. make_lanes: makes the lane of each database, given what a lane
    calls with the requests that it hands back.
    """

    def __init__(
        self, sequence: str, sight: Sight, make_lanes: Callable[[Callable[..., None]], Sequence[Lane]]
    ) -> None:
        self.sequence = sequence
        self._sight = sight
        self.lanes = make_lanes(self._again)
        self._has_reserve = any(lane.has_reserve for lane in self.lanes)
        self._turn = 0
        self._errors: dict[int, TicketError] = {}
        self._parked: list[Request] = []
        self._shunned: dict[Lane, tuple[float, float]] = {}
        self._waking: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<issuer {self.sequence} parked {len(self._parked)} {list(self.lanes)}>"

    @property
    def is_busy(self) -> bool:
        """Whether requests wait."""
        return bool(self._parked) or any(lane.waiting for lane in self.lanes)

    @property
    def issued(self) -> int:
        """How many ids were issued since the start."""
        return sum(lane.given for lane in self.lanes)

    def give(self, request: Request) -> bool:
        """Serve a request from a stock at once; False where it has to wait."""
        if not self._has_reserve:
            return False
        lanes, turn = self.lanes, self._turn
        for place in range(turn - len(lanes), turn):
            if lanes[place].give(request):
                self._turn = (turn + 1) % len(lanes)
                return True
        return False

    def ask(self, requests: Sequence[Request]) -> None:
        """Serve requests that have not been tried yet: all of them by one lane, in their order."""
        lane = self._next_lane(0)
        if lane is None:
            self._park(requests)
        else:
            lane.ask(requests)

    def expire(self, now: float, error: Callable[[], TicketError]) -> None:
        """Fail the requests whose deadline has passed, and drop ids that are too old. now: by the loop's clock."""
        for lane in self.lanes:
            if lane.waiting or lane.stock:
                lane.expire(now, error)
        if not self._parked:
            return
        for request in self._parked:
            if request.deadline <= now:
                request.fail(error())
        self._parked = [request for request in self._parked if not request.is_over]

    def hand_over(self) -> list[Request]:
        """Return the requests that wait, and serve none of them any more."""
        requests, self._parked = self._parked, []
        for lane in self.lanes:
            requests += lane.waiting
            lane.waiting.clear()
        return [request for request in requests if not request.is_over]

    async def end(self) -> None:
        """End the lanes' tasks."""
        if self._waking is not None:
            self._waking.cancel()
            await asyncio.gather(self._waking, return_exceptions=True)
        await asyncio.gather(*(lane.end() for lane in self.lanes))

    # --- which lane --------------------------------------------------------------------------------------------------

    def _next_lane(self, tried: int) -> Lane | None:
        """The next lane in turn that is in sight and not among those tried (as bits); an idle one if there is one."""
        count = len(self.lanes)
        self._turn = (self._turn + 1) % count
        lane = self.lanes[self._turn]
        if lane.task is None and lane.member.life is not None and not tried and not self._shunned:
            return lane
        there = [
            lane
            for lane in (*self.lanes[self._turn :], *self.lanes[: self._turn])
            if lane.member.life is not None and not tried >> lane.member.offset & 1
        ]
        now = self._sight.clock()
        there = [lane for lane in there if self._shunned.get(lane, (0.0, 0.0))[0] <= now] or there
        return next((lane for lane in there if lane.task is None), there[0] if there else None)

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
            self._waking = asyncio.get_running_loop().create_task(self._wake())

    async def _wake(self) -> None:
        while self._parked:
            await self._sight.moved()
            lane = self._next_lane(0)
            if lane is not None and self._sight.stamp is not None:
                parked, self._parked = self._parked, []
                lane.ask(parked, first=True)
            elif lane is None and not self._may_change():
                parked, self._parked = self._parked, []
                for request in parked:
                    request.fail(self._reason(request))
