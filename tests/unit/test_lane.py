"""Lanes: what they issue, when they wait and when they close (rules 1 to 4 and 8); the issuer asks them in turn."""

import asyncio
from functools import partial

import pytest

from app.databases.session import Book, Note
from app.errors import DatabaseFailed, NoTicketDatabase, SequenceExhausted
from app.tickets.issuer import Issuer
from app.tickets.lane import Lane
from app.tickets.request import Block, Shape
from app.tickets.sight import Status
from app.tickets.step import TicketPace
from tests.unit.lane_bench import Asked, Bench, make_bench, settled, take


def rows(bench: Bench) -> list[Note]:
    """The row about the first lane on each database."""
    return [server.data.notes[Book.MARKS]["photos/1"] for server in bench.servers]


def issuer_of(bench: Bench, reserve: float = 0.0) -> Issuer:
    """The issuer of two lanes."""
    lane = partial(bench.lane, reserve=reserve)
    return Issuer("photos", bench.sight, TicketPace(), lambda again: [lane(1, again=again), lane(2, again=again)])


@pytest.fixture
async def bench() -> Bench:
    return await make_bench()


@pytest.fixture
async def lane(bench: Bench) -> Lane:
    """The lane of the first database, which has given its first ticket."""
    made = bench.lane(1)
    assert await take(made) == 1
    return made


@pytest.fixture
async def issuer(bench: Bench) -> Issuer:
    """An issuer whose lanes have each given a ticket."""
    made = issuer_of(bench)
    assert sorted([await take(made) for _ in range(6)]) == [1, 2, 3, 4, 5, 6]
    return made


async def test_a_lane_on_a_new_ring_skips_nothing_and_is_sure(bench: Bench, lane: Lane) -> None:
    assert [await take(lane) for _ in range(2)] == [3, 5]
    await settled(lane)
    own, other = rows(bench)
    assert own == other
    assert (own.sure, own.high >= 1_000, lane.is_unprotected) == (True, True, False)
    assert await take(bench.lane(1)) == 7  # another server adopts the lane


async def test_lists_and_blocks_rise_and_share_a_statement(bench: Bench) -> None:
    lane = bench.lane(2)
    await take(lane)
    before = bench.servers[1].data.counters["photos"].last
    wanted = ((3, Shape.LIST), (1, Shape.SINGLE), (100, Shape.BLOCK), (1, Shape.SINGLE))
    asked = [Asked(lane, *each) for each in wanted]
    assert [await each.answer for each in asked] == [[4, 6, 8], 10, Block(12, 2, 100), 212]
    assert bench.servers[1].data.counters["photos"].last == before + 2 * 105


async def test_an_id_drawn_in_an_earlier_life_is_dropped(bench: Bench, lane: Lane) -> None:
    bench.servers[0].freeze()
    asked = Asked(lane)
    await asyncio.sleep(0.01)
    bench.members[0].life = "another"
    bench.servers[0].thaw()
    with pytest.raises(DatabaseFailed):
        await asked.answer


async def test_a_lost_mark_drops_what_waits_above_the_limit() -> None:
    bench = await make_bench(seconds=0.3)
    lane, other = bench.lane(1), bench.members[1]
    await take(lane)
    await settled(lane)
    limit = rows(bench)[0].high
    bench.servers[1].loses = lambda _client, what: what == "mark"
    asked = Asked(lane, 2_000, Shape.BLOCK)
    while other.life is not None:
        await bench.sight.moved()
    assert (other.doubtful, other.trial) == (True, True)
    await asyncio.sleep(0.01)
    assert not asked.answer.done()
    other.doubtful = False  # the look that follows has failed as well
    bench.sight.move()
    assert (await asked.answer).first > limit
    assert lane.is_unprotected


async def test_a_counter_that_was_set_back_repeats_nothing(bench: Bench, lane: Lane) -> None:
    given = await take(lane, 50, Shape.LIST)
    bench.servers[0].set_last("photos", 0)
    assert await take(lane) > given[-1]


async def test_a_lane_that_has_drawn_nothing_repeats_nothing_of_a_table_made_anew(bench: Bench, lane: Lane) -> None:
    idle = bench.lane(1)
    idle._take_up(await bench.opener.open(idle.spec, 0))
    given = await take(lane, 50, Shape.LIST)
    bench.servers[0].truncate("photos")
    assert await take(idle) > given[-1]


