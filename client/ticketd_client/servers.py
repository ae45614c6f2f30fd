"""A ticket server as the client sees it, whatever protocol it speaks, and the URLs that name one."""

from __future__ import annotations

import ssl
from abc import ABC, abstractmethod
from collections.abc import Sequence
from urllib.parse import SplitResult, unquote, urlsplit

from ticketd_client.answers import Block, Ticket
from ticketd_client.errors import InvalidRequest

PORTS = {"http": 80, "https": 443, "redis": 6379}


class Server(ABC):
    """One URL. Every method may be called by several threads at once; `deadline` is `time.monotonic()`'s.

    They raise AttemptFailed where another server may do better, and a TicketError where none would.
    """

    url: str
    """Without a token."""
    token: str | None = None

    def hide(self, text: str) -> str:
        """The text without the token, which a server may have sent back; nor with the rest of one where it was cut."""
        if self.token:
            for known in (self.token, repr(self.token)[1:-1]):
                text = text.replace(known, "[token]")
                for length in range(len(known) - 1, 3, -1):
                    text = text.replace(known[:length] + "…", "[token]…")
        return text

    @abstractmethod
    def take(self, sequence: str, count: int | None, key: int | None, deadline: float) -> list[Ticket]:
        """`count` tickets, None for one."""

    @abstractmethod
    def take_block(self, sequence: str, size: int, deadline: float) -> Block:
        """A block. SequenceConflict for a kind without blocks."""

    @abstractmethod
    def bump(self, sequence: str, above: int, force: bool, deadline: float) -> dict[str, object]:
        """Advance the sequence; the server's answer."""

    @abstractmethod
    def look(self, deadline: float) -> None:
        """Return if it can hand out tickets."""

    @abstractmethod
    def forget_connections(self) -> None:
        """In the child of a fork: connections are the parent's. Takes no lock that another thread may have held."""

    @abstractmethod
    def close(self) -> None:
        """Close the connections that nobody uses, and those in use when they come back."""


def servers_of(
    urls: str | Sequence[str], token: str | None, tls: ssl.SSLContext | None, timeout: float
) -> list[Server]:
    """A server for each URL. Raises InvalidRequest, without repeating a secret."""
    found = [urls] if isinstance(urls, str) else list(urls)
    if not found:
        raise InvalidRequest("at least one URL is wanted")
    if token is not None and (not token or not token.isprintable() or " " in token):
        raise InvalidRequest("the token is empty or has signs in it that no token has")
    return [_server_of(url, token, tls, timeout / len(found)) for url in found]


def _server_of(url: str, token: str | None, tls: ssl.SSLContext | None, attempt: float) -> Server:
    parts, host, port = _read(url)
    if parts is None or not host or parts.query or parts.fragment:
        # of what cannot be read nobody knows which part is secret
        shown = repr(url) if isinstance(url, str) and "@" not in url else "this URL"
        raise InvalidRequest(f"{shown} cannot be used; expected http://host:port, https:// or redis://")
    name = _without_secrets(parts)
    if parts.scheme == "redis":
        from ticketd_client.over_redis import RedisServer

        if parts.username:
            raise InvalidRequest(f"{name}: a user's name cannot be used; expected redis://:token@host:port")
        own = None if parts.password is None else unquote(parts.password)
        if parts.path not in ("", "/", "/0"):
            raise InvalidRequest(f"{name} cannot be used; there is database 0 alone")
        return RedisServer(name, host, port, token=own or token, attempt=attempt)
    from ticketd_client.over_http import HTTPServer

    if parts.username is not None or parts.password is not None:
        raise InvalidRequest(f"{name}: a user or password cannot be used; expected token=")
    return HTTPServer(name, parts, (host, port), token=token, tls=tls)


def _without_secrets(parts: SplitResult) -> str:
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path.rstrip('/')}"


def _read(url: str) -> tuple[SplitResult | None, str | None, int]:
    """Its parts, host and port; no parts where it is no URL that we know."""
    try:
        if url.isprintable() and " " not in url:
            parts = urlsplit(url)
            return parts, parts.hostname, parts.port or PORTS[parts.scheme]
    except (ValueError, KeyError, AttributeError):
        pass
    return None, None, 0
