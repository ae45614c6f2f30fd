"""The head of one HTTP request, as the parser has read it, and how far the request has come."""

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import unquote

import httptools

from app.clients.known_reads import KnownReads


class RequestHead:
    """Method, target, headers and version. It does not change, so that requests which read alike may share one.

    `keeps_alive`: whether the connection stays open after the answer. `place`: what the target leads to, None where it
    cannot be read. `order`: what the endpoint has read from it, for the next request that reads alike.
    """

    __slots__ = ("fields", "keeps_alive", "method", "order", "place", "target", "version")

    def __init__(
        self, method: bytes, target: bytes, fields: list[tuple[bytes, bytes]], version: str, *, keeps_alive: bool
    ) -> None:
        self.method = method
        self.target = target
        self.fields = fields
        self.version = version
        self.keeps_alive = keeps_alive
        self.place = _place_of(target) if len(target) <= LONGEST_KNOWN else _place_of.__wrapped__(target)
        self.order: object = None

    def field(self, name: bytes) -> bytes | None:
        """The last header of that name (in lower case), or None."""
        size, found = len(name), None
        for key, value in self.fields:
            if len(key) == size and key.lower() == name:
                found = value
        return found

    @property
    def announces_body(self) -> bool:
        """Whether a body is to follow."""
        length = self.field(b"content-length")
        return self.field(b"transfer-encoding") is not None or (length is not None and length.strip(b"0 ") != b"")

    @property
    def expects_continue(self) -> bool:
        """Whether the client waits to be told before it sends the body."""
        return self.version != "1.0" and (self.field(b"expect") or b"").lower() == b"100-continue"

    @property
    def is_chunked(self) -> bool:
        """Whether its body comes in chunks."""
        return self.field(b"transfer-encoding") is not None

    def without_upgrade(self) -> None:
        """Leave out the offer to upgrade the connection."""
        offer = (b"connection", b"upgrade", b"http2-settings")
        self.fields = [(name, value) for name, value in self.fields if name.lower() not in offer]
        if not self.keeps_alive:
            self.fields.append((b"connection", b"close"))

    def __bytes__(self) -> bytes:
        """The head as it is sent on, written anew: nobody reads it otherwise than it was read here."""
        lines = b"".join([b"%b: %b\r\n" % field for field in self.fields])
        return b"%b %b HTTP/%b\r\n%b\r\n" % (self.method, self.target, self.version.encode(), lines)


class Place(NamedTuple):
    """What a target leads to: tickets, a block (`whole`) or anything else; `name` is what follows, and the `query`.

    `for_health`: one of HEALTH_PATHS.
    """

    for_tickets: bool
    whole: bool = False
    name: str = ""
    query: bytes = b""
    for_health: bool = False


HEALTH_PATHS = frozenset({"/livez", "/readyz", "/healthz", "/metrics"})
"""The paths that a connection beyond the limit may ask for, too."""
LARGEST_BODY = 65_536
"""Bytes."""
JSON_SPACE = b" \t\r\n"
CONTENT_BYTES = 3
"""One more than the largest content of a body that a request for tickets may have, `{}`."""
LONGEST_KNOWN = 128
"""Bytes: a longer target is read anew each time."""


@lru_cache(maxsize=4_096)
def _place_of(target: bytes) -> Place | None:
    try:
        url = httptools.parse_url(target)
        if url.path is None:
            return None
        path = url.path.decode("ascii")
    except (httptools.HttpParserInvalidURLError, UnicodeDecodeError):
        return None
    if "%" in path:
        path = unquote(path)
    if path.startswith("/ticket/"):
        return Place(True, False, path[8:], url.query or b"")
    if path.startswith("/block/"):
        return Place(True, True, path[7:], url.query or b"")
    return Place(False, for_health=path in HEALTH_PATHS)


class ClientRequest:
    """One request on a connection, and how far it has come.

    `has_begun`: its turn has come; `is_complete`: all of it has come. `body`: what has come of it while others were
    served. `content`: of a request for tickets instead, what its body holds beside white space, cut after
    CONTENT_BYTES; `body_bytes`: how many bytes of its body have come. `owner`: what its endpoint has put here.
    """

    __slots__ = ("body", "body_bytes", "content", "has_begun", "head", "is_complete", "owner")

    def __init__(self, head: RequestHead, *, is_complete: bool) -> None:
        self.head = head
        self.is_complete = is_complete
        self.has_begun = False
        self.body: Sequence[bytes] = ()
        self.body_bytes = 0
        self.content = b""
        self.owner: object = None

    @property
    def for_tickets(self) -> bool:
        """Whether it is for `/ticket/…` or `/block/…`."""
        place = self.head.place
        return place is not None and place.for_tickets

    def keep_content(self, body: bytes) -> None:
        """Some of the body of a request for tickets has come. A body of any size takes no memory."""
        self.body_bytes += len(body)
        if len(self.content) < CONTENT_BYTES:
            self.content = (self.content + body.translate(None, JSON_SPACE))[:CONTENT_BYTES]


class KnownHeads(KnownReads[RequestHead]):
    """Heads by the bytes of a whole request for tickets."""

    def keep_of(self, data: bytes, request: ClientRequest) -> None:
        """Keep that these bytes mean this request, and nothing else, where it is of those that come again."""
        head = request.head
        if request.for_tickets and head.keeps_alive and not head.announces_body:
            self.keep(data, head)
