"""Applications that draw from the ticket databases themselves, as Flickr's did: REPLACE, on the two in turn."""

import contextlib
import random
import select
import socket
import statistics
import struct
import time
from collections.abc import Iterator, Sequence

import pymysql

from bench import CaseFailed
from bench.case import Sample

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
        self._asked = time.perf_counter()
        self.took: list[float] = []
        """The milliseconds that each ticket took."""

    def ask(self) -> None:
        """Ask for a ticket."""
        self._asked = time.perf_counter()
        self._send()

    def _send(self) -> None:
        self.connections[self._turn].sendall(random.choice(self._statements))

    def hear(self, data: bytes) -> None:
        """Take what has come. If it is a whole answer, ask for the next ticket, or again for this one."""
        if not data:
            raise CaseFailed("the database closed a connection")
        self._heard += data
        if len(self._heard) < 4 or len(self._heard) < 4 + int.from_bytes(self._heard[:3], "little"):
            return
        packet, self._heard = self._heard[4:], b""
        if packet[0] == 0xFF:
            code = int.from_bytes(packet[1:3], "little")
            if code not in _AGAIN:
                raise CaseFailed(f"the database answered error {code}")
            self._send()
            return
        self.took.append(1000 * (time.perf_counter() - self._asked))
        self._turn = (self._turn + 1) % len(self.connections)
        self.ask()


def replaces(databases: Sequence[tuple[int, str]], tables: Sequence[str], clients: int, seconds: float) -> Sample:
    """Return the tickets a second of a number of applications.

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


def _loop(clients: Sequence[Client], seconds: float) -> Sample:
    owners = {each.fileno(): (client, each) for client in clients for each in client.connections}
    with select.epoll() as epoll:
        for descriptor in owners:
            epoll.register(descriptor, select.EPOLLIN)
        began = now = time.perf_counter()
        for client in clients:
            client.ask()
        while now - began < seconds:
            events = epoll.poll(_SILENCE)
            if not events:
                raise CaseFailed(f"no answer for {_SILENCE:.0f} s")
            for descriptor, _ in events:
                client, connection = owners[descriptor]
                client.hear(connection.recv(65_536))
            now = time.perf_counter()
    took = [each for client in clients for each in client.took]
    percentiles = statistics.quantiles(took, n=100)
    return Sample(len(took) / (now - began), percentiles[49], percentiles[98])


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
