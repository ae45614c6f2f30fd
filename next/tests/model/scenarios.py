"""Short scripts of faults, each of which leads to a duplicate if one protection is taken out, and to none with it.

The letters are those of the explored state machines: S draws first, T comes later.
"""

import asyncio

from next.tests.model.stage import SCRIPTS, SEQUENCE, Stage, shows

__all__ = ["SCRIPTS"]
from next.tickets.request import Shape

# --- lanes ------------------------------------------------------------------------------------------------------------


@shows("levelled", "own")
async def one_after_the_other(stage: Stage) -> None:
    """Both databases come back older, one after the other, before anybody draws again."""
    s, t = await stage.start("S"), await stage.start("T")
    await stage.take(s, 5)
    old = stage.old()
    await stage.take(s, 40)
    stage.world.kill(s)
    for place in (stage.one, stage.two):
        await stage.back(place, old)
    await stage.until(lambda: t.is_level)
    await stage.take(t, 10)


@shows("life_in_tenure")
async def adopted_in_another_life(stage: Stage) -> None:
    """A database comes back to a moment within a limit that its rows still have, and another server adopts the lane."""
    s, t = await stage.start("S"), await stage.start("T")
    await stage.take(s, 2)
    old = stage.old()
    await stage.take(s, 1)
    stage.world.kill(s)
    await stage.back(stage.one, old)
    await stage.until(lambda: t.is_level)
    await stage.take(t, 3)


@shows("life")
async def drawn_in_another_life(stage: Stage) -> None:
    """A database comes back older while two servers have the lane open, one of them behind the other."""
    s, t = await stage.start("S"), await stage.start("T")
    await stage.take(s, 2)
    await stage.take(t, 2)
    await stage.take(s, 1)
    old = stage.old()
    await stage.take(s, 3)
    await stage.back(stage.one, old)
    for _ in range(3):
        await stage.until(lambda: None not in t.lives)
        await stage.take(t, 1)


@shows("void")
async def came_into_sight(stage: Stage) -> None:
    """A database missed a mark, comes into sight, and knows nothing of the limit while ids are given under it."""
    s, t = await stage.start("S"), await stage.start("T")
    network, old = stage.network, stage.old()
    await stage.take(s, 3)
    network.cut("S", stage.two.name, silent=False)
    await stage.until(lambda: None in s.lives)
    await stage.take(s, 12)
    for place in (stage.one, stage.two):
        network.hold("page", "S", place.name)
    network.heal("S", stage.two.name)
    await stage.until(lambda: None not in s.lives)
    await stage.take(s, 2)
    stage.world.kill(s)
    await stage.back(stage.one, old)
    await stage.until(lambda: t.is_level)
    await stage.take(t, 20)


@shows("cas", hiding=("beat",))
async def advanced_while_a_mark_was_under_way(stage: Stage) -> None:
    """A server has read a row that a mark raises before the server replaces it."""
    s, t = await stage.start("S"), await stage.start("T")
    network = stage.network
    await stage.take(s, 3)
    old = stage.old()
    mark = network.hold("mark", "S", stage.two.name)
    await stage.ask(s, 15)
    await mark.caught.wait()
    await asyncio.sleep(0.01)
    for place in (stage.one, stage.two):
        network.hold("look answer", "S", place.name)
    await stage.back(stage.one, old)
    await stage.until(lambda: t.lives[0] == stage.world.present_life(stage.one), 1.0)
    await asyncio.sleep(0.05)
    write = network.hold("write marks", "T", stage.one.name)
    await stage.ask(t, 15)
    await write.caught.wait()
    mark.go_on()
    await asyncio.sleep(0.05)
    write.go_on()
    await asyncio.sleep(5)


@shows("delay", hiding=("beat",))
async def level_before_a_mark_has_ended(stage: Stage) -> None:
    """A level ends while a mark is under way to one database, and the mark's own row has gone back already."""
    s, t = await stage.start("S"), await stage.start("T")
    network = stage.network
    await stage.take(s, 3)
    old = stage.old()
    mark = network.hold("mark", "S", stage.two.name)
    await stage.ask(s, 15)
    await mark.caught.wait()
    await asyncio.sleep(0.01)
    for place in (stage.one, stage.two):
        network.hold("look answer", "S", place.name)
    await stage.back(stage.one, old)
    await stage.until(lambda: t.is_level, 0.6)
    mark.go_on()
    await asyncio.sleep(0.02)
    stage.world.kill(s)
    await stage.back(stage.two, old)
    await stage.until(lambda: t.is_level)
    await stage.take(t, 20)


