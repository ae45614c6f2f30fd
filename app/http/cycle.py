"""Requests for ids that need no FastAPI: how they are read, and how they are answered."""

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from app.access import Access, Right
from app.errors import TicketError
from app.http.access import token_of
from app.http.problems import Problem, problem_of
from app.kinds.kind import TICKET_LIMIT
from app.operations.watch import Seen
from app.tickets.desk import Desk
from app.tickets.request import LARGEST_BLOCK, MOST_TICKETS, Request, Shape, largest_block

TICKETS, BLOCK = "ticket", "block"
SINGLE, LIST = Shape.SINGLE, Shape.LIST  # to look a member of an Enum up takes as long as to call a function
LARGEST_MEMO = 4096  # requests in a memo, of 1 KiB at most each
_LONGEST_ACCEPT, _LONGEST_TARGET = 1_024, 256
"""Characters of an Accept header that are read, and bytes of a target that is read here."""
_TARGET = re.compile(r"/(ticket|block)/([A-Za-z][A-Za-z0-9_]{0,63})(?:\?([a-z]+)=(0|[1-9][0-9]{0,18}))?", re.ASCII)
_VALUES: Mapping[tuple[str, str | None], range] = {
    (TICKETS, None): range(1, 2),
    (TICKETS, "count"): range(1, MOST_TICKETS + 1),
    (TICKETS, "key"): range(TICKET_LIMIT + 1),
    (TICKETS, "shard"): range(TICKET_LIMIT + 1),
    (BLOCK, "size"): range(1, LARGEST_BLOCK + 1),
}
_TRACEPARENT = re.compile(rb"\r\ntraceparent: ([0-9a-f-]{55})(?=\r\n[^ \t])")
_PLAIN = frozenset({b"accept", b"authorization", b"traceparent"})
_ODD = frozenset({b"content-length", b"transfer-encoding", b"expect", b"upgrade", b"origin", b"sec-fetch-site"})


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a request asks for.

    endpoint: `ticket` or `block`. sequence: in lower case. path: with the query. is_text: whether the answer is text.
    is_plain: whether any single id of the sequence will do, as JSON.
    """

    endpoint: str
    sequence: str
    count: int
    shape: Shape
    key: int | None
    shard: int | None
    path: str
    is_text: bool
    is_plain: bool


Asked = tuple[Wanted, bytes | None]  # what a request asks for, and its traceparent


class Memo:
    """What the bytes of a whole request ask for, so that they need no parser when they come again.

    The traceparent is left out of the bytes, because it differs each time and changes nothing about a request.
    access: when the tokens are replaced, everything is forgotten.
    """

    def __init__(self, access: Access) -> None:
        self._access, self._generation = access, access.generation
        self.known: dict[bytes, Wanted] = {}

    def find(self, data: bytes) -> Asked | None:
        """Return what a request asks for, if these bytes are known."""
        if self._generation != self._access.generation:
            self.known.clear()
            self._generation = self._access.generation
        wanted = self.known.get(data)
        if wanted is not None:
            return wanted, None
        rest, traceparent = _without_traceparent(data)
        wanted = None if traceparent is None else self.known.get(rest)
        return None if wanted is None else (wanted, traceparent)

    def keep(self, data: bytes, asked: Asked) -> None:
        """Know a request from now on if its bytes always ask for the same and are likely to come again."""
        rest, traceparent = _without_traceparent(data)
        wanted = asked[0]
        if wanted.endpoint == BLOCK or wanted.key is not None or wanted.shard is not None or traceparent != asked[1]:
            return
        if len(self.known) >= LARGEST_MEMO:
            self.known.clear()
        self.known[rest] = wanted


def _without_traceparent(data: bytes) -> tuple[bytes, bytes | None]:
    line = _TRACEPARENT.search(data)
    return (data, None) if line is None else (data[: line.start()] + data[line.end() :], line[1])


def answer_at_once(http: Any, wanted: Wanted) -> bytes | None:
    """Return the answer with an id that is there already; None where a request has to be made, or somebody watches.

    http: the `fast.HttpServer`.
    """
    source = http.desk.source(wanted.sequence)
    if source is None or not wanted.is_plain or http.is_draining or http.watch is not None:
        return None
    ready = source.ready()
    if ready is None:
        return None
    http.tally.answered(TICKETS, 0.0)
    body = answer_body(source.sequence, SINGLE, ready, False)
    return f"{http.head}content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n{body}".encode()


class TicketCycle(Request):
    """A request for ids over HTTP, from its head to its answer.

    connection: the `fast.FastProtocol`. asked: what it asks for.
    """

    def __init__(self, connection: Any, asked: Asked, keep_alive: bool) -> None:
        # Request.__init__ would only do again what was done when the request was read
        wanted = asked[0]
        self.sequence, self.count, self.shape = wanted.sequence, wanted.count, wanted.shape
        self.key, self.shard, self.is_plain = wanted.key, wanted.shard, wanted.is_plain
        self.connection, self.asked, self.wanted, self.keep_alive = connection, asked, wanted, keep_alive

    def start(self) -> None:
        """Ask the desk. The answer may be there before this returns."""
        http = self.connection.http
        http.tally.in_flight += 1
        self.began = time.perf_counter()
        http.desk.take(self)

    def done(self, answer: Any) -> None:
        http, wanted = self.connection.http, self.wanted
        http.tally.answered(wanted.endpoint, self._leave(200))
        entry = http.desk.known(wanted.sequence)
        name = wanted.sequence if entry is None else entry.name
        body = answer_body(name, wanted.shape, answer, wanted.is_text)
        media = "text/plain; charset=utf-8" if wanted.is_text else "application/json"
        end = "" if self.keep_alive else "connection: close\r\n"
        head = f"{http.head}{end}content-type: {media}\r\ncontent-length: {len(body)}\r\n\r\n"
        self.connection.answer(self, f"{head}{body}".encode())

    def failed(self, error: TicketError) -> None:
        http, problem = self.connection.http, problem_of(error)
        self._leave(problem.status)
        http.tally.refused(self.wanted.endpoint, problem.code)
        self.connection.answer(self, rendered(problem, http.date, keep_alive=self.keep_alive))

    def abandon(self) -> None:
        super().abandon()
        self.connection.http.tally.in_flight -= 1

    def _leave(self, status: int) -> float:
        """End the request, before its answer is made. Return how many seconds it took."""
        http, seconds = self.connection.http, time.perf_counter() - self.began
        http.tally.in_flight -= 1
        if http.is_draining:
            self.keep_alive = False
        if http.watch is not None:
            what, trace = f"GET {self.wanted.path}", (self.asked[1] or b"").decode("latin-1") or None
            client = self.connection.client[0] if self.connection.client else "unknown"
            began = time.time() - seconds
            http.watch.saw(Seen("http", what, self.sequence, client, str(status), began, seconds, trace))
        return seconds


def answer_body(name: str, shape: Shape, answer: Any, is_text: bool) -> str:
    """Return the body that gives ids: JSON, or text with one id a line.

    No id that is a string has a character that JSON escapes.
    """
    if shape is SINGLE:
        number = answer if type(answer) is int else f'"{answer}"'
        return f"{answer}\n" if is_text else f'{{"sequence":"{name}","id":{number},"id_str":"{answer}"}}'
    if shape is LIST:
        texts = [str(each) for each in answer]
        if is_text:
            return "\n".join([*texts, ""])
        quoted = '"' + '","'.join(texts) + '"'
        numbers = ",".join(texts) if type(answer[0]) is int else quoted
        return f'{{"sequence":"{name}","count":{len(answer)},"ids":[{numbers}],"ids_str":[{quoted}]}}'
    first, step, size = answer
    return f'{{"sequence":"{name}","first":{first},"first_str":"{first}","step":{step},"size":{size}}}'


def rendered(problem: Problem, date: str, *, keep_alive: bool) -> bytes:
    """Return a whole answer. date: of now, as HTTP writes it."""
    body = problem.body()
    fields = [*problem.headers, ("date", date), ("content-length", str(len(body)))]
    if not keep_alive:
        fields.append(("connection", "close"))
    head = "".join([f"{name}: {value}\r\n" for name, value in fields])
    return f"HTTP/1.1 {problem.status} {problem.title}\r\n{head}\r\n".encode("latin-1") + body


def read_request(desk: Desk, access: Access, url: bytes, headers: list[tuple[bytes, bytes]]) -> Asked | None:
    """Return what a GET without a body asks for; None where FastAPI has to look at it, errors included.

    headers: their names in lower case. FastAPI reads as well what a browser sends for another site, and what has no
    token that may draw tickets.
    """
    if len(url) > _LONGEST_TARGET:
        return None
    fields: dict[bytes, bytes] = {}
    for name, value in headers:
        if name in _ODD or name in fields:
            return None
        if name in _PLAIN:
            fields[name] = value
    wanted = _read_target(url, prefers_text(fields.get(b"accept", b"").decode("latin-1")))
    if wanted is None or (wanted.endpoint == BLOCK and wanted.count > largest_block(desk.increment)):
        return None
    try:
        access.check(token_of(fields.get(b"authorization"), Right.TICKETS), Right.TICKETS)
    except TicketError:
        return None
    return wanted, fields.get(b"traceparent")


@lru_cache(maxsize=4096)
def _read_target(url: bytes, prefers_text: bool) -> Wanted | None:
    """Return what a target with one parameter at most asks for; None for any other, and for a wrong one."""
    matched = _TARGET.fullmatch(url.decode("latin-1"))
    if matched is None:
        return None
    endpoint, name, parameter, digits = matched.groups()
    value = int(digits or 1)
    if value not in _VALUES.get((endpoint, parameter), ()):
        return None
    shape = {"count": LIST, "size": Shape.BLOCK}.get(parameter, SINGLE)
    count, is_text = (1 if shape is SINGLE else value), prefers_text and endpoint == TICKETS
    key, shard = (value if parameter == each else None for each in ("key", "shard"))
    return Wanted(
        endpoint, name.lower(), count, shape, key, shard, matched[0], is_text, parameter is None and not is_text
    )


@lru_cache(maxsize=256)
def prefers_text(accept: str) -> bool:
    """Whether an Accept header prefers text/plain to JSON. Of two with the same quality the first counts."""
    ranks: dict[str, tuple[float, int]] = {}
    for place, part in enumerate(accept[:_LONGEST_ACCEPT].lower().split(",")):
        media, *parameters = (piece.strip() for piece in part.split(";"))
        quality = next((text[2:] for text in parameters if text.startswith("q=")), "1")
        ranks.setdefault(media, (float(quality) if re.fullmatch("[01](\\.[0-9]*)?", quality) else 0.0, -place))
    text = ranks.get("text/plain", (0.0, 0))
    others = ranks.get("application/*", ranks.get("*/*", (0.0, 0)))
    return text[0] > 0 and text > ranks.get("application/json", (others[0], -len(ranks)))
