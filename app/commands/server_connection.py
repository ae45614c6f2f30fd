"""A connection to the ticket server that a command asks.

It uses no proxy and follows no redirect, so that the token reaches only the server that was named.
"""

import asyncio
import http.client
import json
import os
import socket
import ssl
import time
from collections.abc import Mapping
from typing import Any, NoReturn, Self
from urllib.parse import quote, urlsplit

from app.databases.dial import dial
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
PORTS = {"http": 80, "https": 443}
HINTS = {"unauthenticated": "; --token-file FILE, or TICKETD_TOKEN_FILE, names a file with a token"}
"""What the command line adds to an error of the server, by its code."""


class Refused(TicketError):
    """The server did not do what was asked. says: the server's word for why; empty where it gave none."""

    def __init__(self, message: str, code: str) -> None:
        super().__init__(message)
        self.says = code


class _Plain(http.client.HTTPConnection):
    """Connects to the first address of the host that answers, and not to each in turn."""

    def connect(self) -> None:
        """See HTTPConnection."""
        self.sock = asyncio.run(_dial(self.host, self.port))
        self.sock.settimeout(SECONDS)


class _Encrypted(_Plain):
    """The same with TLS; the certificate is verified."""

    def connect(self) -> None:
        """See HTTPConnection."""
        super().connect()
        self.sock = ssl.create_default_context().wrap_socket(self.sock, server_hostname=self.host)


async def _dial(host: str, port: int) -> socket.socket:
    async with asyncio.timeout(SECONDS):
        return await dial(host, port, SECONDS)


class ServerConnection:
    """One connection to the ticket server at a URL. Use it as a context manager.

    url: http:// or https://, with a path where a proxy serves the ticket server below one. token: None where the server
    wants none. source: the flag or variable that gave the URL. Raises SettingsError for a URL that names no server.
    """

    def __init__(self, url: str, token: str | None, source: str) -> None:
        scheme, host, port, path = _read(url, source)
        self._url, self._path, self._token = url, quote(path.rstrip("/"), safe="/%"), token
        self._connection = (_Encrypted if scheme == "https" else _Plain)(host, port)

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
            status, media, retry_after, found = self._exchange(method, path, body)
            if status in accepted and media != PROBLEM:
                return status, found
            code = str(found.get("code", "")) if media == PROBLEM else ""
            says = f"{status}: {self._printable(str(found.get('detail', 'is it a ticket server?')))}"
            if status != 503 or time.monotonic() + retry_after > until:
                raise Refused(f"{self._url}: {says}{HINTS.get(code, '')}", code)
            time.sleep(max(0.1, retry_after))

    def _exchange(
        self, method: str, path: str, body: Mapping[str, object] | None
    ) -> tuple[int, str, float, dict[str, Any]]:
        headers = {"Accept": "application/json", "User-Agent": "ticketd"}
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        text = None
        if body is not None:
            text, headers["Content-Type"] = json.dumps(body), "application/json"
        try:
            self._connection.request(method, self._path + path, text, headers)
            response = self._connection.getresponse()
            content = response.read(MOST_BYTES)
            if response.read(1):
                self._failed(f"the answer has more than {MOST_BYTES} bytes")
        except TimeoutError:
            self._failed(f"no answer within {SECONDS:g} s")
        except ssl.SSLCertVerificationError as error:
            self._failed(f"its certificate: {error.verify_message}")
        except OSError as error:
            number = error.errno or 0
            self._failed(f"no answer: {os.strerror(number) if number > 0 else error.strerror or error}")
        except (http.client.HTTPException, ValueError):
            self._failed("the answer is not HTTP")
        try:
            found = json.loads(content)
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            self._failed(f"answered {response.status} and no JSON object: is it a ticket server?")
        wait = response.headers.get("Retry-After", "")
        media = response.headers.get_content_type()
        return response.status, media, float(wait) if wait.isascii() and wait.isdigit() else 0.0, found

    def _failed(self, why: str) -> NoReturn:
        self._connection.close()
        raise TicketError(f"{self._url}: {self._printable(why)}")

    def _printable(self, text: str) -> str:
        """Return a text of the server on one line, without the token, which it may have sent back."""
        hidden = text.replace(self._token, "[token]") if self._token else text
        return "".join(sign if sign.isprintable() else "?" for sign in hidden[:LONGEST_SHOWN])


def _read(url: str, source: str) -> tuple[str, str, int, str]:
    """Return scheme, host, port and path of a URL. Raises SettingsError, which shows no password."""
    wanted = f"{source} cannot be used; expected http://host:port or https://host, without a user or a password"
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", PORTS[parts.scheme] if parts.port is None else parts.port
        host.encode("idna")
    except (ValueError, KeyError):
        raise SettingsError(wanted) from None
    is_plain = url.isprintable() and " " not in url and "@" not in parts.netloc
    if parts.scheme not in PORTS or not host or not port or parts.query or parts.fragment or not is_plain:
        raise SettingsError(wanted)
    return parts.scheme, host, port, parts.path
