"""The URLs that name ticket servers."""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from urllib.parse import SplitResult, unquote, urlsplit

from ticketd_client.errors import InvalidRequest
from ticketd_client.over_http import HTTPServer
from ticketd_client.over_redis import RedisServer
from ticketd_client.servers import Server

PORTS = {"http": 80, "https": 443, "redis": 6379}


def servers_of(urls: str | Sequence[str], token: str | None, tls: ssl.SSLContext | None) -> list[Server]:
    """A server for each URL. Raises InvalidRequest, without repeating a secret."""
    found = [urls] if isinstance(urls, str) else list(urls)
    if not found:
        raise InvalidRequest("at least one URL is wanted")
    if token is not None and (not token or not token.isprintable() or " " in token):
        raise InvalidRequest("the token is empty or has signs in it that no token has")
    return [_server_of(url, token, tls) for url in found]


def _server_of(url: str, token: str | None, tls: ssl.SSLContext | None) -> Server:
    parts, host, port = _read(url)
    if parts is None or not host or parts.query or parts.fragment:
        # of what cannot be read nobody knows which part is secret
        shown = repr(url) if isinstance(url, str) and "@" not in url else "this URL"
        raise InvalidRequest(f"{shown} cannot be used; expected http://host:port, https:// or redis://")
    name = _without_secrets(parts)
    if parts.scheme == "redis":
        if parts.username:
            raise InvalidRequest(f"{name}: a user's name cannot be used; expected redis://:token@host:port")
        own = None if parts.password is None else unquote(parts.password)
        if parts.path not in ("", "/", "/0"):
            raise InvalidRequest(f"{name} cannot be used; there is database 0 alone")
        return RedisServer(name, host, port, token=own or token)
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
            port = PORTS[parts.scheme] if parts.port is None else parts.port
            return (parts, parts.hostname, port) if port else (None, None, 0)
    except (ValueError, KeyError, AttributeError):
        pass
    return None, None, 0
