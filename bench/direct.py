"""Applications that draw from the ticket databases themselves, as Flickr's did: REPLACE, on the two in turn."""

import contextlib
import random
import select
import socket
import struct
import time
from collections.abc import Iterator, Sequence

import pymysql

from bench import CaseFailed

_SILENCE = 20.0
"""Seconds without one answer, after which a round is given up."""
_AGAIN = {1205, 1213}
"""MySQL's errors after which the application sends the statement again: a lock was not to be had, or a deadlock."""


class Client:
    """An application with a connection to each database. It sends the next statement when it has the answer."""

    def __init__(self, connections: Sequence[socket.socket], first: int, statements: Sequence[bytes]) -> None:
        self.connections = connections
        self._turn = first % len(connections)
        self._statements = statements
        self._heard = b""

    def ask(self) -> None:
        """Send a statement."""
        self.connections[self._turn].sendall(random.choice(self._statements))

    def hear(self, data: bytes) -> int | None:
        """Take what has come. Return how many tickets it is; None where the answer is not complete."""
        if not data:
            raise CaseFailed("the database closed a connection")
        self._heard += data
        if len(self._heard) < 4 or len(self._heard) < 4 + int.from_bytes(self._heard[:3], "little"):
            return None
        packet, self._heard = self._heard[4:], b""
        if packet[0] == 0xFF:
            code = int.from_bytes(packet[1:3], "little")
            if code in _AGAIN:
                return 0
            raise CaseFailed(f"the database answered error {code}")
        self._turn = (self._turn + 1) % len(self.connections)
        return 1


def replaces(databases: Sequence[tuple[int, str]], tables: Sequence[str], clients: int, seconds: float) -> float:
    """Return the tickets a second of so many applications.

    databases: port and schema of each. tables: each statement goes to one of them at random.
    """
    statements = [_query(f"REPLACE INTO `{table}` (stub) VALUES ('a')") for table in tables]  # noqa: S608
    with contextlib.ExitStack() as stack:
        return _loop(
            [
                Client([stack.enter_context(_connected(*each)) for each in databases], number, statements)
                for number in range(clients)
            ],
            seconds,
        )


def _loop(clients: Sequence[Client], seconds: float) -> float:
    owners = {each.fileno(): (client, each) for client in clients for each in client.connections}
    with select.epoll() as epoll:
        for descriptor in owners:
            epoll.register(descriptor, select.EPOLLIN)
        began = now = time.perf_counter()
        tickets = 0
        for client in clients:
            client.ask()
        while now - began < seconds:
            events = epoll.poll(_SILENCE)
            if not events:
                raise CaseFailed(f"no answer for {_SILENCE:.0f} s")
            for descriptor, _ in events:
                client, connection = owners[descriptor]
                got = client.hear(connection.recv(65_536))
                if got is not None:
                    tickets += got
                    client.ask()
            now = time.perf_counter()
        return tickets / (now - began)


@contextlib.contextmanager
def _connected(port: int, schema: str) -> Iterator[socket.socket]:
    """A socket behind the login, to be spoken to in packets."""
    driver = pymysql.connect(user="root", database=schema, autocommit=True, ssl_disabled=True, defer_connect=True)
    with socket.create_connection(("127.0.0.1", port), timeout=_SILENCE) as raw:
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        driver.connect(raw)
        yield raw


def _query(statement: str) -> bytes:
    body = b"\x03" + statement.encode("ascii")
    return struct.pack("<I", len(body)) + body
