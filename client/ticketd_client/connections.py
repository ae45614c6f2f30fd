"""Connections to one server, for either protocol, with the standard library alone.

No ready-made pool of connections. Every wait here ends with the caller's deadline; a socket's own timeout begins again
with each byte. No more bytes are received than the answer may have. And the child of a `fork` can throw all of it away
without a lock that a thread of its parent held.
"""

from __future__ import annotations

import codecs
import errno
import io
import os
import selectors
import socket
import ssl
import time
import weakref
from collections import Counter, deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, cast

from ticketd_client import answers, forks, names
from ticketd_client.answers import AttemptFailed

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

T = TypeVar("T")

# Python finds a codec by importing it. A thread that does so while another one forks leaves the child with a lock that
# nobody will release; so both that a host's name may take are found now.
for _codec in ("idna", "punycode"):
    codecs.lookup(_codec)

IDLE_CONNECTIONS = 16
NEXT_ADDRESS = 0.25
"""Seconds after which the next address of a host is tried as well; less where the deadline is near."""


class Connection:
    """A connection, open already. It is of use in the process that opened it, not in a child of that process."""

    def __init__(self, address: tuple[str, int], tls: ssl.SSLContext | None, deadline: float) -> None:
        self._life = forks.look()
        self._socket = _connected(address, deadline)
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if tls is not None:
                self._socket.settimeout(_left(deadline))
                self._socket = tls.wrap_socket(self._socket, server_hostname=address[0])
        except BaseException:
            self._socket.close()
            raise

    def ask(self, request: bytes, deadline: float, most: int) -> Reader:
        """Send the request. The answer, of `most` bytes, is read from what this returns, until the deadline."""
        self._ready(deadline)
        self._socket.sendall(request)
        return Reader(self, deadline, most)

    def receive(self, buffer: WriteableBuffer, deadline: float) -> int:
        """Receive what has come, or wait for it. Raises OSError."""
        self._ready(deadline)
        return self._socket.recv_into(buffer)

    def close(self) -> None:
        """Close it."""
        self._socket.close()

    def _ready(self, deadline: float) -> None:
        if not self._life[0]:
            raise ConnectionResetError("the connection is the parent's")
        self._socket.settimeout(_left(deadline))


class Reader(io.BufferedReader):
    """Reads one answer from a connection. Raises AttemptFailed where the answer is longer than it may be."""

    def __init__(self, connection: Connection, deadline: float, most: int) -> None:
        self._source = _Source(connection, deadline, most)
        super().__init__(self._source)

    def close(self) -> None:
        """Leave it to `is_empty` to say what is left. The connection is closed by whoever keeps it."""

    def is_empty(self) -> bool:
        """Whether nothing has come that was not read. A connection with more than an answer is not kept."""
        self._source.ended = True
        return not self.peek()


class _Source(io.RawIOBase):
    """The bytes of a connection to the deadline, however many reads that takes."""

    def __init__(self, connection: Connection, deadline: float, most: int) -> None:
        super().__init__()
        self._connection = connection
        self._deadline = deadline
        self._most = self._left = most
        self.ended = False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        if self.ended:
            return 0
        if self._left <= 0:
            raise AttemptFailed(f"gave an answer of more than {self._most} bytes")
        count = self._connection.receive(buffer, self._deadline)
        self._left -= count
        return count


