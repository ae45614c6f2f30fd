"""A ticket server over HTTP/1.1, with the standard library alone.

No ready-made pool of connections: every wait here ends with the caller's deadline (a server that sends a byte a second
ends no read timeout), and a child of `fork` can throw all of it away without a lock that a thread of its parent held.
"""

from __future__ import annotations

import codecs
import http.client
import io
import json
import socket
import ssl
import time
import weakref
from collections import deque
from collections.abc import Container, Mapping
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, NamedTuple, cast
from urllib.parse import SplitResult, quote

from ticketd_client import answers
from ticketd_client.answers import AttemptFailed, Block, Ticket
from ticketd_client.errors import (
    Answer,
    InvalidRequest,
    NoSuchSequence,
    NotAllowed,
    SequenceConflict,
    SequenceExhausted,
    TicketError,
)
from ticketd_client.servers import Server

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

# Python finds a codec by importing it. A thread that does so while another one forks leaves the child with a lock that
# nobody will release; so both that a host's name may take are found now.
for _codec in ("idna", "punycode"):
    codecs.lookup(_codec)

IDLE_CONNECTIONS = 16
LARGEST_PROBLEM = 16_384
"""Bytes of an error's body that are read."""
LONGEST_TICKET = 100
"""Bytes that a ticket takes in an answer, at most: an id, its string, and what stands between."""
LONGEST_RETRY_AFTER = 60.0

REFUSALS: dict[int, type[TicketError]] = {
    401: NotAllowed,
    403: NotAllowed,
    404: NoSuchSequence,
    409: SequenceConflict,
    410: SequenceExhausted,
    422: InvalidRequest,
}
"""What every server would say. Only as a problem document: a stranger's 404 says that this is no ticket server."""


