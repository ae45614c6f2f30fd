"""`/ticket/{sequence}` and `/block/{sequence}`: plain ASGI ahead of FastAPI.

Every write of our users waits for this, so there is nothing on it that a ticket does not need: no routing table, no
middleware, no model, bytes built once. `app.api_description` describes it in /openapi.json.
"""

import json
import logging
from asyncio import get_running_loop
from functools import lru_cache
from urllib.parse import parse_qsl

from starlette.types import ASGIApp, Receive, Scope, Send

from app.access import Access
from app.errors import Draining, InvalidRequest, TicketError
from app.issuer import TicketIssuer
from app.metrics import Metrics
from app.problems import Problem, method_not_allowed, outcome_of, problem_of, send_problem

log = logging.getLogger(__name__)

LARGEST_COUNT = 1_000
LARGEST_BLOCK = 10_000

_JSON_HEADERS = [(b"content-type", b"application/json"), (b"cache-control", b"no-store")]
_TEXT_HEADERS = [(b"content-type", b"text/plain; charset=utf-8"), (b"cache-control", b"no-store")]


class TicketEndpoint:
    """Answers tickets and blocks; passes everything else on to `rest`."""

    def __init__(
        self, rest: ASGIApp, issuer: TicketIssuer, access: Access, metrics: Metrics, largest_block: int
    ) -> None:
        self._rest = rest
        self._issuer = issuer
        self._access = access
        self._metrics = metrics
        self._largest_block = largest_block
        self.draining_is_over = False

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
        metrics = self._metrics
        now = get_running_loop().time
        began = now()
        metrics.in_flight += 1
        try:
            method = scope["method"]
            if method not in {"GET", "POST"}:
                metrics.requests[endpoint, "invalid"] += 1
                await send_problem(send, method_not_allowed("GET", "POST"), head=method == "HEAD")
                return
            accept = b""
            authorization = None
            for key, value in scope["headers"]:
                if key == b"accept":
                    accept = value
                elif key == b"authorization":
                    authorization = value
            if not self._access.tickets_are_free:
                refusal = self._access.refusal_for_tickets(authorization)
                if refusal is not None:
                    metrics.requests[endpoint, "denied"] += 1
                    await send_problem(send, refusal)
                    return
            try:
                if endpoint == "ticket":
                    body, headers = await self._ticket(name, scope["query_string"], prefers_text(accept))
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
            metrics.issue_seconds.add(now() - began)
            headers = [*headers, (b"content-length", b"%d" % len(body))]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            await send({"type": "http.response.body", "body": body})
        finally:
            metrics.in_flight -= 1

    async def _ticket(self, name: str, query: bytes, as_text: bool) -> tuple[bytes, list[tuple[bytes, bytes]]]:
        count = number_in(query, "count", LARGEST_COUNT) if query else None
        if self.draining_is_over:
            raise Draining
        ids = await self._issuer.issue(name, count or 1)
        if as_text:
            return b"".join([b"%d\n" % id_ for id_ in ids]), _TEXT_HEADERS
        if count is None:
            id_ = ids[0]
            return b'{"sequence":"%b","id":%d,"id_str":"%d"}' % (name.encode(), id_, id_), _JSON_HEADERS
        answer = {"sequence": name, "count": count, "ids": list(ids), "ids_str": [str(id_) for id_ in ids]}
        return json.dumps(answer, separators=(",", ":")).encode(), _JSON_HEADERS

    async def _block(self, name: str, query: bytes) -> bytes:
        size = number_in(query, "size", self._largest_block)
        if size is None:
            raise InvalidRequest(f"size is wanted: a whole number from 1 to {self._largest_block}")
        if self.draining_is_over:
            raise Draining
        ids = await self._issuer.issue(name, size, whole=True)
        first, step = ids[0], self._issuer.increment
        return b'{"sequence":"%b","first":%d,"first_str":"%d","step":%d,"size":%d}' % (
            name.encode(),
            first,
            first,
            step,
            size,
        )


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
    wanted: dict[str, tuple[float, int]] = {}
    for place, part in enumerate(accept.decode("latin-1").lower().split(",")):
        kind, *parameters = (piece.strip() for piece in part.split(";"))
        quality = next((_quality(text[2:]) for text in parameters if text.startswith("q=")), 1.0)
        wanted.setdefault(kind, (quality, -place))
    text = wanted.get("text/plain", (0.0, 0))
    json_ = wanted.get("application/json")
    if json_ is None:
        json_ = wanted.get("application/*", wanted.get("*/*", (0.0, 0)))[0], -len(wanted)
    return text[0] > 0 and text > json_


def _quality(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0
