"""Short scripts about the ring, its record and `ticketd grow`: a duplicate without a protection, none with it.

The letters are those of the explored state machines: S draws first, T comes later.
"""

import asyncio

from app.tickets.request import Shape
from tests.model.growing import Run
from tests.model.server import Server
from tests.model.stage import SEQUENCE, Stage, shows


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
    if not await stage.sees_all(t, 1.0):
        look.go_on()
        await stage.sees_all(t)
    await stage.take(t, 10)


@shows("number_at_mark", hiding=("beat",))
async def marked_under_the_number_before(stage: Stage) -> None:
    """A mark arrives at a database that has recorded meanwhile that another body is in use."""
    s = await stage.start("S")
    await stage.take(s, 3)
    t, write = await stage.replaced(stage.two)
    for place in (stage.one, stage.two):
        stage.network.hold("look answer", "S", place.name)
    mark = await stage.ask_until("mark", s, stage.two, 15)
    write.go_on()
    await stage.sees_all(t, 1.0)
    await asyncio.sleep(0.05)
    opening = await stage.ask_until("write marks answer", t, stage.two, 15)
    mark.go_on()
    await asyncio.sleep(0.05)
    opening.go_on()
    await asyncio.sleep(1)


@shows("looked", hiding=("beat",))
async def alone_by_an_old_look(stage: Stage) -> None:
    """A server that reached no other database stood still, and gives ids although it would see a replacement now."""
    s = await stage.start("S")
    await stage.take(s, 3)
    await stage.cut_off(s, stage.two)
    await stage.take(s, 15)
    draw = await stage.ask_until("draw answer", s, stage.one, 10)
    s.process.freeze(60)
    draw.go_on()
    stage.network.heal("S", stage.two.name)
    t = stage.replace()
    await stage.sees_all(t)
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
    t, write = await stage.replaced(stage.two)
    await stage.take(s, 20)
    write.go_on()
    await stage.sees_all(t)
    stage.world.kill(s)
    if await stage.back(stage.two, old):
        await stage.sees_all(t)
        await stage.take(t, 10)


async def _taken_in_by_a_minority(stage: Stage, *, begun: bool) -> None:
    """A body is taken in without a database that knows of marks which the others missed."""
    s = await stage.start("S")
    await stage.take(s, 3)
    last = stage.more[0]
    await stage.cut_off(s, stage.two)
    await stage.take(s, 40)
    stage.world.kill(s)
    stage.network.cut("U", last.name, silent=False)
    if begun:
        t, write = await stage.replaced(last)
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


@shows("since")
async def taken_in_again(stage: Stage) -> None:
    """A body is taken in again whose own row was marked as high as the other body drew meanwhile.

    Then the other database comes back from before the replacement, with the same tenure.
    """
    s = await stage.start("S")
    await stage.take(s, 3)
    old = stage.old()
    stage.network.cut("S", stage.two.name)
    await stage.ask(s, 9)
    await asyncio.sleep(0.2)
    stage.world.kill(s)
    t = stage.replace()
    await stage.sees_all(t)
    await stage.take(t, 5)
    stage.world.kill(t)
    stage.take_list_back()
    u = await stage.start("U")
    await stage.back(stage.two, old)
    await stage.take_level(u, 3)


@shows("memory", databases=3, hiding=("beat",))
async def forgot_the_change(stage: Stage) -> None:
    """A server that takes its body in again loses sight of where it wrote so; the third database comes back older."""
    s = await stage.start("S")
    await stage.take(s, 3)
    old = stage.old()
    t = stage.replace()
    await stage.sees_all(t)
    await stage.take(t, 5)
    stage.world.kill(t)
    third = stage.more[0]
    write = stage.network.hold("write_ring", "S", third.name)
    stage.take_list_back()
    await write.caught.wait()
    stage.network.cut("S", stage.two.name, silent=False)
    stage.restore(third, old)
    write.go_on()
    await stage.until(lambda: None not in (s.lives[0], s.lives[2]), 5.0)
    await stage.take(s, 12)


@shows("lanes_out", databases=3, hiding=("beat", "delay", "levelled"))
async def went_on_without_who_refused(stage: Stage) -> None:
    """A database refuses a mark for its number; another one came back older and would take the next mark."""
    s = await stage.start("S")
    await stage.take(s, 3)
    old, third = stage.old(), stage.more[0]
    t, write = await stage.replaced(stage.two)
    looks = [stage.network.hold("look", "S", place.name) for place in (stage.two, third)]
    for look in looks:
        await look.caught.wait()
    write.go_on()
    await stage.until(lambda: t.is_level, 1.0)
    await stage.take(t, 20)
    stage.network.hold("write_ring", "T", third.name)
    stage.restore(third, old)
    looks[1].go_on()
    await stage.until(lambda: s.lives[2] == stage.world.present_life(third), 0.5)
    await stage.ask(s, 20)
    answers = s.given[1]
    await stage.until(lambda: s.given[1] > answers, 1.3)
    looks[0].go_on()
    await asyncio.sleep(1)


# --- growth -----------------------------------------------------------------------------------------------------------


async def _grown(stage: Stage) -> tuple[Server, Server]:
    """S has drawn with two databases, and has not seen that `grow` has added a third, which T draws from."""
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
    return s, t


@shows("keep_floors")
async def a_new_lane_knows_nothing(stage: Stage) -> None:
    """The database that joined has no mark of what the others gave."""
    _, t = await _grown(stage)
    await stage.take(t, 3, offset=3)


@shows("floor_marks")
async def the_old_ring_goes_on_to_its_limit(stage: Stage) -> None:
    """A server that has not seen the change gives what its limit allows, with the increment of before."""
    s, t = await _grown(stage)
    await stage.take(t, 3, offset=3)
    for place in (stage.one, stage.two):
        stage.network.hold("mark", "S", place.name)
    await stage.take(s, 4)
