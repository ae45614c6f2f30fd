"""This server's clock against those of the databases, and lanes whose numbers are ticks (`instagram`)."""

import asyncio

import pytest

from app.databases.session import Book
from app.errors import ClockAhead, InvalidRequest, SequenceError, SequenceExhausted
from app.kinds.timed import TIMED
from app.tickets.issuer import Issuer
from app.tickets.lane import Lane
from app.tickets.request import Shape
from app.tickets.stamps import ServerClock, Stamps
from tests.unit.lane_bench import Asked, Bench, make_bench, take

NOW = 1_795_000_000_123
EPOCH = 1_700_000_000_000


class Time:
    """A wall clock and a steady clock that stand still, and a server's clock made of them."""

    def __init__(self) -> None:
        self.ms, self.steady = NOW, 100.0
        self.server = ServerClock(lambda: self.steady, lambda: self.ms / 1000)
        self.read("db1:3306", 0.0)

    def read(self, name: str, ahead: float, took: float = 0.0) -> None:
        """Note what a look read. ahead: by how many seconds this server's clock is ahead of the database's."""
        self.server.noted(name, self.ms / 1000 - ahead, self.steady - took, self.steady + took)

    def pass_by(self, ms: int) -> None:
        """Let all clocks go on."""
        self.ms, self.steady = self.ms + ms, self.steady + ms / 1000


class Scene:
    """Two databases, a server's clock, and the pace of a sequence of a timed kind, by which its lanes go."""

    def __init__(self, bench: Bench, name: str = "instagram", epoch: int = EPOCH) -> None:
        (kind,) = (each for each in TIMED if each.name == name)
        self.bench, self.time = bench, Time()
        self.pace = Stamps(kind, {"epoch": epoch, "shards": 4}, self.time.server, bench.sight)

    def lane(self, offset: int = 1) -> Lane:
        """A lane of this pace."""
        return self.bench.lane(offset, pace=self.pace)

    def issuer(self) -> Issuer:
        """An issuer with the first lane."""
        return Issuer("photos", self.bench.sight, self.pace, lambda _again: [self.lane()])

    def tick(self, ms: int) -> int:
        """The first tick of a moment."""
        return self.pace.kind.tick_at(self.pace.parameters, ms)

    async def later(self, lane: Lane) -> Asked:
        """Ask a lane that has to wait for its clock."""
        asked = Asked(lane)
        await asyncio.sleep(0.03)
        assert not asked.answer.done()
        return asked


@pytest.fixture
async def scene() -> Scene:
    """A sequence of kind instagram."""
    return Scene(await make_bench())


def test_a_clock_that_is_ahead_of_every_database_stamps_nothing_and_one_that_is_behind_does() -> None:
    time = Time()
    assert time.server.now_ms() == NOW
    time.ms += 1_500
    with pytest.raises(ClockAhead, match=r"1\.5 s ahead"):
        time.server.now_ms()
    assert time.server.earliest_ms() == NOW
    time.read("db2:3306", 0.4)
    assert time.server.now_ms() == time.server.latest_ms() == time.ms
    time = Time()
    time.ms -= 60_000
    assert (time.server.now_ms(), time.server.latest_ms()) == (NOW - 60_000, NOW)
    with pytest.raises(ClockAhead, match="no ticket database's clock"):
        ServerClock(lambda: 0.0).now_ms()


def test_a_vague_reading_does_not_count_and_an_old_one_only_alone() -> None:
    time = Time()
    time.read("db2:3306", -30.0, took=0.3)
    assert time.server.ahead == pytest.approx(0.0, abs=0.001)
    time.read("db2:3306", -30.0)
    time.pass_by(9_000)
    assert time.server.ahead == pytest.approx(-30.0, abs=0.001)
    time.pass_by(1_100)
    time.read("db1:3306", 0.0)
    assert time.server.ahead == pytest.approx(0.0, abs=0.001)


async def test_lanes_of_two_servers_stamp_the_present_and_no_tick_comes_twice(scene: Scene) -> None:
    lanes = [scene.lane(offset) for offset in (1, 1, 2)]
    taken = [await take(lane) for _ in range(3) for lane in lanes]
    assert len(set(taken)) == 9
    assert {scene.pace.kind.time_of(scene.pace.parameters, each) for each in taken} == {NOW}
    scene.time.pass_by(86_400_000)
    assert await take(lanes[0]) >= scene.tick(scene.time.ms)


async def test_a_table_that_is_emptied_repeats_no_tick_of_another_server() -> None:
    scene = Scene(await make_bench(1))
    first, second = lanes = [scene.lane(), scene.lane()]
    taken = [await take(lane) for lane in lanes]
    scene.time.pass_by(1)
    taken += [await take(second) for _ in range(3)]
    scene.bench.servers[0].truncate("photos")
    asked = await scene.later(first)  # it has drawn, and found the table empty
    scene.time.pass_by(2_000)  # the marks are a second ahead
    taken += [await asked.answer, await take(second), await take(first)]
    assert len(set(taken)) == len(taken)


async def test_a_limit_is_two_seconds_ahead_and_a_restart_goes_above_it(scene: Scene) -> None:
    lane, bench = scene.lane(), scene.bench
    given = await take(lane)
    limit = bench.servers[0].data.notes[Book.MARKS]["photos/1"].high
    assert given < limit <= scene.tick(NOW + 1_001)
    assert scene.pace.step(1.0, 1, 2) == 2_000 << 10
    bench.servers[0].restart()
    bench.lose(bench.members[0])
    await bench.see()
    scene.time.pass_by(600)
    assert await take(lane) > limit


async def test_a_counter_that_is_far_ahead_is_left_to_other_databases_and_one_slightly_ahead_waited_for(
    scene: Scene,
) -> None:
    lane, ahead = scene.lane(), scene.tick(NOW + 2_000)
    scene.bench.servers[0].set_last("photos", ahead)
    with pytest.raises(SequenceError, match=r"2\.0 s ahead of the clocks"):
        await take(lane)
    scene.time.pass_by(1_000)
    asked = await scene.later(lane)
    scene.time.pass_by(600)
    assert await asked.answer > ahead


async def test_a_clock_that_is_ahead_draws_nothing_and_one_that_is_behind_goes_on_from_the_counter(
    scene: Scene,
) -> None:
    scene.bench.servers[0].set_last("photos", scene.tick(NOW))
    scene.time.ms -= 60_000
    assert await take(scene.lane()) > scene.tick(NOW)
    scene.time.ms += 62_000
    with pytest.raises(ClockAhead):
        await take(scene.lane())


async def test_a_second_holds_no_more_ids_than_its_counter_and_the_kind_ends() -> None:
    scene = Scene(await make_bench(), "instagram32", NOW - 3_600_000)
    with pytest.raises(InvalidRequest, match="at most 16 ids at once"):
        await take(scene.issuer(), 17, Shape.LIST)
    assert len(await take(scene.lane(), 16, Shape.LIST)) == 16
    assert scene.pace.room(scene.tick(NOW) + 31, 2) == 0
    scene.time.pass_by(2**25 * 1_000)
    with pytest.raises(SequenceExhausted):
        await take(scene.lane())


async def test_a_request_that_is_handed_over_is_as_its_client_made_it() -> None:
    source = Scene(await make_bench(seen=False)).issuer()
    asked = Asked(source)
    assert await source.end() == [asked.request]
    asked.request.done(5_000)
    assert await asked.answer == 5_000
