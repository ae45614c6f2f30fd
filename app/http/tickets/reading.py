"""Turns the bytes of one client into requests: no socket and no answers. httptools parses.

Bytes are kept until the connection asks for the next piece. A request is in `ahead` from the end of its head until the
connection begins to serve it. All that decides what the next byte means is the state, `Reading`, and its table:

    between     no request has begun since the last one ended
    head        in a request line or in headers
    body        in the body of a request
    chunk       in the size of a chunk, or in the lines behind the last chunk
    last_body   as `body`, of a request behind which the client closes the connection; `last_chunk` likewise
    over        the last request has ended: what follows is parsed and passed over
    refused     the bytes could not be understood, and nothing that follows can be
"""

from collections import deque
from enum import StrEnum
from typing import Protocol

import httptools

from app.http.problems import Code, Problem, method_not_allowed
from app.http.tickets.head import LARGEST_BODY, ClientRequest, KnownHeads, RequestHead

HEAD_BYTES = 16_384
"""A request line with its headers that is larger is refused."""
MOST_FIELDS = 256
"""As many headers, or lines behind the last chunk, are refused: each takes ten times its bytes of memory."""
PIECE = 1_024
"""How many bytes the parser gets at a time. The parser cannot be stopped at the end of a request, and what it reads
behind one has to be kept as requests, which are larger than their bytes."""


class Reading(StrEnum):
    """Where in a request the next byte lies."""

    BETWEEN = "between"
    HEAD = "head"
    BODY = "body"
    CHUNK = "chunk"
    LAST_BODY = "last_body"
    LAST_CHUNK = "last_chunk"
    OVER = "over"
    REFUSED = "refused"


class Event(StrEnum):
    """The events of the parser."""

    BEGAN = "began"
    HEAD_ENDED = "head ended"
    LAST_HEAD_ENDED = "last head ended"
    CHUNK_BEGAN = "chunk began"
    CHUNK_LINE_ENDED = "chunk's line ended"
    ENDED = "ended"
    BROKE = "broke"


BETWEEN, HEAD, BODY, CHUNK, LAST_BODY, LAST_CHUNK, OVER, REFUSED = Reading
BEGAN, HEAD_ENDED, LAST_HEAD_ENDED, CHUNK_BEGAN, CHUNK_LINE_ENDED, ENDED, BROKE = Event
"""The members as names of this module: looking a member of an enum up takes too long for each request."""

TRANSITIONS: dict[Reading, dict[Event, Reading]] = {
    BETWEEN: {BEGAN: HEAD, BROKE: REFUSED},
    HEAD: {HEAD_ENDED: BODY, LAST_HEAD_ENDED: LAST_BODY, BROKE: REFUSED},
    BODY: {
        CHUNK_BEGAN: CHUNK,
        CHUNK_LINE_ENDED: BODY,
        ENDED: BETWEEN,
        BROKE: REFUSED,
    },
    CHUNK: {
        CHUNK_BEGAN: CHUNK,
        CHUNK_LINE_ENDED: BODY,
        ENDED: BETWEEN,
        BROKE: REFUSED,
    },
    LAST_BODY: {
        CHUNK_BEGAN: LAST_CHUNK,
        CHUNK_LINE_ENDED: LAST_BODY,
        ENDED: OVER,
        BROKE: REFUSED,
    },
    LAST_CHUNK: {
        CHUNK_BEGAN: LAST_CHUNK,
        CHUNK_LINE_ENDED: LAST_BODY,
        ENDED: OVER,
        BROKE: REFUSED,
    },
    OVER: dict.fromkeys(Event, OVER),
    REFUSED: dict.fromkeys(Event, REFUSED),
}
"""The state that follows from each event in each state. An event that is missing cannot happen in that state."""
IN_LINES = frozenset({HEAD, CHUNK, LAST_CHUNK})
"""The states whose bytes count against HEAD_BYTES."""
IN_REQUEST = frozenset({BODY, CHUNK, LAST_BODY, LAST_CHUNK})


class Reader(Protocol):
    """The connection, as far as the reading of its bytes needs it."""

    def request_begins(self) -> None:
        """The first byte of a request has come."""

    def body_comes(self, request: ClientRequest, body: bytes) -> None:
        """Some of the body of a request that is being served, and is not for tickets, has come."""

    def body_is_too_large(self, request: ClientRequest) -> None:
        """More than LARGEST_BODY bytes have come of the body of a request for tickets, which may be being served."""

    def body_has_ended(self, request: ClientRequest) -> None:
        """All of a request has come that the connection had begun to serve."""

    def broke_off(self, request: ClientRequest) -> None:
        """The rest of a request that the connection had begun to serve cannot be understood."""


