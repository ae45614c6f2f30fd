"""A lane: what it issues, when it waits, and when it closes (rules 1 to 4 and 8)."""

import asyncio

import pytest

from app.databases.session import Book, Note
from app.errors import DatabaseFailed, SequenceExhausted
from app.tickets.lane import Lane
from app.tickets.request import Block, Shape
from tests.unit.lane_bench import Asked, Bench, make_bench, settled


def rows(bench: Bench, name: str) -> list[Note | None]:
    return [server.data.notes[Book.MARKS].get(name) for server in bench.servers]


@pytest.fixture
async def bench() -> Bench:
    return await make_bench()


@pytest.fixture
async def lane(bench: Bench) -> Lane:
    """The lane of the first database, which has given its first ticket."""
    made = bench.lane(1)
    assert await bench.take(made) == 1
    return made


async def test_a_lane_on_a_new_ring_skips_nothing_and_is_sure(bench: Bench) -> None:
    lane = bench.lane(1)
    assert [await bench.take(lane) for _ in range(3)] == [1, 3, 5]
    await settled(lane)
    own, other = rows(bench, "photos/1")
    assert own is not None
    assert own.sure
    assert own.high >= 1_000
    assert own == other
    assert not lane.is_unprotected


async def test_lists_and_blocks_rise_and_share_a_statement(bench: Bench) -> None:
    lane = bench.lane(2)
    await bench.take(lane)
    before = bench.servers[1].data.counters["photos"].last
    asked = [Asked(3, Shape.LIST), Asked(), Asked(100, Shape.BLOCK), Asked()]
    lane.ask([each.request for each in asked])
    assert [await each.answer for each in asked] == [[4, 6, 8], 10, Block(12, 2, 100), 212]
    assert bench.servers[1].data.counters["photos"].last == before + 2 * 105


async def test_a_second_server_adopts_the_lane_and_skips_nothing(bench: Bench, lane: Lane) -> None:
    await settled(lane)
    assert await bench.take(bench.lane(1)) == 3


async def test_an_id_drawn_in_an_earlier_life_is_dropped(bench: Bench, lane: Lane) -> None:
    bench.servers[0].freeze()
    asked = Asked()
    lane.ask([asked.request])
    await asyncio.sleep(0.01)
    bench.members[0].life = "another"
    bench.servers[0].thaw()
    with pytest.raises(DatabaseFailed):
        await asyncio.wait_for(asked.answer, 10)


async def test_a_lost_mark_drops_what_waits_above_the_limit() -> None:
    bench = await make_bench(seconds=0.3)
    lane = bench.lane(1)
    await bench.take(lane)
    await settled(lane)
    limit = rows(bench, "photos/1")[0]
    assert limit is not None
    bench.servers[1].loses = lambda _client, what: what == "mark"
    asked = Asked(2_000, Shape.BLOCK)
    lane.ask([asked.request])
    async with asyncio.timeout(20):
        while bench.members[1].life is not None:
            await bench.sight.moved()
    assert bench.members[1].doubtful
    await asyncio.sleep(0.01)
    assert not asked.answer.done()
    bench.members[1].ended += 1  # the look that follows has failed as well
    bench.sight.move()
    block = await asyncio.wait_for(asked.answer, 10)
    assert block.first > limit.high
    assert lane.is_unprotected


async def test_a_counter_that_was_set_back_repeats_nothing(bench: Bench) -> None:
    lane = bench.lane(1)
    assert await bench.take(lane, 50, Shape.LIST)
    bench.servers[0].set_last("photos", 0)
    assert await bench.take(lane) > 99


async def test_a_lane_that_has_drawn_nothing_repeats_nothing_of_a_table_made_anew(bench: Bench) -> None:
    idle, other = bench.lane(1), bench.lane(1)
    idle._take_up(await bench.opener.open(idle.spec, 0))
    given = await bench.take(other, 50, Shape.LIST)
    bench.servers[0].truncate("photos")
    assert await bench.take(idle) > given[-1]


async def test_more_ids_than_are_left_are_exhausted_while_single_ones_go_on_to_the_last() -> None:
    end = (1 << 32) - 1
    bench = await make_bench(bits=32, last=end - 10)
    lane = bench.lane(1)
    with pytest.raises(SequenceExhausted):
        await bench.take(lane, 100, Shape.BLOCK)
    assert [await bench.take(lane) for _ in range(5)] == [end - 8, end - 6, end - 4, end - 2, end]
    with pytest.raises(SequenceExhausted):
        await bench.take(lane)


async def test_a_bump_closes_the_lane_and_drops_its_stock(bench: Bench) -> None:
    lane = bench.lane(1, reserve=60.0)
    await bench.take(lane)
    await bench.floors.keep("photos", 1_000_000)
    assert await bench.take(lane) > 1_000_000


async def test_the_reserve_is_given_at_once_and_filled_again(bench: Bench) -> None:
    lane = bench.lane(1, reserve=2.0)
    for _ in range(8):
        await bench.take(lane, 400, Shape.LIST)
        bench.clock.now += 0.6
        await bench.see()
        await settled(lane)
    assert 0 < lane.stock.size <= 2.0 * 400 / 0.6
    assert lane.ready() is not None
    bench.clock.now += 100
    assert lane.ready() is None
    assert not lane.serve(Asked(2, Shape.LIST).request)
    assert lane.in_stock == lane.stock.size == 0


async def test_a_request_that_is_over_gets_nothing_and_wastes_nothing(bench: Bench) -> None:
    lane = bench.lane(1)
    gone, stays = Asked(), Asked()
    lane.ask([gone.request, stays.request])
    gone.request.abandon()
    assert await asyncio.wait_for(stays.answer, 10) == 1


async def test_a_table_that_others_drew_from_lies_below_every_lane(bench: Bench) -> None:
    bench.servers[0].set_last("photos", 500)
    assert await bench.take(bench.lane(1)) > 500
    assert await bench.take(bench.lane(2)) > 500


async def test_a_server_that_stands_still_between_two_requests_looks_again(bench: Bench, lane: Lane) -> None:
    first, second = Asked(), Asked()
    served = first.request.done

    def stand_still(ticket: int) -> None:
        bench.clock.now += 60
        served(ticket)

    first.request.done = stand_still  # type: ignore[method-assign, assignment]
    lane.ask([first.request, second.request])
    assert await asyncio.wait_for(first.answer, 20) == 3
    await asyncio.sleep(0.01)
    assert not second.answer.done()
    await bench.see()
    assert await asyncio.wait_for(second.answer, 20) > 3
