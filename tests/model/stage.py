"""Short scripts of faults, each of which leads to a duplicate if one protection is taken out, and to none with it.

Every server looks ten times a second and sets limits ten ids ahead, and nobody asks for ids but the script. The letters
are those of the explored state machines: S draws, T comes later. The scripts are in `scenarios_lanes` and
`scenarios_ring`.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, NamedTuple

from app.tickets.request import Shape
from tests.fakes.server import Data
from tests.model.network import Hold
from tests.model.protections import without
from tests.model.scale import Place, Scale
from tests.model.server import Server
from tests.model.world import World

SEQUENCE = "photos"


class Stage:
    """What a script does in a world. one, two, more: the databases; the lane of `one` is the lane that matters."""

    def __init__(self, world: World) -> None:
        self.world, self.network = world, world.network
        self.one, self.two, *self.more = world.places

    async def start(self, name: str, places: Sequence[Place] | None = None) -> Server:
        """Start a ticket server, and wait until it warns of no database."""
        server = self.world.start(name, places)
        await self.until(lambda: server.is_level)
        return server

    async def until(self, condition: Callable[[], bool], seconds: float = 30.0) -> bool:
        """Wait for a condition; returns whether it came true."""
        for _ in range(int(seconds * 100)):
            if condition():
                return True
            await asyncio.sleep(0.01)
        return False

    async def sees_all(self, server: Server, seconds: float = 30.0) -> bool:
        """Wait until a server sees all of its databases; returns whether it does."""
        return await self.until(lambda: None not in server.lives, seconds)

    async def cut_off(self, server: Server, place: Place) -> None:
        """Cut a server off from a database, and wait until it notices."""
        self.network.cut(server.name, place.name, silent=False)
        await self.until(lambda: None in server.lives)

    async def ask(self, server: Server, count: int, offset: int = 1) -> None:
        """Ask a lane for a list."""
        lane = await server.process.run(server.open_lane(SEQUENCE, offset))
        server.process.call(server.ask, SEQUENCE, Shape.LIST, count, lane)

    async def ask_until(self, what: str, server: Server, place: Place, count: int) -> Hold:
        """Ask a lane for a list, and stop the packet of this kind that follows. Returns what stops it."""
        hold = self.network.hold(what, server.name, place.name)
        await self.ask(server, count)
        await hold.caught.wait()
        return hold

    async def take(self, server: Server, count: int, offset: int = 1) -> None:
        """Take ids one by one from a lane."""
        for _ in range(count):
            answers = server.given[offset]
            await self.ask(server, 1, offset)
            await self.until(lambda: server.given[offset] > answers, 1.0)  # noqa: B023 - awaited at once

    async def take_level(self, server: Server, count: int) -> None:
        """Take ids once the server warns of no database."""
        await self.until(lambda: server.is_level)
        await self.take(server, count)

    def old(self) -> dict[Place, Data]:
        """The present state of all databases, to come back to."""
        return {place: place.server.data.copy() for place in self.world.places}

    async def back(self, place: Place, old: dict[Place, Data], *, patience: float = 20.0) -> bool:
        """Let a database come back older once no server warns. Returns False where a server warns for too long."""
        if not await self.until(self.world.may_go_back, patience):
            return False
        self.restore(place, old)
        return True

    def restore(self, place: Place, old: dict[Place, Data]) -> None:
        """Let a database come back older, whatever servers warn of: more than guarantee 1 covers."""
        self.world.go_back(place, "is back, older")
        place.server.restore(old[place])

    def replace(self) -> Server:
        """Start T with an empty database in place of the first one, which lives on for S."""
        self.world.go_back(self.one, "is replaced")
        self.world.twin(self.one)
        new = self.world.make_place("new", 1)
        self.world.others = [new]
        self.world.newest = [new, *self.world.places[1:]]
        return self.world.start("T", self.world.newest)

    async def replaced(self, held: Place) -> tuple[Server, Hold]:
        """Start T with an empty database in place of the first one, and stop its record on the way to `held`."""
        write = self.network.hold("write_ring", "T", held.name)
        t = self.replace()
        await write.caught.wait()
        return t, write

    def take_list_back(self) -> None:
        """Let the list with the first database be the right one again."""
        self.world.go_back(self.one, "replaces what replaced it")
        self.world.newest = self.world.places


Story = Callable[[Stage], Coroutine[Any, Any, None]]


class Script(NamedTuple):
    """A script, how many databases it needs, and which protections are always taken out because they hide it."""

    story: Story
    databases: int
    hiding: tuple[str, ...]

    def play(self, variant: int = 0, *, trace: bool = False) -> World:
        """Play the script in a world of its own. variant: decides how long packets travel."""
        scale = Scale(
            databases=self.databases, interval=0.1, timeout=2.0, rate=0.0, smallest_step=10, seconds_ahead=0.0
        )
        world = World(f"{self.story.__name__} {variant}", scale, trace=trace, recovers=False)
        with without(*self.hiding):
            world.run(lambda made: self.story(Stage(made)))
        return world


SCRIPTS: dict[str, Script] = {}
"""By the name of the protection that the script shows to be needed."""


def shows(*protections: str, databases: int = 2, hiding: tuple[str, ...] = ()) -> Callable[[Story], Story]:
    """Register a script that needs each of these protections."""

    def register(story: Story) -> Story:
        SCRIPTS.update(dict.fromkeys(protections, Script(story, databases, hiding)))
        return story

    return register
