"""The front desk: where every protocol in front hands in its requests for tickets.

Each request that is taken is counted, timed, refused while the server drains, and settled exactly once: answered,
refused or abandoned. Which database it is drawn from is the issuer's business.
"""

import asyncio
import logging
import time
from typing import Protocol

from app.common import errors
from app.tickets.issuer import TicketIssuer
from app.tickets.request import AwaitedRequest, Ids, TicketRequest

log = logging.getLogger(__name__)

OUTCOMES: dict[type[errors.TicketError], str] = {
    errors.InvalidRequest: "invalid",
    errors.NotForThisKind: "invalid",
    errors.UnknownSequence: "unknown",
    errors.SequenceExhausted: "exhausted",
    errors.OutOfTime: "timeout",
    errors.Draining: "draining",
    errors.ClockAhead: "clock",
    errors.ClockWentBack: "clock",
    errors.NoTicketDatabase: "unavailable",
    errors.UnknownError: "error",
}
"""The word in the metrics for each of our errors."""


def outcome_of(error: errors.TicketError) -> str:
    """The word in the metrics for one of our errors."""
    return next((OUTCOMES[kind] for kind in type(error).__mro__ if kind in OUTCOMES), "unavailable")


class RequestObserver(Protocol):
    """Is told of every request. Each call is on the way of a ticket, and returns at once."""

    in_flight: int
    """Requests that have been taken and not settled."""

    def request_answered(self, endpoint: str, seconds: float) -> None:
        """A request got its tickets after so many `seconds`. `endpoint`: "ticket" or "block"."""

    def request_refused(self, endpoint: str, outcome: str) -> None:
        """A request was refused; `outcome` is why, in a word of `OUTCOMES`."""


class FrontDesk:
    """Takes requests, hands them to the issuer, and settles them."""

    def __init__(self, issuer: TicketIssuer, observer: RequestObserver) -> None:
        self._issuer = issuer
        self._observer = observer
        self.closed = False
        """Whether the drain is over: new requests are refused, those that were taken before are finished."""

    @property
    def largest_block(self) -> int:
        """The most tickets that one block can have."""
        return self._issuer.largest_block

    @property
    def increment(self) -> int:
        """The step between the ids of one block."""
        return self._issuer.increment

    async def take(self, sequence: str, count: int = 1, *, whole: bool = False) -> Ids:
        """`count` tickets of the sequence, increasing, all from one database; as a range if `whole` or `count` is 1.

        Raises InvalidRequest or UnknownSequence for the name, SequenceExhausted, NoTicketDatabase, OutOfTime, Draining.
        """
        request = AwaitedRequest(sequence, count, whole=whole)
        self.accept(request)
        try:
            return await request.future
        except asyncio.CancelledError:
            request.abandon()
            raise

    def accept(self, request: TicketRequest) -> None:
        """Have a request settled: its `give` or its `refuse` is called once, perhaps before this returns."""
        request.arrived = time.perf_counter()
        request.desk = self
        self._observer.in_flight += 1
        if self.closed:
            self.refuse(request, errors.Draining())
        else:
            self._issuer.issue(request)

    def turn_away(self, endpoint: str, outcome: str) -> None:
        """Count a request that its protocol has refused before it became one."""
        self._observer.request_refused(endpoint, outcome)

    # --- what becomes of those that were taken -----------------------------------------------------------------------

    def fail_over(self, request: TicketRequest) -> None:
        """A lane could not serve it: ask the next."""
        if not request.settled:
            self._issuer.ask_next(request)

    def answer(self, request: TicketRequest, tickets: Ids) -> None:
        """Settle it with its tickets. Raises nothing, like `refuse`: whoever calls has others to settle."""
        request.settled = True
        observer = self._observer
        observer.in_flight -= 1
        try:
            observer.request_answered("block" if request.whole else "ticket", time.perf_counter() - request.arrived)
        except Exception:
            log.exception("a request could not be counted")
        try:
            request.give(tickets)
        except Exception:
            log.exception("a request could not be told its tickets")

    def refuse(self, request: TicketRequest, error: errors.TicketError) -> None:
        """Settle it with an error, unless nobody waits for it any more."""
        if request.settled:
            return
        request.settled = True
        observer = self._observer
        observer.in_flight -= 1
        try:
            observer.request_refused("block" if request.whole else "ticket", outcome_of(error))
        except Exception:
            log.exception("a request could not be counted")
        try:
            request.refuse(error)
        except Exception:
            log.exception("a request could not be told why it is refused")

    def abandon(self, request: TicketRequest) -> None:
        """Settle it without a word."""
        request.settled = True
        request.lane = None
        self._observer.in_flight -= 1
