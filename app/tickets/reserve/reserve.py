"""Tickets of one sequence that were drawn ahead, and are handed out from memory.

What is in reserve was drawn, checked, marked and committed like any other ticket: a refill is a request that waits in a
lane's queue. It comes back as a piece, which is put on the lane's shelf; each shelf is handed out first in, first out,
and the shelves take turns. So what is handed out from one database increases, as long as nothing that lies on a shelf
is below what a lane has given by itself: a request that finds nothing waits for the refill that is under way, rather
than ask the lane behind it, and where a lane gives by itself all the same, what lies below that is dropped.

A refill is caused by requests alone, and not by one that comes after an idle span: a sequence that nobody asks for
holds nothing after a while.

What is dropped becomes a gap, counted by its cause:

    aged        three times TICKETS_RESERVE_SECONDS have passed since it was drawn
    bumped      the sequence was bumped above it
    passed      its lane has given larger tickets by itself
    superseded  the token that it was drawn under is not its lane's any more: the database may have gone back
    blind       see `Reserves.came_up`
    older       a server was seen that does not announce bumps
    ended       the server has ended, or the sequence is no more, or of another ring
"""

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol

from app.common.errors import Draining
from app.tickets.lanes.lane import Lane
from app.tickets.requests.observer import Observer
from app.tickets.requests.request import TicketRequest, Tickets
from app.tickets.reserve.demand import Demand
from app.tickets.reserve.shelf import Piece, Shelf, above
from app.tickets.reserve.window import Window
from app.tickets.ring.ring import UP, Member

OLDEST = 3
"""A piece is dropped at so many times TICKETS_RESERVE_SECONDS."""
CEILING_DISTANCE = 100
"""None is drawn ahead within so many times its size of the ceiling."""
RETRY_SECONDS = 0.25
"""How soon a lane is asked again that could not give a refill, and any where there was none to ask."""
SHARE_TICKETS = 100
"""A refill of more than so many for each lane is shared among them; a smaller one is drawn in one statement."""


class LaneAsker(Protocol):
    """The issuer, as far as a reserve needs it."""

    def ask_lane(self, lane: Lane, request: TicketRequest) -> None:
        """Have this lane asked for a refill; its `answer` is called once."""

    def ask_lanes(self, request: TicketRequest) -> None:
        """Have a request served without the reserve."""

    def waits(self, reserve: "Reserve", request: TicketRequest) -> None:
        """A request waits for a refill: have the reserve's `expire` called when it has waited long enough."""


class Refill(TicketRequest):
    """A request for tickets to be put in reserve."""

    whole = True

    def __init__(self, reserve: "Reserve", shelf: Shelf, count: int, asked_at: float) -> None:
        super().__init__(reserve.sequence, count)
        self.shelf = shelf
        self.asked_at = asked_at
        self._reserve = reserve

    def answer(self, tickets: Tickets | None) -> None:
        """See TicketRequest.answer."""
        self.lane = None
        self.settled = True
        self._reserve.came(self, tickets)


