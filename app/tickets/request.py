"""A request for tickets, from whichever protocol it came, on its way from lane to lane."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from app.common.errors import TicketError

if TYPE_CHECKING:
    from app.tickets.front_desk import FrontDesk
    from app.tickets.lane import Lane

LARGEST_COUNT = 1_000
"""The most tickets in a list."""
LARGEST_KEY = 2**63 - 1
"""Of what a shard is chosen by."""

Tickets = Sequence[int]
"""What lanes give: a range, or at the very end of a sequence a list."""
Ids = Sequence[Any]
"""What a request gets: tickets as they are, or ids of another kind, which are strings where they are longer than 63
bits."""


class TicketRequest:
    """`count` tickets of `sequence`, as one range if `whole`. A protocol makes a subclass that says where they go.

    `lane`: the one that it waits in, None while it waits in none. `until`: when its time there is over; `deadline`:
    when its time is over altogether; both in the event loop's time. `arrived`: by the performance counter. `turn`: the
    lanes that are still to be asked in this round, None before the first; `pause`: seconds before the
    next round, 0 before the first.
    `settled`: it has been answered or refused, or nobody waits for it any more. `trace`: what a tracer has put here.
    `address`: the key and the shard that were asked for, None where neither was. `encode`: makes the ids of tickets,
    None where tickets are the ids. `requests`: how many of its clients' requests it stands for; `gone`: how many of its
    tickets nobody waits for any more.
    """

    desk: "FrontDesk"
    deadline: float
    until: float
    arrived: float
    # what holds for most requests stands here once, and is not written into each
    count = 1
    requests = 1
    gone = 0
    whole = False
    lane: "Lane | None" = None
    turn: "Iterator[Lane] | None" = None
    pause = 0.0
    settled = False
    trace: Any = None
    address: tuple[int | None, int | None] | None = None
    encode: "Callable[[Tickets], Ids] | None" = None

    def __init__(self, sequence: str, count: int = 1, *, whole: bool = False) -> None:
        self.sequence = sequence
        if count != 1:
            self.count = count
        if whole:
            self.whole = whole

    def give(self, tickets: Ids) -> None:
        """Take the answer: ids, increasing but for kinds that are in no order; a range if `whole`. The last call."""
        raise NotImplementedError

    def refuse(self, error: TicketError) -> None:
        """Take the reason why there is no answer. The last call."""
        raise NotImplementedError

    def apart(self, error: TicketError) -> "Sequence[TicketRequest]":
        """What may be served in its place, where it is refused with this error for being for several; else nothing."""
        del error
        return ()

    def answer(self, tickets: Tickets | None) -> None:
        """What a lane says while the request waits in it: its tickets, or None, and the next lane is asked."""
        self.lane = None
        if tickets is None:
            self.desk.fail_over(self)
        elif self.encode is None:
            self.desk.answer(self, tickets)
        else:
            self.desk.answer(self, self.encode(tickets))

    def abandon(self) -> None:
        """Nobody waits for it any more: what is drawn for it becomes a gap."""
        if not self.settled:
            self.desk.abandon(self)


class AwaitedRequest(TicketRequest):
    """A request of a task, which awaits `future`."""

    def __init__(self, sequence: str, count: int, *, whole: bool) -> None:
        super().__init__(sequence, count, whole=whole)
        self.future: asyncio.Future[Ids] = asyncio.get_running_loop().create_future()

    def give(self, tickets: Ids) -> None:
        """See TicketRequest.give."""
        if not self.future.done():
            self.future.set_result(tickets)

    def refuse(self, error: TicketError) -> None:
        """See TicketRequest.refuse."""
        if not self.future.done():
            self.future.set_exception(error)
