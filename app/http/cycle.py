"""Requests for ids that need no FastAPI: how they are read, and how they are answered.

uvicorn calls the request that it is answering a cycle. It asks a cycle for `body`, `more_body`, `response_complete`,
`disconnected`, `keep_alive` and `message_event`; what it does not do with ours (`http/fast`) ours do not have.
"""

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from email.utils import formatdate
from functools import lru_cache
from typing import Any, NamedTuple, Protocol

from app.access import Access, Right
from app.errors import TicketError
from app.http.access import token_of
from app.http.problems import Problem, problem_of
from app.http.query import LARGEST_BLOCK, MOST_TICKETS, largest_block, prefers_text
from app.kinds.kind import TICKET_LIMIT
from app.operations.tally import Tally
from app.operations.watch import Seen, Watch
from app.tickets.definitions import TICKET
from app.tickets.desk import Desk
from app.tickets.request import Request, Shape

TICKETS, BLOCK = "ticket", "block"
_TARGET = re.compile(r"/(ticket|block)/([A-Za-z][A-Za-z0-9_]{0,63})(?:\?([A-Za-z0-9_=&.-]+))?", re.ASCII)
ALWAYS = frozenset({b"/livez", b"/readyz", b"/healthz", b"/metrics"})
"""These paths are answered beyond the limit on connections too."""
_LONGEST_TARGET = 256
"""Bytes of a target that is read here. FastAPI reads longer ones."""
_LIMITS: Mapping[str, Mapping[str, tuple[int, int]]] = {
    TICKETS: {"count": (1, MOST_TICKETS), "key": (0, TICKET_LIMIT), "shard": (0, TICKET_LIMIT)},
    BLOCK: {"size": (1, LARGEST_BLOCK)},
}
LARGEST_MEMO = 4096
"""Requests in a memo, of 1 KiB at most each."""
_PLAIN = frozenset({b"accept", b"authorization", b"traceparent"})
_ODD = frozenset({b"content-length", b"transfer-encoding", b"expect", b"upgrade", b"origin", b"sec-fetch-site"})
_READ = _PLAIN | _ODD


class Wanted(NamedTuple):
    """What a request asks for.

    endpoint: `ticket` or `block`. sequence: in lower case. is_text: whether the answer is text. path: with the query.
    """

    endpoint: str
    sequence: str
    amount: int
    shape: Shape
    key: int | None
    shard: int | None
    path: str
    is_text: bool = False
    traceparent: str | None = None

    @property
    def is_memorable(self) -> bool:
        """Whether the same bytes always ask for the same, and are likely to come again."""
        return self.endpoint == TICKETS and self.key is None and self.shard is None and self.traceparent is None


class Memo(dict[bytes, Wanted]):
    """What the bytes of a whole request ask for, so that they need no parser when they come again.

    generation: of the tokens (`Access.generation`) under which all of them might draw. Under another one none counts.
    """

    generation = 0

    def keep(self, data: bytes, wanted: Wanted, generation: int) -> None:
        """Know a request from now on. It is one whose bytes always ask for the same."""
        if generation != self.generation or len(self) >= LARGEST_MEMO:
            self.clear()
            self.generation = generation
        if wanted.is_memorable:
            self[data] = wanted


@dataclass
class Door:
    """What all connections share. heads: how an answer begins, up to the number of its length; see `renew`."""

    desk: Desk
    access: Access
    tally: Tally
    watch: Watch | None
    is_draining: bool = False
    date: str = ""
    heads: dict[tuple[bool, bool], str] = field(default_factory=dict)

    def renew(self) -> None:
        """Let the answers have the present time: call this once a second."""
        self.date = formatdate(usegmt=True)
        for is_text in (False, True):
            media = "text/plain; charset=utf-8" if is_text else "application/json"
            for is_kept in (False, True):
                end = "" if is_kept else "connection: close\r\n"
                self.heads[is_text, is_kept] = (
                    f"HTTP/1.1 200 OK\r\ndate: {self.date}\r\ncontent-type: {media}\r\n"
                    f"cache-control: no-store\r\n{end}content-length: "
                )


class Connection(Protocol):
    """What a cycle needs of its connection."""

    door: Door

    def answer(self, cycle: Any, data: bytes) -> None:
        """Send a whole answer. The connection is closed behind it unless `cycle.keep_alive` is set."""
        ...

    @property
    def client(self) -> tuple[str, int] | None:
        """The client's address and port."""
        ...


