"""A client of a ticket server, for the commands: the standard library, one request at a time."""

import http.client
import json
import re
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, urlsplit

from app.common.addresses import is_loopback
from app.common.errors import SettingsError, TicketError

DEFAULT_URL = "http://127.0.0.1:8000"
LARGEST_COUNT = 1_000
TIMEOUT_SECONDS = 30.0
_LONG_ID = re.compile(r"[0-9A-Za-z-]{24,36}")
"""An id of more than 63 bits."""


class RequestFailed(TicketError):
    """The ticket server did not do what was asked."""


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A redirect could send the token to another server."""

    def redirect_request(self, *_: Any) -> None:
        return None


class TicketClient:
    """Asks the server at `url`. Every method raises RequestFailed with a message of one line."""

    def __init__(self, url: str = DEFAULT_URL, token: str | None = None) -> None:
        try:
            parts = urlsplit(url)
            host, _ = parts.hostname, parts.port
        except ValueError:
            host = parts = None
        if parts is None or not host or parts.scheme not in ("http", "https") or parts.query or parts.fragment:
            raise SettingsError(f"--url: {url!r} cannot be used; expected a URL like {DEFAULT_URL}")
        if parts.username is not None:
            raise SettingsError("--url: a user or password cannot be used; expected --token-file FILE")
        self._url = url.rstrip("/")
        self._token = token
        handlers: list[urllib.request.BaseHandler] = [_NoRedirects()]
        if is_loopback(host):
            handlers.append(urllib.request.ProxyHandler({}))
        self._opener = urllib.request.build_opener(*handlers)

    def take(self, sequence: str, count: int) -> Iterator[list[int | str]]:
        """`count` tickets (strings where they are longer than 63 bits), in lists of up to 1,000, each requested when
        the one before has been consumed."""
        while count > 0:
            size = min(count, LARGEST_COUNT)
            found = self._request(f"/ticket/{quote(sequence, safe='')}?count={size}")
            ids = found.get("ids")
            if not isinstance(ids, list) or len(ids) != size or not all(map(_is_id, ids)):
                raise RequestFailed(f"{self._url} did not answer with {size} tickets: is it a ticket server?")
            yield ids
            count -= size

    def bump(self, sequence: str, above: int, *, force: bool = False) -> dict[str, Any]:
        """Advance the sequence above a number; the server's answer."""
        return self._request(f"/sequence/{quote(sequence, safe='')}/bump", {"above": above, "force": force})

    def _request(self, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        headers = {"Accept": "application/json", "Content-Type": "application/json"}
        if self._token:
            # the server compares the token's UTF-8 bytes
            headers["Authorization"] = f"Bearer {self._token}".encode().decode("latin-1")
        content = b"" if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._url + path, content, headers, method="POST")
        try:
            with self._opener.open(request, timeout=TIMEOUT_SECONDS) as answer:
                found = json.loads(answer.read())
        except urllib.error.HTTPError as error:
            with error:
                raise RequestFailed(_problem(error)) from error
        except (OSError, http.client.HTTPException) as error:
            raise RequestFailed(
                f"no answer from {self._url} ({_reason(error)}): is the server running there?"
            ) from error
        except ValueError as error:
            raise RequestFailed(f"{self._url} did not answer with JSON: is it a ticket server?") from error
        if not isinstance(found, dict):
            raise RequestFailed(f"{self._url} did not answer like a ticket server")
        return found


def _is_id(value: object) -> bool:
    return type(value) is int or (isinstance(value, str) and _LONG_ID.fullmatch(value) is not None)


def _problem(error: urllib.error.HTTPError) -> str:
    """The server's message, on one line."""
    try:
        found = json.loads(error.read())
        detail = " ".join(str(found["detail"]).split())
    except (ValueError, KeyError, TypeError, OSError, http.client.HTTPException):
        detail = str(error.reason)
    hint = "; --token-file FILE names a file with one" if error.code == 401 else ""
    return f"{error.code}: {detail}{hint}"


def _reason(error: Exception) -> str:
    cause = error.reason if isinstance(error, urllib.error.URLError) else error
    if isinstance(cause, TimeoutError):
        return "timed out"
    text = cause.strerror if isinstance(cause, OSError) and cause.strerror else str(cause)
    return " ".join(text.split()) or type(cause).__name__
