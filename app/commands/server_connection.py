"""A connection to the ticket server that a command asks, over the standard library's `http.client`.

It uses no proxy and follows no redirect, so that the token reaches only the server that was named.
"""

import http.client
import json
import ssl
import time
from collections.abc import Callable, Container, Mapping
from typing import Any, NamedTuple, NoReturn
from urllib.parse import SplitResult, quote, urlsplit

from app.commands.terminal import shown
from app.common.errors import TicketError

URL_VARIABLE, TOKEN_VARIABLE = "TICKETD_URL", "TICKETD_TOKEN_FILE"
OK, CREATED, UNAUTHORIZED, UNAVAILABLE = 200, 201, 401, 503
ASK_AGAIN = frozenset({408, 425, 429})
"""The statuses below 500 that may change when the request is repeated."""
TIMEOUT_SECONDS = 30.0
"""The limit for one request, repetitions included."""
PATIENCE_SECONDS = 2.0
"""After its first failure, a server that has not answered this command yet is asked again for this time only. It may
be starting, or no server may be there."""
FIRST_PAUSE_SECONDS = 0.05
"""The pause before the second attempt. Each further pause is twice as long."""
MOST_BYTES = 32 * 1024 * 1024
"""The limit for the body of an answer. A page of 1,000 sequences takes one to two kilobytes for each."""
PIECE = 65_536
"""Bytes that are read at once."""
PORTS = {"http": 80, "https": 443}
JSON, PROBLEM = "application/json", "application/problem+json"


class RequestFailed(TicketError):
    """The ticket server did not do what was asked."""


class UnusableURL(ValueError):
    """The text names no ticket server. The message does not repeat a password."""


class _AttemptFailed(Exception):
    """One attempt failed, and another one may succeed. `retry_after`: the seconds that the server asks for."""

    def __init__(self, says: str, retry_after: float = 0.0) -> None:
        super().__init__(says)
        self.retry_after = retry_after


class _Reply(NamedTuple):
    status: int
    reason: str
    media_type: str
    retry_after: float
    body: bytes


