"""A connection to the ticket server that a command asks.

It uses no proxy and follows no redirect, so that the token reaches only the server that was named.
"""

import json
import time
from collections.abc import Mapping
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import Any, Self
from urllib.parse import quote, urlsplit

from app.errors import SettingsError, TicketError

SECONDS = 10.0
"""How long a command waits for an answer."""
PATIENCE = 10.0
"""For how many seconds a request is repeated that got 503."""
MOST_BYTES = 32 * 1024 * 1024
"""The largest answer that is read: a page of 1,000 sequences takes one to two kilobytes for each."""
LONGEST_SHOWN = 400
"""Characters of a foreign text that an error repeats."""
PROBLEM = "application/problem+json"
CONNECTIONS: Mapping[str, type[HTTPConnection]] = {"http": HTTPConnection, "https": HTTPSConnection}
HINTS = {"unauthenticated": "; --token-file FILE, or TICKETD_TOKEN_FILE, names a file with a token"}
"""What the command line adds to an error of the server, by its code."""


class Refused(TicketError):
    """The server did not do what was asked. says: the server's word for why; empty where it gave none."""

    def __init__(self, message: str, code: str) -> None:
        super().__init__(message)
        self.says = code


class ServerConnection:
    """One connection to the ticket server at a URL. Use it as a context manager.

    url: http:// or https://, with a path where a proxy serves the ticket server below one. token: None where the server
    wants none. source: the flag or variable that gave the URL. Raises SettingsError for a URL that names no server; the
    error shows no password.
    """

    def __init__(self, url: str, token: str | None, source: str) -> None:
        try:
            parts = urlsplit(url)
            connect = CONNECTIONS[parts.scheme]
            (parts.hostname or "").encode("idna")
            is_plain = url.isprintable() and " " not in url and "@" not in parts.netloc and parts.port != 0
            if not parts.hostname or parts.query or parts.fragment or not is_plain:
                raise ValueError
        except (ValueError, KeyError):
            wanted = "http://host:port or https://host, without a user or a password"
            raise SettingsError(f"{source} cannot be used; expected {wanted}") from None
        self._url, self._path, self._token = url, quote(parts.path.rstrip("/"), safe="/%"), token
        self._connection = connect(parts.hostname, parts.port or connect.default_port, timeout=SECONDS)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def ask(
        self, method: str, path: str, body: Mapping[str, object] | None = None, *, accepted: tuple[int, ...] = (200,)
    ) -> tuple[int, dict[str, Any]]:
        """Send a request and return the status and the JSON object of the answer; repeat what is refused for now.

        Raises Refused with what the server said, and TicketError where it gave no answer, each with one line.
        """
        until = time.monotonic() + PATIENCE
        while True:
            response, found = self._exchange(method, path, body)
            is_problem = response.headers.get_content_type() == PROBLEM
            if response.status in accepted and not is_problem:
                return response.status, found
            wait = response.headers.get("Retry-After", "")
            seconds = float(wait) if wait.isascii() and wait.isdigit() else 0.0
            if response.status != 503 or time.monotonic() + seconds > until:
                code = str(found.get("code", "")) if is_problem else ""
                says = self._printable(str(found.get("detail", "is it a ticket server?")))
                raise Refused(f"{self._url}: {response.status}: {says}{HINTS.get(code, '')}", code)
            time.sleep(max(0.1, seconds))

    def _exchange(
        self, method: str, path: str, body: Mapping[str, object] | None
    ) -> tuple[HTTPResponse, dict[str, Any]]:
        headers = {"Accept": "application/json", "User-Agent": "ticketd"}
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        if body is not None:
            headers["Content-Type"] = "application/json"
        try:
            self._connection.request(method, self._path + path, None if body is None else json.dumps(body), headers)
            response = self._connection.getresponse()
            content = response.read(MOST_BYTES)
            if response.read(1):
                raise self._failure(f"the answer has more than {MOST_BYTES} bytes")
        except (OSError, HTTPException, ValueError) as error:
            raise self._failure(f"no answer: {getattr(error, 'strerror', None) or error}") from error
        try:
            found = json.loads(content)
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            raise self._failure(f"answered {response.status} and no JSON object: is it a ticket server?")
        return response, found

    def _failure(self, why: str) -> TicketError:
        return TicketError(f"{self._url}: {self._printable(why)}")

    def _printable(self, text: str) -> str:
        """Return the beginning of a text of the server, without the token, which it may have sent back."""
        return printable((text.replace(self._token, "[token]") if self._token else text)[:LONGEST_SHOWN])


def printable(text: str) -> str:
    """Return a text of the server on one line, without what a terminal would act on."""
    return "".join(sign if sign.isprintable() else "?" for sign in text)