class HTTPServer(Server):
    """See Server."""

    def __init__(
        self, url: str, parts: SplitResult, address: tuple[str, int], *, token: str | None, tls: ssl.SSLContext | None
    ) -> None:
        self.url = url
        self._address = address
        self._path = quote(parts.path.rstrip("/"), safe="/%")
        self._tls = (tls or ssl.create_default_context()) if parts.scheme == "https" else None
        self.token = token
        head = f"Host: {parts.netloc}\r\nAccept: application/json\r\nUser-Agent: ticketd-client\r\n"
        # the server compares the token's UTF-8 bytes
        self._head = (head + (f"Authorization: Bearer {token}\r\n" if token else "")).encode()
        self._idle: deque[_Connection] = deque()
        self._open: weakref.WeakSet[_Connection] = weakref.WeakSet()  # weak: an interrupt may have one forgotten
        self._closed = False

    def take(self, sequence: str, count: int | None, key: int | None, deadline: float) -> list[Ticket]:
        """See Server."""
        query = "&".join(f"{name}={value}" for name, value in (("count", count), ("key", key)) if value is not None)
        path = f"/ticket/{quote(sequence, safe='')}" + (f"?{query}" if query else "")
        answer = self._ask("POST", path, None, deadline, 1_000 + LONGEST_TICKET * (count or 1))
        if count is None:
            return answers.read_ticket(answer, sequence)
        return answers.read_tickets(answer, sequence, count)

    def take_block(self, sequence: str, size: int, deadline: float) -> Block:
        """See Server."""
        answer = self._ask("POST", f"/block/{quote(sequence, safe='')}?size={size}", None, deadline, 1_000)
        return answers.read_block(answer, sequence, size)

    def bump(self, sequence: str, above: int, force: bool, deadline: float) -> dict[str, object]:
        """See Server."""
        body = {"above": above, "force": force}
        return self._ask("POST", f"/sequence/{quote(sequence, safe='')}/bump", body, deadline, 1_000_000)

    def look(self, deadline: float) -> None:
        """See Server."""
        reply = self._exchange("GET", "/readyz", b"", deadline, 1_000_000)
        if reply.status != 200:
            raise AttemptFailed(f"{reply.status}: not ready")

    def forget_connections(self) -> None:
        """See Server."""
        for connection in list(self._open):
            connection.close()
        self._idle, self._open = deque(), weakref.WeakSet()

    def close(self) -> None:
        """See Server."""
        self._closed = True
        while self._idle:
            self._drop(self._idle.pop())

    def _ask(
        self, method: str, path: str, content: Mapping[str, object] | None, deadline: float, most: int
    ) -> dict[str, Any]:
        """The JSON object that it answers with 200. `most`: bytes that the body may have."""
        return self.request(method, path, content, deadline, most)[1]

    def request(
        self,
        method: str,
        path: str,
        content: Mapping[str, object] | None,
        deadline: float,
        most: int,
        *,
        accepted: Container[int] = (200,),
    ) -> tuple[int, dict[str, Any]]:
        """The status, one of `accepted`, and the JSON object that it answers with. `most`: bytes that the body may
        have. Raises AttemptFailed, and a TicketError for what every server would refuse."""
        body = b"" if content is None else json.dumps(content).encode()
        reply = self._exchange(method, path, body, deadline, most)
        if reply.status not in accepted or (reply.status != 200 and reply.kind == "application/problem+json"):
            raise self._error_of(reply)
        if reply.kind not in ("application/json", ""):
            raise AttemptFailed(f"did not answer with JSON but with {answers.quoted(reply.kind)}")
        return reply.status, answers.read_object(reply.body)

    def _error_of(self, reply: _Reply) -> Exception:
        detail = reply.reason
        if reply.kind == "application/problem+json":
            try:
                detail = str(answers.read_object(reply.body).get("detail", detail))
            except AttemptFailed:
                pass
            else:
                refusal = REFUSALS.get(reply.status)
                if refusal is not None:
                    says = self.hide(f"{reply.status}: {answers.shown(detail)}")
                    return refusal(f"{self.url}: {says}", [Answer(self.url, says, reply.status)])
        says = self.hide(f"{reply.status}: {answers.shown(detail)}")
        return AttemptFailed(says, reply.status, _seconds(reply.retry_after))

    def _exchange(self, method: str, path: str, body: bytes, deadline: float, most: int) -> _Reply:
        """One request and its answer. A connection that was open already may have died meanwhile: then a new one."""
        request = f"{method} {self._path}{path} HTTP/1.1\r\n".encode() + self._head
        if body:
            request += b"Content-Type: application/json\r\n"
        request += b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
        began = time.monotonic()
        try:
            try:
                used = self._idle.pop()
            except IndexError:
                return self._exchange_on(self._connect(deadline), request, deadline, most)
            try:
                return self._exchange_on(used, request, deadline, most)
            except (ConnectionError, http.client.BadStatusLine):
                while self._idle:  # the others are as old
                    self._drop(self._idle.pop())
                return self._exchange_on(self._connect(deadline), request, deadline, most)
        except socket.timeout:
            raise AttemptFailed(f"no answer in {time.monotonic() - began:.1f} s") from None
        except ssl.SSLCertVerificationError as error:
            raise AttemptFailed(f"no answer (its certificate: {answers.shown(error.verify_message)})") from None
        except OSError as error:
            raise AttemptFailed(f"no answer ({answers.shown(error.strerror or str(error))})") from None
        except http.client.IncompleteRead:
            raise AttemptFailed("gave an answer that is cut off") from None
        except http.client.HTTPException:
            raise AttemptFailed("did not answer in HTTP") from None

    def _connect(self, deadline: float) -> _Connection:
        connection = _Connection(self._address, self._tls, deadline)
        self._open.add(connection)
        return connection

    def _exchange_on(self, connection: _Connection, request: bytes, deadline: float, most: int) -> _Reply:
        keep = False
        try:
            reply, keep = connection.exchange(request, deadline, most)
            return reply
        finally:
            if keep and not self._closed and len(self._idle) < IDLE_CONNECTIONS:
                self._idle.append(connection)
            else:
                self._drop(connection)

    def _drop(self, connection: _Connection) -> None:
        self._open.discard(connection)
        connection.close()