class Reserve:
    """The reserve of one sequence. `seconds`: TICKETS_RESERVE_SECONDS. `may_draw`: whether a database may draw at all.

    `left`: tickets in reserve. `demand`: how many there are to be. `dropped`: how many have been dropped so far.
    """

    def __init__(
        self,
        sequence: str,
        lanes: Sequence[Lane],
        seconds: float,
        *,
        window: Window,
        asker: LaneAsker,
        may_draw: Callable[[Member], bool],
        observer: Observer,
        clock: Callable[[], float],
    ) -> None:
        self.sequence = sequence
        self.shelves = [Shelf(lane) for lane in lanes]
        for shelf, following in zip(self.shelves, self.shelves[1:] + self.shelves[:1], strict=True):
            shelf.next = following
            shelf.lane.shelf = LaneShelf(self, shelf)
        self.left = 0
        self.dropped = 0
        self.demand = Demand(seconds)
        self._seconds = seconds
        self._window = window
        self._asker = asker
        self._may_draw = may_draw
        self._observer = observer
        self._clock = clock
        self._turn = self.shelves[0]
        self._waiting: deque[TicketRequest] = deque()
        self._coming = 0
        self._came = 0
        self._bumped_above = 0
        self._closed = False
        self._refill_at = -math.inf

    def __repr__(self) -> str:
        waiting = f", {len(self._waiting)} waiting" if self._waiting else ""
        return f"<Reserve of {self.sequence}: {self.left} of {self.demand.size}, {self._coming} coming{waiting}>"

    # --- handing out ------------------------------------------------------------------------------------------------

    def take(self, count: int = 1) -> Tickets | None:
        """So many tickets, increasing, all of one database; None where they have to be asked for."""
        now, demand = self._clock(), self.demand
        if now >= demand.look_at:
            self._look(now)
        shelf = self._turn
        next_id = shelf.next_id
        end = next_id + shelf.step * count
        if end > shelf.end or now >= self._window.until or shelf.token != shelf.marks.token:
            return self._take_from_any(count, now)
        shelf.next_id = end
        self._turn = shelf.next
        self.left -= count
        if self.left < demand.refill_below:
            self.refill(now)
        return range(next_id, end, shelf.step)

    def take_singly(self, times: int) -> Tickets | None:
        """So many single tickets, increasing for each database; None where so many are not there, or where requests
        wait that came before and get the smaller tickets."""
        if self._waiting:
            return None
        found = self.take(times)
        if found is not None or self.left < times or self._clock() >= self._window.until:
            return found
        tickets: list[int] = []
        for shelf in self.shelves:
            tickets += shelf.take(min(times - len(tickets), len(shelf)))
        self.left -= times
        if self.left < self.demand.refill_below:
            self.refill(self._clock())
        return tickets

    def _take_from_any(self, count: int, now: float) -> Tickets | None:
        """The same where the piece whose turn it is has not got them, or may not give them."""
        if not self.left:
            return None
        if now >= self._window.until:
            self._window.look_again()
            return None
        shelf, found = self._turn, None
        for _ in self.shelves:
            if shelf.token != shelf.marks.token and shelf.pieces:
                self._drop(shelf, "superseded", [piece for piece in shelf.left() if piece.token == shelf.marks.token])
            if found is None and (shelf.next_id + shelf.step * count <= shelf.end or len(shelf) >= count):
                found = shelf
            shelf = shelf.next
        if found is None:
            return None
        self._turn = found.next
        tickets = found.take(count)
        self.left -= count
        if self.left < self.demand.refill_below:
            self.refill(now)
        return tickets

    def takes(self, request: TicketRequest) -> bool:
        """True where the request has been answered, or waits for a refill; false where the lanes are to be asked."""
        if not self._waiting:
            tickets = self.take(request.count)
            if tickets is not None:
                request.desk.answer(request, tickets)
                return True
            if not self._may_wait:
                self._count(request)
                return False
        self._waiting.append(request)
        self._asker.waits(self, request)
        return True

    @property
    def _may_wait(self) -> bool:
        """Whether a refill is under way whose tickets may be handed out."""
        return self._coming > 0 and not self._closed and self._clock() < self._window.until

    def _count(self, request: TicketRequest) -> None:
        """The lanes are asked for a request: what it wants has been used, once, however often they are asked for it."""
        if request.turn is None:
            self.demand.by_lanes += request.count

    @property
    def has_tickets(self) -> bool:
        """Whether there are any that may be handed out now."""
        return self.left > 0 and self._clock() < self._window.until

    @property
    def waiting(self) -> bool:
        """Whether any request waits for a refill."""
        return bool(self._waiting)

    def expire(self, now: float) -> None:
        """Ask the lanes for every request that has waited long enough: the next refill may be too small for it, too.
        `now`: in the event loop's time."""
        waiting, self._waiting = self._waiting, deque()
        expired = [request for request in waiting if request.until <= now]
        self._waiting.extend(request for request in waiting if request.until > now)
        for request in expired:
            self._leave_to_lanes(request)
        if expired:
            self._serve_waiting()

    def _leave_to_lanes(self, request: TicketRequest) -> None:
        if not request.settled:
            self._count(request)
            self._asker.ask_lanes(request)

    def _serve_waiting(self) -> None:
        """Serve those who wait for a refill, first come, first served. Who finds too few waits for the next one, if
        that is under way, and the others behind; else the lanes are asked for it.

        Each is taken out before anything is done for it: what is done may end another refill, and come back here.
        """
        while self._waiting:
            request = self._waiting.popleft()
            if request.settled:
                continue
            tickets = self.take(request.count)
            if tickets is not None:
                request.desk.answer(request, tickets)
            elif self._may_wait:
                self._waiting.appendleft(request)
                return
            else:
                self._leave_to_lanes(request)

    # --- refills ------------------------------------------------------------------------------------------------------

    def _look(self, now: float) -> None:
        """Have the rate worked out, and drop what is too old."""
        self.demand.look(now, self._came - self.left - self.dropped)
        if self.left:
            self.drop_aged(now)

    @property
    def lasts(self) -> float | None:
        """For how many seconds it lasts at the present rate; None where there is none."""
        return self.demand.lasts(self.left, self._clock())

    def refill(self, now: float | None = None) -> None:
        """Ask for what is missing, where that is worth a statement, and may be handed out: else whom the lanes serve
        meanwhile would pass it, one refill after the other."""
        now = self._clock() if now is None else now
        there = self.left + self._coming
        if there >= self.demand.refill_below or now < self._refill_at or self._closed or now >= self._window.until:
            return
        wanted = self.demand.size - there
        shelves = sorted((shelf for shelf in self.shelves if self._may_refill(shelf, now)), key=len)
        if not shelves:
            self._refill_at = now + RETRY_SECONDS
            return
        if wanted <= SHARE_TICKETS * len(shelves):
            del shelves[1:]
        for shelf in shelves:
            count = min(-(-wanted // len(shelves)), max(1, shelf.lane.member.database.largest_block // 2))
            if shelf.lane.table is None:
                count = 1  # where its database stands is known when it has opened
            shelf.refilling = True
            self._coming += count
            self._asker.ask_lane(shelf.lane, Refill(self, shelf, count, now))

    def _may_refill(self, shelf: Shelf, now: float) -> bool:
        lane = shelf.lane
        return (
            not shelf.refilling
            and now >= shelf.asks_at
            and lane.can_be_asked
            and lane.member.status is UP
            and self._may_draw(lane.member)
            and (
                lane.table is None
                or lane.guard.headroom() * lane.member.database.increment >= CEILING_DISTANCE * self.demand.size
            )
        )

    def came(self, refill: Refill, tickets: Tickets | None) -> None:
        """A refill has its tickets, or its lane could not give any."""
        shelf = refill.shelf
        shelf.refilling = False
        self._coming -= refill.count
        if tickets is None:
            shelf.asks_at = self._clock() + RETRY_SECONDS
        else:
            self._put(shelf, tickets, refill.asked_at)
            self._refill_at = -math.inf  # there is one to ask again
        self._serve_waiting()

    def _put(self, shelf: Shelf, tickets: Tickets, asked_at: float) -> None:
        assert isinstance(tickets, range)
        self._came += len(tickets)
        self.left += len(tickets)
        shelf.add(tickets, asked_at)
        if self._closed:
            self._drop(shelf, "ended", ())
        if asked_at <= self._window.older_at:
            self._drop(shelf, "older", ())
        self._drop_up_to(shelf, self._bumped_above, "bumped")
        self._drop_up_to(shelf, shelf.given, "passed")

    # --- dropping -----------------------------------------------------------------------------------------------------

    def _drop(self, shelf: Shelf, cause: str, kept: Iterable[Piece]) -> None:
        """Keep these pieces of a shelf alone."""
        before = len(shelf)
        shelf.replace(kept)
        dropped = before - len(shelf)
        if dropped:
            self.left -= dropped
            self.dropped += dropped
            self._observer.gap(shelf.lane.member, cause, dropped)

    def _drop_up_to(self, shelf: Shelf, number: int, cause: str) -> None:
        """Drop every ticket up to this number."""
        if shelf.pieces and shelf.next_id <= number:
            self._drop(shelf, cause, [above(piece, number) for piece in shelf.left()])

    def passed(self, shelf: Shelf, ticket: int) -> None:
        """The shelf's lane is about to hand out a ticket by itself."""
        shelf.given = max(ticket, shelf.given)
        self._drop_up_to(shelf, ticket, "passed")

    def bumped(self, number: int) -> None:
        """The sequence was bumped: nothing up to this number is handed out from now on."""
        self._bumped_above = max(number, self._bumped_above)
        for shelf in self.shelves:
            self._drop_up_to(shelf, number, "bumped")

    def drop_aged(self, now: float) -> None:
        """Drop what is too old."""
        oldest = now - OLDEST * self._seconds
        for shelf in self.shelves:
            if shelf.pieces and shelf.pieces[0].asked_at <= oldest:
                self._drop(shelf, "aged", [piece for piece in shelf.left() if piece.asked_at > oldest])

    def superseded(self, shelf: Shelf) -> None:
        """The shelf's lane has found that its database went back."""
        self._drop(shelf, "superseded", ())

    def drop_all(self, cause: str) -> None:
        """Drop everything."""
        for shelf in self.shelves:
            self._drop(shelf, cause, ())

    def close(self, cause: str = "ended") -> None:
        """Drop everything, now and later; those who wait for a refill go to the lanes, which may refuse them."""
        self._closed = True
        self.drop_all(cause)
        waiting, self._waiting = self._waiting, deque()
        for request in waiting:
            self._leave_to_lanes(request)

    def refuse_waiting(self) -> None:
        """The server ends: nobody waits any more."""
        waiting, self._waiting = self._waiting, deque()
        for request in waiting:
            request.desk.refuse(request, Draining())

    # --- what is not protected ----------------------------------------------------------------------------------------

    def unprotected(self) -> Iterator[tuple[Member, int]]:
        """How many tickets of each database lie here that nobody keeps a mark of: see Shelf.unprotected."""
        for shelf in self.shelves:
            if count := shelf.unprotected:
                yield shelf.lane.member, count


class LaneShelf:
    """What a lane tells the reserve of its sequence."""

    __slots__ = ("_reserve", "_shelf")

    def __init__(self, reserve: Reserve, shelf: Shelf) -> None:
        self._reserve = reserve
        self._shelf = shelf

    def passed(self, ticket: int) -> None:
        """The lane is about to hand out this ticket, of a list the last, by itself."""
        self._reserve.passed(self._shelf, ticket)

    def went_back(self) -> None:
        """The lane has found that its database went back."""
        self._reserve.superseded(self._shelf)
