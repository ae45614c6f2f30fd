"""One ticket server of the model: the real one from `app.service`, in a simulated process, with callers."""

import asyncio
import math
import random
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from app.databases.database import Database
from app.errors import TicketError
from app.service import Service
from app.settings import Settings
from app.tickets.lane import Lane
from app.tickets.request import Block, Call, Shape
from app.tickets.sight import Status
from tests.model.judge import Issue
from tests.model.scale import Place

if TYPE_CHECKING:
    from tests.model.world import World


class Server:
    """One run of a ticket server in a process of its own. `places` is its list."""

    def __init__(self, world: "World", name: str, run: int, places: Sequence[Place]) -> None:
        self.world, self.name, self.places = world, name, list(places)
        self.label = f"{name}.{run}"
        self.process = world.loop.process(name, stalls=world.scale.stalls)
        self.service: Service = self.process.call(self._make_service)
        self.answered: dict[str, float] = {}
        """When a sequence was last answered with an id."""
        self.given: Counter[int] = Counter()
        """How many answers it gave, by offset."""
        self.process.run(self._live())

    def __repr__(self) -> str:
        return self.label

    @property
    def reaches_all(self) -> bool:
        """Whether packets to all of its databases would arrive now."""
        return all(self.world.network.reaches(self.name, place.name) for place in self.places)

    @property
    def lives(self) -> list[str | None]:
        """The lives in which it sees its databases, in the order of its list."""
        return [each.life for each in self.service.sight.members]

    @property
    def is_level(self) -> bool:
        """Whether it warns of no database's return, and sees all of them in the lives that they are in."""
        lives = [self.world.present_life(place) for place in self.places]
        return None not in lives and self.lives == lives and self.service.levels.is_level

    @property
    def warnings(self) -> list[str]:
        """What its /healthz warns of."""
        service = self.service
        members = [f"{each.name}: {each.reason}" for each in service.sight.members if each.status is not Status.UP]
        levels = [f"{name}: {reason}" for name, reason in service.levels.warnings]
        lanes = [f"{lane} is unprotected" for lane in service.desk.lanes if lane.is_unprotected]
        return [*members, *levels, *lanes, *(str(each) for each in service.listing.warnings)]

    def _make_service(self) -> Service:
        world, scale = self.world, self.world.scale
        settings = Settings.model_construct(
            databases=[place.address for place in self.places],
            probe_interval=scale.interval,
            database_timeout=scale.timeout,
            increment=scale.increment,
            unverified="refuse" if scale.refuses else "serve",
            reserve_seconds=scale.reserve,
        )
        connect = world.network.connector(self.process)
        databases = [Database(place.address, connect, scale.timeout) for place in self.places]
        waits = random.Random(random.random())
        return Service(
            databases, settings, f"{self.name}:8000", clock=self.process.clock, wall=self.process.wall, chance=waits
        )

    async def _live(self) -> None:
        world, scale, chance = self.world, self.world.scale, self.world.chance
        self.service.start()
        while scale.rate:
            await asyncio.sleep(chance.expovariate(scale.rate))
            sequence = chance.choice(world.sequences)
            for _ in range(chance.choice((1, 1, 1, 4))):
                shape = chance.choice((Shape.SINGLE, Shape.SINGLE, Shape.SINGLE, Shape.LIST, Shape.BLOCK))
                if sequence in world.wanted and not world.quiet:
                    self.ask(sequence, shape, 1 if shape is Shape.SINGLE else chance.choice((1, 3, 20, 150)))

    def ask(self, sequence: str, shape: Shape, count: int, lane: Lane | None = None) -> None:
        """Ask for ids, of this lane if there is one; the judge learns of the answer."""
        asked = self.world.loop.now

        def done(answer: int | list[int] | Block) -> None:
            self._given(sequence, shape, answer, asked)

        def failed(error: TicketError) -> None:
            if self.world.loop.trace is not None:
                self.world.loop.note(self, f"cannot give {sequence}: {type(error).__name__} {error}")

        request = Call(sequence, done, failed, count=count, shape=shape)
        if lane is None:
            self.service.desk.take(request)
        else:
            request.deadline = math.inf
            lane.ask([request])

    def _given(self, sequence: str, shape: Shape, answer: int | list[int] | Block, asked: float) -> None:
        """An answer came: tell the judge, together with what holds at this moment."""
        world = self.world
        ids: range | tuple[int, ...]
        if isinstance(answer, int):
            ids = (answer,)
        elif isinstance(answer, Block):
            ids = range(answer.first, answer.first + answer.step * answer.size, answer.step)
        else:
            ids = tuple(answer)
        record = self.service.sight.record
        assert record is not None
        offset = (ids[0] - 1) % record.increment + 1
        unprotected = self._is_unprotected(sequence, offset)
        isolated = world.is_isolated(self.name, self.places, self.places[offset - 1])
        now = world.loop.now
        self.answered[sequence] = now
        self.given[offset] += 1
        world.judge.issue(
            Issue(sequence, ids, self.label, offset, asked, now, unprotected, isolated, shape is Shape.BLOCK)
        )

    def _is_unprotected(self, sequence: str, offset: int) -> bool:
        """Whether /healthz warns of a lane, by looks that are young."""
        sight = self.service.sight
        oldest = sight.clock() - 3 * sight.interval - sight.timeout
        return self.lane(sequence, offset).is_unprotected and all(each.looked >= oldest for each in sight.members)

    def lane(self, sequence: str, offset: int) -> Lane:
        """The lane of a sequence that was asked for."""
        row = f"{sequence.lower()}/{offset}"
        return next(lane for lane in self.service.desk.lanes if lane.spec.row == row)

    async def open_lane(self, sequence: str, offset: int) -> Lane:
        """The lane of a sequence, whether it was asked for or not."""
        desk = self.service.desk
        if sequence not in desk._sources:
            desk._finding.setdefault(sequence, [])
            await desk._look_up(sequence)
        return self.lane(sequence, offset)

    async def bump(self, sequence: str, above: int) -> None:
        """Bump a sequence as an operator does, with two seconds of time; tell the judge if it was answered."""
        try:
            deadline = self.service.sight.clock() + 2.0
            await self.service.catalog.bump(sequence, above, force=False, deadline=deadline)
        except TicketError as error:
            self.world.loop.note(self, f"cannot bump {sequence}: {error}")
        else:
            self.world.loop.note(self, f"has bumped {sequence} above {above}")
            self.world.judge.bumped(sequence, above)
