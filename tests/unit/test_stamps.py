"""This server's clock against those of the databases, and lanes whose numbers are ticks (`instagram`)."""

import asyncio
from dataclasses import replace

import pytest

from app.databases.session import Book, Counter
from app.errors import ClockAhead, InvalidRequest, NotForThisKind, SequenceError, SequenceExhausted
from app.kinds.kind import Parameters
from app.kinds.table import KINDS
from app.kinds.timed import TimedKind
from app.tickets.counted import Counted
from app.tickets.issuer import Issuer
from app.tickets.lane import Lane
from app.tickets.request import Shape
from app.tickets.server_clock import ServerClock
from app.tickets.stamps import Stamps
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


def stamps(time: Time, name: str = "instagram", **parameters: int) -> Stamps:
    """The pace of a sequence."""
    kind = KINDS[name]
    assert isinstance(kind, TimedKind)
    given: Parameters = {"epoch": EPOCH, "shards": 4, **parameters}
    return Stamps(kind, given, time.server)


def stamped(bench: Bench, offset: int, pace: Stamps) -> Lane:
    """A lane of this pace."""
    lane = bench.lane(offset)
    read = lane.name.read_counter

    async def counter() -> Counter:
        return pace.capped(await read())

    lane.name = replace(lane.name, pace=pace, read_counter=counter)
    return lane


def limit(bench: Bench, name: str = "photos/1") -> int:
    """The limit of a lane on its database."""
    return bench.servers[0].data.notes[Book.MARKS][name].high


def tick(pace: Stamps, ms: int) -> int:
    """The first tick of a moment."""
    return pace.kind.tick_at(pace.parameters, ms)


# --- the clock --------------------------------------------------------------------------------------------------------


def test_a_clock_that_is_ahead_of_every_database_stamps_nothing() -> None:
    time = Time()
    assert time.server.now_ms() == NOW
    time.ms += 1_500
    with pytest.raises(ClockAhead, match=r"1\.5 s ahead"):
        time.server.now_ms()
    assert time.server.earliest_ms() == NOW
    time.read("db2:3306", 0.4)
    assert time.server.now_ms() == time.server.latest_ms() == time.ms


def test_a_clock_that_is_behind_stamps_and_the_latest_clock_is_known() -> None:
    time = Time()
    time.ms -= 60_000
    assert time.server.now_ms() == NOW - 60_000
    assert time.server.latest_ms() == NOW


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


# --- lanes ------------------------------------------------------------------------------------------------------------


async def test_lanes_of_two_servers_stamp_the_present_and_no_tick_comes_twice() -> None:
    time, bench = Time(), await make_bench()
    pace = stamps(time)
    lanes = [stamped(bench, offset, pace) for offset in (1, 1, 2)]
    taken = [await bench.take(lane) for _ in range(3) for lane in lanes]
    assert len(set(taken)) == 9
    assert {pace.kind.time_of(pace.parameters, each) for each in taken} == {NOW}
    time.pass_by(86_400_000)
    assert await bench.take(lanes[0]) >= tick(pace, time.ms)


async def test_a_table_that_is_emptied_repeats_no_tick_of_another_server() -> None:
    time, bench = Time(), await make_bench(1)
    pace = stamps(time)
    first, second = stamped(bench, 1, pace), stamped(bench, 1, pace)
    taken = [await bench.take(lane) for lane in (first, second)]
    time.pass_by(1)
    taken += [await bench.take(second) for _ in range(3)]
    bench.servers[0].truncate("photos")
    asked = Asked()
    first.ask([asked.request])
    await asyncio.sleep(0.02)  # it has drawn, and found the table empty
    time.pass_by(2_000)  # the marks are a second ahead
    async with asyncio.timeout(10):
        taken += [await asked.answer, await bench.take(second), await bench.take(first)]
    assert len(set(taken)) == len(taken)
    assert bench.handed_back == []