class ServerConnection:
    """One connection, opened by the first request and again after each failure."""

    def __init__(self, url: str, token: str | None) -> None:
        """`url`: http:// or https://, with a path where a proxy serves the ticket server below one. `token`: printable,
        without spaces; None where the server wants none. Raises UnusableURL."""
        parts, host, port = _read_url(url)
        self.url = url
        self._path = quote(parts.path.rstrip("/"), safe="/%")
        self._connection = (
            http.client.HTTPSConnection(host, port, context=ssl.create_default_context())
            if parts.scheme == "https"
            else http.client.HTTPConnection(host, port)
        )
        self._token = token
        self._has_answered = False

    def close(self) -> None:
        """Close the connection. Another request would open it again."""
        self._connection.close()

    def ask(
        self,
        method: str,
        path: str,
        content: Mapping[str, object] | None = None,
        *,
        accepted: Container[int] = (OK,),
        check: Callable[[dict[str, Any]], str | None] = lambda _: None,
    ) -> tuple[int, dict[str, Any]]:
        """Send a request, and again while it fails and there is time; return the status and the JSON object of the
        answer.

        `content`: the body, sent as JSON. `accepted`: the statuses of success. `check`: returns what is wrong with the
        object, None where nothing is.

        Raises RequestFailed with one line: what the server said, or why there was no answer.
        """
        began = time.monotonic()
        until = began + TIMEOUT_SECONDS
        give_up = until
        pause = FIRST_PAUSE_SECONDS
        while True:
            try:
                status, found = self._attempt(method, path, content, accepted, until)
                if wrong := check(found):
                    self._is_a_stranger(wrong)
            except _AttemptFailed as failure:
                now = time.monotonic()
                if not self._has_answered:
                    give_up = min(give_up, now + PATIENCE_SECONDS)
                wait = max(pause, failure.retry_after)
                if now + wait >= give_up:
                    raise RequestFailed(str(failure)) from failure
                time.sleep(wait)
                pause *= 2
            else:
                self._has_answered = True
                return status, found

    def _attempt(
        self, method: str, path: str, content: Mapping[str, object] | None, accepted: Container[int], until: float
    ) -> tuple[int, dict[str, Any]]:
        reply = self._exchange(method, path, content, until)
        if reply.status not in accepted or reply.media_type == PROBLEM:
            self._refuse(reply)
        if reply.media_type not in (JSON, ""):
            self._is_a_stranger(f"did not answer with JSON but with {shown(reply.media_type, 60)!r}")
        found = _object_in(reply.body)
        if found is None:
            self._is_a_stranger("did not answer with JSON")
        return reply.status, found

    def _exchange(self, method: str, path: str, content: Mapping[str, object] | None, until: float) -> _Reply:
        """One request and its whole answer. Raises _AttemptFailed, and closes the connection then."""
        headers: dict[str, str | bytes] = {"Accept": JSON, "User-Agent": "ticketd"}
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}".encode()  # the server compares the token's UTF-8 bytes
        body = b"" if content is None else json.dumps(content).encode()
        if body:
            headers["Content-Type"] = JSON
        began = time.monotonic()
        whole = False
        try:
            self._set_timeout(until)
            self._connection.request(method, self._path + path, body, headers)
            reply = self._receive(self._connection.getresponse(), until)
            whole = True
        except TimeoutError:
            self._is_silent(f"in {time.monotonic() - began:.1f} s")
        except ssl.SSLCertVerificationError as error:
            self._is_silent(f"(its certificate: {shown(error.verify_message)})")
        except OSError as error:
            self._is_silent(f"({shown(error.strerror or str(error))})")
        except UnicodeError:
            self._is_silent("(its host is not a host name)")
        except http.client.IncompleteRead:
            self._is_a_stranger("gave an answer that is cut off")
        except (http.client.HTTPException, ValueError):  # ValueError: a chunk has a negative size
            self._is_a_stranger("did not answer in HTTP")
        finally:
            if not whole:
                self._connection.close()
        return reply

    def _receive(self, response: http.client.HTTPResponse, until: float) -> _Reply:
        body = bytearray()
        with response:
            while piece := response.read1(PIECE):
                body += piece
                if len(body) > MOST_BYTES:
                    self._is_a_stranger(f"gave an answer of more than {MOST_BYTES} bytes")
                self._set_timeout(until)
            if response.length:
                self._is_a_stranger("gave an answer that is cut off")
        return _Reply(
            response.status,
            response.reason,
            response.headers.get_content_type() if "Content-Type" in response.headers else "",
            _seconds(response.headers.get("Retry-After")),
            bytes(body),
        )

    def _set_timeout(self, until: float) -> None:
        """Let the next wait for the network end at `until`. Raises TimeoutError after that."""
        left = until - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self._connection.timeout = left
        if self._connection.sock is not None:
            self._connection.sock.settimeout(left)

    def _refuse(self, reply: _Reply) -> NoReturn:
        """Raise the server's own words: _AttemptFailed where asking again may help, otherwise RequestFailed."""
        problem = (_object_in(reply.body) or {}) if reply.media_type == PROBLEM else {}
        says = f"{reply.status}: {self._printable(str(problem.get('detail', reply.reason)))}"
        if reply.status == UNAUTHORIZED:
            says += f"; --token-file FILE, or {TOKEN_VARIABLE}, names a file with one"
        if reply.status >= 500 or reply.status in ASK_AGAIN:
            raise _AttemptFailed(says, reply.retry_after)
        raise RequestFailed(says)

    def _is_a_stranger(self, wrong: str) -> NoReturn:
        raise _AttemptFailed(f"{self.url} {wrong}: is it a ticket server?")

    def _is_silent(self, why: str) -> NoReturn:
        raise _AttemptFailed(f"no answer from {self.url} {why}: is the server running there?")

    def _printable(self, text: str) -> str:
        """The text on one line, without the token, which the server may have sent back."""
        return shown(text.replace(self._token, "[token]") if self._token else text)


def _read_url(url: str) -> tuple[SplitResult, str, int]:
    """The URL's parts, its host and its port. Raises UnusableURL."""
    if "@" in url:
        raise UnusableURL("a user or password cannot be used; expected --token-file FILE")
    if url.startswith("redis://"):
        raise UnusableURL(f"{shown(url)} speaks the Redis protocol; expected http://host:port or https://")
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, PORTS[parts.scheme] if parts.port is None else parts.port
    except (ValueError, KeyError):
        host = None
    if not host or not port or parts.query or parts.fragment or not url.isprintable() or " " in url:
        raise UnusableURL(f"{shown(url)!r} cannot be used; expected http://host:port or https://")
    return parts, host, port


def _object_in(body: bytes) -> dict[str, Any] | None:
    """The JSON object of a body; None where there is none."""
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _seconds(retry_after: str | None) -> float:
    """The seconds of a Retry-After header; 0 where it is absent or holds a date."""
    return float(retry_after) if retry_after and retry_after.isascii() and retry_after.isdigit() else 0.0
