"""A server that speaks HTTP and does what a test tells it: honest tickets, lies, silence, a hang-up.

`answer(path)` returns a `Says`, bytes to be sent as they are, or None: the connection is closed without a word.
"""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple, Union
from urllib.parse import parse_qs, urlsplit


class Says(NamedTuple):
    """An answer over HTTP; `after`: seconds before it is sent."""

    body: Any
    status: int = 200
    kind: str = "application/json"
    headers: tuple[str, ...] = ()
    after: float = 0

    def as_bytes(self) -> bytes:
        body = self.body if isinstance(self.body, bytes) else json.dumps(self.body).encode()
        lines = [f"HTTP/1.1 {self.status} X", f"Content-Type: {self.kind}", f"Content-Length: {len(body)}"]
        return "\r\n".join([*lines, *self.headers, "", ""]).encode() + body


Answer = Callable[[str], Union[Says, bytes, None]]


def problem(status: int, detail: str, *headers: str) -> Says:
    """An error as the ticket server says it."""
    return Says({"status": status, "detail": detail}, status, "application/problem+json", headers)


class Honest:
    """Answers as a ticket server does: odd tickets, or those of another offset. `calls`: the paths asked for."""

    def __init__(self, first: int = 1, step: int = 2, after: float = 0) -> None:
        self._next = first
        self._step = step
        self._lock = threading.Lock()
        self.after = after
        self.calls: list[str] = []

    def __call__(self, path: str) -> Says | bytes | None:
        parts = urlsplit(path)
        query = {name: int(values[0]) for name, values in parse_qs(parts.query).items()}
        if parts.path == "/readyz":
            return Says({})
        with self._lock:
            self.calls.append(path)
            place, sequence = parts.path.strip("/").split("/")
            size = query.get("size", query.get("count", 1))
            first = self._next
            self._next += size * self._step
        return self.shaped(place, sequence, first, size, query)

    def shaped(self, place: str, sequence: str, first: int, size: int, query: dict[str, int]) -> Says:
        ids = list(range(first, first + size * self._step, self._step))
        body: dict[str, Any] = {"sequence": sequence}
        if place == "block":
            body |= {"first": first, "first_str": str(first), "step": self._step, "size": size}
        elif "count" in query:
            body |= {"count": size, "ids": ids, "ids_str": [str(each) for each in ids]}
        else:
            body |= {"id": first, "id_str": str(first)}
        return Says(body, after=self.after)


class Changed(Honest):
    """An honest server whose answers are changed before they go out."""

    def __init__(self, **changes: Any) -> None:
        super().__init__()
        self.changes = changes

    def shaped(self, place: str, sequence: str, first: int, size: int, query: dict[str, int]) -> Says:
        said = super().shaped(place, sequence, first, size, query)
        return said._replace(body={**said.body, **self.changes})


class LyingServer:
    """On a free port of the loopback, a thread for each connection. Inside its `with` it listens."""

    def __init__(self, answer: Answer, tls: ssl.SSLContext | None = None) -> None:
        self.answer = answer
        self._tls = tls
        self.requests: list[bytes] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{self.port}"
        self.sockets: set[socket.socket] = set()
        """The connections that are open."""
        self._ending = threading.Event()

    def __enter__(self) -> LyingServer:
        threading.Thread(target=self._listen, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.hang_up()

    @property
    def connections(self) -> int:
        """How many are open."""
        return len(self.sockets)

    def hang_up(self) -> None:
        """Close every connection."""
        for each in list(self.sockets):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def _listen(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        self.sockets.add(connection)
        raw = connection
        try:
            if self._tls is not None:
                connection = self._tls.wrap_socket(connection, server_side=True)
            with connection, connection.makefile("rb") as reader:
                while (request := self._read(reader)) is not None:
                    self.requests.append(request)
                    said = self.answer(request.split(b" ", 2)[1].decode())
                    if said is None:
                        return
                    if isinstance(said, Says):
                        if self._ending.wait(said.after):
                            return
                        said = said.as_bytes()
                    connection.sendall(said)
        except (OSError, ValueError):
            pass
        finally:
            self.sockets.discard(raw)

    def _read(self, reader: Any) -> bytes | None:
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            line = reader.readline()
            if not line:
                return None
            head += line
        length = next((int(each[15:]) for each in head.split(b"\r\n") if each.startswith(b"Content-Length:")), 0)
        return head + bytes(reader.read(length))


Serve = Callable[[Answer], LyingServer]
"""The fixture `serve`: it starts a server that answers so, until the test ends."""


def drawn(server: Honest) -> int:
    """How many tickets this server has given."""
    return sum(int(urlsplit(path).query.partition("=")[2] or 1) for path in server.calls)


def until(condition: Callable[[], object], timeout: float = 10) -> None:
    """Wait for it."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < timeout, "it did not happen"
        time.sleep(0.005)
