"""Short scripts about lanes, their rows and levels: a duplicate without a protection, none with it.

The letters are those of the explored state machines: S draws first, T comes later.
"""

import asyncio

from tests.fakes.server import Data
from tests.model.network import Hold
from tests.model.scale import Place
from tests.model.server import Server
from tests.model.stage import Stage, shows


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
    await stage.take_level(t, 10)


@shows("life_in_tenure")
async def adopted_in_another_life(stage: Stage) -> None:
    """A database comes back to a moment within a limit that its rows still have, and another server adopts the lane."""
    s, t = await stage.start("S"), await stage.start("T")
    await stage.take(s, 2)
    old = stage.old()
    await stage.take(s, 1)
    stage.world.kill(s)
    await stage.back(stage.one, old)
    await stage.take_level(t, 3)


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
        await stage.sees_all(t)
        await stage.take(t, 1)


@shows("void")
async def came_into_sight(stage: Stage) -> None:
    """A database missed a mark, comes into sight, and knows nothing of the limit while ids are given under it."""
    s, t = await stage.start("S"), await stage.start("T")
    network, old = stage.network, stage.old()
    await stage.take(s, 3)
    await stage.cut_off(s, stage.two)
    await stage.take(s, 12)
    for place in (stage.one, stage.two):
        network.hold("page", "S", place.name)
    network.heal("S", stage.two.name)
    await stage.sees_all(s)
    await stage.take(s, 2)
    stage.world.kill(s)
    await stage.back(stage.one, old)
    await stage.take_level(t, 20)


async def _back_while_a_mark_travels(stage: Stage) -> tuple[Server, Server, dict[Place, Data], Hold]:
    """The lane's own row goes back while a mark is under way to the other database.

    Returns S, T, the state to come back to, and the mark.
    """
    s, t = await stage.start("S"), await stage.start("T")
    await stage.take(s, 3)
    old = stage.old()
    mark = await stage.ask_until("mark", s, stage.two, 15)
    await asyncio.sleep(0.01)
    for place in (stage.one, stage.two):
        stage.network.hold("look answer", "S", place.name)
    await stage.back(stage.one, old)
    return s, t, old, mark


@shows("cas", hiding=("beat",))
async def advanced_while_a_mark_was_under_way(stage: Stage) -> None:
    """A server has read a row that a mark raises before the server replaces it."""
    _, t, _, mark = await _back_while_a_mark_travels(stage)
    await stage.until(lambda: t.lives[0] == stage.world.present_life(stage.one), 1.0)
    await asyncio.sleep(0.05)
    write = await stage.ask_until("write marks", t, stage.one, 15)
    mark.go_on()
    await asyncio.sleep(0.05)
    write.go_on()
    await asyncio.sleep(5)


@shows("delay", hiding=("beat",))
async def level_before_a_mark_has_ended(stage: Stage) -> None:
    """A level ends while a mark is under way to one database, and the mark's own row has gone back already."""
    s, t, old, mark = await _back_while_a_mark_travels(stage)
    await stage.until(lambda: t.is_level, 0.6)
    mark.go_on()
    await asyncio.sleep(0.02)
    stage.world.kill(s)
    await stage.back(stage.two, old)
    await stage.take_level(t, 20)


@shows("full")
async def level_without_all(stage: Stage) -> None:
    """A server makes a database level alone, and reaches the other one again just before that goes back."""
    s, t = await stage.start("S"), await stage.start("T")
    network = stage.network
    await stage.take(s, 3)
    old = stage.old()
    await stage.take(s, 40)
    stage.world.kill(s)
    await stage.cut_off(t, stage.two)
    await stage.back(stage.one, old)
    await asyncio.sleep(10)
    for place in (stage.one, stage.two):
        network.hold("page", "T", place.name)
    network.heal("T", stage.two.name)
    await stage.sees_all(t)
    if await stage.back(stage.two, old, patience=0.3):
        stage.network.calm()
        await stage.take_level(t, 20)


async def _opened_without_one(stage: Stage, **missing: Place) -> None:
    """Each of these servers misses a database. A lane's own database comes back older, and T opens the lane."""
    s, t = await stage.start("S"), await stage.start("T")
    old = stage.old()
    await stage.take(s, 3)
    for name, place in missing.items():
        stage.network.cut(name, place.name, silent=False)
    await stage.until(lambda: None in t.lives and (None in s.lives) is ("S" in missing))
    await stage.take(s, 40)
    stage.world.kill(s)
    await stage.back(stage.one, old)
    await stage.until(lambda: t.lives[0] == stage.world.present_life(stage.one))
    await asyncio.sleep(1)
    await stage.take(t, 10)


@shows("sure", databases=3)
async def opened_without_the_marked_one(stage: Stage) -> None:
    """A lane's marks were kept where the next server does not look, because the server before did not reach all."""
    await _opened_without_one(stage, S=stage.two, T=stage.more[0])


@shows("all_marked", databases=3, hiding=("sure",))
async def marked_on_some(stage: Stage) -> None:
    """A lane was marked on some of the databases in sight, and the next server reaches only the others."""
    await _opened_without_one(stage, T=stage.two)


@shows("own_cas")
async def own_row_replaced_late(stage: Stage) -> None:
    """A server replaces a lane's own row with what it decided on long ago, and then both databases come back older."""
    s, t = await stage.start("S"), await stage.start("T")
    old = stage.old()
    u = await stage.start("U")
    write = await stage.ask_until("write marks", t, stage.one, 1)
    await stage.take(s, 100)
    for each in (s, t):
        stage.world.kill(each)
    write.go_on()
    await asyncio.sleep(0.1)
    for place in (stage.two, stage.one):
        await stage.back(place, old)
    await stage.take_level(u, 40)


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
