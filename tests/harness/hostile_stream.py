"""A stream of bytes that a hostile client sends again and again, from a process of its own, and what it costs others.

As a program: `python -m tests.harness.hostile_stream OPENING REPEATED PORT CONNECTIONS SECONDS [deaf]` opens so many
connections, sends each what the file OPENING holds, and then what REPEATED holds until the seconds are over. It reads
what comes back, unless it is `deaf`. A connection that the server closes is opened again.
"""

import contextlib
import http.client
import selectors
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.harness.processes import new_directory, remove_directory
from tests.harness.ticketd import REPOSITORY, TicketServer

LOOKS = 100
"""How many requests for /livez are timed."""
PAUSE_SECONDS = 0.005
PIECE = 262_144


class Cost(NamedTuple):
    """What a stream costs. `idle`, `busy`: seconds that the 99th of a hundred /livez takes without it and beside it;
    `growth`: bytes by which the server's memory grew at the most."""

    idle: float
    busy: float
    growth: int


def cost_of(
    server: TicketServer,
    port: int,
    repeated: bytes,
    *,
    opening: bytes = b"",
    connections: int = 1,
    is_deaf: bool = False,
    seconds: float = 60,
) -> Cost:
    """What it costs the server if a client sends this, for as long as a hundred looks at /livez take."""
    idle, _ = _look(server)
    before = server.memory()
    words = [str(port), str(connections), str(seconds), *(["deaf"] if is_deaf else [])]
    with _stream(words, opening, repeated) as sender:
        time.sleep(0.5)
        busy, most = _look(server)
        assert sender.poll() is None, "the stream has ended before the looks have"
    return Cost(idle, busy, max(most, server.memory()) - before)


def _look(server: TicketServer) -> tuple[float, int]:
    """The 99th of a hundred times, and the most memory seen beside them."""
    times: list[float] = []
    most = 0
    connection = http.client.HTTPConnection(*server.address, timeout=60)
    for _ in range(LOOKS):
        began = time.perf_counter()
        connection.request("GET", "/livez")
        answer = connection.getresponse()
        answer.read()
        times.append(time.perf_counter() - began)
        assert answer.status == 200
        most = max(most, server.memory())
        time.sleep(PAUSE_SECONDS)
    connection.close()
    return sorted(times)[-2], most


@contextlib.contextmanager
def _stream(words: list[str], opening: bytes, repeated: bytes) -> Iterator["subprocess.Popen[bytes]"]:
    directory = new_directory("tickets-hostile-")
    try:
        (directory / "opening").write_bytes(opening)
        (directory / "repeated").write_bytes(repeated)
        files = [str(directory / "opening"), str(directory / "repeated")]
        program = [sys.executable, "-m", "tests.harness.hostile_stream", *files, *words]
        with subprocess.Popen(program, cwd=REPOSITORY, stdout=subprocess.PIPE) as sender:
            try:
                assert sender.stdout is not None
                assert sender.stdout.readline() == b"connected\n"
                yield sender
            finally:
                sender.kill()
    finally:
        remove_directory(directory)


class _Connection:
    """One connection of the stream."""

    def __init__(self, address: tuple[str, int], selector: selectors.BaseSelector, opening: bytes, data: bytes) -> None:
        self._address, self._selector, self._opening, self._data = address, selector, opening, data
        self._open()

    def _open(self) -> None:
        self._socket = socket.create_connection(self._address)
        self._socket.setblocking(False)
        self._left = memoryview(self._opening or self._data)
        self._selector.register(self._socket, selectors.EVENT_READ | selectors.EVENT_WRITE, self)

    def go_on(self, events: int, is_deaf: bool) -> None:
        """Read and send what can be."""
        try:
            if events & selectors.EVENT_READ and not is_deaf and not self._socket.recv(PIECE):
                raise ConnectionResetError
            if events & selectors.EVENT_WRITE:
                self._left = self._left[self._socket.send(self._left[:PIECE]) :] or memoryview(self._data)
        except BlockingIOError:
            pass
        except OSError:
            self._selector.unregister(self._socket)
            self._socket.close()
            time.sleep(0.01)
            self._open()


def _main(opening: bytes, repeated: bytes, port: int, connections: int, seconds: float) -> None:
    selector = selectors.DefaultSelector()
    for _ in range(connections):
        _Connection(("127.0.0.1", port), selector, opening, repeated)
    print("connected", flush=True)
    is_deaf = sys.argv[6:] == ["deaf"]
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for key, events in selector.select(1):
            key.data.go_on(events, is_deaf)


if __name__ == "__main__":
    _first, _then, _port, _count, _seconds = sys.argv[1:6]
    _main(Path(_first).read_bytes(), Path(_then).read_bytes(), int(_port), int(_count), float(_seconds))
