"""Databases of a ring in memory, ticket servers on lists of them, and every ticket that a test got."""

import asyncio
import itertools
from collections.abc import Callable
from functools import partial

from app.commands.grow import grow
from app.common.errors import Unavailable
from app.databases.protocol import RingRecord, RingState
from app.tickets.ring.ring import Status
from tests.fakes.ticket_database import FakeServer, FakeTicketDatabase
from tests.fakes.ticket_server import FakeTicketServer, latency

SEQUENCES = ("photos", "accounts")
DRIFT = 100_000
SOON = 2.5
"""Seconds within which everybody has looked at every database."""


class Rings:
    """Databases of offsets 1 and up, ticket servers on lists of them, and every ticket that anybody got."""

    def __init__(self, *increments: int) -> None:
        clock = asyncio.get_running_loop().time
        self.servers = [FakeServer(offset, each, SEQUENCES, clock) for offset, each in enumerate(increments, 1)]
        self.issued: list[int] = []
        self.twice: list[int] = []
        self._numbers = itertools.count(1)
        self.running: list[FakeTicketServer] = []
        self._statements = 0
        self._stop_at = 0
        self._stopped = asyncio.Event()

    async def __aenter__(self) -> "Rings":
        return self

    async def __aexit__(self, *_: object) -> None:
        for server in self.servers:
            server.heal()
        for each in list(self.running):
            await self.stop(each)
        assert not self.twice

    def databases(self, *offsets: int, increment: int | None = None) -> list[FakeTicketDatabase]:
        """A list of these, in this order: each is told the offset of its place in the list."""
        made = []
        for place, offset in enumerate(offsets, 1):
            database = FakeTicketDatabase(self.servers[offset - 1], latency=self._counted(next(self._numbers)))
            database.offset = place
            database.increment = increment or len(offsets)
            made.append(database)
        return made

    def _counted(self, seed: int) -> Callable[[], tuple[float, float]]:
        """Latencies, of which one is asked for with each statement."""
        latencies = latency(seed)

        def count() -> tuple[float, float]:
            self._statements += 1
            if self._statements == self._stop_at:
                self._stopped.set()
            return latencies()

        return count

    async def begin_to_grow(self, statements: int) -> "asyncio.Task[RingRecord]":
        """The growth from two to three after so many of its statements, or at its end."""
        self._stop_at = self._statements + statements
        growing = asyncio.create_task(self.grow(1, 2, 3, increment=3))
        stopped = asyncio.create_task(self._stopped.wait())
        await asyncio.wait([growing, stopped], return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        return growing

    async def start(self, *offsets: int, increment: int | None = None) -> FakeTicketServer:
        made = FakeTicketServer(
            self.databases(*offsets, increment=increment),
            clock=asyncio.get_running_loop().time,
            increment=increment,
        )
        await made.start()
        self.running.append(made)
        return made

    async def stop(self, server: FakeTicketServer) -> None:
        self.running.remove(server)
        await server.stop()

    async def take(self, server: FakeTicketServer, times: int = 1, sequence: str = "photos") -> list[int]:
        """Tickets that are there to be had."""
        ids: list[int] = []
        for _ in range(times):
            try:
                ids += await server.desk.take(sequence, 1)
            except Unavailable:
                continue
        if sequence == "photos":
            self.twice += [each for each in ids if each in self.issued]
            self.issued += ids
        return ids

    async def grow(self, *offsets: int, increment: int) -> RingRecord:
        """As if its watch saw those alone that a test says are alive."""
        databases = self.databases(*offsets, increment=increment)
        for each in databases:
            each.in_use = partial(self._alive, each.server)  # type: ignore[method-assign]
        return await grow([*databases], increment, lambda _: None, 0.0)

    async def _alive(self, server: FakeServer, _: float) -> list[str]:
        return server.alive

    def configure(self, increment: int, *offsets: int) -> None:
        """Another increment, and a restart."""
        for offset in offsets:
            self.servers[offset - 1].increment = increment
            self.servers[offset - 1].restart()

    def state(self, offset: int) -> tuple[int, RingState]:
        """What this database records."""
        record = self.servers[offset - 1].state.ring
        assert record is not None
        return record.increment, record.state

    def drift(self, offset: int, above: int = DRIFT) -> None:
        self.servers[offset - 1].table("photos").advance(above)


def errors(server: FakeTicketServer) -> list[str]:
    return [member.last_error or "" for member in server.ring.members]


def statuses(server: FakeTicketServer) -> list[Status]:
    return [member.status for member in server.ring.members]
