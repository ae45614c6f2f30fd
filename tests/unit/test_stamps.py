"""The time in ids: this server's clock, lanes whose numbers are ticks (`instagram`), and ids made in memory."""

import asyncio
from typing import Any

import pytest

from app.databases.session import Book
from app.errors import ClockAhead, Exhausted, InvalidRequest, NoTicketDatabase, SequenceError, SequenceExhausted
from app.kinds.table import KINDS
from app.kinds.timed import TIMED
from app.service import Service
from app.settings import Settings
from app.tickets.definitions import Definition
from app.tickets.issuer import Issuer
from app.tickets.lane import Lane
from app.tickets.memory import Memory, MemorySource
from app.tickets.request import Shape
from app.tickets.rights import FOR_EVER, INSTANCES, Holder, Right
from app.tickets.sight import Sight
from app.tickets.stamps import ServerClock, Stamps
from tests.contract.http_bench import databases_on
from tests.fakes.server import FakeServer
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


async def waits(source: Any) -> asyncio.Future[Any]:
    """Ask a lane or a source for an id that cannot be had now; return the answer."""
    asked = Asked(source)
    await asyncio.sleep(0.02)
    assert not asked.answer.done()
    return asked.answer


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
    waiting = await waits(first)  # it has drawn, and found the table empty
    scene.time.pass_by(2_000)  # the marks are a second ahead
    taken += [await waiting, await take(second), await take(first)]
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
    waiting = await waits(lane)
    scene.time.pass_by(600)
    assert await waiting > ahead


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


# --- ids made in memory -----------------------------------------------------------------------------------------------


class Held(Holder):
    """A right that the test gives and takes."""

    def __init__(self, right: Right) -> None:
        super().__init__(Sight([], 1.0, 1.0, lambda: 0.0))
        self.held: Right | None = right

    def right(self) -> Right | None:
        return self.held

    async def _keep(self) -> None:
        """Nothing is due."""


class Sources:
    """The memory sources of a server whose clocks stand still."""

    def __init__(self, number: int = 7) -> None:
        self.time = Time()
        self.worker, self.instance = Held(Right(number, 0, NOW + 120_000)), Held(Right(number, 0, FOR_EVER))
        self.memory = Memory(self.time.server, self.worker, self.instance)

    def source(self, kind: str = "snowflake", **parameters: int) -> MemorySource:
        """The source of a sequence of this kind. parameters: in place of the defaults."""
        return self.memory.source("ids", Definition(kind, KINDS[kind].complete(parameters, NOW)))


def said(made: object) -> tuple[int, int]:
    """The worker and the time in an id of kind snowflake."""
    parts = KINDS["snowflake"].decode(KINDS["snowflake"].complete({}, NOW), str(made))
    return parts["datacenter"] * 32 + parts["worker"], parts["time_ms"]


@pytest.fixture
def sources() -> Sources:
    return Sources()


async def test_ids_rise_while_the_clock_goes_back_and_wait_for_it_if_that_is_soon(sources: Sources) -> None:
    source = sources.source()
    first = await take(source)
    sources.time.ms -= 20
    waiting, behind = await waits(source), await waits(source)
    sources.time.ms += 21
    assert first < await waiting < await behind
    sources.time.ms -= 3_600_000
    with pytest.raises(ClockAhead, match="ms behind its own ids"):
        await Asked(source, seconds=2.0).answer
    sources.time.ms += 3_605_000
    with pytest.raises(ClockAhead, match="ahead of the ticket databases"):
        await take(source)


async def test_a_full_counter_goes_on_into_the_next_moment_which_the_next_id_waits_for(sources: Sources) -> None:
    source = sources.source()
    ids = [each for _ in range(5) for each in await take(source, 1000, Shape.LIST)]
    assert {said(each) for each in ids} == {(7, NOW), (7, NOW + 1)}
    waiting = await waits(source)
    sources.time.ms += 1
    assert await waiting > max(ids)
    assert len(set(ids)) == 5000


async def test_another_number_makes_larger_ids_and_none_of_a_time_that_its_last_holder_had(sources: Sources) -> None:
    source = sources.source()
    first = await take(source)
    sources.worker.held = Right(3, 0, NOW + 120_000)
    waiting = await waits(source)  # an id of this moment would be smaller
    sources.time.pass_by(1)
    second = await waiting
    sources.worker.held = Right(9, NOW + 400, NOW + 120_000)
    sources.time.pass_by(399)
    waiting = await waits(source)
    sources.time.pass_by(1)
    third = await waiting
    assert first < second < third
    assert (said(second), said(third)) == ((3, NOW + 1), (9, NOW + 401))


async def test_a_lease_ends_with_its_time(sources: Sources) -> None:
    source = sources.source()
    assert sources.worker.needed.is_set()
    sources.time.pass_by(120_000)
    assert await take(source)
    assert sources.memory.gives
    sources.time.pass_by(1)
    waiting = await waits(source)
    sources.worker.held = Right(7, 0, NOW + 240_000)
    assert await waiting
    sources.worker.held = None
    with pytest.raises(NoTicketDatabase, match="no worker number yet"):
        await Asked(source, seconds=0.05).answer
    sources.worker.trouble = NoTicketDatabase("no ticket database is in sight")
    assert not sources.memory.gives
    with pytest.raises(NoTicketDatabase, match="in sight"):
        await take(source)
    assert list(sources.memory.warnings()) == ["no ticket database is in sight"]
    assert await take(sources.source("flake"))


async def test_a_sequence_that_is_looked_up_again_repeats_nothing(sources: Sources) -> None:
    assert sources.source() is sources.source()
    assert sources.source() is not sources.source(epoch=1)
    assert sources.source("uuid7") is not sources.source()


async def test_a_number_that_does_not_fit_is_refused() -> None:
    with pytest.raises(Exhausted):
        await take(Sources(2**40).source("objectid"))


@pytest.mark.looptime
async def test_the_instance_number_is_a_ticket_that_is_drawn_once_needed_and_tried_again() -> None:
    databases, clock = [FakeServer(name) for name in ("db1", "db2")], asyncio.get_running_loop().time
    settings = Settings.model_construct(databases=databases)
    servers = [Service(databases_on(databases, 0.5), settings, name, clock=clock) for name in "abc"]
    for each in servers:
        each.start()
    await asyncio.sleep(10)
    assert [each.catalog.entries for each in servers] == 3 * [{}]
    for database in databases:
        database.down = True
    for each in servers:
        each.instance.needed.set()
    await asyncio.sleep(20)
    assert {str(each.instance.trouble)[:48] for each in servers} == {"this server could not draw its instance number: "}
    for database in databases:
        database.down = False
    await asyncio.sleep(60)
    drawn = {right.number for each in servers if (right := each.instance.right()) is not None}
    assert (len(drawn), [set(each.catalog.entries) for each in servers]) == (3, 3 * [{INSTANCES}])
    assert [each.instance.trouble for each in servers] == 3 * [None]
    for each in servers:
        await each.stop()
