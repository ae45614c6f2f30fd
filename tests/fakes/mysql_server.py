"""A server on a socket that speaks MySQL's protocol and does as a test has it do: it is nobody's database."""

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from pymysql.constants import CLIENT, FIELD_TYPE

SALT = b"saltsaltsaltsaltsalt"
OK = b"\x00\x00\x00\x02\x00\x00\x00"
MORE = 8
"""In the status of a result: others follow."""
_CAPABILITIES = (
    CLIENT.PROTOCOL_41
    | CLIENT.SECURE_CONNECTION
    | CLIENT.PLUGIN_AUTH
    | CLIENT.CONNECT_WITH_DB
    | CLIENT.MULTI_STATEMENTS
    | CLIENT.MULTI_RESULTS
)
_PIECE = bytes(2**20 - 1)
_TLS_REQUEST = 32
"""Bytes: a login's first ones, without the name of anybody."""


class Talk:
    """One connection. `heard`: all that the client has said so far, decrypted where TLS is in use."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self.heard = b""
        self.number = 0

    def say(self, *bodies: bytes) -> None:
        """Send packets."""
        for body in bodies:
            self.socket.sendall(packet(body, self.number))
            self.number += 1

    def hear(self) -> bytes:
        """The body of the client's next packet. Raises EOFError where it has hung up."""
        head = self._exactly(4)
        self.number = head[3] + 1
        body = self._exactly(int.from_bytes(head[:3], "little"))
        self.heard += body
        return body

    def _exactly(self, size: int) -> bytes:
        found = b""
        while len(found) < size:
            more = self.socket.recv(size - len(found))
            if not more:
                raise EOFError
            found += more
        return found

    def greet(self, plugin: str = "mysql_native_password", tls: ssl.SSLContext | None = None) -> None:
        """Send the greeting, agree on TLS where the client asks for it, and hear the login."""
        flags = _CAPABILITIES | (CLIENT.SSL if tls is not None else 0)
        low, high = (flags & 0xFFFF).to_bytes(2, "little"), (flags >> 16).to_bytes(2, "little")
        begin = b"\x0a8.4.3\x00" + bytes(4) + SALT[:8] + b"\x00" + low + b"\x2d\x02\x00" + high + b"\x15" + bytes(10)
        self.say(begin + SALT[8:] + b"\x00" + plugin.encode() + b"\x00")
        if len(self.hear()) == _TLS_REQUEST and tls is not None:
            self.socket = tls.wrap_socket(self.socket, server_side=True)
            self.hear()

    def answer(self, *results: Sequence[tuple[Any, ...]] | None, more: bool = False) -> None:
        """Send results, each an OK (None) or rows. `more`: another one will follow the last of them."""
        for place, rows in enumerate(results, 1):
            status = (2 | MORE * (more or place < len(results))).to_bytes(2, "little")
            if rows is None:
                self.say(b"\x00\x00\x00" + status + b"\x00\x00")
                continue
            width = len(rows[0]) if rows else 1
            end = b"\xfe\x00\x00" + status
            self.say(bytes([width]), *(column(rows, place) for place in range(width)), end)
            self.say(*(b"".join(map(text, row)) for row in rows), end)

    def statements(self) -> str:
        """The next statements that the client sends."""
        return self.hear()[1:].decode()


Serve = Callable[[Talk], None]


def packet(body: bytes, number: int) -> bytes:
    return len(body).to_bytes(3, "little") + bytes([number % 256]) + body


def text(value: object) -> bytes:
    """A value in a row."""
    return b"\xfb" if value is None else word(str(value).encode())


def word(value: bytes) -> bytes:
    """Bytes with their length before them."""
    size = len(value)
    return (bytes([size]) if size < 251 else b"\xfc" + size.to_bytes(2, "little")) + value


def column(rows: Sequence[tuple[Any, ...]], place: int) -> bytes:
    """The description of a column, of the type of its first value."""
    kinds = {int: FIELD_TYPE.LONGLONG, float: FIELD_TYPE.DOUBLE}
    kind = kinds.get(type(rows[0][place]) if rows else str, FIELD_TYPE.VAR_STRING)
    fixed = b"\x0c\x2d\x00" + bytes(4) + bytes([kind]) + bytes(5)
    return word(b"def") + b"\x00\x00\x00" + word(b"c") + b"\x00" + fixed


class FakeMySQL:
    """A listener that has `serve` talk to each client, in a thread of its own, until it ends or the client does."""

    def __init__(self, serve: Serve) -> None:
        self.talks: list[Talk] = []
        self._serve = serve
        self._threads: list[threading.Thread] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])

    def __enter__(self) -> "FakeMySQL":
        self._start(self._accept)
        return self

    def __exit__(self, *exception: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for talk in self.talks:
            with contextlib.suppress(OSError):
                talk.socket.shutdown(socket.SHUT_RDWR)
        self.wait()

    def wait(self) -> None:
        """Until every client has been served."""
        for thread in self._threads[1:] if self._listener.fileno() >= 0 else self._threads:
            thread.join(20)
            assert not thread.is_alive()

    def _start(self, target: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=target, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            talk = Talk(connection)
            self.talks.append(talk)
            self._start(self._talk, talk)

    def _talk(self, talk: Talk) -> None:
        with contextlib.suppress(OSError, EOFError):
            self._serve(talk)
        talk.socket.close()


def database(says: Mapping[str, Sequence[tuple[Any, ...]]], trap: str = "", flood: Serve | None = None) -> Serve:
    """A database that answers statements with these rows, and all others with OK; but that of which `trap` is the
    beginning, as `flood` does."""

    def serve(talk: Talk) -> None:
        talk.greet()
        talk.say(OK)
        while True:
            asked = talk.statements().replace(";", "; ").replace(";  ", "; ").split("; ")
            for place, statement in enumerate(asked, 1):
                if flood is not None and statement.startswith(trap):
                    flood(talk)
                    return
                talk.answer(says.get(statement), more=place < len(asked))

    return serve


def _numbered(number: int, body: bytes) -> Iterator[bytes]:
    """The same packet without end, with 256 in a piece."""
    first = b"".join(packet(body, number + place) for place in range(256))
    while True:
        yield first


def huge_packets(talk: Talk) -> None:
    """Packets of 16 MiB, each of which says that it goes on in the next."""
    while True:
        talk.socket.sendall(b"\xff\xff\xff" + bytes([talk.number % 256]))
        talk.number += 1
        for _ in range(16):
            talk.socket.sendall(_PIECE)
        talk.socket.sendall(bytes(0xFFFFFF - 16 * len(_PIECE)))


def one_huge_packet(talk: Talk) -> None:
    """One packet just below 16 MiB, and nothing after it."""
    talk.socket.sendall(b"\xfe\xff\xff" + bytes([talk.number % 256]))
    for _ in range(16):
        talk.socket.sendall(_PIECE)


def rows_without_end(talk: Talk) -> None:
    """A result of one column and the shortest rows there are."""
    talk.say(b"\x01", column((), 0), b"\xfe\x00\x00\x02\x00")
    for piece in _numbered(talk.number, b"\xfb"):
        talk.socket.sendall(piece)


def columns_without_end(talk: Talk) -> None:
    """A result that begins with the descriptions of 2**40 columns."""
    talk.say(b"\xfe" + (2**40).to_bytes(8, "little"))
    for piece in _numbered(talk.number, column((), 0)):
        talk.socket.sendall(piece)


FLOODS: Sequence[Serve] = (huge_packets, one_huge_packet, rows_without_end, columns_without_end)
