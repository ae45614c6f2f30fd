"""Commands for one ticket each, and how those of many connections share a request.

What came for one sequence in one turn of the event loop is gathered, and asked for as one request for as many tickets:
one turn of the databases, one statement, one count. Each command gets one of the tickets. A statement costs a database
much the same for few tickets as for many. So what comes waits a moment where more is likely to follow: while more are
under way, and where more clients were answered together last, for they come back.

A request for a list or a block is not gathered. It is asked for behind the commands that were gathered for its sequence
before it, because the tickets of one database increase in the order of the commands.
"""

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

from app.clients.turns import Turns
from app.common.errors import SequenceExhausted, TicketError, TooManyAtOnce
from app.redis import replies
from app.redis.requests import REQUEST_BYTES, TICKET_BYTES, Place, RedisTicketRequest, Slot, TicketReply
from app.tickets.desk.front_desk import outcome_of
from app.tickets.requests.request import Desk, Ids, TicketRequest

MOST_TICKETS = 512
"""Tickets in a request beyond which no more are gathered: to answer them is a few milliseconds, in which nothing else
happens."""
HOLD_SECONDS = 0.002
"""How long few wait for those under way at the longest: a database that hangs holds up nobody whose turn is on
another."""
RETURN_SECONDS = 0.001
"""How long they wait where nothing is under way: a client that does not come back at once has other things to do."""
FEW_CLIENTS = 8
"""So many that were answered together are not worth a moment: who comes back first does not wait for as many."""


class SingleTickets(TicketReply):
    """The replies to the same command for one ticket, `times` times in a row.

    `request`: which they are asked for with, None before and afterwards. `is_gone`: nobody waits for them any more.
    """

    request: "GatheredTickets | None" = None
    is_gone = False

    def __init__(self, place: Place, sequence: str, times: int) -> None:
        self.place = place
        self.sequence = sequence
        self.times = times
        self.owed = REQUEST_BYTES + TICKET_BYTES * times
        self.pieces: Pieces | None = None

    def fail(self) -> None:
        """Handle an unexpected exception: log it, and cut the connection."""
        self.place.fail()

    def drop(self) -> None:
        """See Slot.drop."""
        self.is_gone = True
        if self.request is not None:
            self.request.leave(self)
        if self.pieces is not None:
            self.pieces.drop()
        super().drop()


class Pieces:
    """Serves commands that cannot be served together: a piece after the other. See Place.

    One piece is under way at a time, because the sequence may be at its end: then the first ticket that is refused is
    the last that the server has asked for.
    """

    def __init__(self, slot: SingleTickets, desk: Desk, since: float) -> None:
        slot.pieces = self
        self._slot = slot
        self._desk = desk
        self._since = since
        self._left = self._size = slot.times
        self._replies: list[bytes] = []
        self._piece: Piece | None = None

    def smaller(self, error: TicketError) -> "GatheredTickets":
        """A request for the next piece: half as large where that may be left, else for one ticket."""
        self._size = 1 if isinstance(error, TooManyAtOnce) else (self._size + 1) // 2
        return self._next()

    def _next(self) -> "GatheredTickets":
        self._piece = piece = Piece(self, self._slot.sequence, min(self._size, self._left))
        return GatheredTickets(self._slot.sequence, [piece], _nothing)

    def answered(self, slot: Slot) -> None:
        """See Place.answered."""
        assert self._piece is not None
        self._replies.append(slot.reply or b"")
        self._left -= self._piece.times
        if self._left:  # not now: the piece may have been answered before its request was accepted
            asyncio.get_running_loop().call_soon(self._go_on)
        else:
            self._slot.settle(b"".join(self._replies), "apart")

    def _go_on(self) -> None:
        if not self._slot.is_gone:
            self._desk.accept(self._next(), self._since)

    def refused(self, error: TicketError) -> None:
        """A piece is refused for itself, and so is what is behind it."""
        assert self._piece is not None
        rest = self._left - self._piece.times
        if rest:
            self._desk.turn_away("ticket", outcome_of(error), rest)
        self._replies.append(replies.refusal(self._slot.sequence, error) * self._left)
        self._slot.settle(b"".join(self._replies), "apart")

    def fail(self) -> None:
        """See Place.fail."""
        self._slot.place.fail()

    @property
    def client(self) -> str:
        """See Place.client."""
        return self._slot.place.client

    def drop(self) -> None:
        """The client has gone."""
        if self._piece is not None:
            self._piece.drop()


