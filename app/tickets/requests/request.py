"""A request for tickets, from whichever protocol it came, on its way from lane to lane."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

from app.common.errors import TicketError

LARGEST_COUNT = 1_000
"""The most tickets in a list."""
LARGEST_KEY = 2**63 - 1
"""Of what a shard is chosen by."""

Tickets = Sequence[int]
"""Tickets of a lane: a range, or a list at the very end of a sequence."""
Ids = Sequence[Any]
"""What a request gets: tickets as they are, or ids of another kind, which are strings where they are longer than 63
bits."""


class Desk(Protocol):
    """The front desk, as far as a request needs it. None of these raises: the caller has other requests to settle."""

    @property
    def increment(self) -> int:
        """The step between the ids of one block."""

    def accept(self, request: "TicketRequest", since: float | None = None) -> None:
        """Take one more request, which came at `since` by the performance counter, or now."""

    def turn_away(self, endpoint: str, outcome: str, requests: int = 1) -> None:
        """Count requests that their protocol has refused before the desk took them."""

    def answer(self, request: "TicketRequest", tickets: Ids) -> None:
        """Settle the request with its tickets."""

    def refuse(self, request: "TicketRequest", error: TicketError) -> None:
        """Settle the request with an error."""

    def fail_over(self, request: "TicketRequest") -> None:
        """Ask the next lane: the lane or the supply that had taken the request could not serve it."""

    def abandon(self, request: "TicketRequest") -> None:
        """Settle the request without a word."""

    def abandon_part(self, request: "TicketRequest", requests: int) -> None:
        """Answer some of the clients' requests that it stands for."""


class TicketRequest:
    """`count` tickets of `sequence`, as one range if `whole`. A protocol makes a subclass that says where they go.

    Attributes:
        desk: the front desk that has taken it.
        lane: the lane that it waits in, None while it waits in none. Only the lane's identity counts.
        until: when its time in that lane is over, by the event loop's clock.
        deadline: when its time is over altogether, by the event loop's clock.
        arrived: when it came, by the performance counter.
        turn: the lanes that are still to be asked in this round, None before the round's first lane is asked.
        pause: seconds before the next round, 0 before the first.
        settled: it has been answered or refused, or its client has gone away.
        trace: what a tracer has put here.
        address: the key and the shard that the client named, None where it named neither.
        encode: makes ids of tickets, None where tickets are the ids.
        requests: for how many requests of clients it stands.
        gone: how many of its tickets belong to clients that have gone away.
        counted: the sequence's reserve has counted it as served by the lanes.
    """

    desk: Desk
    deadline: float
    until: float
    arrived: float
    # what holds for most requests stands here once, and is not written into each
    count = 1
    requests = 1
    gone = 0
    whole = False
    lane: object | None = None
    turn: Iterator[Any] | None = None
    pause = 0.0
    settled = False
    counted = False
    trace: Any = None
    address: tuple[int | None, int | None] | None = None
    encode: Callable[[Tickets], Ids] | None = None

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
        """Take a lane's answer while the request waits there: tickets, or None. Then the next lane is asked."""
        self.lane = None
        if tickets is None:
            self.desk.fail_over(self)
        elif self.encode is None:
            self.desk.answer(self, tickets)
        else:
            self.desk.answer(self, self.encode(tickets))

    def abandon(self) -> None:
        """No client waits for it any more. Its tickets become a gap."""
        if not self.settled:
            self.desk.abandon(self)