@shows("full")
async def level_without_all(stage: Stage) -> None:
    """A server makes a database level alone, and reaches the other one again just before that goes back."""
    s, t = await stage.start("S"), await stage.start("T")
    network = stage.network
    await stage.take(s, 3)
    old = stage.old()
    await stage.take(s, 40)
    stage.world.kill(s)
    network.cut("T", stage.two.name, silent=False)
    await stage.until(lambda: None in t.lives)
    await stage.back(stage.one, old)
    await asyncio.sleep(10)
    for place in (stage.one, stage.two):
        network.hold("page", "T", place.name)
    network.heal("T", stage.two.name)
    await stage.until(lambda: None not in t.lives)
    if await stage.back(stage.two, old, patience=0.3):
        stage.network.calm()
        await stage.until(lambda: t.is_level)
        await stage.take(t, 20)


@shows("sure", databases=3)
async def opened_without_one(stage: Stage) -> None:
    """A lane's marks were kept where the next server does not look, and its own database comes back older."""
    s, t = await stage.start("S"), await stage.start("T")
    network, old = stage.network, stage.old()
    await stage.take(s, 3)
    network.cut("S", stage.two.name, silent=False)
    network.cut("T", stage.more[0].name, silent=False)
    await stage.until(lambda: None in s.lives and None in t.lives)
    await stage.take(s, 40)
    stage.world.kill(s)
    await stage.back(stage.one, old)
    await stage.until(lambda: t.lives[0] == stage.world.present_life(stage.one))
    await asyncio.sleep(1)
    await stage.take(t, 10)


@shows("own_cas")
async def own_row_replaced_late(stage: Stage) -> None:
    """A server replaces a lane's own row with what it decided on long ago, and then both databases come back older."""
    s, t = await stage.start("S"), await stage.start("T")
    network, old = stage.network, stage.old()
    u = await stage.start("U")
    write = network.hold("write marks", "T", stage.one.name)
    await stage.ask(t, 1)
    await write.caught.wait()
    await stage.take(s, 100)
    for each in (s, t):
        stage.world.kill(each)
    write.go_on()
    await asyncio.sleep(0.1)
    for place in (stage.two, stage.one):
        await stage.back(place, old)
    await stage.until(lambda: u.is_level)
    await stage.take(u, 40)


@shows("beat")
async def copy_of_a_database(stage: Stage) -> None:
    """Another server goes by a copy of a database that the first server still marks on."""
    s = await stage.start("S")
    await stage.take(s, 3)
    old = stage.old()
    copy = stage.world.make_place("copy", 2, stage.two.server.copy("copy"))
    copy.server.started += 100
    stage.world.go_back(stage.two, "has a copy")
    stage.world.twin(stage.two)
    stage.world.newest = [stage.one, copy]
    t = stage.world.start("T", stage.world.newest)
    await stage.until(lambda: t.is_level, 10)
    await stage.take(s, 40)
    stage.world.kill(s)
    await stage.back(stage.one, old, patience=4.0)
    await stage.until(lambda: t.is_level, 10)
    await stage.take(t, 20)


# --- the ring ---------------------------------------------------------------------------------------------------------


@shows("gate", hiding=("beat",))
async def taken_in_at_once(stage: Stage) -> None:
    """The only database that stays has just come back older, and a body is made level with it alone."""
    s = await stage.start("S")
    await stage.take(s, 3)
    old = stage.old()
    await stage.take(s, 40)
    look = stage.network.hold("look answer", "S", stage.two.name)
    await stage.back(stage.two, old)
    t = stage.replace()
    if not await stage.until(lambda: None not in t.lives, 1.0):
        look.go_on()
        await stage.until(lambda: None not in t.lives)
    await stage.take(t, 10)


