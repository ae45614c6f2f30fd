"""The servers that URLs name, over HTTP/1.1 and over the Redis protocol, RESP2."""

from __future__ import annotations

import re
import ssl
from collections.abc import Sequence
from http.client import HTTPException, HTTPResponse, IncompleteRead
from io import BufferedReader
from socket import socket
from typing import Any, cast
from urllib.parse import quote, unquote

from ticketd_client import answers, errors
from ticketd_client.answers import AttemptFailed, Ticket
from ticketd_client.connections import LARGEST_ANSWER, Connection
from ticketd_client.errors import InvalidRequest
from ticketd_client.servers import Server

REFUSALS: dict[object, type[errors.TicketError]] = {
    401: errors.NotAllowed,
    403: errors.NotAllowed,
    404: errors.NoSuchSequence,
    409: errors.SequenceConflict,
    410: errors.SequenceExhausted,
    422: errors.InvalidRequest,
    "NOAUTH": errors.NotAllowed,
    "WRONGPASS": errors.NotAllowed,
    "EXHAUSTED": errors.SequenceExhausted,
    "no such sequence": errors.NoSuchSequence,
}
"""What every server would say: as the status of a problem document (a stranger's 404 says that this is no ticket
server), or as the beginning of an error over Redis, without the word ERR."""


class HTTPServer(Server):
    """See Server."""

    def __init__(self, url: str, address: tuple[str, int], token: str | None, tls: ssl.SSLContext | None) -> None:
        super().__init__(url, address, token, tls)
        host, slash, path = url.partition("://")[2].partition("/")
        self._path = quote(slash + path, safe="/%")
        self._head = f"Host: {host}\r\nAccept: application/json\r\nUser-Agent: ticketd-client\r\n"
        self._head += f"Authorization: Bearer {token}\r\n" if token else ""

    def take(self, sequence: str, count: int | None, key: int | None, deadline: float) -> list[Ticket]:
        query = "&".join(f"{name}={value}" for name, value in (("count", count), ("key", key)) if value is not None)
        answer = self._ask("POST /ticket/", sequence, deadline, query and f"?{query}")
        ids = [answer.get("id")] if count is None else answer.get("ids")
        return answers.tickets_of(ids if isinstance(ids, list) else [], count or 1)

    def take_block(self, sequence: str, size: int, deadline: float) -> range:
        answer = self._ask("POST /block/", sequence, deadline, f"?size={size}")
        return answers.block_of(answer.get("first"), answer.get("step"), answer.get("size"), wanted=size)

    def ensure(self, sequence: str, body: bytes, deadline: float) -> dict[str, Any]:
        return self._ask("PUT /sequence/", sequence, deadline, body=body)

    def _ask(self, what: str, sequence: str, deadline: float, query: str = "", body: bytes = b"") -> dict[str, Any]:
        """The JSON object about the sequence that it answers. `what`: a method and a path."""
        method, path = what.split()
        head = f"{method} {self._path}{path}{quote(sequence, safe='')}{query} HTTP/1.1\r\n{self._head}"
        head += ("Content-Type: application/json\r\n" if body else "") + f"Content-Length: {len(body)}\r\n\r\n"
        # in UTF-8, for the server compares the bytes of the token
        answer: dict[str, Any] = self._exchange(head.encode() + body, deadline)
        if str(answer.get("sequence")).lower() != sequence.lower():  # it has the name as it was made
            raise AttemptFailed(f"answered for the sequence {answer.get('sequence')!r}")
        return answer

    def _read(self, connection: Connection) -> tuple[Any, bool]:
        answer = HTTPResponse(cast("socket", connection))
        try:
            answer.begin()
            content = answer.read(LARGEST_ANSWER)
        except ConnectionError:  # which a RemoteDisconnected is as well
            raise
        except IncompleteRead:
            raise AttemptFailed("gave an answer that is cut off") from None
        except (HTTPException, ValueError):  # ValueError: of a chunk with a size below 0
            raise AttemptFailed("did not answer in HTTP") from None
        keep = answer.isclosed() and not answer.will_close
        answer.close()
        if answer.length:
            raise AttemptFailed("gave an answer that is cut off")
        kind = answer.headers.get("Content-Type", "").partition(";")[0].strip().lower()
        if answer.status not in (200, 201):
            raise self._error_of(answer, kind, content)
        if kind not in ("application/json", ""):
            raise AttemptFailed(f"did not answer with JSON but with {kind!r}")
        return answers.read_object(content), keep

    def _error_of(self, answer: HTTPResponse, kind: str, content: bytes) -> Exception:
        detail = answer.reason
        if kind == "application/problem+json":
            detail = str(answers.read_object(content).get("detail", detail))
            if answer.status in REFUSALS:
                return self.refusal(REFUSALS[answer.status], f"{answer.status}: {detail}", answer.status)
        after = answer.headers.get("Retry-After", "").strip()
        seconds = min(float(after), 60.0) if after.isascii() and after.isdigit() else None
        return AttemptFailed(f"{answer.status}: {detail}", answer.status, seconds)


NOT_NOW = "max number of clients", "unknown command", "LOADING", "TRYAGAIN"
"""Another server may do better; of these the second is no ticket server, and the third one that starts."""

