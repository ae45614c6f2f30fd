"""One server for all tests: it speaks HTTP and the Redis protocol on one port, and answers as a test wants it.

A test gives it a function from a request to an answer. The request is `POST /block/photos?size=17` or
`TICKET.BLOCK photos 17`. The answer is bytes, b"" for silence, None for a connection that is closed without a word, or
pieces of those.
"""

from __future__ import annotations

import contextlib
import json
import re
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterable
from io import BufferedReader
from typing import Any, Optional, Union

Said = Union[bytes, Iterable[Optional[bytes]], None]
Answer = Callable[[str], Said]
DEADLINE = 60.0
"""Seconds for what takes milliseconds on an idle machine."""


def http(body: object, status: int = 200, kind: str = "application/json", *headers: str) -> bytes:
    """An answer over HTTP; the body is bytes, or what JSON makes of it."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = [f"HTTP/1.1 {status} X", f"Content-Type: {kind}", f"Content-Length: {len(content)}", *headers, "", ""]
    return "\r\n".join(lines).encode() + content


def problem(status: int, detail: object, *headers: str) -> bytes:
    """An error as the ticket server gives it over HTTP."""
    return http({"status": status, "detail": detail}, status, "application/problem+json", *headers)


class Honest:
    """Answers as a ticket server, with the tickets `first`, `first + step`, …

    `changes` replace parts of its JSON answers. `go_on`: nothing is answered while it is not set. `calls`: the requests
    for tickets; so many are `answered`, with `drawn` tickets.
    """

    def __init__(self, first: int = 1, step: int = 2, changes: dict[str, Any] | None = None) -> None:
        self.next, self.step, self.changes = first, step, changes or {}
        self.drawn = self.answered = 0
        self.calls: list[str] = []
        self.go_on = threading.Event()
        self.go_on.set()
        self._lock = threading.Lock()

    def __call__(self, request: str) -> bytes:
        if request in ("GET /readyz", "PING"):
            return b"+PONG\r\n" if request == "PING" else http({})
        self.calls.append(request)
        self.go_on.wait(DEADLINE)
        count = re.search(r"(?:count=|size=|COUNT |BLOCK \S+ )(\d+)", request)
        size = int(count[1]) if count else 1
        with self._lock:
            ids = range(self.next, self.next + size * self.step, self.step)
            self.next, self.drawn, self.answered = ids.stop, self.drawn + size, self.answered + 1
        strings = [str(each) for each in ids]
        if request.startswith("INCR"):
            return b":%d\r\n" % ids[0]
        if request.startswith("TICKET.BLOCK"):
            return b"*3\r\n:%d\r\n:%d\r\n:%d\r\n" % (ids[0], self.step, size)
        if request.startswith("TICKET.TAKE"):
            return b"*%d\r\n" % size + b"".join(b"$%d\r\n%d\r\n" % (len(str(each)), each) for each in ids)
        body: dict[str, Any] = {"id": ids[0], "id_str": strings[0]}
        if "size=" in request:
            body = {"first": ids[0], "first_str": strings[0], "step": self.step, "size": size}
        elif "count=" in request:
            body = {"count": size, "ids": list(ids), "ids_str": strings}
        return http({"sequence": re.split("[/?]", request)[2], **body, **self.changes})


class LyingServer:
    """A server on a free port of the loopback, with a thread for each connection. It listens inside its `with`.

    `requests`: what it was sent, as bytes; `asked`: the same as its function gets it. `sockets`: the open connections.
    """

    def __init__(self, answer: Answer, tls: ssl.SSLContext | None = None) -> None:
        self.answer = answer
        self._tls = tls
        self.requests: list[bytes] = []
        self.asked: list[str] = []
        self.sockets: set[socket.socket] = set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{self.port}"
        self.redis_url = f"redis://127.0.0.1:{self.port}"

    def __enter__(self) -> LyingServer:
        threading.Thread(target=self._listen, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.hang_up()

    def over(self, protocol: str) -> str:
        """Its URL, "http" or "redis"."""
        return self.url if protocol == "http" else self.redis_url

    def hang_up(self) -> None:
        """Close every connection."""
        for each in list(self.sockets):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def _listen(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=self._serve, args=self._listener.accept()[:1], daemon=True).start()

    def _serve(self, raw: socket.socket) -> None:
        self.sockets.add(raw)
        with contextlib.suppress(OSError, ValueError):
            connection = self._tls.wrap_socket(raw, server_side=True) if self._tls else raw
            with connection, connection.makefile("rb") as reader:
                while (request := _read(reader)) and self._send(connection, request):
                    pass
        self.sockets.discard(raw)
        raw.close()

    def _send(self, connection: socket.socket, request: bytes) -> bool:
        """Answer; whether the connection stays."""
        over_redis = request.startswith(b"*")
        words = request.split(b"\r\n")[2::2] if over_redis else request.split(b" ", 2)[:2]
        self.requests.append(request)
        self.asked.append(b" ".join(words).strip().decode())
        said = self.answer(self.asked[-1])
        for piece in [said] if said is None or isinstance(said, bytes) else said:
            if piece is None:
                return False
            connection.sendall(piece)
        return True


def _read(reader: BufferedReader) -> bytes:
    """One request, whatever its protocol; b"" at the end."""
    found = line = reader.readline()
    if line.startswith(b"*"):
        for _ in range(int(line[1:])):
            found += (length := reader.readline()) + reader.read(int(length[1:]) + 2)
        return found
    size = 0
    while line not in (b"\r\n", b""):
        line = reader.readline()
        found += line
        if line.startswith(b"Content-Length:"):
            size = int(line[15:])
    return found + reader.read(size)


Serve = Callable[..., LyingServer]
"""The fixture `serve`: it starts a server that answers so, until the test ends."""
Client = Callable[..., Any]
"""The fixture `client`: it makes a client of these URLs, which is closed with the test."""


def until(condition: Callable[[], object]) -> None:
    """Wait for it."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < DEADLINE, "it did not happen"
        time.sleep(0.005)
