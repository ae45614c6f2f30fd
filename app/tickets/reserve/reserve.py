"""The reserve: tickets of one sequence that were drawn ahead, and are handed out from memory.

A ticket in reserve was drawn, checked, marked and committed like any other ticket, because a refill is a request that
waits in a lane's queue. The refill's tickets become a piece on the lane's shelf. Each shelf hands out its oldest
tickets first, and the shelves take turns.

The tickets of one database have to increase. So no shelf may hold a ticket below one that the lane has handed out by
itself. A request that finds the reserve empty waits for the refill under way, because the lane behind the refill would
give larger tickets. If the lane hands out tickets by itself all the same, the shelf drops the smaller ones.

Only requests cause refills. The first request after an idle span causes none. So a sequence without requests holds
nothing after a while.

A dropped ticket becomes a gap, counted by its cause:

    aged        three times TICKETS_RESERVE_SECONDS have passed since it was drawn
    bumped      the sequence was bumped above it
    passed      its lane has handed out larger tickets by itself
    superseded  its lane has another token than the ticket was drawn under: the database may have gone back
    blind       see `Reserves.came_up`
    older       the server has seen a server that does not announce bumps
    ended       the server, the sequence or the ring has ended
"""

import asyncio
import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence

from app.common.errors import Draining
from app.tickets.lanes.attempts import Attempts
from app.tickets.lanes.lane import Lane
from app.tickets.requests.observer import Observer
from app.tickets.requests.request import TicketRequest, Tickets
from app.tickets.requests.supply import Supply
from app.tickets.reserve.demand import Demand
from app.tickets.reserve.shelf import Shelf
from app.tickets.reserve.window import Window
from app.tickets.ring.ring import UP, Member

OLDEST = 3
"""The age at which a piece is dropped, in multiples of TICKETS_RESERVE_SECONDS."""
CEILING_DISTANCE = 100
"""No ticket is drawn ahead when fewer ids than this multiple of the reserve's size are left below the ceiling."""
RETRY_SECONDS = 0.25
"""How soon a lane that could not give a refill is asked again. The same pause follows when no lane could be asked."""
SHARE_TICKETS = 100
"""A refill of more tickets than this for each lane is shared among the lanes. One statement draws a smaller one."""


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


