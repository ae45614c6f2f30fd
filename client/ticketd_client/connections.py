"""Connections to servers, for either protocol.

Every wait here ends with the caller's deadline; a socket's own timeout begins again with each byte.
"""

from __future__ import annotations

import io
import socket
import ssl
import time
from typing import TYPE_CHECKING

from ticketd_client import forks
from ticketd_client.answers import AttemptFailed

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

NEXT_ADDRESS = 0.25
"""Seconds for each address of a host. Where none takes a connection in that time, each is given all the time left."""
LARGEST_ANSWER = 131_072  # bytes, at most: a thousand of the longest tickets have fewer


class Connection(io.RawIOBase):
    """A connection, open already. It is of use in the process that opened it, not in a child of that process.

    It is a file with the bytes of one answer. Its methods raise OSError, and AttemptFailed for an answer too long.
    """

    def __init__(self, address: tuple[str, int], tls: ssl.SSLContext | None, deadline: float) -> None:
        """Where the system's resolver does not answer, this ends after the deadline."""
        self._life = forks.look()
        self._deadline, self._left = deadline, 0
        try:
            self._socket = socket.create_connection(address, min(NEXT_ADDRESS, self._seconds()))
        except socket.timeout:
            self._socket = socket.create_connection(address, self._seconds())
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if tls is not None:
                self._socket.settimeout(self._seconds())
                self._socket = tls.wrap_socket(self._socket, server_hostname=address[0])
        except OSError:
            self._socket.close()
            raise

    def ask(self, request: bytes, deadline: float) -> None:
        """Send the request. The answer can be read until the deadline."""
        self._deadline, self._left = deadline, LARGEST_ANSWER
        self._socket.settimeout(self._seconds())
        self._socket.sendall(request)

    def makefile(self, _mode: str = "rb") -> io.BufferedReader:
        """As a socket's. What it has read ahead is dropped with it, so that it is not taken for the next answer."""
        return io.BufferedReader(self)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        if self._left <= 0:
            raise AttemptFailed(f"gave an answer of more than {LARGEST_ANSWER} bytes")
        self._socket.settimeout(self._seconds())
        count = self._socket.recv_into(memoryview(buffer)[: self._left])
        self._left -= count
        return count

    def close(self) -> None:
        """Nothing: who reads an answer calls this at its end."""

    def end(self) -> None:
        """Close the connection."""
        if hasattr(self, "_socket"):
            self._socket.close()

    __del__ = end

    def _seconds(self) -> float:
        """Seconds to the deadline."""
        if not self._life[0]:
            raise ConnectionResetError("the connection is the parent's")
        seconds = self._deadline - time.monotonic()
        if seconds <= 0:
            raise socket.timeout("timed out")
        return seconds