async def test_a_limit_is_two_seconds_ahead_and_a_restart_goes_above_it() -> None:
    time, bench = Time(), await make_bench()
    pace = stamps(time)
    lane = stamped(bench, 1, pace)
    assert await bench.take(lane) < limit(bench) <= tick(pace, NOW + 1_001)
    assert pace.step(1.0, 1, 2) == 2_000 << 10
    high = limit(bench)
    bench.servers[0].restart()
    bench.sight.leave(bench.members[0], bench.members[0].status, "restarted")
    await bench.see()
    time.pass_by(600)
    assert await bench.take(lane) > high


async def test_a_counter_that_is_far_ahead_is_left_to_other_databases_and_one_slightly_ahead_waited_for() -> None:
    time, bench = Time(), await make_bench()
    pace = stamps(time)
    lane = stamped(bench, 1, pace)
    bench.servers[0].set_last("photos", tick(pace, NOW + 2_000))
    with pytest.raises(SequenceError, match=r"2\.0 s ahead of the clocks"):
        await bench.take(lane)
    time.pass_by(1_000)
    asked = Asked()
    lane.ask([asked.request])
    await asyncio.sleep(0.03)
    assert not asked.answer.done()
    time.pass_by(600)
    async with asyncio.timeout(10):
        assert await asked.answer > tick(pace, NOW + 2_000)


async def test_a_clock_that_is_ahead_draws_nothing_and_one_that_is_behind_goes_on_from_the_counter() -> None:
    time, bench = Time(), await make_bench()
    pace = stamps(time)
    bench.servers[0].set_last("photos", tick(pace, NOW))
    time.ms -= 60_000
    assert await bench.take(stamped(bench, 1, pace)) > tick(pace, NOW)
    time.ms += 62_000
    with pytest.raises(ClockAhead):
        await bench.take(stamped(bench, 1, pace))


async def test_a_second_holds_no_more_ids_than_its_counter_and_the_kind_ends() -> None:
    time, bench = Time(), await make_bench()
    pace = stamps(time, "instagram32", epoch=NOW - 3_600_000)
    lane = stamped(bench, 1, pace)
    assert pace.most_at_once(2) == 16
    assert len(await bench.take(lane, 16, Shape.LIST)) == 16
    assert pace.room(tick(pace, NOW) + 31, 2) == 0
    time.pass_by(2**25 * 1_000)
    with pytest.raises(SequenceExhausted):
        await bench.take(stamped(bench, 1, pace))


# --- ids --------------------------------------------------------------------------------------------------------------


async def test_requests_get_ids_of_their_shard() -> None:
    time, bench = Time(), await make_bench()
    pace = stamps(time)
    issuer = Issuer("photos", bench.sight, lambda _again: [stamped(bench, offset, pace) for offset in (1, 2)])
    source = Counted(issuer, pace, bench.sight)

    async def ask(**wanted: int) -> list[object]:
        asked = Asked(wanted.pop("count", 1), Shape.LIST)
        asked.request.key, asked.request.shard = wanted.get("key"), wanted.get("shard")
        if not source.give(asked.request):
            source.ask([asked.request])
        async with asyncio.timeout(10):
            ids = await asked.answer
        return [pace.kind.decode(pace.parameters, str(each))["shard"] for each in ids]

    assert await ask(key=31341, count=3) == [1, 1, 1]
    assert await ask(shard=3) == [3]
    assert await ask() == [0]
    for wrong in ({"shard": 4}, {"key": 1, "shard": 1}, {"count": 256_001}):
        with pytest.raises(InvalidRequest):
            await ask(**wrong)
    block = Asked(3, Shape.BLOCK)
    assert source.give(block.request)
    with pytest.raises(NotForThisKind):
        await block.answer
    time.ms += 5_000
    with pytest.raises(ClockAhead):
        await ask()
    await source.end()


async def test_a_request_that_is_handed_over_is_as_its_client_made_it() -> None:
    time, bench = Time(), await make_bench(seen=False)
    pace = stamps(time)
    issuer = Issuer("photos", bench.sight, lambda _again: [stamped(bench, 1, pace)])
    source = Counted(issuer, pace, bench.sight)
    asked = Asked()
    source.ask([asked.request])
    assert source.is_busy
    assert source.hand_over() == [asked.request]
    asked.request.done(5_000)
    assert await asked.answer == 5_000
    await source.end()