class Reserve(Supply):
    """The reserve of one sequence of plain tickets.

    Attributes:
        left: how many tickets are in reserve.
        demand: how many there are to be.
        dropped: how many have been dropped so far.
    """

    def __init__(
        self,
        sequence: str,
        lanes: Sequence[Lane],
        seconds: float,
        *,
        window: Window,
        attempts: Attempts,
        may_draw: Callable[[Member], bool],
        observer: Observer,
        clock: Callable[[], float],
    ) -> None:
        """Args:
        seconds: TICKETS_RESERVE_SECONDS.
        window: until when tickets in reserve may be handed out.
        attempts: ends the wait for a refill.
        may_draw: whether the settings let a database draw now.
        observer: is told what is dropped.
        clock: seconds; goes on while the machine is suspended.
        """
        self.sequence = sequence
        self.shelves = [Shelf(lane, self._dropped) for lane in lanes]
        for shelf, following in zip(self.shelves, self.shelves[1:] + self.shelves[:1], strict=True):
            shelf.next = following
        self.left = 0
        self.dropped = 0
        self.demand = Demand(seconds)
        self._seconds = seconds
        self._window = window
        self._attempts = attempts
        self._may_draw = may_draw
        self._observer = observer
        self._clock = clock
        self._loop = asyncio.get_running_loop()
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
        """`count` tickets, increasing, all from one database; None if the lanes have to be asked."""
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
        """`times` single tickets; those from one database increase. None if there are fewer, or if earlier requests
        wait, which get the smaller tickets."""
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
        """`take`'s tickets from any shelf, if the piece whose turn it is has too few, or may not give them."""
        if not self.left:
            return None
        if now >= self._window.until:
            self._window.look_again()
            return None
        shelf, found = self._turn, None
        for _ in self.shelves:
            if shelf.token != shelf.marks.token and shelf.pieces:
                shelf.drop("superseded", [piece for piece in shelf.left() if piece.token == shelf.marks.token])
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

    def ready(self, count: int, singly: bool) -> Tickets | None:
        """See Supply.ready."""
        return self.take_singly(count) if singly else self.take(count)

    def takes(self, request: TicketRequest) -> bool:
        """See Supply.takes. Blocks are left to the lanes. Where the reserve is empty and no refill is coming, the
        request is passed on to the lanes, and a refill is asked for after it."""
        if request.whole or request.address is not None:
            return super().takes(request)
        if not self._waiting:
            tickets = self.take(request.count)
            if tickets is not None:
                request.desk.answer(request, tickets)
                return True
            if not self._may_wait:
                self._pass_on(request)
                return True
        self._waiting.append(request)
        request.until = min(self._loop.time() + self._attempts.seconds, request.deadline)
        self._attempts.watch(self)
        return True

    @property
    def _may_wait(self) -> bool:
        """Whether a refill is under way whose tickets may be handed out."""
        return self._coming > 0 and not self._closed and self._clock() < self._window.until

    def _pass_on(self, request: TicketRequest) -> None:
        """Have the lanes asked for a request, unless its client has gone, and then for a refill: the lane gives the
        smaller tickets to the request. The tickets count as used once, however often the lanes are asked for them."""
        if request.settled:
            return
        if not request.counted:
            request.counted = True
            self.demand.by_lanes += request.count
        request.desk.fail_over(request)
        self.refill()

    @property
    def issued(self) -> int:
        """See Supply.issued. The lanes have counted all tickets that they gave to the reserve."""
        return -(self.left + self.dropped)

    @property
    def has_tickets(self) -> bool:
        """Whether any ticket may be handed out now."""
        return self.left > 0 and self._clock() < self._window.until

    @property
    def waiting(self) -> bool:
        """Whether any request waits for a refill."""
        return bool(self._waiting)

    def expire(self, now: float) -> None:
        """Have the lanes asked for every request whose `until` has come: the next refill may be too small again.
        `now`: in the event loop's time."""
        waiting, self._waiting = self._waiting, deque()
        expired = [request for request in waiting if request.until <= now]
        self._waiting.extend(request for request in waiting if request.until > now)
        for request in expired:
            self._pass_on(request)
        if expired:
            self._serve_waiting()

    def _serve_waiting(self) -> None:
        """Serve the requests that wait for a refill, first come, first served.

        A request that needs more tickets than are left waits for the next refill, and blocks the requests behind it. If
        no refill is coming, the request goes to the lanes. Each request is taken out first, because serving it may end
        another refill, and call this method again.
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
                self._pass_on(request)

    # --- refills ------------------------------------------------------------------------------------------------------

    def _look(self, now: float) -> None:
        """Work out the rate, and drop the tickets that are too old."""
        self.demand.look(now, self._came - self.left - self.dropped)
        if self.left:
            self.drop_aged(now)

    @property
    def lasts(self) -> float | None:
        """How many seconds the tickets last at the present rate; None if there is no rate."""
        return self.demand.lasts(self.left, self._clock())

    def refill(self, now: float | None = None) -> None:
        """Ask the lanes for the missing tickets, if they are worth a statement. Ask for none while the window is over,
        because lanes would hand out larger tickets meanwhile, and each refill would be dropped."""
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
                count = 1  # the position of its database is known when the lane has opened
            shelf.refilling = True
            self._coming += count
            refill = Refill(self, shelf, count, now)
            refill.until = self._loop.time() + self._attempts.seconds
            shelf.lane.ask(refill)
            self._attempts.watch(shelf.lane)

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
                or lane.guard.headroom() * lane.residue.increment >= CEILING_DISTANCE * self.demand.size
            )
        )

    def came(self, refill: Refill, tickets: Tickets | None) -> None:
        """Take the tickets of a refill; None if its lane could not give any."""
        shelf = refill.shelf
        shelf.refilling = False
        self._coming -= refill.count
        if tickets is None:
            shelf.asks_at = self._clock() + RETRY_SECONDS
        else:
            self._put(shelf, tickets, refill.asked_at)
            self._refill_at = -math.inf  # a lane can be asked again
        self._serve_waiting()

    def _put(self, shelf: Shelf, tickets: Tickets, asked_at: float) -> None:
        assert isinstance(tickets, range)
        self._came += len(tickets)
        self.left += len(tickets)
        shelf.add(tickets, asked_at)
        if self._closed:
            shelf.drop("ended")
        if asked_at <= self._window.older_at:
            shelf.drop("older")
        shelf.drop_up_to(self._bumped_above, "bumped")
        shelf.drop_up_to(shelf.given, "passed")

    # --- dropping -----------------------------------------------------------------------------------------------------

    def _dropped(self, member: Member, cause: str, tickets: int) -> None:
        self.left -= tickets
        self.dropped += tickets
        self._observer.gap(member, cause, tickets)

    def bumped(self, number: int) -> None:
        """Hand out no ticket up to this number from now on, because the sequence was bumped."""
        self._bumped_above = max(number, self._bumped_above)
        for shelf in self.shelves:
            shelf.drop_up_to(number, "bumped")

    def drop_aged(self, now: float) -> None:
        """Drop the pieces that are too old."""
        oldest = now - OLDEST * self._seconds
        for shelf in self.shelves:
            if shelf.pieces and shelf.pieces[0].asked_at <= oldest:
                shelf.drop("aged", [piece for piece in shelf.left() if piece.asked_at > oldest])

    def drop_all(self, cause: str) -> None:
        """Drop everything."""
        for shelf in self.shelves:
            shelf.drop(cause)

    def close(self, cause: str = "ended") -> None:
        """Drop everything, now and later. Requests that wait for a refill go to the lanes, which may refuse them."""
        self._closed = True
        self.drop_all(cause)
        waiting, self._waiting = self._waiting, deque()
        for request in waiting:
            self._pass_on(request)

    def refuse_waiting(self) -> None:
        """Refuse the requests that wait for a refill, because the server ends."""
        waiting, self._waiting = self._waiting, deque()
        for request in waiting:
            request.desk.refuse(request, Draining())

    # --- what is not protected ----------------------------------------------------------------------------------------

    def unprotected(self) -> Iterator[tuple[Member, int]]:
        """How many unprotected tickets of each database are in reserve: see Shelf.unprotected."""
        for shelf in self.shelves:
            if count := shelf.unprotected:
                yield shelf.lane.member, count