class TicketCycle(Request):
    """A request for ids over HTTP, from its head to its answer. wanted: what it asks for."""

    body = b""
    more_body = response_complete = disconnected = False

    def __init__(self, connection: Connection, wanted: Wanted, keep_alive: bool) -> None:
        # Request.__init__ would only do again what was done when `wanted` was read
        _, self.sequence, self.count, self.shape, self.key, self.shard, *_ = wanted
        self.connection, self.wanted, self.keep_alive = connection, wanted, keep_alive

    def start(self) -> None:
        """Ask the desk. The answer may be there before this returns."""
        self.began = time.perf_counter()
        door = self.connection.door
        door.tally.in_flight += 1
        door.desk.take(self)

    def done(self, answer: Any) -> None:
        """See Request.done."""
        wanted, door = self.wanted, self.connection.door
        if door.is_draining:
            self.keep_alive = False
        if wanted.is_text:
            body = "".join([f"{each}\n" for each in answer]) if wanted.shape is Shape.LIST else f"{answer}\n"
        else:
            entry = door.desk.known(self.sequence)
            body = _json(self.sequence if entry is None else entry.name, wanted.shape, answer)
        head = door.heads[wanted.is_text, self.keep_alive]
        seconds = self._leave()
        door.tally.answered(wanted.endpoint, seconds)
        if door.watch is not None:
            self._seen(door.watch, 200, seconds)
        self.connection.answer(self, f"{head}{len(body)}\r\n\r\n{body}".encode())

    def failed(self, error: TicketError) -> None:
        """See Request.failed."""
        door, problem, seconds = self.connection.door, problem_of(error), self._leave()
        if door.is_draining:
            self.keep_alive = False
        door.tally.refused(self.wanted.endpoint, problem.code)
        if door.watch is not None:
            self._seen(door.watch, problem.status, seconds)
        self.connection.answer(self, rendered(problem, door.date, keep_alive=self.keep_alive))

    def abandon(self) -> None:
        """See Request.abandon."""
        super().abandon()
        self._leave()

    def _leave(self) -> float:
        self.connection.door.tally.in_flight -= 1
        return time.perf_counter() - self.began

    def _seen(self, watch: Watch, status: int, seconds: float) -> None:
        client = self.connection.client
        watch.saw(
            Seen(
                protocol="http",
                what=f"GET {self.wanted.path}",
                sequence=self.sequence,
                client=client[0] if client else "unknown",
                status=str(status),
                began=time.time() - seconds,
                seconds=seconds,
                traceparent=self.wanted.traceparent,
            )
        )


class Refusal:
    """A request whose answer is known without looking further. The connection ends with it."""

    body = b""
    more_body = response_complete = disconnected = keep_alive = False

    def __init__(self, connection: Connection, problem: Problem) -> None:
        self.connection, self.problem = connection, problem

    def start(self) -> None:
        """Answer."""
        self.connection.answer(self, rendered(self.problem, self.connection.door.date, keep_alive=False))

    def abandon(self) -> None:
        """The client has gone."""


def _json(name: str, shape: Shape, answer: Any) -> str:
    """Return the answer's body. No id that is a string has a character that JSON escapes."""
    if shape is Shape.SINGLE:
        text = f'"{answer}"'
        return f'{{"sequence":"{name}","id":{text if type(answer) is str else answer},"id_str":{text}}}'
    if shape is Shape.LIST:
        texts = '"' + '","'.join(map(str, answer)) + '"'
        ids = texts if type(answer[0]) is str else ",".join(map(str, answer))
        return f'{{"sequence":"{name}","count":{len(answer)},"ids":[{ids}],"ids_str":[{texts}]}}'
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


def read_request(door: Door, url: bytes, headers: list[tuple[bytes, bytes]]) -> Wanted | None:
    """Return what a GET without a body asks for; None where FastAPI has to look at it, errors included.

    headers: their names in lower case. FastAPI reads as well what a browser sends for another site, and what has no
    token that may draw tickets.
    """
    wanted = _read_target(url) if len(url) <= _LONGEST_TARGET else None
    if wanted is None:
        return None
    found = [each for each in headers if each[0] in _READ]
    fields = dict(found)
    if len(fields) < len(found) or not fields.keys() <= _PLAIN:
        return None
    if door.access.needs_token(Right.TICKETS):
        try:
            door.access.check(token_of(fields.get(b"authorization"), Right.TICKETS), Right.TICKETS)
        except TicketError:
            return None
    if (wanted.key is not None or wanted.shard is not None) and not _has_shards(door, wanted):
        return None
    if wanted.endpoint == BLOCK and wanted.amount > largest_block(door.desk.increment):
        return None
    accept, traceparent = fields.get(b"accept"), fields.get(b"traceparent")
    if accept is not None and wanted.endpoint == TICKETS and prefers_text(accept.decode("latin-1")):
        wanted = wanted._replace(is_text=True)
    return wanted if traceparent is None else Wanted(*wanted[:-1], traceparent.decode("latin-1"))


def _has_shards(door: Door, wanted: Wanted) -> bool:
    """Whether the source of the sequence will look at key and shard, which that of plain tickets does not."""
    entry = door.desk.known(wanted.sequence)
    return entry is not None and entry.definition.kind != TICKET


@lru_cache(maxsize=4096)
def _read_target(url: bytes) -> Wanted | None:
    """Return what a target asks for, read strictly; None where it is not for this room, or wrong."""
    text = url.decode("latin-1")
    matched = _TARGET.fullmatch(text)
    if matched is None:
        return None
    endpoint, name, query = matched.groups()
    values: dict[str, int] = {}
    names = set()
    for part in query.split("&") if query else ():
        parameter, _, value = part.partition("=")
        if parameter in names:
            return None
        names.add(parameter)
        if parameter.startswith("_"):
            continue
        smallest, largest = _LIMITS[endpoint].get(parameter, (1, 0))
        if not re.fullmatch("0|[1-9][0-9]{0,18}", value) or not smallest <= int(value) <= largest:
            return None
        values[parameter] = int(value)
    if endpoint == BLOCK:
        return Wanted(endpoint, name.lower(), values["size"], Shape.BLOCK, None, None, text) if values else None
    count, shape = values.get("count", 1), Shape.LIST if "count" in values else Shape.SINGLE
    return Wanted(endpoint, name.lower(), count, shape, values.get("key"), values.get("shard"), text)
