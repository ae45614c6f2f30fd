"""A ticket server as the client sees it, whatever protocol it speaks: its connections, and how it fares."""

from __future__ import annotations

import _thread
import logging
import socket
import ssl
import time
import weakref
from collections import deque
from typing import Any

from ticketd_client import forks
from ticketd_client.answers import AttemptFailed, Ticket
from ticketd_client.connections import Connection
from ticketd_client.errors import Answer, TicketError

log = logging.getLogger("ticketd_client")

IDLE_CONNECTIONS = 16
FIRST_REST, LONGEST_REST = 0.5, 30.0  # seconds for which a URL that failed is not asked while there is another
LONGEST_TEXT = 300  # characters of a server's own words that are repeated

"ä".encode("idna")  # imports what a host's name may need, for a fork amid a later import would leave a lock locked


class Server:
    """One URL. `take`, `take_block` and `ensure` may be called by several threads at once. They end with the deadline,
    which is `time.monotonic()`'s, and raise AttemptFailed where another server may do better, else a TicketError.
    """

    administers = True  # whether sequences can be made over this protocol

    def __init__(self, url: str, address: tuple[str, int], token: str | None, tls: ssl.SSLContext | None) -> None:
        """`url`: without a token."""
        self.url = url
        self.says: Answer | None = None  # what it said last, where it did not give what was asked for
        self.rests_until = 0.0
        self.wants_rest_until = 0.0
        self._failures = 0
        self._address = address
        self._token = token
        self._tls = tls
        self._idle: deque[Connection] = deque()
        self._open: weakref.WeakSet[Connection] = weakref.WeakSet()
        self._closed = False

    def take(self, sequence: str, count: int | None, key: int | None, deadline: float) -> list[Ticket]:
        """`count` tickets, None for one."""
        raise NotImplementedError

    def take_block(self, sequence: str, size: int, deadline: float) -> range:
        """A block. SequenceConflict for a kind without blocks, InvalidRequest where it is too large."""
        raise NotImplementedError

    def ensure(self, sequence: str, body: bytes, deadline: float) -> dict[str, Any]:
        """Make the sequence if it is not there; the server's answer. Only where it `administers`."""
        raise NotImplementedError

    def _greeting(self) -> list[bytes]:
        """Requests that a new connection begins with."""
        return []

    def _read(self, connection: Connection) -> tuple[Any, bool]:
        """Return the server's answer, and whether the connection is good for another one."""
        raise NotImplementedError

    def gave(self) -> None:
        """It gave what was asked for."""
        if self.says is not None:
            log.info("%s answers again", self.url)
        self.says = None
        self._failures = 0
        self.rests_until = self.wants_rest_until = 0.0

    def refusal(self, kind: type[TicketError], says: str, status: int | None = None) -> TicketError:
        """What to raise for what every server would say."""
        says = self.shown(says)
        return kind(f"{self.url}: {says}", [Answer(self.url, says, status)])

    def failed(self, failure: AttemptFailed) -> None:
        """It did not."""
        says = self.shown(failure.says)
        if self.says is None:
            log.warning("%s: %s", self.url, says)
        now = time.monotonic()
        self.rests_until = now + min(FIRST_REST * 2 ** min(self._failures, 10), LONGEST_REST)
        self.wants_rest_until = now + (failure.retry_after or 0.0)
        self._failures += 1
        self.says = Answer(self.url, says, failure.status)

    def shown(self, text: str) -> str:
        """Words of the server: on one line, printable, without the token, which it may have sent back, and cut."""
        if self._token:
            text = text.replace(self._token, "[token]").replace(repr(self._token)[1:-1], "[token]")
        line = "".join(sign if sign.isprintable() else "?" for sign in " ".join(text.split()))
        return line if len(line) <= LONGEST_TEXT else line[:LONGEST_TEXT] + "…"

    def forget_connections(self) -> None:
        """In the child of a fork: they are the parent's. A call that the fork interrupted must not read from them."""
        for connection in list(self._open):
            connection.end()
        self._idle, self._open = deque(), weakref.WeakSet()

    def close(self) -> None:
        """Close the connections that nobody uses, and those in use when they come back."""
        self._closed = True
        self._end_idle()

    def _exchange(self, request: bytes, deadline: float) -> Any:
        """What the server answers. Raises AttemptFailed, and what `_read` raises."""
        began = time.monotonic()
        try:
            used = self._next_idle()
            if used is not None:
                try:
                    return self._exchange_on(used, [request], deadline)
                except ConnectionError:  # it has died meanwhile, and so have the others
                    self._end_idle()
            return self._exchange_on(self._connect(deadline), [*self._greeting(), request], deadline)
        except socket.timeout:
            raise AttemptFailed(f"no answer in {time.monotonic() - began:.1f} s") from None
        except ssl.SSLCertVerificationError as error:
            raise AttemptFailed(f"no answer (its certificate: {error.verify_message})") from None
        except (OSError, UnicodeError) as error:  # UnicodeError: of a host's name that cannot be one
            raise AttemptFailed(f"no answer ({getattr(error, 'strerror', None) or error})") from None

    def _exchange_on(self, connection: Connection, requests: list[bytes], deadline: float) -> Any:
        keep, answer = False, None
        try:
            for request in requests:
                connection.ask(request, deadline)
                answer, keep = self._read(connection)
            return answer
        finally:
            if keep and len(self._idle) < IDLE_CONNECTIONS:
                self._idle.append(connection)
            else:
                connection.end()
            if self._closed:
                self._end_idle()

    def _end_idle(self) -> None:
        while (connection := self._next_idle()) is not None:
            connection.end()

    def _next_idle(self) -> Connection | None:
        try:
            return self._idle.pop()
        except IndexError:
            return None

    def _connect(self, deadline: float) -> Connection:
        """A new connection. A thread makes it, for the system's resolver cannot be interrupted and may take long."""
        life, came = forks.look(), _thread.allocate_lock()
        came.acquire()
        made: list[Connection | Exception] = []

        def connect() -> None:
            try:
                made.append(Connection(self._address, self._tls, deadline))
            except Exception as error:
                made.append(error)
            came.release()

        forks.start(connect)
        if not forks.acquired(came, deadline, life):
            raise socket.timeout("timed out")
        (connection,) = made
        if isinstance(connection, Exception):
            raise connection
        self._open.add(connection)
        return connection
