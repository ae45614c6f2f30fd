"""The head of one HTTP request, as the parser has read it."""

from urllib.parse import unquote

import httptools


class RequestHead:
    """Method, target, headers, version, and how far the request has come.

    `has_begun`: its turn has come; `is_complete`: all of it has come.
    `for_tickets`: whether it is for `/ticket/…` or `/block/…`; then `name` is what follows, and `query` the query.
    `body`: what has come of it while others were served. `keeps_alive`: whether the connection stays open after it.
    `owner`: what its endpoint has put here.
    """

    __slots__ = (
        "body",
        "fields",
        "for_tickets",
        "has_begun",
        "is_complete",
        "keeps_alive",
        "method",
        "name",
        "owner",
        "query",
        "target",
        "version",
        "whole",
    )

    def __init__(self, method: bytes, target: bytes, fields: list[tuple[bytes, bytes]], version: str) -> None:
        self.method = method
        self.target = target
        self.fields = fields
        self.version = version
        self.keeps_alive = True
        self.has_begun = False
        self.is_complete = False
        self.for_tickets = False
        self.whole = False
        self.name = ""
        self.query = b""
        self.owner: object = None
        self.body: list[bytes] = []

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


def is_for_tickets(head: RequestHead) -> bool:
    """Whether the request is for tickets or a block; sets `name`, `query` and `whole` if so. Raises ValueError."""
    target = head.target
    if target.startswith(b"/ticket/") and not (b"?" in target or b"%" in target or b"#" in target):
        head.name = target[8:].decode("ascii")
        return True
    try:
        url = httptools.parse_url(target)
    except httptools.HttpParserInvalidURLError as error:
        raise ValueError("the target is no URL") from error
    if url.path is None:
        raise ValueError("the target has no path")
    path = url.path.decode("ascii")
    if "%" in path:
        path = unquote(path)
    head.query = url.query or b""
    if path.startswith("/ticket/"):
        head.name = path[8:]
        return True
    if path.startswith("/block/"):
        head.name = path[7:]
        head.whole = True
        return True
    return False
