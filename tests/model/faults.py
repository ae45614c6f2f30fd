"""What may go wrong in a schedule: each fault happens, and most mend themselves after a while.

Databases go back, and are replaced, one at a time: guarantee 1 covers no more.
"""

import asyncio
from collections.abc import Callable, Coroutine
from operator import attrgetter
from typing import Any

from app.databases.session import Book, Note
from tests.fakes.server import Data
from tests.model.network import ALL, Weather
from tests.model.scale import SEQUENCES, Place
from tests.model.server import Server
from tests.model.world import World

Fault = Callable[..., Coroutine[Any, Any, None]]
LIST: dict[Fault, float] = {}
"""How likely each fault is, beside the others."""
SERVER, DATABASE = attrgetter("servers"), attrgetter("places")


def weight(likely: float, among: Callable[[World], list[Any]] | None = None) -> Callable[[Fault], Fault]:
    """Register a fault. among: what it may hit; the fault is given one of them, if there is any."""

    def register(fault: Fault) -> Fault:
        async def hit(world: World) -> None:
            if among is not None and (hits := among(world)):
                await fault(world, world.chance.choice(hits))

        LIST[fault if among is None else hit] = likely
        return fault

    return register


async def at_random(world: World) -> None:
    """The story of a random schedule: servers start, and faults come one after the other and overlap."""
    chance = world.chance
    for number in range(world.scale.servers):
        world.start(f"server{number + 1}")
    world.spawn(moods(world))
    taste = {fault: likely * chance.choice((0, 0.3, 1, 1, 3)) for fault, likely in LIST.items()}
    pause = chance.choice((0.5, 2.0, 5.0))
    ends = world.loop.now + world.scale.seconds
    while world.loop.now < ends and not world.judge.faults:
        await asyncio.sleep(min(chance.expovariate(1 / pause), 10.0))
        if chance.random() < 0.5:
            world.save()
        faults, weights = zip(*taste.items(), strict=True)
        if any(weights):
            world.spawn(chance.choices(faults, weights)[0](world))


async def moods(world: World) -> None:
    """Callers want all sequences, some, or none for a while: rows alone tell of a lane that nobody draws from."""
    while True:
        await asyncio.sleep(some_time(world, 1, 5, 10))
        world.wanted = [sequence for sequence in SEQUENCES if world.chance.random() < world.chance.choice((0, 0.5, 1))]


def some_time(world: World, *choices: float) -> float:
    """A random time in seconds, about one of these."""
    return world.chance.choice(choices) * world.chance.uniform(0.3, 1.7)


# --- the network ------------------------------------------------------------------------------------------------------


@weight(3)
async def cut_links(world: World) -> None:
    """Some links are cut for a while: single ones, all of a server, or all of a database."""
    chance = world.chance
    names = sorted({server.name for server in world.servers})
    links = [(name, place.name) for name in names for place in (*world.places, *world.others)]
    if not links:
        return
    name, place = one = chance.choice(links)
    cut = [link for link in links if link == one or (chance.random() < 0.3 and (link[0] == name or link[1] == place))]
    silent = chance.random() < 0.6
    for link in cut:
        world.loop.note(link[0], f"is cut off from {link[1]}" + ("" if silent else ", with resets"))
        world.network.cut(*link, silent=silent)
    await asyncio.sleep(some_time(world, 0.3, 2, 5, 15))
    for link in cut:
        world.loop.note(link[0], f"reaches {link[1]} again")
        world.network.heal(*link)


@weight(1)
async def bad_weather(world: World) -> None:
    """Packets are slow, late and lost for a while."""
    chance = world.chance
    slow, late, lost = chance.choice((0.05, 0.3)), chance.choice((0, 0.02)), chance.choice((0, 0.005, 0.03))
    world.network.weather = Weather(slow, late, lost)
    await asyncio.sleep(some_time(world, 2, 10))
    world.network.weather = Weather()


@weight(1, DATABASE)
async def standstill(world: World, place: Place) -> None:
    """A database stands still and keeps its connections."""
    world.loop.note(place, "stands still")
    world.network.cut(ALL, place.name)
    await asyncio.sleep(some_time(world, 0.3, 2, 8))
    world.loop.note(place, "goes on")
    world.network.heal(ALL, place.name)


@weight(0.5, DATABASE)
async def read_only(world: World, place: Place) -> None:
    """A database takes no writes for a while, as when its disk is full."""
    place.server.read_only = True
    await asyncio.sleep(some_time(world, 1, 5))
    place.server.read_only = False


# --- ticket servers ---------------------------------------------------------------------------------------------------


@weight(1.5, SERVER)
async def kill_server(world: World, server: Server) -> None:
    """A ticket server is killed, and mostly starts again under the same name."""
    world.kill(server)
    if world.chance.random() < 0.8 or not world.servers:
        await asyncio.sleep(some_time(world, 0, 1, 8))
        world.start(server.name, server.places)


@weight(0.5, SERVER)
async def end_server(world: World, server: Server) -> None:
    """A ticket server ends cleanly, and starts again."""
    if server.process.frozen or len(world.servers) < 2:
        return
    await world.end(server)
    world.start(server.name, server.places)


@weight(2, SERVER)
async def freeze_server(world: World, server: Server) -> None:
    """A ticket server stands still."""
    server.process.freeze(some_time(world, 0.5, 3, 10), suspend=world.chance.random() < 0.3)


@weight(0.3)
async def sleep_all(world: World) -> None:
    """All machines are suspended for an hour: only the clocks that count suspension, and wall clocks, notice."""
    world.loop.note("all", "sleep for an hour")
    world.loop.slept += 3600.0


