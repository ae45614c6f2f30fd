"""The front desk: where every protocol hands in its requests for tickets.

The desk counts and times each request, refuses it after the drain, and settles it exactly once: the request is
answered, refused or abandoned. The issuer decides which database serves it.
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
"""The word in the metrics for each error of this server."""


def outcome_of(error: errors.TicketError) -> str:
    """The word in the metrics for an error of this server."""
    return next((OUTCOMES[kind] for kind in type(error).__mro__ if kind in OUTCOMES), "unavailable")


class RequestObserver(Protocol):
    """Counts requests. Each call is on the way of a ticket, and returns at once."""

    in_flight: int
    """How many requests have been taken and not settled."""

    def requests_answered(self, endpoint: str, seconds: float, requests: int) -> None:
        """`requests` requests were answered together after `seconds`. `endpoint`: "ticket" or "block"."""

    def requests_refused(self, endpoint: str, outcome: str, requests: int) -> None:
        """`requests` requests were refused together. `outcome`: why, in a word of `OUTCOMES`."""


class FrontDesk:
    """Takes requests, hands them to the issuer, and settles them."""

    def __init__(self, issuer: TicketIssuer, observer: RequestObserver) -> None:
        self._issuer = issuer
        self._observer = observer
        self.draws_ahead = issuer.draws_ahead
        """Whether sequences may have a reserve; if not, `ready` always returns None."""
        self.closed = False
        """Whether the drain is over. Then the desk refuses new requests, and finishes those that it has taken."""

    @property
    def largest_block(self) -> int:
        """The most tickets that one block can have."""
        return self._issuer.largest_block

    @property
    def increment(self) -> int:
        """The step between the ids of one block."""
        return self._issuer.increment

    def ready(self, sequence: str, count: int = 1, *, singly: bool = False) -> Ids | None:
        """Serve a request at once from the reserve: `count` tickets, increasing, all from one database.

        `singly`: serve `count` requests for one ticket each, all or none of them. The tickets are for the requests in
        this order; tickets from one database increase. None if the caller has to make the request: the sequence is not
        known, its reserve has too few tickets, or the server drains. Then nothing is counted.
        """
        if self.closed:
            return None
        began = time.perf_counter()
        tickets = self._issuer.ready(sequence, count, singly)
        if tickets is not None:
            self._observer.requests_answered("ticket", time.perf_counter() - began, count if singly else 1)
        return tickets

    def accept(self, request: TicketRequest, since: float | None = None) -> None:
        """Take a request and settle it: its `give` or its `refuse` is called once, perhaps before this returns.

        `since`: when the request came, by the performance counter; None if it came now.
        """
        request.arrived = time.perf_counter() if since is None else since
        request.desk = self
        self._observer.in_flight += request.requests
        if self.closed:
            self.refuse(request, errors.Draining())
        else:
            self._issuer.issue(request)

    def turn_away(self, endpoint: str, outcome: str, requests: int = 1) -> None:
        """Count requests that their protocol has refused before the desk took them."""
        self._observer.requests_refused(endpoint, outcome, requests)

    # --- requests that were taken ------------------------------------------------------------------------------------

    def fail_over(self, request: TicketRequest) -> None:
        """Ask the next lane: the lane or the supply that had the request could not serve it."""
        if not request.settled:
            self._issuer.ask_next(request)

    def answer(self, request: TicketRequest, tickets: Ids) -> None:
        """Settle a request with its tickets. Raises nothing, like `refuse`: the caller has other requests to settle."""
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
        """Settle a request with an error, unless it is settled or abandoned."""
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
        """Take the parts of a request that cannot be served whole. The parts came when the request came."""
        for part in parts:
            part.desk = self
            part.arrived = request.arrived
            self._observer.in_flight += part.requests
            self._issuer.issue(part)

    def abandon(self, request: TicketRequest) -> None:
        """Settle a request whose client has gone away."""
        request.settled = True
        request.lane = None
        self._observer.in_flight -= request.requests

    def abandon_part(self, request: TicketRequest, requests: int) -> None:
        """Settle some of the clients' requests that a request stands for, because those clients have gone away."""
        if request.settled:
            return
        if requests == request.requests:
            self.abandon(request)
        else:
            request.requests -= requests
            request.gone += requests
            self._observer.in_flight -= requests
