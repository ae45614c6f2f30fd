"""The issuer: turns, failover, and what requests wait for."""

import asyncio
from typing import Any

import pytest

from app.errors import DatabaseFailed, NoTicketDatabase
from app.tickets.issuer import Issuer
from app.tickets.request import Shape
from app.tickets.sight import Status
from app.tickets.step import TicketPace
from tests.unit.lane_bench import Asked, Bench, make_bench, settled


def issuer_of(bench: Bench, reserve: float = 0.0) -> Issuer:
    def lanes(again: Any) -> list[Any]:
        made = [bench.lane(offset, reserve=reserve) for offset in range(1, len(bench.members) + 1)]
        for lane in made:
            lane._again = again
        return made

    return Issuer("photos", bench.sight, TicketPace(), lanes)


@pytest.fixture
async def bench() -> Bench:
    return await make_bench()


@pytest.fixture
async def issuer(bench: Bench) -> Issuer:
    return issuer_of(bench)


async def take(issuer: Issuer, count: int = 1, shape: Shape = Shape.SINGLE) -> Any:
    asked = Asked(count, shape)
    issuer.ask(asked.request)
    return await asyncio.wait_for(asked.answer, 20)


async def test_the_databases_take_turns(issuer: Issuer) -> None:
    ids = [await take(issuer) for _ in range(6)]
    assert sorted(ids) == [1, 2, 3, 4, 5, 6]


async def test_lists_from_the_stocks_take_turns(bench: Bench) -> None:
    issuer = issuer_of(bench, reserve=2.0)
    for _ in range(8):
        for lane in issuer.lanes:
            await bench.take(lane, 400, Shape.LIST)
        bench.clock.now += 0.6
        await bench.see()
        for lane in issuer.lanes:
            await settled(lane)
    assert all(lane.in_stock > 8 for lane in issuer.lanes)
    sides = [(await take(issuer, 2, Shape.LIST))[0] % 2 for _ in range(4)]
    assert sides in ([0, 1, 0, 1], [1, 0, 1, 0])


async def test_a_database_that_fails_costs_its_requests_one_attempt(bench: Bench, issuer: Issuer) -> None:
    assert await take(issuer) != await take(issuer)
    bench.servers[0].down = True
    bench.servers[0].end_connections()
    ids = [await take(issuer) for _ in range(4)]
    assert all(each % 2 == 0 for each in ids)
    assert bench.members[0].status is Status.DOWN


async def test_a_locked_table_is_passed_over_and_its_database_stays_up(bench: Bench, issuer: Issuer) -> None:
    assert await take(issuer) != await take(issuer)
    bench.servers[1].locked.add("photos")
    assert all([await take(issuer) % 2 == 1 for _ in range(4)])
    assert bench.members[1].status is Status.UP


async def test_a_request_that_every_database_failed_is_refused_at_once(bench: Bench, issuer: Issuer) -> None:
    for server in bench.servers:
        server.locked.add("photos")
    with pytest.raises(NoTicketDatabase, match="photos"):
        await take(issuer)


async def test_requests_wait_for_the_look_that_follows_a_failure(bench: Bench, issuer: Issuer) -> None:
    for member in bench.members:
        bench.sight.failed(member, DatabaseFailed("away"))
        member.looked = float("-inf")
    asked = Asked()
    issuer.ask(asked.request)
    await asyncio.sleep(0.01)
    assert not asked.answer.done()
    await bench.see()
    assert await asyncio.wait_for(asked.answer, 20) in (1, 2)


async def test_requests_wait_for_the_trial_write_of_a_database_that_failed(bench: Bench, issuer: Issuer) -> None:
    for member in bench.members:
        bench.sight.leave(member, Status.DOWN, "failed")
    bench.members[0].trying = True
    asked = Asked()
    issuer.ask(asked.request)
    await asyncio.sleep(0.01)
    assert not asked.answer.done()
    bench.members[0].trying = False
    bench.sight.move()
    with pytest.raises(NoTicketDatabase):
        await asyncio.wait_for(asked.answer, 20)


async def test_requests_of_one_turn_share_a_statement(issuer: Issuer) -> None:
    asked = [Asked() for _ in range(50)]
    for each in asked:
        issuer.ask(each.request)
    ids = [await asyncio.wait_for(each.answer, 20) for each in asked]
    assert len(set(ids)) == 50
    assert len({each % 2 for each in ids}) == 1