_WHOLE = re.compile(r"0|-?[1-9][0-9]{0,18}")


class RedisServer(Server):
    """See Server."""

    administers = False

    def take(self, sequence: str, count: int | None, key: int | None, deadline: float) -> list[Ticket]:
        words = "TICKET.TAKE", sequence, "COUNT", count or 1, *(() if key is None else ("KEY", key))
        if count is None and key is None:
            found: list[Any] = [self._exchange(_command("INCR", sequence), deadline)]
        else:
            found = _array(self._exchange(_command(*words), deadline))
        # an integer, or a bulk string: a number of up to 19 digits, or an id of more than 63 bits
        ids = [int(each) if isinstance(each, str) and _WHOLE.fullmatch(each) else each for each in found]
        return answers.tickets_of(ids, count or 1)

    def take_block(self, sequence: str, size: int, deadline: float) -> range:
        found = _array(self._exchange(_command("TICKET.BLOCK", sequence, size), deadline))
        first, step, given = found if len(found) == 3 else (None, None, None)
        return answers.block_of(first, step, given, wanted=size)

    def _greeting(self) -> list[bytes]:
        return [_command("AUTH", self._token)] if self._token else []

    def _read(self, connection: Connection) -> tuple[Any, bool]:
        reader = connection.makefile()
        line = _line(reader)
        if line.startswith("-"):
            raise self._error_of(line[5:] if line.startswith("-ERR ") else line[1:])
        if line.startswith("*") and _WHOLE.fullmatch(line[1:]):
            return [_value(reader, _line(reader)) for _ in range(int(line[1:]))], True
        return _value(reader, line), True

    def _error_of(self, text: str) -> Exception:
        if text.startswith(NOT_NOW):
            return AttemptFailed(text, retry_after=1.0 if text.startswith("TRYAGAIN") else None)  # as over HTTP
        kind = next((REFUSALS[word] for word in REFUSALS if text.startswith(str(word))), errors.InvalidRequest)
        return self.refusal(errors.SequenceConflict if "no blocks" in text else kind, text or "an error")


def _command(*words: object) -> bytes:
    parts = [str(word).encode() for word in words]
    return b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%b\r\n" % (len(part), part) for part in parts)


def _array(found: object) -> list[Any]:
    if not isinstance(found, list):
        raise AttemptFailed("did not answer with an array")
    return found


def _line(reader: BufferedReader) -> str:
    line = reader.readline()
    if not line:
        raise ConnectionResetError("Remote end closed connection without response")
    if not line.endswith(b"\r\n"):
        raise AttemptFailed("did not answer in the Redis protocol")
    return line[:-2].decode("utf-8", "replace")


def _value(reader: BufferedReader, line: str) -> int | str | None:
    """An integer, a bulk string, or None for nothing and for a word like OK; it begins with this line."""
    whole = int(line[1:]) if _WHOLE.fullmatch(line[1:]) else None
    if line.startswith(":") and whole is not None:
        return whole
    if line.startswith("+") or line == "$-1":
        return None
    if line.startswith("$") and whole is not None and 0 <= whole < 100:  # the longest id has 36
        found = reader.read(whole + 2)
        if found.endswith(b"\r\n") and len(found) == whole + 2:
            return found[:-2].decode("latin-1")
    raise AttemptFailed("did not answer in the Redis protocol")


PORTS = {"http": 80, "https": 443, "redis": 6379}
_URL = re.compile(r"(https?|redis)://(?::([^\s/@]+)@)?(\[[0-9A-Fa-f:.%]+\]|[^\s/@:?#\[\]]+)(?::(\d+))?(/[^\s?#]*)?")
"""Scheme, password, host, port, path."""


def servers_of(urls: str | Sequence[str], token: str | None, tls: ssl.SSLContext | None) -> list[Server]:
    """A server for each URL. Raises InvalidRequest, without repeating a secret."""
    found = [urls] if isinstance(urls, str) else list(urls)
    if not found:
        raise InvalidRequest("at least one URL is wanted")
    if token is not None and (not token or not token.isprintable() or " " in token):
        raise InvalidRequest("the token is empty or has signs in it that no token has")
    return [_server_of(url, token, tls) for url in found]


def _server_of(url: str, token: str | None, tls: ssl.SSLContext | None) -> Server:
    found = _URL.fullmatch(url) if isinstance(url, str) and url.isprintable() else None
    scheme, password, host, given, path = found.groups(default="") if found else ("",) * 5
    port = int(given or PORTS.get(scheme, 0))
    over_redis = scheme == "redis"
    if not 0 < port < 65_536 or (path not in ("", "/", "/0") if over_redis else password):
        # of what cannot be read nobody knows which part is secret
        shown = repr(url) if isinstance(url, str) and "@" not in url else "this URL"
        raise InvalidRequest(f"{shown} cannot be used; expected http[s]://host:port or redis://[:token@]host:port")
    name = f"{scheme}://{host}{given and ':' + given}{path.rstrip('/')}"
    address = host.strip("[]"), port
    if over_redis:
        return RedisServer(name, address, unquote(password) or token, None)
    return HTTPServer(name, address, token, (tls or ssl.create_default_context()) if scheme == "https" else None)
