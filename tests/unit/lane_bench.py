"""A pair of ticket databases in memory with a ring that is drawn, and lanes and catalog of one server, without a probe.

The tests decide by hand what the server sees: which database is in sight, in which life, and when it was looked at.
"""

import asyncio
import time
from collections.abc import Sequence
from random import Random
from typing import Any

from app.databases.address import Address
from app.databases.database import Database
from app.databases.record import Body, Record, State, new_word
from app.databases.session import Counter, Note, RingRow
from app.errors import DatabaseFailed, TicketError
from app.tickets.catalog import Catalog
from app.tickets.definitions import Definition
from app.tickets.floors import Floors
from app.tickets.lane import Again, Lane
from app.tickets.listing import Listing
from app.tickets.opening import LaneSpec, Opener
from app.tickets.request import Call, Request, Shape
from app.tickets.sight import Member, Sight, Status
from app.tickets.step import Reserve, TicketPace
from tests.fakes.server import FakeServer
from tests.fakes.session import fake_connect

NOW = 1_700_000_000_000
"""The time for new sequences, in milliseconds since 1970."""


class Clock:
    """Seconds that go by, and more where the test says so."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now + time.monotonic()


class Asked:
    """A request that was put to a lane or a source, and its answer. seconds: until its deadline."""

    def __init__(self, source: Any, count: int = 1, shape: Shape = Shape.SINGLE, seconds: float = float("inf")) -> None:
        loop = asyncio.get_running_loop()
        self.answer: asyncio.Future[Any] = loop.create_future()
        self.request = Call("photos", self.answer.set_result, self.answer.set_exception, count=count, shape=shape)
        self.request.deadline = loop.time() + seconds
        source.ask([self.request] if isinstance(source, Lane) else self.request)


async def take(source: Any, count: int = 1, shape: Shape = Shape.SINGLE) -> Any:
    """Ask a lane or a source and return what it answers."""
    return await Asked(source, count, shape).answer


class Bench:
    """One server's sight of a ring of fake databases."""

    def __init__(self, servers: Sequence[FakeServer], clock: Clock, *, timeout: float = 5.0) -> None:
        self.servers, self.clock = servers, clock
        self.members = []
        for offset, server in enumerate(servers, 1):
            database = Database(Address(f"db{offset}", 3306, "u", "d"), fake_connect(server), timeout)
            self.members.append(Member(offset, database))
        self.sight = Sight(self.members, interval=1.0, timeout=timeout, clock=clock, is_settling=False)
        self.floors = Floors(self.sight)
        self.catalog = Catalog(self.sight, self.floors, lambda: NOW)
        self.listing = Listing(self.catalog, self.sight, Random(7))
        self.opener = Opener(self.sight, self.floors, Random(7))

    def another(self) -> "Bench":
        """Another server on the same databases. It has a sight of its own, with nothing in sight yet."""
        bench = Bench(self.servers, self.clock)
        bench.sight.go_by(self.sight.record)
        return bench

    def lose(self, *members: Member) -> None:
        """Lose sight of these databases."""
        for member in members:
            self.sight.leave(member, Status.DOWN, "away")

    def lasts(self, name: str) -> list[int | None]:
        """Where the counters of a sequence stand on each database; None where there is none."""
        counters = [server.data.counters.get(name) for server in self.servers]
        return [counter.last if counter is not None else None for counter in counters]

    async def see(self, *members: Member) -> None:
        """Look at these members (all of them by default) and take them into sight."""
        for member in members or self.members:
            try:
                look, life = await member.database.look("test:1", Note())
            except DatabaseFailed:  # the connection of before
                look, life = await member.database.look("test:1", Note())
            member.begun = member.ended = member.begun + 1
            member.looked, member.row, member.found = self.clock(), look.ring, life
            if member.life != life:
                self.sight.enter(member, life)
        self.sight.is_levelling = False
        self.sight.move()

    def lane(self, offset: int, *, reserve: float = 0.0, pace: Any = None, again: Again | None = None) -> Lane:
        """Make the lane of this offset. again: by default the requests that it could not serve fail."""
        member = self.members[offset - 1]

        async def counter() -> Counter:
            assert member.life is not None
            found = (await member.database.sequences(["photos"], member.life))["photos"]
            assert isinstance(found, Counter)
            return Definition(pace.kind.name).capped(found) if pace is not None else found

        def fail(_lane: Lane, requests: Sequence[Request], error: TicketError) -> None:
            for request in requests:
                request.fail(error)

        spec = LaneSpec("photos", member, pace or TicketPace(), counter)
        return Lane(spec, self.opener, again or fail, Reserve(reserve), refuses=False)


async def settled(lane: Lane) -> None:
    """Return once the lane's tasks have ended."""
    while tasks := [task for task in (lane.task, lane._marking) if task is not None and not task.done()]:
        await asyncio.wait(tasks)


async def make_bench(
    count: int = 2, *, last: int | None = 0, bits: int = 64, seen: bool = True, seconds: float = 5.0
) -> Bench:
    """Make the databases, the ring and one server's sight of it.

    last: where the counters of `photos` stand, None without that sequence. seconds: the database timeout.
    """
    clock = Clock()
    servers = [FakeServer(f"db{offset}", clock=clock) for offset in range(1, count + 1)]
    bodies = tuple(Body(offset, server.data.ring.body, 1) for offset, server in enumerate(servers, 1))
    record = Record(new_word(), 1, new_word(), count, State.DRAWN, bodies)
    bench = Bench(servers, clock, timeout=seconds)
    bench.sight.go_by(record)
    for body, server in zip(bodies, servers, strict=True):
        server.data.ring = RingRow(body.word, body.offset, record.stamp, record.dump())
        if last is not None:
            server.add("photos", bits, last)
    if seen:
        await bench.see()
    return bench
