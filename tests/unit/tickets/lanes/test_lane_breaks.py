"""A lane on which something breaks that must not: nobody is lost over it, and the lane goes on."""

import asyncio
from collections.abc import Sequence

import pytest

from app.common.errors import SequenceUnavailable, SequenceWentBack, TicketDatabaseUnavailable
from app.databases.protocol import Drawn, Position
from app.operations.metrics import Metrics
from app.tickets.lanes.id_guard import IdGuard
from app.tickets.lanes.lane import Lane, Stamps
from app.tickets.lanes.queue import LaneQueue
from app.tickets.lanes.state import LaneState
from app.tickets.requests.request import TicketRequest, Tickets
from app.tickets.ring.ring import Member
from tests.fakes.asked import Asked
from tests.fakes.virtual_time import settled, virtual_time
from tests.unit.tickets.lanes.lane_bench import Bench


class Breaking(Metrics):
    """An observer that raises where it is told to."""

    breaks_at = ""

    def statement(
        self, member: Member, sequence: str, requests: Sequence[TicketRequest], sent_at: float, drawn: Drawn
    ) -> None:
        if self.breaks_at == "statement":
            raise ZeroDivisionError
        super().statement(member, sequence, requests, sent_at, drawn)

    def violation(self, member: Member, rule: str) -> None:
        if self.breaks_at == "violation":
            raise ZeroDivisionError
        super().violation(member, rule)

    def gap(self, member: Member, cause: str, tickets: int) -> None:
        if self.breaks_at == "gap":
            raise ZeroDivisionError
        super().gap(member, cause, tickets)


class BreakingBench(Bench):
    """A bench with such an observer."""

    async def begin(self) -> "BreakingBench":
        await super().begin()
        return self

    def __init__(self) -> None:
        super().__init__()
        self.observer = Breaking()
        self.lane = Lane("photos", self.member, self.ring, self.witness, self.observer)


class AsksAgain(Asked):
    """Somebody who asks the same lane for one more, within the call in which it is sent on."""

    next_one: Asked | None = None

    def answer(self, tickets: Tickets | None) -> None:
        lane = self.lane
        super().answer(tickets)
        assert isinstance(lane, Lane)
        self.next_one = Asked()
        lane.ask(self.next_one)


class CannotTake(Asked):
    """Raises when it is answered."""

    def answer(self, tickets: Tickets | None) -> None:
        self.lane = None
        raise ZeroDivisionError


@pytest.mark.parametrize("where", ["statement", "violation", "gap"])
def test_an_observer_that_raises_sends_everybody_on_and_the_lane_goes_on(where: str) -> None:
    @virtual_time
    async def scenario() -> None:
        bench = await BreakingBench().begin()
        await bench.ask()
        bench.observer.breaks_at = where
        if where == "violation":
            bench.server.truncate("photos")
        asked = [bench.ask() for _ in range(4)]
        await settled()
        if where == "gap":
            asked.pop(0).cancel()
        assert await asyncio.gather(*asked) == [None] * len(asked)
        bench.observer.breaks_at = ""
        if where == "violation":
            assert not bench.lane.waiting
            bench.server.table("photos").advance(1000)
            bench.lane.suspend(SequenceUnavailable("for a test"))
            await bench.lane.recover()
        assert await bench.ask() is not None

    scenario()


@virtual_time
async def test_who_raises_when_it_is_answered_loses_nobody_elses_answer() -> None:
    bench = await Bench().begin()
    first = bench.ask()
    await settled()
    breaks = CannotTake()
    before, after = Asked(), Asked()
    for request in (before, breaks, after):
        bench.lane.ask(request)
    assert await first is not None
    assert await before.future is not None
    await after.future  # a ticket, or on to the next lane
    assert await bench.ask() is not None
    assert not bench.lane.waiting


@virtual_time
async def test_who_asks_again_while_everybody_is_sent_on_is_served() -> None:
    bench = await BreakingBench().begin()
    await bench.ask()
    bench.observer.breaks_at = "statement"
    request = AsksAgain()
    bench.lane.ask(request)
    assert await request.future is None
    bench.observer.breaks_at = ""
    assert request.next_one is not None
    assert await asyncio.wait_for(request.next_one.future, 0.1) is not None


class InALongMoment(Stamps):
    """The position is read before each draw."""

    def begins_long_moment(self, highest: int) -> bool:
        return True

    def room(self, guard: IdGuard) -> int:
        return 10

    def least(self, guard: IdGuard, count: int) -> int:
        return 0

    def check(self, last: int) -> None: ...


@virtual_time
async def test_a_lane_that_is_retired_while_it_looks_at_its_position_reserves_nothing() -> None:
    bench = await Bench().begin()
    await bench.ask()
    bench.lane.stamps = InALongMoment()
    marks_set_for = list(bench.witness.marks_set_for)

    class Slow:
        async def __call__(self, sequence: str) -> Position:
            position = await type(bench.database).position(bench.database, sequence)
            bench.lane.retire()
            return position

    bench.database.position = Slow()  # type: ignore[method-assign]
    asked = bench.ask(3)
    assert await asked is None
    await asyncio.sleep(0.1)
    assert bench.witness.marks_set_for == marks_set_for
    assert bench.lane.state is LaneState.RETIRED


@virtual_time
async def test_what_was_to_be_drawn_one_by_one_is_forgotten_with_those_who_waited_for_it() -> None:
    queue = LaneQueue((await Bench().begin()).lane)
    for _ in range(3):
        queue.add(Asked())
    batch, _ = queue.next_batch(1000)
    queue.draw_one_by_one(batch)
    assert queue.next_batch(1000)[1] == 1
    queue.fail_over_all()
    for _ in range(3):
        queue.add(Asked())
    assert queue.next_batch(1000)[1] == 3


@pytest.mark.parametrize("what", ["closed", "restarted"])
def test_a_lane_that_loses_touch_while_it_recovers_stays_suspended(what: str) -> None:
    """What was made sure of when it was opened may not hold any more when its draw comes back."""

    @virtual_time
    async def scenario() -> None:
        bench = await Bench().begin()
        await bench.ask()
        bench.lane.suspend(SequenceUnavailable("for a test"))
        recovering = asyncio.create_task(bench.lane.recover())
        await asyncio.sleep(0.025)
        assert len(bench.database.counts) == 2  # its draw is under way
        if what == "restarted":
            bench.member.incarnation = "another one"
        bench.lane.close()
        try:
            await recovering
        except Exception as error:
            bench.lane.recovery_failed(error)  # type: ignore[arg-type]
        assert not bench.lane.can_be_asked
        await bench.lane.recover()
        assert bench.lane.is_open
        assert bench.witness.opened == 3

    scenario()


@virtual_time
async def test_a_lane_that_breaks_over_an_error_of_its_database_goes_on() -> None:
    bench = await BreakingBench().begin()
    await bench.ask()
    bench.observer.breaks_at = "violation"
    bench.database.fails_with = SequenceWentBack("gave id 3 after 5")
    assert await bench.ask() is None
    bench.database.fails_with = TicketDatabaseUnavailable("broke the connection off")
    assert await bench.ask() is None
    bench.database.fails_with = None
    assert await bench.ask() is not None
