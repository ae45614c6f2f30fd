"""`/ticket/{sequence}` and `/block/{sequence}`: what a request for tickets says, and how its answer reads.

Every write of our users waits for this, so there is nothing on it that a ticket does not need: no routing table, no
middleware, no model. `app.http.api.description` describes it in /openapi.json.
"""

import asyncio
import json
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache, partial
from typing import NamedTuple, Protocol

from app.clients.denials import Denials
from app.common.errors import InvalidRequest, TicketError
from app.http.access import CROSS_SITE, Access, bearer, is_cross_site
from app.http.problems import Problem, body_too_large, method_not_allowed, problem_of
from app.http.query import Parameters, listed
from app.http.tickets.head import LARGEST_BODY, ClientRequest, Place, RequestHead
from app.http.tickets.protocol import TicketProtocol
from app.http.tickets.responses import ok, problem_response
from app.tickets.desk.front_desk import FrontDesk, outcome_of
from app.tickets.requests.request import LARGEST_COUNT, LARGEST_KEY, Ids, TicketRequest

METHODS = "GET", "POST"
TICKET_PARAMETERS = "count", "key", "shard"
BLOCK_PARAMETERS = ("size",)
_METHODS = frozenset(method.encode() for method in METHODS)
EMPTY_OBJECT = b"{}"
"""The body that a request for tickets may have beside white space: some clients send it with every POST."""
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
ACCEPT_BYTES = 1_024
"""The server reads no more bytes of an Accept header: reading 15 kB takes 10 ms."""


class Watcher(Protocol):
    """Is told of every request for tickets: a log, a tracer."""

    def begin(self, protocol: TicketProtocol, head: RequestHead) -> object:
        """A request has come. What is returned is the request's `trace`, and given to `end`."""

    def end(self, protocol: TicketProtocol, head: RequestHead, trace: object, status: int) -> None:
        """It is answered with this status; 0 where the client has gone before that."""


class Form(Enum):
    """How the answer reads."""

    TICKET = "one ticket as JSON"
    LIST = "a list as JSON: `count` was given, if only as 1"
    TEXT = "a line for each ticket"
    BLOCK = "a block as JSON"


TICKET, LIST, TEXT, BLOCK = Form


@dataclass(frozen=True, slots=True)
class Order:
    """What a request for tickets asks for. `encoded`: the sequence's name, as it is sent. `address`: the key and the
    shard, None where neither is given."""

    sequence: str
    encoded: bytes
    count: int
    form: Form
    address: tuple[int | None, int | None] | None = None


class HTTPTicketRequest(TicketRequest):
    """A request over HTTP."""

    def __init__(
        self, endpoint: "TicketEndpoint", protocol: TicketProtocol, request: ClientRequest, order: Order
    ) -> None:
        # all that TicketRequest's own would set
        self.sequence = order.sequence
        self.count = order.count
        self.whole = order.form is BLOCK
        if order.address is not None:
            self.address = order.address
        self.endpoint = endpoint
        self.protocol = protocol
        self.request = request
        self.order = order

    def give(self, tickets: Ids) -> None:
        """See TicketRequest.give."""
        protocol, order = self.protocol, self.order
        name = order.encoded if self.sequence is order.sequence else self.sequence.encode()
        try:
            if order.form is TICKET:
                ticket = tickets[0]
                if type(ticket) is int:
                    digits = b"%d" % ticket
                    body = b'{"sequence":"%b","id":%b,"id_str":"%b"}' % (name, digits, digits)
                else:
                    text = str(ticket).encode()
                    body = b'{"sequence":"%b","id":"%b","id_str":"%b"}' % (name, text, text)
            elif order.form is TEXT:
                body = "".join([f"{ticket}\n" for ticket in tickets]).encode()
            elif order.form is BLOCK:
                body = self._block(tickets, name)
            else:
                body = self._list(tickets)
            response = ok(body, as_text=order.form is TEXT, keep_alive=protocol.keeps_alive)
            self.endpoint.respond(protocol, self.request, self.trace, 200, response)
        except Exception:  # the caller has other requests to answer
            protocol.fail()

    def refuse(self, error: TicketError) -> None:
        """See TicketRequest.refuse."""
        try:
            self.endpoint.refuse(self.protocol, self.request, self.trace, problem_of(error))
        except Exception:
            self.protocol.fail()

    def _list(self, tickets: Ids) -> bytes:
        ids, strings = list(tickets), [str(ticket) for ticket in tickets]
        answer = {"sequence": self.sequence, "count": self.count, "ids": ids, "ids_str": strings}
        return json.dumps(answer, separators=(",", ":")).encode()

    def _block(self, tickets: Ids, name: bytes) -> bytes:
        first, step = int(tickets[0]), tickets.step if isinstance(tickets, range) else self.desk.increment
        size = self.count
        return b'{"sequence":"%b","first":%d,"first_str":"%d","step":%d,"size":%d}' % (name, first, first, step, size)


