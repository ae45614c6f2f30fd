"""A TCP proxy between a client and a server, with a network that a test can cut, freeze and heal."""

import contextlib
import socket
import struct
import threading
from typing import Self


class Proxy:
    """Forwards each connection to a port of 127.0.0.1, in threads of its own. Use it as a context manager.

    `port` is where clients connect; it stays the same as long as the proxy is open.
    """

    def __init__(self, target: int) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        self._target, self._is_cut = target, False
        self._flows = threading.Event()
        self._flows.set()
        self._ends: set[socket.socket] = set()

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.cut()
        self._flows.set()
        self._listening.shutdown(socket.SHUT_RDWR)

    def cut(self) -> None:
        """Reset every connection, and from now on each new connection at once."""
        self._is_cut = True
        for end in list(self._ends):
            self._reset(end)

    def freeze(self) -> None:
        """Hold back all bytes. Connections stay open, and new ones are accepted."""
        self._flows.clear()

    def heal(self) -> None:
        """Forward again, and first the bytes that were held back."""
        self._is_cut = False
        self._flows.set()

    def _accept(self) -> None:
        with self._listening, contextlib.suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                threading.Thread(target=self._forward, args=(client,), daemon=True).start()

    def _forward(self, client: socket.socket) -> None:
        server = socket.socket()
        self._ends |= {client, server}
        with client, server:
            if not self._is_cut and self._flows.wait():
                with contextlib.suppress(OSError):
                    server.connect(("127.0.0.1", self._target))
                    back = threading.Thread(target=self._pump, args=(server, client), daemon=True)
                    back.start()
                    self._pump(client, server)
                    back.join()
            self._reset(client)
            self._ends -= {client, server}

    def _pump(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                self._flows.wait()
                target.sendall(data)
        self._reset(source)
        self._reset(target)

    @staticmethod
    def _reset(end: socket.socket) -> None:
        """End a connection for both who wait at it; what was not read is lost."""
        with contextlib.suppress(OSError):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            end.shutdown(socket.SHUT_RDWR)