class RequestReader:
    """Reads the requests of one connection.

    `state`: see the module. `ahead`: requests whose head has come and whose turn has not. `refusal`: in the state
    `refused`, what to answer after the requests that came before; None where the broken bytes get no answer.
    """

    def __init__(self, connection: Reader, known_heads: KnownHeads) -> None:
        self.state: Reading = BETWEEN
        self.ahead: deque[ClientRequest] = deque()
        self.refusal: Problem | None = None
        self.unread = b""
        self._offset = 0
        self._connection = connection
        self._known_heads = known_heads
        self._parser = httptools.HttpRequestParser(self)
        self._parser.set_dangerous_leniencies(lenient_data_after_close=True)  # what follows the last one is not read
        self._incoming: ClientRequest | None = None
        self._target = b""
        self._fields: list[tuple[bytes, bytes]] = []
        self._line_bytes = 0
        self._body: list[bytes] = []

    def keep(self, data: bytes) -> None:
        """Keep bytes that the client has sent."""
        self.unread = self.unread[self._offset :] + data if self.unread else data
        self._offset = 0

    def forget(self) -> None:
        """Drop all that was kept: the connection is lost."""
        self.ahead.clear()
        self.unread, self._offset = b"", 0

    @property
    def kept_bytes(self) -> int:
        """How many bytes are kept."""
        return len(self.unread) - self._offset

    def _next_piece(self) -> bytes:
        begin = self._offset
        if not begin and len(self.unread) <= PIECE:
            piece, self.unread = self.unread, b""
            return piece
        piece = self.unread[begin : begin + PIECE]
        self._offset = begin + len(piece)
        if self._offset == len(self.unread):
            self.unread, self._offset = b"", 0
        return piece

    def read_piece(self) -> None:
        """Parse the next piece of the bytes that are kept. Raises httptools.HttpParserCallbackError for our defects."""
        piece = self._next_piece()
        is_first = self.state is BETWEEN
        head = self._known_heads.get(piece) if is_first else None
        if head is not None:
            self._connection.request_begins()
            self.ahead.append(ClientRequest(head, is_complete=True))
            return
        try:
            self._parser.feed_data(piece)
        except httptools.HttpParserUpgrade as offer:  # it goes on in HTTP/1.1, which the client has to accept
            self.unread, self._offset = piece[offer.args[0] :] + self.unread[self._offset :], 0
        except httptools.HttpParserCallbackError:
            raise
        except httptools.HttpParserError:
            self._refuse(Problem(Code.BAD_REQUEST, "this is not a request in HTTP/1.1"))
        else:
            if is_first and self.state is BETWEEN and len(self.ahead) == 1:
                self._known_heads.keep_of(piece, self.ahead[0])
        if self._body and self._incoming is not None:
            self._hand_on_body(self._incoming)
        if self.state in IN_LINES:
            self._line_bytes += len(piece)
            if self._line_bytes > HEAD_BYTES:
                detail = f"request line and headers are larger than {HEAD_BYTES} bytes"
                self._refuse(Problem(Code.BAD_REQUEST, detail, status=431))

    def _refuse(self, problem: Problem) -> None:
        """Nothing that follows can be understood."""
        broken, self._incoming = self._incoming, None
        self._body = []
        self.unread, self._offset = b"", 0
        before = self.state
        self.state = TRANSITIONS[self.state][BROKE]
        if self.state is before:  # refused already, or behind the last request
            return
        self.refusal = problem
        if broken is None:
            return
        if broken.has_begun:
            self._connection.broke_off(broken)
        else:
            self.ahead.remove(broken)

    # --- what the parser says --------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        self._target = b""
        self._fields = []
        self._line_bytes = 0
        self.state = TRANSITIONS[self.state][BEGAN]
        if self.state is HEAD:
            self._connection.request_begins()

    def on_url(self, url: bytes) -> None:
        self._target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._fields.append((name, value))
        if len(self._fields) == MOST_FIELDS:
            self._refuse(Problem(Code.BAD_REQUEST, f"there are {MOST_FIELDS} headers, or more", status=431))

    def on_headers_complete(self) -> None:
        if self.state is not HEAD:
            return
        parser = self._parser
        version = parser.get_http_version()
        keeps_alive = version != "1.0" and parser.should_keep_alive()
        head = RequestHead(parser.get_method(), self._target, self._fields, version, keeps_alive=keeps_alive)
        if parser.should_upgrade():
            if head.method == b"CONNECT":
                self._refuse(method_not_allowed("GET", "HEAD", "POST", "PUT"))
                return
            if head.announces_body:
                # the parser takes what comes next for a request, and to the next server on the way it is a body
                self._refuse(Problem(Code.BAD_REQUEST, "a request with a body cannot offer to upgrade the connection"))
                return
            head.without_upgrade()
        self.state = TRANSITIONS[self.state][HEAD_ENDED if keeps_alive else LAST_HEAD_ENDED]
        self._incoming = request = ClientRequest(head, is_complete=False)
        self.ahead.append(request)  # it begins when the parser has accepted it: some errors come only after this

    def on_body(self, body: bytes) -> None:
        request = self._incoming
        if request is None:
            return
        self.state = TRANSITIONS[self.state][CHUNK_LINE_ENDED]
        if request.for_tickets:
            request.keep_content(body)
            if request.body_bytes > LARGEST_BODY:
                self._connection.body_is_too_large(request)
        else:
            self._body.append(body)

    def _hand_on_body(self, request: ClientRequest) -> None:
        """Hand on the part of the body that has arrived, at once, because each byte of it may be a chunk."""
        body, self._body = b"".join(self._body), []
        if request.has_begun:
            self._connection.body_comes(request, body)
        else:
            request.body = [*request.body, body]

    def on_chunk_header(self) -> None:
        self._fields = []  # behind the last chunk there may be more: they belong to no head
        self._line_bytes = 0
        self.state = TRANSITIONS[self.state][CHUNK_BEGAN]

    def on_chunk_complete(self) -> None:
        self.state = TRANSITIONS[self.state][CHUNK_LINE_ENDED]
        if self._fields and self.state is BODY and not self._parser.should_keep_alive():
            # the parser obeys, and would read nothing any more on a connection that others may use as well
            self._refuse(Problem(Code.BAD_REQUEST, "a trailer cannot close the connection"))

    def on_message_complete(self) -> None:
        self.state = TRANSITIONS[self.state][ENDED]
        request, self._incoming = self._incoming, None
        if request is None:
            return
        if self._body:
            self._hand_on_body(request)
        request.is_complete = True
        if request.has_begun:
            self._connection.body_has_ended(request)
