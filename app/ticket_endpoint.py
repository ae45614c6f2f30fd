"""`/ticket/{sequence}` and `/block/{sequence}`: plain ASGI ahead of FastAPI.

Every write of our users waits for this, so there is nothing on it that a ticket does not need: no routing table, no
middleware, no model, bytes built once. `app.api_description` describes it in /openapi.json.
"""

import json
import re
from asyncio import get_running_loop
from urllib.parse import parse_qsl

from starlette.types import ASGIApp, Receive, Scope, Send

from app.access import Access
from app.errors import Draining, InvalidRequest, TicketError
from app.issuer import TicketIssuer
from app.metrics import Metrics
from app.problems import Problem, method_not_allowed, outcome_of, problem_of

LARGEST_COUNT = 1_000
LARGEST_BLOCK = 10_000
_NUMBER = re.compile(r"[1-9][0-9]*", re.ASCII)

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
        self._largest_block = min(LARGEST_BLOCK, largest_block)
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
        began = get_running_loop().time()
        metrics.in_flight += 1
        try:
            if scope["method"] not in ("GET", "POST"):
                metrics.requests[endpoint, "invalid"] += 1
                await _send_problem(send, method_not_allowed("GET", "POST"), head=scope["method"] == "HEAD")
                return
            accept = authorization = None
            for key, value in scope["headers"]:
                if key == b"accept":
                    accept = value
                elif key == b"authorization":
                    authorization = value
            if not self._access.tickets_are_free:
                refusal = self._access.refusal_for_tickets(authorization)
                if refusal is not None:
                    metrics.requests[endpoint, "denied"] += 1
                    await _send_problem(send, refusal)
                    return
            try:
                as_text = accept is not None and _prefers_text(accept)
                if endpoint == "ticket":
                    body = await self._ticket(name, scope["query_string"], as_text)
                else:
                    body = await self._block(name, scope["query_string"])
                    as_text = False
            except TicketError as error:
                metrics.requests[endpoint, outcome_of(error)] += 1
                await _send_problem(send, problem_of(error))
                return
            metrics.requests[endpoint, "ok"] += 1
            metrics.issue_seconds.add(get_running_loop().time() - began)
            headers = [*(_TEXT_HEADERS if as_text else _JSON_HEADERS), (b"content-length", b"%d" % len(body))]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            await send({"type": "http.response.body", "body": body})
        finally:
            metrics.in_flight -= 1

    async def _ticket(self, name: str, query: bytes, as_text: bool) -> bytes:
        count = _number(query, "count", LARGEST_COUNT) if query else None
        if self.draining_is_over:
            raise Draining
        ids = await self._issuer.issue(name, count or 1)
        if as_text:
            return "".join([f"{id_}\n" for id_ in ids]).encode()
        if count is None:
            id_ = ids[0]
            return b'{"sequence":"%b","id":%d,"id_str":"%d"}' % (name.encode(), id_, id_)
        texts = [str(id_) for id_ in ids]
        return (
            f'{{"sequence":"{name}","count":{count},"ids":[{",".join(texts)}],"ids_str":{json.dumps(texts)}}}'.encode()
        )

    async def _block(self, name: str, query: bytes) -> bytes:
        size = _number(query, "size", self._largest_block)
        if size is None:
            raise InvalidRequest(f"size is wanted: a whole number from 1 to {self._largest_block}")
        if self.draining_is_over:
            raise Draining
        ids = await self._issuer.issue(name, size, whole=True)
        block = ids if isinstance(ids, range) else range(ids[0], ids[-1] + 1, self._issuer.increment)
        return b'{"sequence":"%b","first":%d,"first_str":"%d","step":%d,"size":%d}' % (
            name.encode(),
            block.start,
            block.start,
            block.step,
            size,
        )


def _number(query: bytes, name: str, largest: int) -> int | None:
    """The query's `name`, or None where it is not given. Raises InvalidRequest."""
    wanted = f"{name} has to be a whole number from 1 to {largest}, in digits"
    try:
        pairs = parse_qsl(query.decode("ascii"), keep_blank_values=True, strict_parsing=False, max_num_fields=32)
    except (UnicodeDecodeError, ValueError):
        raise InvalidRequest("the query cannot be read") from None
    values = [value for key, value in pairs if key == name]
    if not values:
        return None
    text = values[0]
    if len(values) > 1 or len(text) > 9 or not _NUMBER.fullmatch(text) or int(text) > largest:
        raise InvalidRequest(wanted)
    return int(text)


def _prefers_text(accept: bytes) -> bool:
    """Whether plain text is named, and JSON is not named before it or wanted more."""
    if b"text/plain" not in accept:
        return False
    qualities: dict[bytes, float] = {}
    for part in accept.split(b","):
        kind, *parameters = part.split(b";")
        quality = 1.0
        for parameter in parameters:
            key, _, value = parameter.strip().partition(b"=")
            if key == b"q":
                try:
                    quality = float(value)
                except ValueError:
                    quality = 0.0
        qualities.setdefault(kind.strip().lower(), quality)
    text = qualities.get(b"text/plain", 0.0)
    return (text > 0 and text > qualities.get(b"application/json", qualities.get(b"application/*", 0.0))) or (
        text > 0 and text >= qualities.get(b"application/json", 0.0) and accept.find(b"text/plain") < _at(accept)
    )


def _at(accept: bytes) -> int:
    found = accept.find(b"application/json")
    return len(accept) if found < 0 else found


async def _send_problem(send: Send, problem: Problem, *, head: bool = False) -> None:
    body = problem.body
    headers = [(k.encode(), v.encode("latin-1")) for k, v in problem.all_headers.items()]
    headers.append((b"content-length", b"%d" % len(body)))
    await send({"type": "http.response.start", "status": problem.status, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if head else body})
