"""The head of one HTTP request, as the parser has read it."""

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import unquote

import httptools


class RequestHead:
    """Method, target, headers, version, and how far the request has come.

    `has_begun`: its turn has come; `is_complete`: all of it has come.
    `for_tickets`: whether it is for `/ticket/…` or `/block/…`; then `name` is what follows, and `query` the query.
    `body`: what has come of it while others were served. `keeps_alive`: whether the connection stays open after it.
    `owner`: what its endpoint has put here.
    """

    # what holds for most requests stands here once, and is not written into each
    keeps_alive = True
    has_begun = False
    is_complete = False
    for_tickets = False
    whole = False
    name = ""
    query = b""
    owner: object = None
    body: Sequence[bytes] = ()

    def __init__(self, method: bytes, target: bytes, fields: list[tuple[bytes, bytes]], version: str) -> None:
        self.method = method
        self.target = target
        self.fields = fields
        self.version = version

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


class _Place(NamedTuple):
    """What a target leads to: tickets, a block (`whole`) or anything else."""

    for_tickets: bool
    whole: bool = False
    name: str = ""
    query: bytes = b""


LONGEST_KNOWN = 128
"""Bytes: a longer target is read anew each time."""


@lru_cache(maxsize=4_096)
def _place_of(target: bytes) -> _Place:
    try:
        url = httptools.parse_url(target)
    except httptools.HttpParserInvalidURLError as error:
        raise ValueError("the target is no URL") from error
    if url.path is None:
        raise ValueError("the target has no path")
    path = url.path.decode("ascii")
    if "%" in path:
        path = unquote(path)
    if path.startswith("/ticket/"):
        return _Place(True, False, path[8:], url.query or b"")
    if path.startswith("/block/"):
        return _Place(True, True, path[7:], url.query or b"")
    return _Place(False)


def is_for_tickets(head: RequestHead) -> bool:
    """Whether the request is for tickets or a block; sets `name`, `query` and `whole` if so. Raises ValueError."""
    target = head.target
    place = _place_of(target) if len(target) <= LONGEST_KNOWN else _place_of.__wrapped__(target)
    if place.for_tickets:
        _, head.whole, head.name, head.query = place
    return place.for_tickets