class _Reply(NamedTuple):
    status: int
    reason: str
    kind: str
    retry_after: str | None
    body: bytes


class _Connection:
    """A connection, open already."""

    def __init__(self, address: tuple[str, int], tls: ssl.SSLContext | None, deadline: float) -> None:
        self._socket = _connected(address, deadline)
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if tls is not None:
                self._socket.settimeout(_left(deadline))
                self._socket = tls.wrap_socket(self._socket, server_hostname=address[0])
        except BaseException:
            self._socket.close()
            raise

    def exchange(self, request: bytes, deadline: float, most: int) -> tuple[_Reply, bool]:
        """The answer, and whether the connection is good for another. Raises OSError, HTTPException, AttemptFailed."""
        self._socket.settimeout(_left(deadline))
        self._socket.sendall(request)
        source = _Source(_Reader(self._socket, deadline))
        answer = http.client.HTTPResponse(cast(socket.socket, source), method="POST")
        try:
            answer.begin()
            length = answer.length
            most = most if answer.status == 200 else LARGEST_PROBLEM
            if answer.status == 200 and length is not None and length > most:
                raise AttemptFailed(f"gave an answer of {length} bytes")
            body = answer.read(most + 1 if length is None else min(length, most))
            if length is not None and len(body) < min(length, most):
                raise AttemptFailed("gave an answer that is cut off")
            if answer.status == 200 and len(body) > most:
                raise AttemptFailed(f"gave an answer of more than {most} bytes")
            fields = answer.headers
            reply = _Reply(
                answer.status,
                answer.reason,
                (fields.get("Content-Type") or "").partition(";")[0].strip().lower(),
                fields.get("Retry-After"),
                body,
            )
            return reply, answer.isclosed() and not answer.will_close
        finally:
            answer.close()

    def close(self) -> None:
        self._socket.close()


class _Reader(io.RawIOBase):
    """Reads from a socket to the deadline, however many reads that takes."""

    def __init__(self, source: socket.socket, deadline: float) -> None:
        super().__init__()
        self._source = source
        self._deadline = deadline

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        self._source.settimeout(_left(self._deadline))
        return self._source.recv_into(buffer)


class _Source:
    """What HTTPResponse wants of a socket: a file to read from."""

    def __init__(self, reader: _Reader) -> None:
        self._reader = reader

    def makefile(self, _mode: str) -> io.BufferedReader:
        return io.BufferedReader(self._reader)


def _connected(address: tuple[str, int], deadline: float) -> socket.socket:
    """A connection to the first of the host's addresses that takes one. Raises OSError."""
    trouble: OSError | None = None
    for family, kind, protocol, _, place in socket.getaddrinfo(*address, type=socket.SOCK_STREAM):
        made = socket.socket(family, kind, protocol)
        try:
            made.settimeout(_left(deadline))
            made.connect(place)
        except OSError as error:
            made.close()
            trouble = error
        except BaseException:
            made.close()
            raise
        else:
            return made
    raise trouble or OSError(f"{address[0]} has no address")


def _left(deadline: float) -> float:
    """Seconds to the deadline. Raises socket.timeout where there are none."""
    left = deadline - time.monotonic()
    if left <= 0:
        raise socket.timeout("timed out")
    return left


def _seconds(retry_after: str | None) -> float | None:
    """A Retry-After, a number or a date, in seconds from now."""
    if retry_after is None:
        return None
    text = retry_after.strip()
    if text.isascii() and text.isdigit():
        seconds = float(text)
    else:
        try:
            when = parsedate_to_datetime(text)
        except (TypeError, ValueError, IndexError):
            return None
        if when.tzinfo is None:
            when = when.replace(tzinfo=timezone.utc)
        seconds = (when - datetime.now(timezone.utc)).total_seconds()
    return min(max(seconds, 0.0), LONGEST_RETRY_AFTER)
