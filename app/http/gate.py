"""The gate ahead of FastAPI: who may, how large a body may be, and the audit line of each change."""

import asyncio
import logging
from typing import Any

from starlette.exceptions import HTTPException as StarletteHTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.clients.denials import Denials
from app.clients.tokens import short_name
from app.clients.turns import Turns
from app.common.log import event
from app.http.access import CROSS_SITE, Access, bearer, is_cross_site, names_this_machine
from app.http.problems import Code, Problem, send_problem
from app.http.tickets.head import LARGEST_BODY

log = logging.getLogger(__name__)

OPEN_PATHS = frozenset({"/livez", "/readyz", "/healthz"})
"""These need no token."""
PAGES = frozenset({"/", "/docs"})
SEQUENCE_PAGE = "/page/"
"""These, and the paths that begin so, are read by people: a browser is asked for a login."""


def is_page(path: str) -> bool:
    """Whether people read what this path answers."""
    return path in PAGES or path.startswith(SEQUENCE_PAGE)


class Gate:
    """Ahead of FastAPI: authorization, the limit on the body, and an audit line for every change let through.

    A request waits here for its turn, and once more when its body has come. Only the questions about the server's
    health wait for nobody.
    """

    def __init__(self, app: ASGIApp, access: Access, denials: Denials, turns: Turns, *, listens_locally: bool) -> None:
        self._app = app
        self._access = access
        self._denials = denials
        self._turns = turns
        self._listens_locally = listens_locally

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        method, path, headers = scope["method"], scope["path"], dict(scope["headers"])
        is_change = method == "PUT" or (method == "POST" and path.endswith("/bump"))
        refusal = None
        if path not in OPEN_PATHS:
            await self._turns.wait()
            refusal = self._refusal(scope, headers, is_change=is_change)
        if refusal is None:
            bounded = self._bounded(receive)
            await self._app(scope, bounded, _auditing(scope, send, headers) if is_change else send)
            return
        client, authorization = scope.get("client"), headers.get(b"authorization")
        what, address = "changes" if is_change else "reading", client[0] if client else "unknown"
        self._denials.add(what, address, bearer(authorization))
        if self._access.is_guess(authorization):
            await asyncio.sleep(self._denials.pause_after_guess())
        await send_problem(send, refusal, head=method == "HEAD")

    def _refusal(self, scope: Scope, headers: dict[bytes, bytes], *, is_change: bool) -> Problem | None:
        authorization = headers.get(b"authorization")
        if not is_change:
            return self._access.refusal_for_reading(authorization, page=is_page(scope["path"]))
        if is_cross_site(scope["headers"]):
            return CROSS_SITE
        if self._access.changes_are_free and self._listens_locally and not names_this_machine(headers.get(b"host")):
            return Problem(Code.FORBIDDEN, "without tokens, a change has to be asked for by IP address or as localhost")
        return self._access.refusal_for_changes(authorization)

    def _bounded(self, receive: Receive) -> Receive:
        """Raise 413 for a body that is larger than LARGEST_BODY."""
        seen = 0

        async def bounded() -> Message:
            nonlocal seen
            message = await receive()
            seen += len(message.get("body", b""))
            if seen > LARGEST_BODY:
                raise StarletteHTTPException(413)
            if seen and not message.get("more_body", False):
                await self._turns.wait()  # now it is read
            return message

        return bounded


def _auditing(scope: Scope, send: Send, headers: dict[bytes, bytes]) -> Send:
    """Log who requested which change and the answer's status; the routes add the change's values.

    `client` is who was seen; `claimed_client` is what X-Forwarded-For says, which anybody may write.
    """
    about: dict[str, Any] = scope.setdefault("audit", {})
    forwarded = headers.get(b"x-forwarded-for")
    if forwarded is not None:
        about["claimed_client"] = forwarded[:200].decode("latin-1")

    async def auditing(message: Message) -> None:
        if message["type"] == "http.response.start":
            client = scope.get("client")
            event(
                log,
                logging.INFO,
                "audit",
                method=scope["method"],
                path=scope["path"][:200],
                **about,
                status=message["status"],
                token=short_name(bearer(headers.get(b"authorization"))),
                client=client[0] if client else "unknown",
            )
        await send(message)

    return auditing