class Connections:
    """Those of one server. `greet` is what a new one begins with."""

    def __init__(
        self,
        address: tuple[str, int],
        tls: ssl.SSLContext | None = None,
        greet: Callable[[Connection, float], None] | None = None,
    ) -> None:
        self._address = address
        self._tls = tls
        self._greet = greet
        self._idle: deque[Connection] = deque()
        self._open: weakref.WeakSet[Connection] = weakref.WeakSet()  # weak: an interrupt may have one forgotten
        self._closed = False

    def exchange(self, talk: Callable[[Connection], tuple[T, bool]], deadline: float) -> T:
        """What `talk` returns. Its second half says whether the connection is good for another exchange.

        A connection that was open already may have died meanwhile: then a new one. Raises AttemptFailed, and what else
        `talk` raises.
        """
        began = time.monotonic()
        try:
            try:
                used = self._idle.pop()
            except IndexError:
                return self._exchange_on(self._connect(deadline), talk)
            try:
                return self._exchange_on(used, talk)
            except ConnectionError:
                while self._idle:  # the others are as old
                    self._drop(self._idle.pop())
                return self._exchange_on(self._connect(deadline), talk)
        except socket.timeout:
            raise AttemptFailed(f"no answer in {time.monotonic() - began:.1f} s") from None
        except ssl.SSLCertVerificationError as error:
            raise AttemptFailed(f"no answer (its certificate: {answers.shown(error.verify_message)})") from None
        except OSError as error:
            raise AttemptFailed(f"no answer ({answers.shown(error.strerror or str(error))})") from None

    def forget(self) -> None:
        """In the child of a fork: they are the parent's. Takes no lock that another thread may have held."""
        for connection in list(self._open):
            connection.close()
        self._idle, self._open = deque(), weakref.WeakSet()

    def close(self) -> None:
        """Close those that nobody uses, and those in use when they come back."""
        self._closed = True
        while self._idle:
            self._drop(self._idle.pop())

    def _connect(self, deadline: float) -> Connection:
        connection = Connection(self._address, self._tls, deadline)
        self._open.add(connection)
        if self._greet is not None:
            try:
                self._greet(connection, deadline)
            except BaseException:
                self._drop(connection)
                raise
        return connection

    def _exchange_on(self, connection: Connection, talk: Callable[[Connection], tuple[T, bool]]) -> T:
        keep = False
        try:
            answer, keep = talk(connection)
            return answer
        finally:
            if keep and not self._closed and len(self._idle) < IDLE_CONNECTIONS:
                self._idle.append(connection)
            else:
                self._drop(connection)

    def _drop(self, connection: Connection) -> None:
        self._open.discard(connection)
        connection.close()


def _connected(address: tuple[str, int], deadline: float) -> socket.socket:
    """A connection to the first of the host's addresses that takes one (RFC 8305). Raises OSError.

    The next address is tried when one has failed or a pause is over, and those before it are still waited for.
    """
    found = names.addresses(*address, deadline)
    seen: Counter[int] = Counter()
    ranked = []
    for each in found:  # the families by turns
        ranked.append((seen[each[0]], each))
        seen[each[0]] += 1
    places = deque(each for _, each in sorted(ranked, key=lambda pair: pair[0]))
    pause = min(NEXT_ADDRESS, _left(deadline) / (len(places) + 1))
    trouble: OSError | None = None
    racing = selectors.DefaultSelector()
    try:
        while places or racing.get_map():
            if places:
                trouble = _begin(places.popleft(), racing) or trouble
            if not racing.get_map():
                continue
            left = _left(deadline)
            for key, _ in racing.select(min(left, pause) if places else left):
                made = cast(socket.socket, key.fileobj)
                code = made.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
                racing.unregister(made)
                if not code:
                    return made
                made.close()
                trouble = OSError(code, os.strerror(code))
    finally:
        for key in list(racing.get_map().values()):
            cast(socket.socket, key.fileobj).close()
        racing.close()
    raise trouble or OSError(f"{address[0]} has no address")


def _begin(place: tuple[Any, ...], racing: selectors.BaseSelector) -> OSError | None:
    """Begin to connect; the error, where it fails at once."""
    try:
        made = socket.socket(*place[:3])
    except OSError as error:  # a family that this machine lacks
        return error
    try:
        made.setblocking(False)
        code = made.connect_ex(place[4])
        if code in (0, errno.EINPROGRESS, errno.EWOULDBLOCK):
            racing.register(made, selectors.EVENT_WRITE)
            return None
    except OSError as error:
        made.close()
        return error
    except BaseException:
        made.close()
        raise
    made.close()
    return OSError(code, os.strerror(code))


def _left(deadline: float) -> float:
    """Seconds to the deadline. Raises socket.timeout where there are none."""
    left = deadline - time.monotonic()
    if left <= 0:
        raise socket.timeout("timed out")
    return left
