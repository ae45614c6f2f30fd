"""A process of its own that sends one case after another, so that it takes no time from the process that measures.

It reads a line for each attack: the port's number and the case, or an empty line, which ends the attack. It answers
each end with a line: how many bytes it has sent and received, how many connections it opened, and how many answers were
500.
"""

import contextlib
import json
import os
import select
import selectors
import socket
import time
from collections import deque
from collections.abc import Iterator

from tests.long.costly.case import Case

CHUNK = 1 << 18
"""Bytes: a short unit is repeated up to this length, so that one write sends many."""
REOPENED_SECONDS = 0.05
"""After this time at the earliest a connection that was closed is opened again."""
BROKEN = b"HTTP/1.1 500"


class Attack:
    """One case that is being sent. `sent`, `received`: bytes; `opened`: connections; `broken`: answers with 500."""

    def __init__(self, address: tuple[str, int], case: Case) -> None:
        self.sent = self.received = self.opened = self.broken = 0
        self._address = address
        self._case = case
        repeats = 1 if case.waits or case.units else max(1, CHUNK // max(1, len(case.unit)))
        self._chunk = memoryview(case.unit * repeats)
        self._limit = case.units * len(case.unit) + len(case.opening) if case.units else None
        self._selector = selectors.DefaultSelector()
        self._closed: deque[float] = deque()
        """When the connections were closed that are to be opened again."""
        for _ in range(case.connections):
            self._open()

    def step(self) -> None:
        """Send and receive what can be sent and received now."""
        while self._closed and time.monotonic() > self._closed[0] + REOPENED_SECONDS:
            self._closed.popleft()
            self._open()
        for key, events in self._selector.select(0.02):
            sender: Sender = key.data
            try:
                if events & selectors.EVENT_READ and not self._receive(sender):
                    self._again(sender)
                    continue
                if events & selectors.EVENT_WRITE:
                    self._send(sender)
            except BlockingIOError:
                continue
            except OSError:
                self._again(sender)

    def _send(self, sender: "Sender") -> None:
        limit = self._case.piece or CHUNK
        count = sender.socket.send(sender.left(self._case.opening, self._chunk)[:limit])
        sender.position += count
        self.sent += count
        if self._limit is not None and sender.position >= self._limit:
            self._again(sender)
        elif self._case.waits and (sender.position - len(self._case.opening)) % len(self._chunk) == 0:
            sender.is_waiting = True
            self._watch(sender)

    def _receive(self, sender: "Sender") -> bool:
        """Whether the connection is still open."""
        data = sender.socket.recv(CHUNK)
        self.received += len(data)
        seen = sender.tail + data
        self.broken += seen.count(BROKEN)
        sender.tail = seen[-len(BROKEN) + 1 :]
        if sender.is_waiting and data:
            sender.is_waiting = False
            self._watch(sender)
        return bool(data)

    def _open(self) -> None:
        self.opened += 1
        connection = socket.socket()
        connection.setblocking(False)
        if not self._case.reads:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        with contextlib.suppress(BlockingIOError):
            connection.connect(self._address)
        sender = Sender(connection)
        self._selector.register(connection, self._events(sender), sender)

    def _again(self, sender: "Sender") -> None:
        self._selector.unregister(sender.socket)
        sender.socket.close()
        self._closed.append(time.monotonic())

    def _watch(self, sender: "Sender") -> None:
        self._selector.modify(sender.socket, self._events(sender), sender)

    def _events(self, sender: "Sender") -> int:
        reads = selectors.EVENT_READ if self._case.reads or self._case.waits else 0
        return reads if sender.is_waiting else reads | selectors.EVENT_WRITE

    def close(self) -> None:
        """Close every connection."""
        for key in list(self._selector.get_map().values()):
            key.data.socket.close()
        self._selector.close()


class Sender:
    """One connection. `position`: how many bytes it has sent; `is_waiting`: whether it sends only after an answer."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self.position = 0
        self.is_waiting = False
        self.tail = b""

    def left(self, opening: bytes, chunk: memoryview) -> memoryview:
        """What is to be sent next."""
        if self.position < len(opening):
            return memoryview(opening)[self.position :]
        return chunk[(self.position - len(opening)) % len(chunk) :]


def lines() -> Iterator[str | None]:
    """The lines of standard input as they come, None while there is none; ends with the input."""
    os.set_blocking(0, False)
    rest = b""
    while True:
        try:
            data = os.read(0, 1 << 20)
        except BlockingIOError:
            yield None
            continue
        if not data:
            return
        *whole, rest = (rest + data).split(b"\n")
        yield from (line.decode() for line in whole)


def main() -> None:
    attack: Attack | None = None
    for line in lines():
        if line is None:
            if attack is None:
                select.select([0], [], [], 1)
            else:
                attack.step()
        elif line:
            port, _, case = line.partition(" ")
            attack = Attack(("127.0.0.1", int(port)), Case.from_json(case))
        elif attack is not None:
            done, attack = attack, None
            done.close()
            print(json.dumps([done.sent, done.received, done.opened, done.broken]), flush=True)


if __name__ == "__main__":
    main()