class Piece(SingleTickets):
    """Some of the commands of a slot."""

    def __init__(self, place: Pieces, sequence: str, times: int) -> None:
        super().__init__(place, sequence, times)
        self.of = place

    def settle_refused(self, sequence: str, error: TicketError) -> None:
        """See TicketReply.settle_refused."""
        del sequence
        self.of.refused(error)


class GatheredTickets(TicketRequest):
    """One request for the tickets of several commands. `ended` is called when it is under way no longer, with the
    number of clients that are answered, 0 where none gets a ticket."""

    def __init__(
        self, sequence: str, slots: Sequence[SingleTickets], ended: "Callable[[GatheredTickets, int], object]"
    ) -> None:
        self.sequence = sequence
        self.count = self.requests = sum([slot.times for slot in slots])
        self._slots = slots
        self._ended = ended
        for slot in slots:
            slot.request = self

    def leave(self, slot: SingleTickets) -> None:
        """The client is gone, so tickets that are drawn for these requests become a gap."""
        slot.request = None
        self.desk.abandon_part(self, slot.times)
        if self.settled:
            self._end()

    def _end(self, answered: int = 0) -> None:
        ended, self._ended = self._ended, _nothing
        ended(self, answered)

    def fail(self) -> None:
        """Handle an unexpected exception: log it, and cut the connection."""
        self._end()
        for slot in self._waiting():
            slot.request = None
            slot.fail()

    def give(self, tickets: Ids) -> None:
        """See TicketRequest.give."""
        self._end(len(self._waiting()))
        at = 0
        single = type(tickets[0]) is int
        for slot in self._slots:
            times = slot.times
            if slot.request is self:
                slot.request = None
                try:
                    if times == 1 and single:
                        slot.settle(b":%d\r\n" % tickets[at], "ok")
                    else:
                        slot.settle(replies.single_tickets(tickets[at : at + times]), "ok")
                except Exception:  # there are others to answer
                    slot.fail()
            at += times

    def refuse(self, error: TicketError) -> None:
        """See TicketRequest.refuse."""
        self._end()
        for slot in self._waiting():
            slot.request = None
            try:
                slot.settle_refused(self.sequence, error)
            except Exception:
                slot.fail()

    def apart(self, error: TicketError) -> Sequence[TicketRequest]:
        """See TicketRequest.apart: each connection by itself, and then in pieces."""
        if self.count == 1 or not isinstance(error, SequenceExhausted | TooManyAtOnce):
            return ()
        self._end()
        slots = self._waiting()
        for slot in slots:
            slot.request = None
        if len(self._slots) == 1:
            return [self._pieces_of(slot).smaller(error) for slot in slots]
        return [GatheredTickets(self.sequence, [slot], _nothing) for slot in slots]

    def _pieces_of(self, slot: SingleTickets) -> Pieces:
        return slot.of if isinstance(slot, Piece) else Pieces(slot, self.desk, self.arrived)

    def _waiting(self) -> list[SingleTickets]:
        return [slot for slot in self._slots if slot.request is self]


def _nothing(request: GatheredTickets, answered: int) -> None:
    """Count a request that was served apart no longer among those under way."""


@dataclass(slots=True)
class Gathered:
    """The requests gathered for one sequence, and since when, by the performance counter. `tickets`: how many."""

    since: float
    slots: list[SingleTickets] = field(default_factory=list)
    tickets: int = 0


