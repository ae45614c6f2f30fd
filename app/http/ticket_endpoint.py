"""`/ticket/{sequence}` and `/block/{sequence}`: plain ASGI ahead of FastAPI.

Every write of our users waits for this, so there is nothing on it that a ticket does not need: no routing table, no
middleware, no model, bytes built once. `app.http.api_description` describes it in /openapi.json.
"""

import json
import logging
import time
from functools import lru_cache
from urllib.parse import parse_qsl

from starlette.types import ASGIApp, Receive, Scope, Send

from app.common.errors import Draining, InvalidRequest, TicketError
from app.http.access import Access
from app.http.problems import Problem, method_not_allowed, outcome_of, problem_of, send_problem
from app.operations.metrics import Metrics
from app.tickets.issuer import FirstTry, TicketIssuer
from app.tickets.lane import Lane
from app.tickets.waiters import Waiter

log = logging.getLogger(__name__)

LARGEST_COUNT = 1_000

FIRST_TRY = "tickets.first_try"
"""In a scope: the FirstTry of a request that has one behind it, and so is not new here."""

_JSON_HEADERS = [(b"content-type", b"application/json"), (b"cache-control", b"no-store")]
_TEXT_HEADERS = [(b"content-type", b"text/plain; charset=utf-8"), (b"cache-control", b"no-store")]


class Order:
    """A plain request for one ticket of `sequence`, and how its answer reads."""

    __slots__ = ("_body", "_dated", "_head", "_headers", "sequence")

    def __init__(self, sequence: str, *, as_text: bool) -> None:
        self.sequence = sequence
        name = sequence.encode()
        self._body = (b"", b"\n") if as_text else (b'{"sequence":"%b","id":' % name, b',"id_str":"', b'"}')
        self._headers = _TEXT_HEADERS if as_text else _JSON_HEADERS
        self._head = b""
        self._dated: object = None

    def body(self, id_: int) -> bytes:
        """The answer's body."""
        return (b"%d" % id_).join(self._body)

    def answer(self, id_: int, default_headers: list[tuple[bytes, bytes]], keep_alive: bool) -> bytes:
        """The answer as HTTP/1.1 sends it. `default_headers`: a new list whenever they change."""
        if self._dated is not default_headers:
            lines = (b"%b: %b\r\n" % header for header in (*default_headers, *self._headers))
            self._head = b"HTTP/1.1 200 OK\r\n" + b"".join(lines) + b"content-length: "
            self._dated = default_headers
        body = self.body(id_)
        return b"%b%d\r\n%b\r\n%b" % (self._head, len(body), b"" if keep_alive else b"connection: close\r\n", body)


class TicketEndpoint:
    """Answers tickets and blocks; passes everything else on to `rest`."""

    def __init__(self, rest: ASGIApp, issuer: TicketIssuer, access: Access, metrics: Metrics) -> None:
        self._rest = rest
        self._issuer = issuer
        self._access = access
        self.metrics = metrics
        self.draining_is_over = False

    @property
    def patience(self) -> float:
        """Seconds that the lane which is asked first has for a request."""
        return self._issuer.first_attempt

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            path: str = scope["path"]
            if path.startswith("/ticket/"):
                await self._serve(scope, send, path[8:], "ticket")
                return
            if path.startswith("/block/"):
                await self._serve(scope, send, path[7:], "block")
                return
        await self._rest(scope, receive, send)

    async def _serve(self, scope: Scope, send: Send, name: str, endpoint: str) -> None:
        metrics = self.metrics
        first: FirstTry | None = scope.get(FIRST_TRY)
        arrived = time.perf_counter() if first is None else first.arrived
        metrics.in_flight += 1
        try:
            method = scope["method"]
            if method not in {"GET", "POST"}:
                metrics.requests[endpoint, "invalid"] += 1
                await send_problem(send, method_not_allowed("GET", "POST"), head=method == "HEAD")
                return
            accept, authorization = _accept_and_authorization(scope)
            if not self._access.tickets_are_free:
                refusal = self._access.refusal_for_tickets(authorization)
                if refusal is not None:
                    metrics.requests[endpoint, "denied"] += 1
                    await send_problem(send, refusal)
                    return
            try:
                if endpoint == "ticket":
                    body, headers = await self._ticket(name, scope["query_string"], prefers_text(accept), first)
                else:
                    body, headers = await self._block(name, scope["query_string"]), _JSON_HEADERS
            except TicketError as error:
                metrics.requests[endpoint, outcome_of(error)] += 1
                await send_problem(send, problem_of(error))
                return
            except Exception:
                metrics.requests[endpoint, "error"] += 1
                log.exception("a request met an unknown error")
                await send_problem(send, Problem(500, "an error that this server does not know; its log says more"))
                return
            metrics.requests[endpoint, "ok"] += 1
            metrics.issue_seconds.add(time.perf_counter() - arrived)
            headers = [*headers, (b"content-length", b"%d" % len(body))]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            await send({"type": "http.response.body", "body": body})
        finally:
            metrics.in_flight -= 1

    def order_of(self, scope: Scope) -> Order | None:
        """What a request wants if it is a plain one for one ticket, which may be had; None for any other."""
        name = scope["path"][8:]
        plain = scope["path"].startswith("/ticket/") and scope["method"] in {"GET", "POST"}
        if not plain or scope["query_string"] or not self._issuer.knows(name):
            return None
        accept, authorization = _accept_and_authorization(scope)
        if not self._access.tickets_are_free and self._access.refusal_for_tickets(authorization) is not None:
            return None
        return Order(name, as_text=prefers_text(accept))

    def take(self, order: Order, waiter: Waiter) -> Lane | None:
        """Have a lane answer `waiter`; None if none can now. See TicketIssuer.ask_first."""
        return None if self.draining_is_over else self._issuer.ask_first(order.sequence, waiter)

    async def _ticket(
        self, name: str, query: bytes, as_text: bool, first: FirstTry | None
    ) -> tuple[bytes, list[tuple[bytes, bytes]]]:
        count = number_in(query, "count", LARGEST_COUNT) if query else None
        if self.draining_is_over and first is None:
            raise Draining
        ids = await self._issuer.issue(name, count or 1, first=first)
        if as_text:
            return b"".join([b"%d\n" % id_ for id_ in ids]), _TEXT_HEADERS
        if count is None:
            return Order(name, as_text=False).body(ids[0]), _JSON_HEADERS
        answer = {"sequence": name, "count": count, "ids": list(ids), "ids_str": [str(id_) for id_ in ids]}
        return json.dumps(answer, separators=(",", ":")).encode(), _JSON_HEADERS

    async def _block(self, name: str, query: bytes) -> bytes:
        largest = self._issuer.largest_block
        size = number_in(query, "size", largest)
        if size is None:
            raise InvalidRequest(f"size is required: a whole number from 1 to {largest}")
        if self.draining_is_over:
            raise Draining
        ids = await self._issuer.issue(name, size, whole=True)
        first, step = ids[0], ids.step if isinstance(ids, range) else self._issuer.increment
        return b'{"sequence":"%b","first":%d,"first_str":"%d","step":%d,"size":%d}' % (
            name.encode(),
            first,
            first,
            step,
            size,
        )


def _accept_and_authorization(scope: Scope) -> tuple[bytes, bytes | None]:
    accept = b""
    authorization = None
    for key, value in scope["headers"]:
        if key == b"accept":
            accept = value
        elif key == b"authorization":
            authorization = value
    return accept, authorization


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
    """Whether an Accept header names text/plain and wants JSON less; of two that it wants alike, the first counts."""
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
