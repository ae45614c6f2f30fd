"""Calls an ASGI application without a server."""

import json
from typing import Any, NamedTuple

from starlette.types import ASGIApp, Message, Scope


class Answer(NamedTuple):
    """What the application sent."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


async def ask(
    app: ASGIApp, target: str, *, method: str = "GET", headers: dict[str, str | bytes] | None = None, body: bytes = b""
) -> Answer:
    """One request; a task of the test's own, no socket."""
    path, _, query = target.partition("?")
    given = {key: value if isinstance(value, bytes) else value.encode() for key, value in (headers or {}).items()}
    scope: Scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "query_string": query.encode(),
        "headers": [(key.lower().encode("latin-1"), value) for key, value in {"host": b"tickets", **given}.items()],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 2),
    }
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Message) -> None:
        sent.append(message)

    await app(scope, receive, send)
    start, *bodies = sent
    fields = {key.decode().lower(): value.decode("latin-1") for key, value in start["headers"]}
    return Answer(start["status"], fields, b"".join(each.get("body", b"") for each in bodies))
