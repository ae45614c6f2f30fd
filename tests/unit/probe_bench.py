"""Ticket servers that look at databases in memory, without lanes, and what their databases record."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress

from app.databases.address import Address
from app.databases.database import Database
from app.databases.record import Record
from app.databases.session import Book, Note
from app.tickets.floors import Floors
from app.tickets.level import Levels
from app.tickets.probe import Probe
from app.tickets.sight import Member, Sight
from tests.fakes.server import FakeServer
from tests.fakes.session import fake_connect


def clock() -> float:
    return asyncio.get_running_loop().time()


class TicketServer:
    """What a ticket server has for its looks, without lanes. `jumped` is by how much its clock has jumped."""

    def __init__(self, name: str, *servers: FakeServer, increment: int | None = None, grow: bool = False) -> None:
        self.name = name
        self.jumped = 0.0
        members = [
            Member(offset, Database(Address(f"d{offset}", 3306, "t", "t"), fake_connect(server, name), 0.5))
            for offset, server in enumerate(servers, 1)
        ]
        self.sight = Sight(members, 1.0, 0.5, lambda: clock() + self.jumped)
        self.levels, self.floors = Levels(self.sight), Floors(self.sight)
        self.probe = Probe(self.sight, name, increment=increment, levels=self.levels, floors=self.floors, grow=grow)
        self.tasks: list[asyncio.Task[None]] = []

    def __getitem__(self, offset: int) -> Member:
        return self.sight.members[offset - 1]

    def start(self) -> None:
        work: list[Coroutine[None, None, None]] = [self.probe.run(), self.levels.run()]
        self.tasks = [asyncio.create_task(each) for each in work]

    async def kill(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)

    async def end(self) -> None:
        await self.kill()
        await self.probe.close()

    async def until(self, condition: Callable[[], bool], seconds: float = 60.0) -> float:
        """Wait for a condition; return how long that took, in seconds."""
        began = clock()
        async with asyncio.timeout(seconds):
            while not condition():
                assert not any(task.done() for task in self.tasks)
                with suppress(TimeoutError):
                    async with asyncio.timeout(0.05):
                        await self.sight.moved()
        return clock() - began

    async def sees(self, *offsets: int, seconds: float = 60.0) -> float:
        """Wait until these are in sight and no others."""
        wanted = list(offsets)
        return await self.until(lambda: [member.offset for member in self.sight.in_sight] == wanted, seconds)


@asynccontextmanager
async def serving(*servers: TicketServer) -> AsyncIterator[None]:
    for server in servers:
        server.start()
    try:
        yield
    finally:
        for server in servers:
            await server.kill()


@asynccontextmanager
async def looking() -> AsyncIterator[tuple[TicketServer, list[FakeServer]]]:
    """One server that has formed a ring of two databases."""
    server = TicketServer("a:8000", *(dbs := databases()))
    async with serving(server):
        await server.sees(1, 2)
        yield server, dbs


def databases(count: int = 2) -> list[FakeServer]:
    return [FakeServer(f"d{offset}", clock=lambda: 1e9 + clock()) for offset in range(1, count + 1)]


def record_of(database: FakeServer) -> Record:
    return Record.load(database.data.ring.text)


def beats(database: FakeServer) -> dict[str, Note]:
    return database.data.notes[Book.HEARTBEATS]
