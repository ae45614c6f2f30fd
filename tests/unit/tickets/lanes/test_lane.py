"""A lane shares each statement among the waiting requests, first come, first served. A request that leaves is a gap."""

import asyncio

import pytest

from app.common.errors import (
    TicketDatabaseUnavailable,
)
from app.tickets.lanes.queue import MOST_REQUESTS
from app.tickets.requests.request import Tickets
from app.tickets.ring.ring import Status
from tests.fakes.virtual_time import settled, virtual_time
from tests.unit.tickets.lanes.lane_bench import Bench, in_order


@virtual_time
async def test_one_request_alone_waits_for_nobody() -> None:
    bench = await Bench().begin()
    await bench.ask()
    began = asyncio.get_running_loop().time()
    assert await bench.ask() == range(3, 5, 2)
    assert asyncio.get_running_loop().time() - began == pytest.approx(0.01)
    assert bench.database.counts == [1, 1]


@virtual_time
async def test_one_statement_serves_so_many_requests_at_the_most() -> None:
    bench = await Bench().begin()
    first = bench.ask()
    await settled()
    answers = await asyncio.gather(first, *(bench.ask() for _ in range(MOST_REQUESTS + 10)))
    assert bench.database.counts == [1, MOST_REQUESTS, 10]
    assert in_order(answers)


@virtual_time
async def test_requests_that_wait_share_the_next_statement_first_come_first_served() -> None:
    bench = await Bench().begin()
    first = bench.ask()
    await settled()
    others = [bench.ask(count) for count in (1, 2, 5, 1)]
    answers = await asyncio.gather(first, *others)
    assert bench.database.counts == [1, 9]
    assert in_order(answers)
    assert [len(tickets or ()) for tickets in answers] == [1, 1, 2, 5, 1]
    assert len({ticket for tickets in answers for ticket in tickets or ()}) == 10


@virtual_time
async def test_a_statement_draws_no_more_than_the_database_can_and_the_rest_goes_with_the_next() -> None:
    bench = await Bench().begin()
    first = bench.ask()
    await settled()
    answers = await asyncio.gather(first, *(bench.ask(400) for _ in range(5)))
    assert bench.database.counts == [1, 800, 800, 400]
    assert in_order(answers)


@virtual_time
async def test_more_than_the_database_can_ever_draw_is_sent_on_and_nobody_behind_it_waits() -> None:
    bench = await Bench().begin()
    too_much, next_one = bench.ask(1001), bench.ask()
    assert await too_much is None
    assert await next_one == range(1, 3, 2)


@virtual_time
async def test_a_request_that_is_gone_leaves_a_gap_and_no_cancelled_statement() -> None:
    bench = await Bench().begin()
    await bench.ask()
    first = bench.ask()
    await settled()
    waiting = [bench.ask() for _ in range(3)]
    first.cancel()  # under way
    waiting[1].cancel()  # in the queue
    answers = [await waiting[0], await waiting[2]]
    assert in_order(answers)
    assert bench.database.counts == [1, 1, 2]
    assert bench.metrics.gaps[bench.member.name, "gone"] == 1
    issued = [1, *(tickets[0] for tickets in answers if tickets)]
    assert issued == [1, 5, 7]  # 3 is the gap
    assert await bench.ask() == range(9, 11, 2)


@virtual_time
async def test_requests_that_go_at_any_moment_neither_stick_nor_share_a_ticket() -> None:
    bench = await Bench().begin()
    asked: list[asyncio.Future[Tickets | None]] = []
    for number in range(300):
        asked.append(bench.ask(1 + number % 3))
        if number % 2:
            asked[number * 7 % len(asked)].cancel()
        await asyncio.sleep(0.001 * (number % 5))
    answers = await asyncio.gather(*asked, return_exceptions=True)
    given = [ticket for tickets in answers if isinstance(tickets, range) for ticket in tickets]
    assert len(given) == len(set(given)) > 100
    assert not bench.lane.waiting


@virtual_time
async def test_a_batch_that_fails_sends_every_waiter_on() -> None:
    bench = await Bench().begin()
    first = bench.ask()
    await settled()
    waiting = [bench.ask() for _ in range(4)]
    bench.database.fails_with = TicketDatabaseUnavailable("broke the connection off")
    assert await asyncio.gather(first, *waiting) == [None] * 5
    assert bench.member.status is Status.DOWN


@virtual_time
async def test_a_request_whose_time_is_over_is_sent_on_while_the_statement_goes_on() -> None:
    bench = await Bench().begin()
    await bench.ask()
    bench.server.hang()
    patient, hurried = bench.ask(within=0.4), bench.ask(within=0.1)
    await asyncio.sleep(0.2)
    bench.lane.expire(asyncio.get_running_loop().time())
    assert hurried.done()
    assert hurried.result() is None
    assert not patient.done()
    bench.server.thaw()
    answer = await patient
    assert answer is not None
    assert await bench.ask() != answer


@virtual_time
async def test_what_comes_after_everybody_has_been_sent_on_is_given_to_nobody() -> None:
    bench = await Bench().begin()
    await bench.ask()
    bench.server.hang()
    asked = bench.ask(within=0.1)
    await asyncio.sleep(0.2)
    bench.lane.expire(asyncio.get_running_loop().time())
    assert await asked is None
    bench.server.thaw()
    await asyncio.sleep(0.1)
    assert bench.server.table("photos").largest == 3
    assert await bench.ask() == range(5, 7, 2)


@virtual_time
async def test_who_asks_in_the_very_moment_the_last_statement_ends_is_served_too() -> None:
    bench = await Bench().begin()
    answers = [await bench.ask() for _ in range(5)]
    assert answers == [range(n, n + 2, 2) for n in (1, 3, 5, 7, 9)]


@virtual_time
async def test_who_asks_in_one_turn_of_the_event_loop_shares_a_statement_once_there_is_company() -> None:
    bench = await Bench().begin()
    await bench.asked(8)
    assert bench.database.counts == [1, 7]
    await bench.asked(8)
    assert bench.database.counts == [1, 7, 8]
    await bench.ask()
    await bench.asked(8)
    assert bench.database.counts == [1, 7, 8, 1, 1, 7]