@shows("number_at_mark", hiding=("beat",))
async def marked_under_the_number_before(stage: Stage) -> None:
    """A mark arrives at a database that has recorded meanwhile that another body is in use."""
    s = await stage.start("S")
    await stage.take(s, 3)
    write = stage.network.hold("write_ring", "T", stage.two.name)
    t = stage.replace()
    await write.caught.wait()
    for place in (stage.one, stage.two):
        stage.network.hold("look answer", "S", place.name)
    mark = stage.network.hold("mark", "S", stage.two.name)
    await stage.ask(s, 15)
    await mark.caught.wait()
    write.go_on()
    await stage.until(lambda: None not in t.lives, 1.0)
    await asyncio.sleep(0.05)
    opening = stage.network.hold("write marks answer", "T", stage.two.name)
    await stage.ask(t, 15)
    await opening.caught.wait()
    mark.go_on()
    await asyncio.sleep(0.05)
    opening.go_on()
    await asyncio.sleep(1)


@shows("looked", hiding=("beat",))
async def alone_by_an_old_look(stage: Stage) -> None:
    """A server that reached no other database stood still, and gives ids although it would see a replacement now."""
    s = await stage.start("S")
    await stage.take(s, 3)
    stage.network.cut("S", stage.two.name, silent=False)
    await stage.until(lambda: None in s.lives)
    await stage.take(s, 15)
    draw = stage.network.hold("draw answer", "S", stage.one.name)
    await stage.ask(s, 10)
    await draw.caught.wait()
    s.process.freeze(60)
    draw.go_on()
    stage.network.heal("S", stage.two.name)
    t = stage.replace()
    await stage.until(lambda: None not in t.lives)
    await stage.take(t, 40)
    await asyncio.sleep(60)


@shows("forming")
async def formed_by_two_lists(stage: Stage) -> None:
    """Two servers with lists in different orders form a ring of new databases, each as it sees the list."""
    for name, other in (("S", stage.two), ("T", stage.one)):
        stage.network.hold("write_ring", name, other.name)
    s, t = stage.world.start("S"), stage.world.start("T", [stage.two, stage.one])
    await asyncio.sleep(1)
    for server, other in ((s, stage.two), (t, stage.one)):
        stage.network.cut(server.name, other.name, silent=False)
    await asyncio.sleep(3)
    for _ in range(6):
        for server in (s, t):
            server.process.call(server.ask, SEQUENCE, Shape.SINGLE, 1)
        await asyncio.sleep(0.1)


@shows("fence_first", "body_levelled", "body_last", hiding=("beat", "levelled"))
async def marked_before_the_fence(stage: Stage) -> None:
    """The earlier body is marked until the other database records the change; then that database comes back older."""
    s = await stage.start("S")
    await stage.take(s, 3)
    old = stage.old()
    await stage.take(s, 20)
    write = stage.network.hold("write_ring", "T", stage.two.name)
    t = stage.replace()
    await write.caught.wait()
    await stage.take(s, 20)
    write.go_on()
    await stage.until(lambda: None not in t.lives)
    stage.world.kill(s)
    if await stage.back(stage.two, old):
        await stage.until(lambda: None not in t.lives)
        await stage.take(t, 10)


async def _taken_in_by_a_minority(stage: Stage, *, begun: bool) -> None:
    """A body is taken in without a database that knows of marks which the others missed."""
    s = await stage.start("S")
    await stage.take(s, 3)
    last = stage.more[0]
    stage.network.cut("S", stage.two.name, silent=False)
    await stage.until(lambda: None in s.lives)
    await stage.take(s, 40)
    stage.world.kill(s)
    stage.network.cut("U", last.name, silent=False)
    if begun:
        write = stage.network.hold("write_ring", "T", last.name)
        t = stage.replace()
        await write.caught.wait()
        stage.world.kill(t)
        write.go_on()
    else:
        stage.world.kill(stage.replace())
    u = stage.world.start("U", stage.world.newest)
    await stage.until(lambda: u.lives.count(None) == 1)
    await stage.take(u, 10)


@shows("all_answer", databases=3, hiding=("beat", "sure"))
async def begun_without_one(stage: Stage) -> None:
    """A body is taken in while a database does not answer."""
    await _taken_in_by_a_minority(stage, begun=False)


@shows("finish_all", databases=3, hiding=("beat", "sure", "levelled"))
async def finished_without_one(stage: Stage) -> None:
    """A server that does not reach all databases finishes what another server began."""
    await _taken_in_by_a_minority(stage, begun=True)
