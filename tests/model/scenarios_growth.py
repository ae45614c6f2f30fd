"""Short scripts about `ticketd grow`: a duplicate without a protection, none with it.

S draws in the ring of two databases, T in the ring of three.
"""

import asyncio

from app.databases.session import Book, Note
from app.tickets import everywhere, growth
from app.tickets.sight import Member
from tests.model.growing import Run
from tests.model.protections import Patches, protection, put
from tests.model.server import Server
from tests.model.stage import Stage, shows


@protection
def keep_floors() -> Patches:
    """Growth keeps what is known of each sequence as a floor on every database."""

    async def patched(_growth: growth.Growth, _fenced: object) -> None:
        return None

    return [put(growth.Growth, "_keep_floors", patched)]


@protection
def floor_marks() -> Patches:
    """The floors that growth keeps are above every limit. Without, they are above the positions alone."""
    read = everywhere.all_rows

    async def patched(member: Member, life: str, book: Book) -> dict[str, Note]:
        return {} if book is Book.MARKS else await read(member, life, book)

    return [put(growth, "all_rows", patched)]


async def begun(stage: Stage) -> tuple[Server, Server, Run]:
    """S has drawn, T waits with the longer list, and `grow` is about to write the first record."""
    world = stage.world
    s = await stage.start("S")
    await stage.take(s, 5)
    longer = [*world.places, world.make_place("db3", 3)]
    t = world.start("T", longer)
    await stage.until(lambda: None not in t.lives[:2])
    write = stage.network.hold("write_ring", "grow", stage.one.name)
    run = world.growth = Run(world, longer, longer, 3)
    await write.caught.wait()
    for place in (stage.one, stage.two):
        stage.network.hold("look answer", "S", place.name)
    write.go_on()
    await asyncio.wait([run.task])
    world.settle_growth()
    await stage.until(lambda: None not in t.lives, 1.0)
    return s, t, run


@shows("keep_floors")
async def a_new_lane_knows_nothing(stage: Stage) -> None:
    """The database that joined has no mark of what the others gave."""
    _, t, _ = await begun(stage)
    await stage.take(t, 3, offset=3)


@shows("floor_marks")
async def the_old_ring_goes_on_to_its_limit(stage: Stage) -> None:
    """A server that has not seen the change gives what its limit allows, with the increment of before."""
    s, t, _ = await begun(stage)
    await stage.take(t, 3, offset=3)
    for place in (stage.one, stage.two):
        stage.network.hold("mark", "S", place.name)
    await stage.take(s, 4)
