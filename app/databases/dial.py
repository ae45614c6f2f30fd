"""Opens TCP connections: to the first address of a host that answers, and to the address known last where the name of
the host cannot be resolved.

asyncio does the first by `happy_eyeballs_delay`, which uvloop does not have.
"""

import asyncio
import socket
from collections.abc import Sequence

Info = tuple[socket.AddressFamily, socket.SocketKind, int, str, tuple[str, int] | tuple[str, int, int, int]]

LONGEST_DELAY = 0.25
"""Seconds after which the next address of a host is tried at the latest (RFC 8305)."""
_known: dict[tuple[str, int], Sequence[Info]] = {}


async def dial(host: str, port: int, seconds: float) -> socket.socket:
    """Connect to a host, and return the socket, which does not block.

    seconds: how long the caller will wait, from which the delay between two addresses follows. Raises OSError where no
    address answers, or where the name was never resolved.
    """
    infos = list(await _addresses(host, port, seconds))
    delay = min(LONGEST_DELAY, seconds / 4)
    attempts: set[asyncio.Task[socket.socket]] = set()
    failure: BaseException = OSError("the host has no address")
    try:
        while infos or attempts:
            if infos:
                attempts.add(asyncio.create_task(_attempt(infos.pop(0))))
            done, attempts = await asyncio.wait(
                attempts, timeout=delay if infos else None, return_when=asyncio.FIRST_COMPLETED
            )
            connected = [task for task in done if task.exception() is None]
            if connected:
                attempts.update(connected[1:])
                return connected[0].result()
            failure = next((task.exception() or failure for task in done), failure)
        raise failure
    finally:
        for task in attempts:
            task.add_done_callback(_discard)
            task.cancel()


async def _addresses(host: str, port: int, seconds: float) -> Sequence[Info]:
    loop = asyncio.get_running_loop()
    is_known = (host, port) in _known
    try:
        async with asyncio.timeout(seconds / 2 if is_known else None):
            _known[host, port] = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)  # type: ignore[assignment]
    except OSError:  # TimeoutError is one, and so is what a resolver raises
        if not is_known:
            raise
    return _known[host, port]


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


def _discard(task: asyncio.Task[socket.socket]) -> None:
    """Close the socket of an attempt that came too late."""
    if not task.cancelled() and task.exception() is None:
        task.result().close()
