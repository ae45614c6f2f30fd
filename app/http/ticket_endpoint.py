"""`/ticket/{sequence}` and `/block/{sequence}`: what a request for tickets says, and how its answer reads.

Every write of our users waits for this, so there is nothing on it that a ticket does not need: no routing table, no
middleware, no model. `app.http.api_description` describes it in /openapi.json.
"""

import json
from functools import lru_cache
from typing import Protocol
from urllib.parse import parse_qsl

from app.common.errors import InvalidRequest, TicketError
from app.http.access import Access
from app.http.problems import Problem, method_not_allowed, problem_of
from app.http.request_head import RequestHead
from app.http.responses import ok, problem_response
from app.http.ticket_protocol import TicketProtocol
from app.tickets.front_desk import FrontDesk
from app.tickets.request import TicketRequest, Tickets

LARGEST_COUNT = 1_000


class Watcher(Protocol):
    """Is told of every request for tickets: a log, a tracer."""

    def begin(self, protocol: TicketProtocol, head: RequestHead) -> object:
        """A request has come. What is returned is the request's `trace`, and given to `end`."""

    def end(self, protocol: TicketProtocol, head: RequestHead, trace: object, status: int) -> None:
        """It is answered with this status; 0 where the client has gone before that."""


class HTTPTicketRequest(TicketRequest):
    """A request over HTTP. `listed`: `count` was given, so that the answer is a list even if it has one ticket."""

    listed = False
    as_text = False

    def __init__(
        self,
        endpoint: "TicketEndpoint",
        protocol: TicketProtocol,
        head: RequestHead,
        count: int | None,
        *,
        as_text: bool,
    ) -> None:
        super().__init__(head.name, count or 1, whole=head.whole)
        self.endpoint = endpoint
        self.protocol = protocol
        self.head = head
        if count is not None:
            self.listed = True
        if as_text:
            self.as_text = True

    def give(self, tickets: Tickets) -> None:
        """See TicketRequest.give."""
        protocol = self.protocol
        try:
            if self.as_text:
                body = b"".join([b"%d\n" % ticket for ticket in tickets])
            elif self.whole:
                body = self._block(tickets)
            elif self.listed:
                body = self._list(tickets)
            else:
                ticket = tickets[0]
                body = b'{"sequence":"%b","id":%d,"id_str":"%d"}' % (self.sequence.encode(), ticket, ticket)
            response = ok(body, as_text=self.as_text, keep_alive=protocol.keeps_alive)
            self.endpoint.respond(protocol, self.head, self.trace, 200, response)
        except Exception:  # who calls has others to answer
            protocol.fail()

    def refuse(self, error: TicketError) -> None:
        """See TicketRequest.refuse."""
        try:
            self.endpoint.refuse(self.protocol, self.head, self.trace, problem_of(error))
        except Exception:
            self.protocol.fail()

    def _list(self, tickets: Tickets) -> bytes:
        ids, strings = list(tickets), [str(ticket) for ticket in tickets]
        answer = {"sequence": self.sequence, "count": self.count, "ids": ids, "ids_str": strings}
        return json.dumps(answer, separators=(",", ":")).encode()

    def _block(self, tickets: Tickets) -> bytes:
        first, step = tickets[0], tickets.step if isinstance(tickets, range) else self.desk.increment
        name = self.sequence.encode()
        size = self.count
        return b'{"sequence":"%b","first":%d,"first_str":"%d","step":%d,"size":%d}' % (name, first, first, step, size)


