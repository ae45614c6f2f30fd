"""`ticketd grow` beside all else that goes wrong: the ring gets a database more or fewer, or another increment."""

import asyncio
from collections.abc import Sequence

from app.databases.database import Database
from app.databases.record import Record
from app.tickets.growth import Growth
from app.tickets.sight import Member, Sight
from tests.model.faults import some_time, weight
from tests.model.scale import Place
from tests.model.world import World

MOST = 4
"""Databases of a ring."""


@weight(1.5)
async def grow(world: World) -> None:
    """An operator changes the ring. Mostly that succeeds, and the servers get the new list one after the other."""
    chance, record = world.chance, world.top_record()
    if world.growth or world.others or world.split or world.scale.increment or record is None or not record.drawn:
        return
    longer, after = list(world.places), list(world.places)
    if len(longer) < MOST and chance.random() < 0.6:
        after = longer = [*longer, world.make_place(f"more{record.number}", len(longer) + 1)]
        increment = len(longer) + chance.choice((0, 0, 1))
    elif len(longer) > 2 and chance.random() < 0.6:
        after = longer[:-1]
        increment = len(after)
    else:
        increment = record.increment + 1
    run = world.growth = Run(world, longer, after, increment)
    ends = world.loop.now + (chance.uniform(0, 8) if chance.random() < 0.4 else 40)
    await asyncio.wait([run.task], timeout=ends - world.loop.now)
    run.process.kill()
    await asyncio.sleep(some_time(world, 0, 1, 5))
    world.settle_growth()
    for server in [server for server in world.servers if server.places != world.places]:
        if server in world.servers:
            world.kill(server)
            world.start(server.name)
        await asyncio.sleep(some_time(world, 0, 1))


class Run:
    """A `ticketd grow` in a process of its own. longer: its list. after: the list of the new ring."""

    def __init__(self, world: World, longer: Sequence[Place], after: list[Place], increment: int) -> None:
        self.after, self.increment, self.longer = after, increment, longer
        self.process = world.loop.process("grow", stalls=world.scale.stalls)
        self.task = self.process.run(self._live(world))
        world.loop.note("grow", f"begins to change the ring to {after} with increment {increment}")

    async def _live(self, world: World) -> None:
        connect, scale = world.network.connector(self.process), world.scale
        databases = [Database(place.address, connect, scale.timeout) for place in self.longer]
        members = [Member(offset, database) for offset, database in enumerate(databases, 1)]
        try:
            sight = Sight(members, scale.interval, scale.timeout, self.process.clock)
            await Growth(sight, self.increment, "grow-1").run()
        except Exception as error:
            world.loop.note("grow", f"gives up: {type(error).__name__} {error}")

    def stands(self, record: Record | None) -> bool:
        """Whether the change is decided by this record."""
        return record is not None and record.drawn and record.increment == self.increment
