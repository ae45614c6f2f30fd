"""Many clients in one thread: each asks, hears the answer, and asks again. One epoll, raw sockets, no driver."""

import select
import socket
import time
from collections.abc import Sequence
from typing import Protocol

from bench.model import CaseFailed, percentile

_SILENCE = 20.0
"""Seconds without one answer to anybody, after which the run is given up."""


class Client(Protocol):
    """One client with one request under way. It may hold several sockets and use them in turn."""

    @property
    def sockets(self) -> Sequence[socket.socket]: ...

    def ask(self) -> None:
        """Send the next request."""

    def hear(self, data: bytes) -> int | None:
        """Take what has arrived. None: the answer is not complete; 0: ask again, no ticket yet; else tickets."""


class Tally:
    """The result of one run of the loop."""

    def __init__(self, tickets: int, seconds: float, latencies: list[float]) -> None:
        self.rate = tickets / seconds
        self.p50: float | None = None
        self.p99: float | None = None
        if latencies:
            latencies.sort()
            self.p50 = percentile(latencies, 50) * 1000
            self.p99 = percentile(latencies, 99) * 1000


def run(clients: Sequence[Client], seconds: float, *, starving: bool = False) -> Tally:
    """Let the clients ask for so long; each finishes the ticket it is waiting for.

    `starving`: who is refused again and again (by deadlocks) need not have its ticket at the end.
    """
    clock = time.perf_counter
    owners: dict[int, tuple[int, Client, socket.socket]] = {}
    latencies: list[float] = []
    tickets = 0
    with select.epoll() as epoll:
        for number, client in enumerate(clients):
            for connection in client.sockets:
                owners[connection.fileno()] = (number, client, connection)
                epoll.register(connection.fileno(), select.EPOLLIN)
        began = clock()
        end = began + seconds
        asked = [began] * len(clients)
        for number, client in enumerate(clients):
            asked[number] = clock()
            client.ask()
        busy = len(clients)
        while busy:
            events = epoll.poll(_SILENCE)
            if not events:
                raise CaseFailed(f"no answer for {_SILENCE:.0f} s")
            for descriptor, _ in events:
                number, client, connection = owners[descriptor]
                data = connection.recv(65536)
                if not data:
                    raise CaseFailed("the server closed a connection")
                got = client.hear(data)
                if got is None:
                    continue
                now = clock()
                if got:
                    tickets += got
                    latencies.append(now - asked[number])
                    asked[number] = now
                    if now >= end:
                        busy -= 1
                        continue
                elif now >= end and starving:
                    busy -= 1
                    continue
                elif now >= end + _SILENCE:
                    raise CaseFailed(f"a client got no ticket for {_SILENCE:.0f} s")
                client.ask()
        return Tally(tickets, clock() - began, latencies)
