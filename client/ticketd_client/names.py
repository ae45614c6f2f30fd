"""The addresses of hosts, within a deadline.

The operating system's resolver cannot be interrupted and may take many seconds. So a thread asks it, which nobody has
to wait for: not the caller after its deadline, and not the interpreter at its end.
"""

from __future__ import annotations

import ipaddress
import socket
import threading
import time
from typing import Any

from ticketd_client import forks
from ticketd_client.workers import start

Addresses = list[tuple[Any, ...]]
"""As `socket.getaddrinfo` returns them."""


class _Lookup:
    """One question to the resolver."""

    def __init__(self, host: str, port: int) -> None:
        self.host = host
        self.port = port
        self._asking = threading.Lock()
        self._asking.acquire()
        self.found: Addresses = []
        self.error: Exception | None = None

    def run(self) -> None:
        place = self.host, self.port
        try:
            self.found = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)
            _known[place] = self.found
        except Exception as error:  # OSError, or UnicodeError for a name that cannot be one
            self.error = error
        finally:
            self.forget()
            self._asking.release()

    def ends(self, within: float) -> bool:
        """Wait so many seconds for its end; whether it has come. A turnstile: each waiter lets the next one through."""
        if not self._asking.acquire(timeout=within):
            return False
        self._asking.release()
        return True

    def forget(self) -> None:
        """Let the next question be asked."""
        if _pending.get((self.host, self.port)) is self:
            del _pending[self.host, self.port]


_pending: dict[tuple[str, int], _Lookup] = {}
"""At most one question for each host and port, so a resolver that hangs holds one thread for each."""
_known: dict[tuple[str, int], Addresses] = {}
"""What the resolver said last."""
forks.tell(_pending.clear)  # the parent's threads are not in the child


def addresses(host: str, port: int, deadline: float) -> Addresses:
    """The addresses of a host. `deadline` is `time.monotonic()`'s.

    Addresses that were found before are used again if the resolver fails, if an earlier question to it is still open,
    or if it does not answer in half of the time that is left.

    Raises OSError where the resolver fails, socket.timeout (a kind of OSError) where it does not answer in time.
    """
    place = host, port
    known = _known.get(place)
    if known is not None and _is_address(host):
        return known
    mine = _Lookup(host, port)
    lookup = mine
    try:
        lookup = _pending.setdefault(place, mine)
        if lookup is mine:
            _start(mine)
    except BaseException:  # an interrupt: the next caller asks
        mine.forget()
        raise
    left = max(0.0, deadline - time.monotonic())
    if known is not None:
        left = left / 2 if lookup is mine else 0.0
    if lookup.ends(left):
        if lookup.error is None:
            return lookup.found
        if known is None:
            raise lookup.error if isinstance(lookup.error, OSError) else OSError(f"{host!r} is not a host's name")
    if known is None:
        raise socket.timeout("timed out")
    return known


def _is_address(host: str) -> bool:
    """Whether it is an address itself, which leads nowhere else tomorrow."""
    try:
        ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return True


def _start(lookup: _Lookup) -> None:
    try:
        start(lookup.run)
    except RuntimeError:  # no thread can be had, as while the interpreter ends
        lookup.run()
