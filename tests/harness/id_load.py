"""Clients that draw ids of any kind from several ticket servers at once, and remember every one of them.

`load` knows plain tickets alone, and keeps them as runs. Ids that hold a time make no runs; here they are kept one by
one, with the machine's clock before and after, which says within what bounds their time is the true one.
"""

import asyncio
import contextlib
import itertools
import threading
import time
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from tests.harness.ticketd import TicketServer

TIMEOUT = 10.0


class Drawn(NamedTuple):
    """One request: the server asked, the machine's clock before and after in milliseconds since 1970, and what came.

    `status` is 0 where no answer came at all.
    """

    server: str
    asked_ms: float
    arrived_ms: float
    status: int
    ids: tuple[str, ...] = ()


class IdLoad:
    """Clients that ask these targets in turn, each on one server, and wait `pause` seconds after each answer. Runs
    inside its `with`."""

    def __init__(
        self, servers: Sequence[TicketServer], targets: Sequence[str], *, clients: int = 8, pause: float = 0
    ) -> None:
        self.drawn: list[Drawn] = []
        self._servers = servers
        self._targets = targets
        self._clients = clients
        self._pause = pause
        self._ended = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)

    def __enter__(self) -> "IdLoad":
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._ended.set()
        self._thread.join(TIMEOUT + 5)
        assert not self._thread.is_alive()

    async def _run(self) -> None:
        starts = itertools.cycle(range(0, len(self._targets), max(1, len(self._targets) // self._clients)))
        await asyncio.gather(
            *(self._client(server, next(starts)) for server in self._servers for _ in range(self._clients))
        )

    async def _client(self, server: TicketServer, start: int) -> None:
        targets = itertools.islice(itertools.cycle(self._targets), start, None)
        while not self._ended.is_set():
            writer = None
            try:
                reader, writer = await asyncio.open_connection(*server.address)
                for target in targets:
                    await self._ask(server, reader, writer, target)
                    if self._ended.is_set():
                        break
                    if self._pause:
                        await asyncio.sleep(self._pause)
            except (OSError, asyncio.IncompleteReadError, TimeoutError):
                now = time.time() * 1000
                self.drawn.append(Drawn(server.name, now, now, 0))
                await asyncio.sleep(0.05)
            finally:
                if writer is not None:
                    writer.close()
                    with contextlib.suppress(OSError):
                        await writer.wait_closed()

    async def _ask(
        self, server: TicketServer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, target: str
    ) -> None:
        asked = time.time() * 1000
        writer.write(f"GET {target} HTTP/1.1\r\nhost: tickets\r\naccept: text/plain\r\n\r\n".encode())
        async with asyncio.timeout(TIMEOUT):
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
            body = await reader.readexactly(length)
        status = int(head[9:12])
        ids = tuple(body.decode().split()) if status == 200 else ()
        self.drawn.append(Drawn(server.name, asked, time.time() * 1000, status, ids))

    # --- what is checked ---------------------------------------------------------------------------------------------

    @property
    def ids(self) -> int:
        """How many ids have been drawn."""
        return sum(len(each.ids) for each in self.drawn)

    def duplicates(self) -> list[str]:
        """The ids that came more than once."""
        counted = Counter(id_ for each in self.drawn for id_ in each.ids)
        return [id_ for id_, times in counted.items() if times > 1]

    def refused(self, *, besides: Sequence[TicketServer] = ()) -> Counter[tuple[str, int]]:
        """The requests without an id, by server and status, of all servers but some."""
        spared = {server.name for server in besides}
        return Counter(
            (each.server, each.status) for each in self.drawn if each.status != 200 and each.server not in spared
        )
