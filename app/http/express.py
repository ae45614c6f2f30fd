"""The express way: a request for one ticket that reads, byte for byte, like one that has been understood before.

Clients send the same bytes again and again, and the same bytes in the same place mean the same. So what
`ticket_endpoint` makes of a plain request for one ticket is kept, and where those bytes come again there is nothing to
parse, to route or to schedule: the request goes to its lane as it arrives, and is answered as its id does.

Everything else goes the ordinary way, through uvicorn's parser and ASGI; so does a request that its lane cannot serve:
its bytes are read then as if they had just come, within what is left of its time.
"""

import time
from typing import Any, ClassVar

from app.http.connections import JoinedWrites, LimitedProtocol
from app.http.ticket_endpoint import FIRST_TRY, Order, TicketEndpoint
from app.tickets.issuer import FirstTry
from app.tickets.lane import Lane
from app.tickets.waiters import Tickets

LONGEST_REQUEST = 1_024
ORDERS = 2_048
"""How long a request may be that is kept, in bytes, and how many are kept: a few kinds of clients times the sequences
that they use."""


class ExpressOrders:
    """What has been understood, for all connections of a server."""

    def __init__(self, endpoint: TicketEndpoint) -> None:
        self.endpoint = endpoint
        self.patience = endpoint.patience
        self.known: dict[bytes, Order] = {}

    def keep(self, data: bytes, scope: Any) -> None:
        """Keep what these bytes mean, if they are a plain request for one ticket."""
        if len(data) <= LONGEST_REQUEST:
            order = self.endpoint.order_of(scope)
            if order is not None:
                if len(self.known) >= ORDERS:  # some clients never send the same twice
                    del self.known[next(iter(self.known))]
                self.known[data] = order


class _NoListener:
    """Whom uvicorn tells that a client has gone."""

    def set(self) -> None:
        """Nobody waits for it."""


class _Cycle:
    """What uvicorn's protocol looks at of a connection's last request, which has no RequestResponseCycle."""

    __slots__ = ("disconnected", "keep_alive", "response_complete")

    scope: ClassVar[None] = None
    more_body: ClassVar[bool] = False
    message_event: ClassVar[_NoListener] = _NoListener()

    def __init__(self, *, response_complete: bool) -> None:
        self.disconnected = False
        self.keep_alive = True
        self.response_complete = response_complete


_ANSWERED = _Cycle(response_complete=True)


class _Request(_Cycle):
    """A request on the express way: a `Waiter` of its lane's.

    `began`, `until`: in the event loop's time; `arrived`: the same as `began` by a clock that tells microseconds.
    """

    __slots__ = ("arrived", "began", "data", "lane", "order", "protocol", "until")

    count: ClassVar[int] = 1
    whole: ClassVar[bool] = False

    def __init__(self, protocol: "ExpressProtocol", order: Order, data: bytes, began: float, until: float) -> None:
        self.disconnected = False
        self.keep_alive = True
        self.response_complete = False
        self.protocol = protocol
        self.order = order
        self.data = data
        self.began = began
        self.until = until
        self.lane: Lane | None = None
        self.arrived = time.perf_counter()

    def is_gone(self) -> bool:
        """See Waiter.is_gone."""
        return self.response_complete or self.disconnected

    def answer(self, tickets: Tickets | None) -> None:
        """See Waiter.answer."""
        self.response_complete = True
        self.protocol.settle(self, tickets)


class ExpressProtocol(LimitedProtocol):
    """uvicorn's protocol with the express way before it."""

    _under_way: _Request | None = None
    _held = b""
    _at_start = True
    """Whether what comes next begins a request, as far as the parser knows."""
    _quiet_since = 0.0

    transport: JoinedWrites  # type: ignore[assignment]

    def __init__(self, *args: Any, orders: ExpressOrders, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._orders = orders
        self._endpoint = orders.endpoint

    def data_received(self, data: bytes) -> None:
        if self._under_way is not None:  # sent ahead of the answer: its turn comes after it
            self._held += data
            self.flow.pause_reading()
            return
        if self._at_start and (self.cycle is None or self.cycle.response_complete) and not self.flow.write_paused:
            order = self._orders.known.get(data)
            if order is not None and self._go_express(order, data):
                return
        self._go_the_ordinary_way(data)

    def _go_express(self, order: Order, data: bytes) -> bool:
        """Have a lane answer; false if none can now."""
        endpoint, before = self._endpoint, self.cycle
        began = self.loop.time()
        self._under_way = request = _Request(self, order, data, began, began + self._orders.patience)
        self.cycle = request  # type: ignore[assignment]
        endpoint.metrics.in_flight += 1
        request.lane = endpoint.take(order, request)
        if request.lane is not None:
            return True
        endpoint.metrics.in_flight -= 1
        self._under_way, self.cycle = None, before
        return False

    def settle(self, request: _Request, tickets: Tickets | None) -> None:
        """Answer with the ticket, or go on the ordinary way without one; then on to what was sent ahead."""
        self._under_way = None
        self.cycle = _ANSWERED  # type: ignore[assignment]
        metrics = self._endpoint.metrics
        metrics.in_flight -= 1
        if tickets is None:
            self._go_on(request)
        else:
            self._quiet_since = self.loop.time()
            metrics.requests["ticket", "ok"] += 1
            metrics.issue_seconds.add(time.perf_counter() - request.arrived)
            self.server_state.total_requests += 1
            if self.timeout_keep_alive_task is None:
                self._watch_silence(self.timeout_keep_alive)
            transport = self.transport
            if not transport.is_closing():
                answer = request.order.answer(tickets[0], self.server_state.default_headers, request.keep_alive)
                transport.write_at_once(answer)
                if not request.keep_alive:
                    transport.close()
        if self._held and not self.transport.is_closing():
            held, self._held = self._held, b""
            self.flow.resume_reading()
            self.data_received(held)

    def _go_on(self, request: _Request) -> None:
        """The ordinary way for one that its lane could not serve."""
        self._go_the_ordinary_way(request.data)
        cycle = self.cycle
        if cycle.scope is not None:  # or its bytes were refused, which they never were before
            cycle.scope[FIRST_TRY] = FirstTry(request.lane, request.began, request.arrived)  # type: ignore[literal-required]
            cycle.keep_alive &= request.keep_alive

    def _go_the_ordinary_way(self, data: bytes) -> None:
        before, was_at_start = self.cycle, self._at_start
        super().data_received(data)
        cycle = self.cycle
        # one whole request and nothing else: none has begun after it, and no body is still to come
        self._at_start = cycle is not None and self.scope is cycle.scope and not cycle.more_body
        alone = was_at_start and self._at_start and cycle is not before and not self.pipeline
        if alone and cycle.keep_alive and not self.transport.is_closing():
            self._orders.keep(data, cycle.scope)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._under_way is not None:
            self._endpoint.metrics.in_flight -= 1
        super().connection_lost(exc)
        self._unset_keepalive_if_required()
        self._under_way = None

    # One timer for as many requests as there are until it goes off: setting one for each costs more than the ticket.

    def _watch_silence(self, seconds: float) -> None:
        self.timeout_keep_alive_task = self.loop.call_later(seconds, self.timeout_keep_alive_handler)

    def timeout_keep_alive_handler(self) -> None:
        """Close the connection if it has been silent for as long as it may be."""
        rest = self._quiet_since + self.timeout_keep_alive - self.loop.time()
        if self._under_way is not None:
            self._watch_silence(self.timeout_keep_alive)
        elif rest > 0:
            self._watch_silence(rest)
        else:
            super().timeout_keep_alive_handler()