class Gatherer:
    """Gathers what comes, and has it settled.

    Args:
        accept: Has a request settled that came at this moment, by the performance counter.
        turns: Decide when requests are accepted: one that is served from memory is work.
    """

    def __init__(self, accept: Callable[[TicketRequest, float], None], turns: Turns) -> None:
        self._accept = accept
        self._turns = turns
        self._loop = asyncio.get_running_loop()
        self._gathered: dict[str, Gathered] = {}
        self._under_way: dict[str, int] = {}
        """Tickets of each sequence that have been asked for and not come."""
        self._last: dict[str, int] = {}
        """How many clients were answered together last, by a database and where they were more than a few."""
        self._due: deque[Iterator[tuple[GatheredTickets | RedisTicketRequest, float]]] = deque()
        """The requests to send as soon as there is time, in this order."""
        self._is_scheduled = False
        self._timer: asyncio.TimerHandle | None = None

    def holds(self, sequence: str) -> bool:
        """Whether commands for this sequence have come that are not asked for yet."""
        return bool(self._due) or sequence in self._gathered

    def ask(self, request: RedisTicketRequest) -> None:
        """Send a request by itself, behind the commands gathered for its sequence."""
        if self.holds(request.sequence):
            if request.sequence in self._gathered:
                self._ask(request.sequence)
            request.is_due = True
            self._due.append(iter([(request, time.perf_counter())]))
            self._turns.take(self)
        else:
            self._accept(request, time.perf_counter())

    def add(self, slot: SingleTickets) -> None:
        """Have these settled."""
        gathered = self._gathered.get(slot.sequence)
        if gathered is None:
            gathered = self._gathered[slot.sequence] = Gathered(time.perf_counter())
        gathered.slots.append(slot)
        gathered.tickets += slot.times
        if not self._is_scheduled:
            self._schedule()

    def _schedule(self) -> None:
        self._is_scheduled = True
        self._loop.call_soon(self._look)

    def _look(self) -> None:
        """Send the gathered commands, except those that wait for more."""
        self._is_scheduled = False
        for sequence, gathered in tuple(self._gathered.items()):
            under_way = self._under_way.get(sequence, 0)
            likely = gathered.tickets < under_way or len(gathered.slots) < self._last.get(sequence, 0)
            if likely and gathered.tickets < MOST_TICKETS:
                self._wait(HOLD_SECONDS if under_way else RETURN_SECONDS)
            else:
                self._ask(sequence)

    def _wait(self, seconds: float) -> None:
        if self._timer is None:
            self._timer = self._loop.call_later(seconds, self.ask_for_all)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def ask_for_all(self) -> None:
        """Send all gathered commands, because one of them has waited for long enough."""
        self._stop_timer()
        for sequence in tuple(self._gathered):
            self._ask(sequence)

    def finish(self) -> None:
        """The server ends: ask for all that has come, before this returns."""
        self.ask_for_all()
        self.work(math.inf)

    def _ask(self, sequence: str) -> None:
        gathered = self._gathered.pop(sequence)
        if not self._gathered:
            self._stop_timer()
        self._due.append(self._requests(sequence, gathered))
        self._turns.take(self)

    def _requests(self, sequence: str, gathered: Gathered) -> Iterator[tuple[GatheredTickets, float]]:
        """The gathered clients as requests. Each is made when its turn comes, since a client may have gone by then."""
        for part in _parts(gathered.slots):
            request = GatheredTickets(sequence, part, partial(self._has_ended, sequence))
            self._under_way[sequence] = self._under_way.get(sequence, 0) + request.count
            yield request, gathered.since

    def work(self, until: float) -> bool:
        """Ask for what is due. See Worker.work."""
        due, clock = self._due, self._turns.clock
        while due:
            request, since = next(due[0], (None, 0.0))
            if request is None:
                due.popleft()
                continue
            self._issue(request, since)
            if clock() >= until:
                return True
        return False

    def _issue(self, request: GatheredTickets | RedisTicketRequest, since: float) -> None:
        if isinstance(request, RedisTicketRequest):
            request.is_due = False
            if request.settled:  # the client has gone
                return
        try:
            self._accept(request, since)
        except Exception:  # there are others to ask for
            request.fail()
        if request.settled:  # from memory: nothing is spared by waiting
            self._last.pop(request.sequence, None)

    def _has_ended(self, sequence: str, request: GatheredTickets, answered: int) -> None:
        """`sequence`: as it was gathered; the request has its name as the databases fold it."""
        if answered > FEW_CLIENTS:
            self._last[sequence] = answered
        else:
            self._last.pop(sequence, None)
        left = self._under_way[sequence] - request.count
        if left:
            self._under_way[sequence] = left
        else:
            del self._under_way[sequence]
        if sequence in self._gathered and not self._is_scheduled:
            self._schedule()


def _parts(slots: Sequence[SingleTickets]) -> Iterator[Sequence[SingleTickets]]:
    """The clients that ask together: those that have not gone meanwhile, and not too many."""
    part: list[SingleTickets] = []
    tickets = 0
    for slot in slots:
        if slot.is_gone:
            continue
        if part and tickets + slot.times > MOST_TICKETS:
            yield part
            part, tickets = [], 0
        part.append(slot)
        tickets += slot.times
    if part:
        yield part
