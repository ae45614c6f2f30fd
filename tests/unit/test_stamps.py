"""This server's clock against those of the databases, and lanes whose numbers are ticks (`instagram`)."""

import asyncio
from dataclasses import replace

import pytest

from app.databases.session import Book, Counter
from app.errors import ClockAhead, InvalidRequest, SequenceError, SequenceExhausted
from app.kinds.table import KINDS
from app.kinds.timed import TimedKind
from app.tickets.definitions import Definition
from app.tickets.issuer import Issuer
from app.tickets.lane import Lane
from app.tickets.request import Shape
from app.tickets.stamps import ServerClock, Stamps
from tests.unit.lane_bench import Asked, Bench, make_bench

NOW = 1_795_000_000_123
EPOCH = 1_700_000_000_000


class Time:
    """A wall clock and a steady clock that stand still, and a server's clock made of them."""

    def __init__(self, ms: int = NOW) -> None:
        self.ms, self.steady = ms, 100.0
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

    def __init__(self, bench: Bench, name: str = "instagram", **parameters: int) -> None:
        kind = KINDS[name]
        assert isinstance(kind, TimedKind)
        self.bench, self.time = bench, Time()
        self.pace = Stamps(kind, {"epoch": EPOCH, "shards": 4, **parameters}, self.time.server, bench.sight)

    def lane(self, offset: int = 1) -> Lane:
        """A lane of this pace."""
        lane = self.bench.lane(offset)
        read = lane.spec.read_counter

        async def counter() -> Counter:
            return Definition(self.pace.kind.name).capped(await read())

        lane.spec = replace(lane.spec, pace=self.pace, read_counter=counter)
        return lane

    @property
    def limit(self) -> int:
        """The limit of the first lane on its database."""
        return self.bench.servers[0].data.notes[Book.MARKS]["photos/1"].high

    def tick(self, ms: int) -> int:
        """The first tick of a moment."""
        return self.pace.kind.tick_at(self.pace.parameters, ms)

    async def later(self, lane: Lane) -> Asked:
        """Ask a lane that has to wait for its clock."""
        asked = Asked()
        lane.ask([asked.request])
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
    time.read("db2:3306", 0.4)
    assert time.server.now_ms() == time.server.latest_ms() == time.ms
    time = Time()
    time.ms -= 60_000
    assert (time.server.now_ms(), time.server.latest_ms()) == (NOW - 60_000, NOW)


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
    with pytest.raises(ClockAhead, match="no ticket database's clock"):
        ServerClock(lambda: 0.0).now_ms()


async def test_lanes_of_two_servers_stamp_the_present_and_no_tick_comes_twice(scene: Scene) -> None:
    lanes = [scene.lane(offset) for offset in (1, 1, 2)]
    taken = [await scene.bench.take(lane) for _ in range(3) for lane in lanes]
    assert len(set(taken)) == 9
    assert {scene.pace.kind.time_of(scene.pace.parameters, each) for each in taken} == {NOW}
    scene.time.pass_by(86_400_000)
    assert await scene.bench.take(lanes[0]) >= scene.tick(scene.time.ms)


async def test_a_table_that_is_emptied_repeats_no_tick_of_another_server() -> None:
    scene = Scene(await make_bench(1))
    first, second = lanes = [scene.lane(), scene.lane()]
    taken = [await scene.bench.take(lane) for lane in lanes]
    scene.time.pass_by(1)
    taken += [await scene.bench.take(second) for _ in range(3)]
    scene.bench.servers[0].truncate("photos")
    asked = await scene.later(first)  # it has drawn, and found the table empty
    scene.time.pass_by(2_000)  # the marks are a second ahead
    async with asyncio.timeout(10):
        taken += [await asked.answer, await scene.bench.take(second), await scene.bench.take(first)]
    assert len(set(taken)) == len(taken)
    assert scene.bench.handed_back == []


async def test_a_limit_is_two_seconds_ahead_and_a_restart_goes_above_it(scene: Scene) -> None:
    lane, bench = scene.lane(), scene.bench
    assert await bench.take(lane) < scene.limit <= scene.tick(NOW + 1_001)
    assert scene.pace.step(1.0, 1, 2) == 2_000 << 10
    high = scene.limit
    bench.servers[0].restart()
    bench.sight.leave(bench.members[0], bench.members[0].status, "restarted")
    await bench.see()
    scene.time.pass_by(600)
    assert await bench.take(lane) > high


async def test_a_counter_that_is_far_ahead_is_left_to_other_databases_and_one_slightly_ahead_waited_for(
    scene: Scene,
) -> None:
    lane, ahead = scene.lane(), scene.tick(NOW + 2_000)
    scene.bench.servers[0].set_last("photos", ahead)
    with pytest.raises(SequenceError, match=r"2\.0 s ahead of the clocks"):
        await scene.bench.take(lane)
    scene.time.pass_by(1_000)
    asked = await scene.later(lane)
    scene.time.pass_by(600)
    assert await asyncio.wait_for(asked.answer, 10) > ahead


async def test_a_clock_that_is_ahead_draws_nothing_and_one_that_is_behind_goes_on_from_the_counter(
    scene: Scene,
) -> None:
    scene.bench.servers[0].set_last("photos", scene.tick(NOW))
    scene.time.ms -= 60_000
    assert await scene.bench.take(scene.lane()) > scene.tick(NOW)
    scene.time.ms += 62_000
    with pytest.raises(ClockAhead):
        await scene.bench.take(scene.lane())


async def test_a_second_holds_no_more_ids_than_its_counter_and_the_kind_ends() -> None:
    scene = Scene(await make_bench(), "instagram32", epoch=NOW - 3_600_000)
    with pytest.raises(InvalidRequest, match="at most 16 ids at once"):
        scene.pace.accept(Asked(17, Shape.LIST).request)
    assert len(await scene.bench.take(scene.lane(), 16, Shape.LIST)) == 16
    assert scene.pace.room(scene.tick(NOW) + 31, 2) == 0
    scene.time.pass_by(2**25 * 1_000)
    with pytest.raises(SequenceExhausted):
        await scene.bench.take(scene.lane())


async def test_a_request_that_is_handed_over_is_as_its_client_made_it() -> None:
    scene, asked = Scene(await make_bench(seen=False)), Asked()
    source = Issuer("photos", scene.bench.sight, scene.pace, lambda _again: [scene.lane()])
    assert source.ready() is None
    source.ask(asked.request)
    assert await source.end() == [asked.request]
    asked.request.done(5_000)
    assert await asked.answer == 5_000