@weight(0.5, SERVER)
async def turn_clock(world: World, server: Server) -> None:
    """The wall clock of a ticket server jumps, or runs at another speed."""
    server.process.wall_ahead += world.chance.choice((-86400.0, -5.0, 5.0, 3600.0))
    server.process.wall_rate = world.chance.choice((1.0, 0.0, 0.5, 3.0))


# --- databases --------------------------------------------------------------------------------------------------------


@weight(2, DATABASE)
async def restart(world: World, place: Place) -> None:
    """A database is killed, or fails over to another machine, and comes back as it was."""
    if not place.server.down:
        await _down(world, place)
        _up(world, place)


async def _down(world: World, place: Place) -> None:
    world.loop.note(place, "is killed")
    place.server.down = True
    await asyncio.sleep(some_time(world, 0.1, 1, 5))
    world.loop.note(place, "runs again")
    place.server.restart()


def _up(world: World, place: Place) -> None:
    """A database answers again, now and then on another machine."""
    if world.chance.random() < 0.2:
        world.loop.note(place, "moves to another machine")
        place.server.move()
    place.server.down = False


def _backup(world: World, place: Place) -> Data | None:
    """A state of before, the youngest ones more often; None for no data at all."""
    if not place.saved or world.chance.random() < 0.25:
        return None
    back = int(world.chance.expovariate(0.5))
    return place.saved[max(0, len(place.saved) - 1 - back)]


@weight(3, DATABASE)
async def go_back(world: World, place: Place) -> None:
    """A database comes back older or empty, at the same address."""
    if not place.server.down and world.may_go_back():
        await _go_back(world, place, _backup(world, place))


@weight(2)
async def go_back_in_turn(world: World) -> None:
    """One database after the other comes back older, each once no server warns; mostly nobody asks for ids."""
    old = {place: _backup(world, place) for place in world.places}
    quiet = world.chance.random() < 0.7
    world.quiet += quiet
    for place in world.chance.sample(world.places, len(world.places)):
        for _ in range(150):
            if world.may_go_back() or place.server.down:
                break
            await asyncio.sleep(0.2)
        if not place.server.down and world.may_go_back():
            await _go_back(world, place, old.get(place))
    world.quiet -= quiet


async def _go_back(world: World, place: Place, data: Data | None) -> None:
    world.go_back(place, "goes back")
    await _down(world, place)
    if data is None:
        place.server.wipe()
        for sequence in world.sequences:
            if world.chance.random() < 0.8:
                place.server.add(sequence)
    else:
        place.server.restore(data)
    _up(world, place)
    world.go_back(place, "is back, empty" if data is None else "is back, older")


@weight(1, DATABASE)
async def dump_read_back(world: World, place: Place) -> None:
    """A dump is read back into a database that no server reaches meanwhile."""
    if place.server.down or not place.saved or world.loop.now < 2 or not world.may_go_back():
        return  # births have whole seconds: no dump is read back in the second in which the tables were made
    data = world.chance.choice(place.saved)
    world.go_back(place, "a dump is read back")
    place.server.down = True
    await asyncio.sleep(some_time(world, 1))
    place.server.read_back(data)
    place.server.end_connections()
    world.go_back(place, "the dump was read back")
    place.server.down = False


@weight(1, DATABASE)
async def lose_counter(world: World, place: Place) -> None:
    """A sequence's table is made anew, or its counter is set back to the beginning, on one database.

    A counter that is set back shows only if a mark says that something was issued.
    """
    sequence = world.chance.choice(world.sequences)
    data = place.server.data
    mark = data.notes[Book.MARKS].get(f"{sequence.lower()}/{place.offset}", Note())
    if sequence not in data.counters or not mark.issued or not world.may_go_back():
        return
    world.go_back(place, f"{sequence} begins again")
    way = world.chance.choice(("drop", "truncate", "set back"))
    if way == "drop":
        place.server.drop(sequence)
    elif way == "truncate" and world.loop.now > 1:
        place.server.truncate(sequence)
    else:
        world.judge.set_back(sequence, place.offset, mark.issued)
        place.server.set_last(sequence, 0)


@weight(1.5)
async def replace(world: World) -> None:
    """A database is replaced by an empty one or a copy at another address, for some servers; the old one lives on.

    After a while the operator ends the servers with the old list, or takes the new list back.
    """
    if world.others or world.growth or not world.may_go_back():
        return
    old = world.chance.choice(world.places)
    is_copy = world.chance.random() < 0.5
    server = old.server.copy(f"copy{old.offset}") if is_copy else None
    new = world.make_place(f"new{old.offset}", old.offset, server)
    new.server.started = world.clock()
    world.go_back(old, f"{new} {'is a copy of it' if is_copy else 'is to replace it'}")
    world.twin(old)
    before, world.newest = world.places, [new if place is old else place for place in world.places]
    world.others.append(new)
    world.start("other", world.newest)
    await asyncio.sleep(some_time(world, 5, 15, 30))
    if world.chance.random() < 0.5 and world.is_level:
        world.go_back(old, f"replaces {new}")
        world.newest = before
    else:
        world.places, world.others = world.newest, [old]
    stale = [server for server in world.servers if server.places != world.newest]
    for each in stale:
        world.kill(each)
    for name in sorted({each.name for each in stale} - {"other"}):
        world.start(name)


# --- operators --------------------------------------------------------------------------------------------------------


@weight(1, SERVER)
async def bump(world: World, server: Server) -> None:
    """An operator bumps a sequence."""
    sequence = world.chance.choice(world.sequences)
    top = max(counter.last for place in world.places for counter in place.server.data.counters.values())
    await server.bump(sequence, max(0, top + world.chance.choice((-1000, 0, 1, 500, 100_000))))