async def test_more_ids_than_are_left_are_exhausted_while_single_ones_go_on_to_the_last() -> None:
    end = (1 << 32) - 1
    lane = (await make_bench(bits=32, last=end - 10)).lane(1)
    with pytest.raises(SequenceExhausted):
        await take(lane, 100, Shape.BLOCK)
    assert [await take(lane) for _ in range(5)] == [end - 8, end - 6, end - 4, end - 2, end]
    with pytest.raises(SequenceExhausted):
        await take(lane)


async def test_a_bump_closes_the_lane_and_drops_its_stock(bench: Bench) -> None:
    lane = bench.lane(1, reserve=60.0)
    await take(lane)
    await bench.floors.keep("photos", 1_000_000)
    assert await take(lane) > 1_000_000


async def test_the_reserve_is_given_at_once_and_in_turn_and_filled_again(bench: Bench) -> None:
    issuer = issuer_of(bench, reserve=2.0)
    for _ in range(8):
        for lane in issuer.lanes:
            await take(lane, 400, Shape.LIST)
        bench.clock.now += 0.6
        await bench.see()
        for lane in issuer.lanes:
            await settled(lane)
    assert all(8 < lane.stock.size <= 2.0 * 400 / 0.6 for lane in issuer.lanes)
    sides = [(await take(issuer, 2, Shape.LIST))[0] % 2 for _ in range(4)]
    assert sides in ([0, 1, 0, 1], [1, 0, 1, 0])
    assert lane.ready() is not None
    bench.clock.now += 100
    assert lane.ready() is None
    assert lane.in_stock == lane.stock.size == 0


async def test_a_request_that_is_over_gets_nothing_and_wastes_nothing(lane: Lane) -> None:
    gone, stays = Asked(lane), Asked(lane)
    gone.request.abandon()
    assert await stays.answer == 3


async def test_a_table_that_others_drew_from_lies_below_every_lane(bench: Bench) -> None:
    bench.servers[0].set_last("photos", 500)
    assert await take(bench.lane(1)) > 500
    assert await take(bench.lane(2)) > 500


async def test_a_server_that_stands_still_between_two_requests_looks_again(bench: Bench, lane: Lane) -> None:
    first, second = Asked(lane), Asked(lane)
    served = first.request.done

    def stand_still(ticket: int) -> None:
        bench.clock.now += 60
        served(ticket)

    first.request.done = stand_still  # type: ignore[method-assign, assignment]
    assert await first.answer == 3
    await asyncio.sleep(0.01)
    assert not second.answer.done()
    await bench.see()
    assert await second.answer > 3


# --- the issuer -------------------------------------------------------------------------------------------------------


async def test_a_database_that_fails_costs_its_requests_one_attempt(bench: Bench, issuer: Issuer) -> None:
    bench.servers[0].down = True
    bench.servers[0].end_connections()
    assert [await take(issuer) % 2 for _ in range(4)] == [0] * 4
    assert bench.members[0].status is Status.DOWN


async def test_a_locked_table_is_passed_over_and_its_database_stays_up(bench: Bench, issuer: Issuer) -> None:
    bench.servers[1].locked.add("photos")
    assert [await take(issuer) % 2 for _ in range(4)] == [1] * 4
    assert bench.members[1].status is Status.UP
    bench.servers[0].locked.add("photos")
    with pytest.raises(NoTicketDatabase, match="photos"):  # at once
        await take(issuer)


async def test_requests_wait_for_the_look_or_the_trial_write_that_follows_a_failure(
    bench: Bench, issuer: Issuer
) -> None:
    first, second = bench.members
    bench.lose(first, second)
    for member, attribute in ((first, "doubtful"), (second, "trying")):
        setattr(member, attribute, True)
        asked = Asked(issuer)
        await asyncio.sleep(0.01)
        bench.sight.move()
        await asyncio.sleep(0.01)
        assert not asked.answer.done()
        setattr(member, attribute, False)
        bench.sight.move()
        with pytest.raises(NoTicketDatabase):
            await asked.answer
    first.doubtful = True
    asked = Asked(issuer)
    await bench.see()
    assert await asked.answer > 6


async def test_requests_of_one_turn_share_a_statement(issuer: Issuer) -> None:
    asked = [Asked(issuer) for _ in range(50)]
    ids = [await each.answer for each in asked]
    assert len(set(ids)) == 50
    assert len({each % 2 for each in ids}) == 1
