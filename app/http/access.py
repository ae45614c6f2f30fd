"""Who may ask for what over HTTP: the Authorization header, and what a browser does on behalf of another site.

A browser does not send bearer tokens by itself. For reading, HTTP Basic with a token as the password counts too, so
that an operator can open the pages in a browser. A change always needs a bearer token, because the page of another site
can make a browser send the password that it remembers.
"""

import base64
import binascii
import time
from collections.abc import Mapping
from ipaddress import ip_address
from urllib.parse import urlsplit

from fastapi.security.utils import get_authorization_scheme_param
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.access import Access, Right
from app.connections import Tally
from app.errors import CrossSite, Forbidden, TicketError
from app.http.problems import BEARER, problem_of, respond
from app.operations.watch import Seen, Watch

LARGEST_BODY = 65_536  # bytes of a request's body at most
OPEN_PATHS = frozenset({"/livez", "/readyz", "/healthz"})  # these need no token
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
BASIC = f'{BEARER}, Basic realm="tickets", charset="UTF-8"'
"""How a client is asked for a token where a browser's login counts too."""


def right_of(method: str, path: str) -> Right | None:
    """Return the right that a request needs; None where it needs none."""
    if path in OPEN_PATHS:
        return None
    if endpoint_of(path) is not None:
        return Right.TICKETS
    return Right.READING if method in SAFE_METHODS else Right.CHANGES


def endpoint_of(path: str) -> str | None:
    """Return `ticket` or `block` for a path from which ids are drawn, None for every other path."""
    first = path[1:].partition("/")[0]
    return first if first in ("ticket", "block") and path.startswith(f"/{first}/") else None


def token_of(authorization: bytes | None, right: Right) -> str | None:
    """Return the token in an Authorization header, None where it has none that counts for this right."""
    scheme, text = get_authorization_scheme_param((authorization or b"").decode("utf-8", "surrogateescape"))
    if scheme.lower() == "bearer":
        return text.strip() or None
    if scheme.lower() != "basic" or right is not Right.READING:
        return None
    try:
        password = base64.b64decode(text.strip(), validate=True).partition(b":")[2]
    except (binascii.Error, ValueError):
        return None
    return password.decode("utf-8", "surrogateescape") or None


def is_cross_site(headers: Mapping[bytes, bytes]) -> bool:
    """Whether a browser asks on behalf of another site. headers: their names in lower case.

    Browsers send Sec-Fetch-Site to HTTPS and to this machine only, and no page can change it. Without it, Origin has to
    name the host that was asked. Programs send neither.
    """
    site, origin = headers.get(b"sec-fetch-site"), headers.get(b"origin")
    if site is not None:
        return site.strip().lower() not in (b"same-origin", b"same-site", b"none")
    if origin is None:
        return False
    host = origin.lower().partition(b"://")[2]
    return not host or host != headers.get(b"host", b"").strip().lower()


def names_this_machine(host: bytes | None) -> bool:
    """Whether a Host header is an IP address or localhost, or is missing, which no browser lets happen.

    Any other name may belong to a page on the internet that has changed its own address to that of this machine.
    """
    if host is None:
        return True
    try:
        name = urlsplit(f"//{host.decode('latin-1').strip()}").hostname or ""
        return name == "localhost" or bool(ip_address(name))
    except ValueError:
        return False


class Gate:
    """Comes before the application: lets through what may pass, counts requests for ids, and tells who watches.

    A HEAD becomes a GET, except on tickets and blocks; the HTTP server sends no body in answer to it.
    is_local: whether the server listens on a loopback address only. watch: None where nobody watches.
    """

    def __init__(self, app: ASGIApp, access: Access, tally: Tally, watch: Watch | None, *, is_local: bool) -> None:
        self._app, self._access, self._tally, self._watch, self._is_local = app, access, tally, watch, is_local

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request. An error handler has left the code of a problem in the `state` of the scope."""
        headers, method, endpoint = dict(scope["headers"]), scope["method"], endpoint_of(scope["path"])
        right, state, serve = right_of(method, scope["path"]), scope.setdefault("state", {}), self._app
        began, status, since = time.time(), 500, time.perf_counter()

        async def noting(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status, answered = message["status"], MutableHeaders(scope=message)
                if "etag" not in answered:  # static files have one
                    answered.setdefault("cache-control", "no-store")
            await send(message)

        self._tally.in_flight += endpoint is not None
        try:
            self._check(right, headers)
        except TicketError as error:
            self._tally.denied(str(right))
            serve = respond(scope, problem_of(error, BASIC if right is Right.READING else BEARER))
        is_get = method == "HEAD" and right is not Right.TICKETS
        try:
            await serve({**scope, "method": "GET"} if is_get else scope, _bounded(receive), noting)
        finally:
            seconds = time.perf_counter() - since
            self._tally.in_flight -= endpoint is not None
            if endpoint is not None and status == 200:
                self._tally.answered(endpoint, seconds)
            elif endpoint is not None:
                self._tally.refused(endpoint, state.get("code", "internal"))
            if self._watch is not None:
                target = scope["raw_path"] + (b"?" + scope["query_string"] if scope["query_string"] else b"")
                what, name = target.decode("latin-1"), scope.get("path_params", {}).get("sequence")
                client = scope["client"][0] if scope["client"] else "unknown"
                trace = headers.get(b"traceparent", b"").decode("latin-1") or None
                self._watch.saw(Seen("http", f"{method} {what}", name, client, str(status), began, seconds, trace))

    def _check(self, right: Right | None, headers: Mapping[bytes, bytes]) -> None:
        """Raise CrossSite, Forbidden, Unauthenticated."""
        if right is None:
            return
        if right is not Right.READING and is_cross_site(headers):
            raise CrossSite
        self._access.check(token_of(headers.get(b"authorization"), right), right)
        is_free = right is Right.CHANGES and not self._access.needs_token(right)
        if is_free and self._is_local and not names_this_machine(headers.get(b"host")):
            raise Forbidden("without tokens, a change has to be asked for by IP address or as localhost")


def _bounded(receive: Receive) -> Receive:
    """Return what raises the HTTP error 413 for a body that is too large."""
    size = 0

    async def bounded() -> Message:
        nonlocal size
        message = await receive()
        size += len(message.get("body", b""))
        if size > LARGEST_BODY:
            raise HTTPException(413)
        return message

    return bounded
