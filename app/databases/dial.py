"""Opens TCP connections: to the first address of a host that answers, and to the address known last where the name of
the host cannot be resolved.

asyncio does the first by `happy_eyeballs_delay`, which uvloop does not have.
"""

import asyncio
import socket
from asyncio.staggered import staggered_race
from collections.abc import Sequence
from functools import partial

Info = tuple[socket.AddressFamily, socket.SocketKind, int, str, tuple[str, int] | tuple[str, int, int, int]]

LONGEST_DELAY = 0.25
"""Seconds after which the next address of a host is tried at the latest (RFC 8305)."""
_known: dict[tuple[str, int], Sequence[Info]] = {}


async def dial(host: str, port: int, seconds: float) -> socket.socket:
    """Connect to a host, and return the socket, which does not block.

    seconds: how long the caller will wait, from which the delay between two addresses follows. Raises OSError where no
    address answers, or where the name was never resolved.
    """
    at, loop = (host, port), asyncio.get_running_loop()
    try:
        async with asyncio.timeout(seconds / 2 if at in _known else None):
            _known[at] = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)  # type: ignore[assignment]
    except OSError:  # TimeoutError is one, and so is what a resolver raises
        if at not in _known:
            raise
    attempts = [partial(_attempt, info) for info in _known[at]]
    opened: socket.socket | None
    opened, _, errors = await staggered_race(attempts, min(LONGEST_DELAY, seconds / 4))
    if opened is None:
        raise next(filter(None, reversed(errors)), OSError("the host has no address"))
    return opened


async def _attempt(info: Info) -> socket.socket:
    family, kind, protocol, _, address = info
    opened = socket.socket(family, kind, protocol)
    try:
        opened.setblocking(False)
        await asyncio.get_running_loop().sock_connect(opened, address)
    except BaseException:
        opened.close()
        raise
    return opened