class TicketEndpoint:
    """Reads requests for tickets and hands them to the front desk. `watcher`: who is told of each."""

    def __init__(self, desk: FrontDesk, access: Access, watcher: Watcher | None = None) -> None:
        self._desk = desk
        self._access = access
        self._watcher = watcher

    def begin(self, protocol: TicketProtocol, head: RequestHead) -> None:
        """See connection_roles.Endpoint.begin."""
        trace = None if self._watcher is None else self._watcher.begin(protocol, head)
        if head.method not in {b"GET", b"POST"}:
            self._turn_away(protocol, head, trace, method_not_allowed("GET", "POST"), "invalid")
            return
        if not self._access.tickets_are_free:
            refusal = self._access.refusal_for_tickets(head.field(b"authorization"))
            if refusal is not None:
                self._turn_away(protocol, head, trace, refusal, "denied")
                return
        try:
            request = self._request(protocol, head)
        except InvalidRequest as error:
            self._turn_away(protocol, head, trace, problem_of(error), "invalid")
            return
        if trace is not None:
            request.trace = trace
        head.owner = request
        self._desk.accept(request)

    def _request(self, protocol: TicketProtocol, head: RequestHead) -> HTTPTicketRequest:
        if head.whole:
            largest = self._desk.largest_block
            size = number_in(head.query, "size", largest)
            if size is None:
                raise InvalidRequest(f"size is required: a whole number from 1 to {largest}")
            return HTTPTicketRequest(self, protocol, head, size, as_text=False)
        count = number_in(head.query, "count", LARGEST_COUNT) if head.query else None
        return HTTPTicketRequest(self, protocol, head, count, as_text=prefers_text(head.field(b"accept") or b""))

    def _turn_away(
        self, protocol: TicketProtocol, head: RequestHead, trace: object, problem: Problem, outcome: str
    ) -> None:
        self._desk.turn_away("block" if head.whole else "ticket", outcome)
        self.refuse(protocol, head, trace, problem)

    def refuse(self, protocol: TicketProtocol, head: RequestHead, trace: object, problem: Problem) -> None:
        """Answer with a problem."""
        response = problem_response(problem, keep_alive=protocol.keeps_alive, head=head.method == b"HEAD")
        self.respond(protocol, head, trace, problem.status, response)

    def respond(self, protocol: TicketProtocol, head: RequestHead, trace: object, status: int, response: bytes) -> None:
        """Send a response, and tell who watches."""
        head.owner = None  # each knows the other: nobody has to collect them
        if self._watcher is not None:
            self._watcher.end(protocol, head, trace, status)
        protocol.answer(response)

    def gone(self, head: RequestHead) -> None:
        """See connection_roles.Endpoint.gone."""
        request, head.owner = head.owner, None
        if isinstance(request, HTTPTicketRequest) and not request.settled:
            request.abandon()
            if self._watcher is not None:
                self._watcher.end(request.protocol, head, request.trace, 0)


def number_in(query: bytes, name: str, largest: int) -> int | None:
    """The query's `name`, or None where it is not given. Raises InvalidRequest."""
    try:
        pairs = parse_qsl(query.decode("ascii"), keep_blank_values=True, max_num_fields=32)
    except ValueError:
        raise InvalidRequest("the query cannot be read") from None
    given = [value for key, value in pairs if key == name]
    if not given:
        return None
    text = given[0]
    plain = len(given) == 1 and len(text) <= 9 and text.isascii() and text.isdigit() and text[0] != "0"
    if not plain or int(text) > largest:
        raise InvalidRequest(f"{name} has to be a whole number from 1 to {largest}, in digits, given once")
    return int(text)


@lru_cache(maxsize=256)
def prefers_text(accept: bytes) -> bool:
    """Whether an Accept header prefers text/plain to JSON; of two with the same quality, the first counts."""
    qualities: dict[str, tuple[float, int]] = {}
    for place, part in enumerate(accept.decode("latin-1").lower().split(",")):
        kind, *parameters = (piece.strip() for piece in part.split(";"))
        quality = next((_quality(text[2:]) for text in parameters if text.startswith("q=")), 1.0)
        qualities.setdefault(kind, (quality, -place))
    text = qualities.get("text/plain", (0.0, 0))
    json_ = qualities.get("application/json")
    if json_ is None:
        json_ = qualities.get("application/*", qualities.get("*/*", (0.0, 0)))[0], -len(qualities)
    return text[0] > 0 and text > json_


def _quality(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0
