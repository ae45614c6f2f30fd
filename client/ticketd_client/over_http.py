"""A ticket server over HTTP/1.1."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
from collections.abc import Container, Mapping
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from typing import Any, NamedTuple, cast
from urllib.parse import SplitResult, quote

from ticketd_client import answers
from ticketd_client.answers import AttemptFailed, Block, Ticket
from ticketd_client.connections import Connection, Connections, Reader
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

LARGEST_PROBLEM = 16_384
"""Bytes of an error's body that are read."""
LARGEST_DESCRIPTION = 1_000_000
"""Bytes that the description of a sequence, or of a server's state, may have."""
LARGEST_HEAD = 65_536
"""Bytes beside the body: the status, the headers, and what chunks are wrapped in."""
LONGEST_TICKET = 100
"""Bytes that a ticket takes in an answer, at most: an id, its string, and what stands between."""
LONGEST_RETRY_AFTER = 60.0

GOOD = 200, 201
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
        self._path = quote(parts.path.rstrip("/"), safe="/%")
        self._connections = Connections(
            address, (tls or ssl.create_default_context()) if parts.scheme == "https" else None
        )
        self.token = token
        head = f"Host: {parts.netloc}\r\nAccept: application/json\r\nUser-Agent: ticketd-client\r\n"
        # the server compares the token's UTF-8 bytes
        self._head = (head + (f"Authorization: Bearer {token}\r\n" if token else "")).encode()

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
        return self._ask("POST", f"/sequence/{quote(sequence, safe='')}/bump", body, deadline, LARGEST_DESCRIPTION)

    def ensure(self, sequence: str, parameters: Mapping[str, object], deadline: float) -> dict[str, object]:
        """See Server."""
        path = f"/sequence/{quote(sequence, safe='')}"
        answer = self._ask("PUT", path, parameters, deadline, LARGEST_DESCRIPTION)
        return answers.read_sequence(answer, sequence)

    def look(self, deadline: float) -> None:
        """See Server."""
        reply = self._exchange("GET", "/readyz", b"", deadline, LARGEST_DESCRIPTION)
        if reply.status != 200:
            raise AttemptFailed(f"{reply.status}: not ready")

    def forget_connections(self) -> None:
        """See Server."""
        self._connections.forget()

    def close(self) -> None:
        """See Server."""
        self._connections.close()

    def _ask(
        self, method: str, path: str, content: Mapping[str, object] | None, deadline: float, most: int
    ) -> dict[str, Any]:
        """The JSON object that it answers with 200 or 201. `most`: bytes that the body may have."""
        return self.request(method, path, content, deadline, most)[1]

    def request(
        self,
        method: str,
        path: str,
        content: Mapping[str, object] | None,
        deadline: float,
        most: int,
        *,
        accepted: Container[int] = GOOD,
    ) -> tuple[int, dict[str, Any]]:
        """The status, one of `accepted`, and the JSON object that it answers with. `most`: bytes that the body may
        have. Raises AttemptFailed, and a TicketError for what every server would refuse."""
        body = b"" if content is None else json.dumps(content).encode()
        reply = self._exchange(method, path, body, deadline, most, accepted=accepted)
        if reply.status not in accepted or (reply.status not in GOOD and reply.kind == "application/problem+json"):
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

    def _exchange(
        self, method: str, path: str, body: bytes, deadline: float, most: int, *, accepted: Container[int] = GOOD
    ) -> _Reply:
        """One request and its answer, which has `most` bytes where its status is `accepted`. Raises AttemptFailed."""
        request = f"{method} {self._path}{path} HTTP/1.1\r\n".encode() + self._head
        if body:
            request += b"Content-Type: application/json\r\n"
        request += b"Content-Length: %d\r\n\r\n%b" % (len(body), body)

        def talk(connection: Connection) -> tuple[_Reply, bool]:
            return _read(connection.ask(request, deadline, LARGEST_HEAD + max(most, LARGEST_PROBLEM)), most, accepted)

        try:
            return self._connections.exchange(talk, deadline)
        except http.client.IncompleteRead:
            raise AttemptFailed("gave an answer that is cut off") from None
        except (http.client.HTTPException, ValueError):  # ValueError: of a chunk with a size below 0
            raise AttemptFailed("did not answer in HTTP") from None


class _Reply(NamedTuple):
    status: int
    reason: str
    kind: str
    retry_after: str | None
    body: bytes


def _read(reader: Reader, most: int, accepted: Container[int]) -> tuple[_Reply, bool]:
    """The answer, and whether its connection is good for another. Raises OSError, HTTPException, AttemptFailed."""
    answer = http.client.HTTPResponse(cast(socket.socket, _Source(reader)), method="POST")
    try:
        answer.begin()
        length = answer.length
        good = answer.status in accepted
        most = most if good else LARGEST_PROBLEM
        if good and length is not None and length > most:
            raise AttemptFailed(f"gave an answer of {length} bytes")
        body = answer.read(most + 1 if length is None else min(length, most))
        if length is not None and len(body) < min(length, most):
            raise AttemptFailed("gave an answer that is cut off")
        if good and len(body) > most:
            raise AttemptFailed(f"gave an answer of more than {most} bytes")
        fields = answer.headers
        reply = _Reply(
            answer.status,
            answer.reason,
            (fields.get("Content-Type") or "").partition(";")[0].strip().lower(),
            fields.get("Retry-After"),
            body,
        )
        return reply, answer.isclosed() and not answer.will_close and reader.is_empty()
    finally:
        answer.close()


class _Source:
    """What HTTPResponse wants of a socket: a file to read from."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    def makefile(self, _mode: str) -> Reader:
        return self._reader


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
