"""A client of the ticket server for our own loop: one connection, one ticket a request, every id kept."""

import json
import socket
from collections.abc import Sequence
from contextlib import ExitStack

from bench import loop
from bench.model import CaseFailed, Sample


class WebClient:
    """GET the same path again and again on one connection that is kept alive."""

    def __init__(self, connection: socket.socket, port: int, path: str) -> None:
        self.sockets: Sequence[socket.socket] = [connection]
        self.ids: list[int] = []
        self._connection = connection
        self._request = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode("ascii")
        self._heard = b""

    def ask(self) -> None:
        self._connection.sendall(self._request)

    def hear(self, data: bytes) -> int | None:
        if self._heard:
            data = self._heard + data
        head, blank, body = data.partition(b"\r\n\r\n")
        if not blank or len(body) < _length(head):
            self._heard = data
            return None
        self._heard = b""
        if not head.startswith(b"HTTP/1.1 200"):
            raise CaseFailed(f"the server answered {head.splitlines()[0].decode('latin-1')}: {body[:200]!r}")
        self.ids.append(json.loads(body)["id"])
        return 1


def _length(head: bytes) -> int:
    after = head.lower().partition(b"content-length:")[2]
    if not after:
        raise CaseFailed("an answer without Content-Length")
    return int(after.partition(b"\r\n")[0])


def measure(port: int, path: str, connections: int, seconds: float, *, tickets: bool = True) -> Sample:
    """So many connections, a ticket each at a time; no id may come twice, unless what is asked gives no tickets."""
    with ExitStack() as stack:
        clients = []
        for _ in range(connections):
            connection = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=10))
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            clients.append(WebClient(connection, port, path))
        tally = loop.run(clients, seconds)
    ids = [ticket for client in clients for ticket in client.ids]
    if tickets and len(set(ids)) != len(ids):
        raise CaseFailed(f"{len(ids) - len(set(ids))} ids of {len(ids)} came twice")
    return Sample(tally.rate, tally.p50, tally.p99)
