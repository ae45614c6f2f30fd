"""The front desk: where every protocol in front hands in its requests for tickets.

Each request that is taken is counted, timed, refused while the server drains, and settled exactly once: answered,
refused or abandoned. Which database it is drawn from is the issuer's business.
"""

import logging
import time
from collections.abc import Iterable
from typing import Protocol

from app.common import errors
from app.tickets.desk.issuer import TicketIssuer
from app.tickets.requests.request import Ids, TicketRequest

log = logging.getLogger(__name__)

OUTCOMES: dict[type[errors.TicketError], str] = {
    errors.InvalidRequest: "invalid",
    errors.NotForThisKind: "invalid",
    errors.UnknownSequence: "unknown",
    errors.SequenceExhausted: "exhausted",
    errors.OutOfTime: "timeout",
    errors.Draining: "draining",
    errors.TooManyConnections: "too-many-connections",
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

    def requests_answered(self, endpoint: str, seconds: float, requests: int) -> None:
        """So many `requests` got their tickets together, after so many `seconds`. `endpoint`: "ticket" or "block"."""

    def requests_refused(self, endpoint: str, outcome: str, requests: int) -> None:
        """So many `requests` were refused together; `outcome` is why, in a word of `OUTCOMES`."""


class FrontDesk:
    """Takes requests, hands them to the issuer, and settles them."""

    def __init__(self, issuer: TicketIssuer, observer: RequestObserver) -> None:
        self._issuer = issuer
        self._observer = observer
        self.draws_ahead = issuer.draws_ahead
        """Whether `ready` is worth a call."""
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

    def ready(self, sequence: str, count: int = 1, *, singly: bool = False) -> Ids | None:
        """Serve a request at once, from what was drawn ahead: `count` tickets, increasing, all from one database.

        `singly`: so many requests for one ticket each, all of them or none. The tickets are given in this order; those
        from one database increase. None where nothing was counted and the request has to be made: no such sequence,
        nothing in reserve, draining.
        """
        if self.closed:
            return None
        began = time.perf_counter()
        tickets = self._issuer.ready(sequence, count, singly)
        if tickets is not None:
            self._observer.requests_answered("ticket", time.perf_counter() - began, count if singly else 1)
        return tickets

    def accept(self, request: TicketRequest, since: float | None = None) -> None:
        """Have a request settled: its `give` or its `refuse` is called once, perhaps before this returns.

        `since`: when it came, by the performance counter, where that was not now.
        """
        request.arrived = time.perf_counter() if since is None else since
        request.desk = self
        self._observer.in_flight += request.requests
        if self.closed:
            self.refuse(request, errors.Draining())
        else:
            self._issuer.issue(request)

    def turn_away(self, endpoint: str, outcome: str, requests: int = 1) -> None:
        """Count requests that their protocol has refused before they became any."""
        self._observer.requests_refused(endpoint, outcome, requests)

    # --- what becomes of those that were taken -----------------------------------------------------------------------

    def fail_over(self, request: TicketRequest) -> None:
        """A lane could not serve it: ask the next."""
        if not request.settled:
            self._issuer.ask_next(request)

    def answer(self, request: TicketRequest, tickets: Ids) -> None:
        """Settle it with its tickets. Raises nothing, like `refuse`: whoever calls has others to settle."""
        request.settled = True
        observer = self._observer
        requests = request.requests
        observer.in_flight -= requests
        try:
            seconds = time.perf_counter() - request.arrived
            observer.requests_answered("block" if request.whole else "ticket", seconds, requests)
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
        observer.in_flight -= request.requests
        parts = request.apart(error)
        if parts:
            self._accept_parts(request, parts)
            return
        try:
            observer.requests_refused("block" if request.whole else "ticket", outcome_of(error), request.requests)
        except Exception:
            log.exception("a request could not be counted")
        try:
            request.refuse(error)
        except Exception:
            log.exception("a request could not be told why it is refused")

    def _accept_parts(self, request: TicketRequest, parts: Iterable[TicketRequest]) -> None:
        """Have these settled in place of a request that cannot be served whole. They came when it did."""
        for part in parts:
            part.desk = self
            part.arrived = request.arrived
            self._observer.in_flight += part.requests
            self._issuer.issue(part)

    def abandon(self, request: TicketRequest) -> None:
        """Settle it without a word."""
        request.settled = True
        request.lane = None
        self._observer.in_flight -= request.requests

    def abandon_part(self, request: TicketRequest, requests: int) -> None:
        """The same for some of the requests for a single ticket that it stands for."""
        if request.settled:
            return
        if requests == request.requests:
            self.abandon(request)
        else:
            request.requests -= requests
            request.gone += requests
            self._observer.in_flight -= requests