class _LateRefusal(NamedTuple):
    """A request that is denied after a pause."""

    timer: asyncio.TimerHandle
    trace: object


class _AwaitedBody(NamedTuple):
    """A request that is served when all of its body has come, because the body might ask for something."""

    order: Order
    trace: object


class TicketEndpoint:
    """Reads requests for tickets and hands them to the front desk. `watcher`: observes each."""

    def __init__(self, desk: FrontDesk, access: Access, denials: Denials, watcher: Watcher | None = None) -> None:
        self._desk = desk
        self._draws_ahead = desk.draws_ahead
        self._access = access
        self._denials = denials
        self._watcher = watcher

    def begin(self, protocol: TicketProtocol, request: ClientRequest) -> None:
        """See protocol.Endpoint.begin."""
        head = request.head
        trace = None if self._watcher is None else self._watcher.begin(protocol, head)
        order = head.order
        if not isinstance(order, Order):
            if head.method not in _METHODS:
                self._turn_away(protocol, request, trace, method_not_allowed(*METHODS), "invalid")
                return
            if is_cross_site(head.fields):
                self._deny(protocol, request, trace, CROSS_SITE, pause=0)
                return
        if not self._access.tickets_are_free:
            authorization = head.field(b"authorization")
            refusal = self._access.refusal_for_tickets(authorization)
            if refusal is not None:
                pause = self._denials.pause_after_guess() if self._access.is_guess(authorization) else 0
                self._deny(protocol, request, trace, refusal, pause)
                return
        if not isinstance(order, Order):
            try:
                order = self._order(head)
            except InvalidRequest as error:
                self._turn_away(protocol, request, trace, problem_of(error), "invalid")
                return
            if order.form is not BLOCK:  # how large one may be changes with the increment, which is learnt later
                head.order = order
        if request.is_complete or request.body_bytes > LARGEST_BODY:
            self._serve(protocol, request, trace, order)
            return
        request.owner = _AwaitedBody(order, trace)
        if head.expects_continue:
            protocol.write(CONTINUE)

    def body_has_come(self, protocol: TicketProtocol, request: ClientRequest) -> None:
        """See protocol.Endpoint.body_has_come."""
        awaited = request.owner
        if isinstance(awaited, _AwaitedBody):
            request.owner = None
            self._serve(protocol, request, awaited.trace, awaited.order)

    def _serve(self, protocol: TicketProtocol, request: ClientRequest, trace: object, order: Order) -> None:
        """Hand a request to the front desk, all of which has come; refuse it where its body asks for anything, or is
        too large."""
        if request.body_bytes > LARGEST_BODY:
            self._turn_away(protocol, request, trace, body_too_large(LARGEST_BODY), "invalid")
            return
        if request.content and request.content != EMPTY_OBJECT:
            known = listed(BLOCK_PARAMETERS if order.form is BLOCK else TICKET_PARAMETERS)
            error = InvalidRequest(f"the body has to be empty or {{}}, for parameters stand in the query: {known}")
            self._turn_away(protocol, request, trace, problem_of(error), "invalid")
            return
        taken = HTTPTicketRequest(self, protocol, request, order)
        if self._draws_ahead and not taken.whole and order.address is None:
            tickets = self._desk.ready(order.sequence, order.count)
            if tickets is not None:
                taken.trace = trace
                taken.give(tickets)
                return
        request.owner = taken
        if trace is not None:
            taken.trace = trace
        self._desk.accept(taken)

    def turn_away(self, protocol: TicketProtocol, request: ClientRequest, error: TicketError) -> None:
        """See protocol.Endpoint.turn_away."""
        trace = None if self._watcher is None else self._watcher.begin(protocol, request.head)
        self._turn_away(protocol, request, trace, problem_of(error), outcome_of(error))

    def _order(self, head: RequestHead) -> Order:
        """Read what the request asks for. Raises InvalidRequest."""
        place = head.place or Place(False)
        name, query, encoded = place.name, place.query, place.name.encode()
        if place.whole:
            largest = self._desk.largest_block
            given = Parameters(query)
            given.refuse_others(BLOCK_PARAMETERS)
            size = given.number("size", largest)
            if size is None:
                raise InvalidRequest(f"size is required: a whole number from 1 to {largest}")
            return Order(name, encoded, size, BLOCK)
        count = address = None
        if query:
            given = Parameters(query)
            given.refuse_others(TICKET_PARAMETERS)
            count, address = given.number("count", LARGEST_COUNT), _address_in(given)
        if prefers_text((head.field(b"accept") or b"")[:ACCEPT_BYTES]):
            return Order(name, encoded, count or 1, TEXT, address)
        return Order(name, encoded, count or 1, TICKET if count is None else LIST, address)

    def _deny(
        self, protocol: TicketProtocol, request: ClientRequest, trace: object, problem: Problem, pause: float
    ) -> None:
        """Refuse after a pause of so many seconds."""
        self._denials.add("tickets", protocol.client, bearer(request.head.field(b"authorization")))
        if pause:
            turn_away = partial(self._turn_away, protocol, request, trace, problem, "denied")
            request.owner = _LateRefusal(asyncio.get_running_loop().call_later(pause, turn_away), trace)
        else:
            self._turn_away(protocol, request, trace, problem, "denied")

    def _turn_away(
        self, protocol: TicketProtocol, request: ClientRequest, trace: object, problem: Problem, outcome: str
    ) -> None:
        self._desk.turn_away(_endpoint_of(request), outcome)
        self.refuse(protocol, request, trace, problem)

    def refuse(self, protocol: TicketProtocol, request: ClientRequest, trace: object, problem: Problem) -> None:
        """Answer with a problem."""
        without_body = request.head.method == b"HEAD"
        response = problem_response(problem, keep_alive=protocol.keeps_alive, head=without_body)
        self.respond(protocol, request, trace, problem.status, response)

    def respond(
        self, protocol: TicketProtocol, request: ClientRequest, trace: object, status: int, response: bytes
    ) -> None:
        """Send a response, and report it to the watcher."""
        request.owner = None  # each knows the other: nobody has to collect them
        if self._watcher is not None:
            self._watcher.end(protocol, request.head, trace, status)
        protocol.answer(response)

    def failed(self, request: ClientRequest) -> None:
        """See protocol.Endpoint.failed. Counted as a 500 is, whatever was counted before."""
        self._desk.turn_away(_endpoint_of(request), "error")

    def gone(self, protocol: TicketProtocol, request: ClientRequest) -> None:
        """See protocol.Endpoint.gone."""
        taken, request.owner = request.owner, None
        if isinstance(taken, _LateRefusal):
            taken.timer.cancel()
        elif isinstance(taken, HTTPTicketRequest) and not taken.settled:
            taken.abandon()
        elif not isinstance(taken, _AwaitedBody):
            return
        if self._watcher is not None:
            self._watcher.end(protocol, request.head, taken.trace, 0)


def _endpoint_of(request: ClientRequest) -> str:
    """The word in the metrics for where it was sent."""
    place = request.head.place
    return "block" if place is not None and place.whole else "ticket"


def _address_in(given: Parameters) -> tuple[int | None, int | None] | None:
    """The key and the shard, or None where neither is given. Raises InvalidRequest."""
    key, shard = given.number("key", LARGEST_KEY, least=0), given.number("shard", LARGEST_KEY, least=0)
    return None if key is None and shard is None else (key, shard)


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
