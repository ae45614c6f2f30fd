"""What a reserve takes the rate to be, and how many tickets it holds for it."""

import asyncio
import math

import pytest

from app.common.errors import NoTicketDatabase, OutOfTime
from app.tickets.reserve.reserve import OLDEST
from tests.fakes.ticket_server import Site
from tests.fakes.virtual_time import settled, virtual_time
from tests.unit.tickets.reserves import SECONDS, coming, drawn, empty, reserve_of, use, used_up


@virtual_time
async def test_one_request_after_an_idle_span_draws_nothing_ahead() -> None:
    async with Site(2) as site:
        server = await site.ticket_server(reserve_seconds=SECONDS)
        await use(server, 100, 6)
        await asyncio.sleep(OLDEST * SECONDS + 2)
        before, left = drawn(site), reserve_of(server).left
        assert left == 0
        for _ in range(5):
            await server.desk.take("photos")
            await asyncio.sleep(SECONDS)
        assert drawn(site) == before + 5


@virtual_time
async def test_two_requests_are_no_rate_yet() -> None:
    async with Site(2) as site:
        server = await site.ticket_server(reserve_seconds=3_600)
        await use(server, 1_000, 0.3)
        await asyncio.sleep(1)
        assert reserve_of(server).left < 11 * 300


@virtual_time
async def test_it_is_never_larger_than_a_million() -> None:
    async with Site(2) as site:
        server = await site.ticket_server(reserve_seconds=3_600)
        await server.desk.take("photos")
        for _ in range(600):
            await server.desk.take("photos", 1_000)
            await asyncio.sleep(0.02)
        assert 900_000 <= reserve_of(server).left <= 1_000_000


@virtual_time
async def test_after_an_idle_span_the_rate_begins_anew() -> None:
    async with Site(2) as site:
        server = await site.ticket_server(reserve_seconds=SECONDS)
        await use(server, 1_000, 6)
        reserve = reserve_of(server)
        assert reserve.lasts is not None
        await asyncio.sleep(SECONDS + 0.1)
        assert reserve.lasts is None
        reserve.drop_all("dropped")
        await server.desk.take("photos")
        await asyncio.sleep(0.1)
        assert reserve.left == coming(reserve) == 0
        await server.desk.take("photos")
        assert reserve.demand.size < 15


@virtual_time
async def test_the_rate_follows_what_is_asked_for_slowly() -> None:
    async with Site(2) as site:
        server = await site.ticket_server(reserve_seconds=SECONDS)
        await use(server, 100, 6)
        reserve = reserve_of(server)
        await asyncio.sleep(0.5)
        await server.desk.take("photos")
        assert 60 < reserve.demand.rate < 105
        await use(server, 1_000, 0.2)
        assert reserve.demand.rate < 300


@virtual_time
async def test_what_is_dropped_has_not_been_used() -> None:
    async with Site(2) as site:
        server = await site.ticket_server(reserve_seconds=SECONDS)
        await use(server, 100, 6)
        reserve = reserve_of(server)
        reserve.drop_all("dropped")
        await use(server, 100, 0.5)
        assert reserve.demand.rate < 120


@virtual_time
async def test_who_waited_in_vain_has_used_what_it_asked_for() -> None:
    async with Site(1) as site:
        server, reserve, _ = await used_up(site, 20)
        reserve.refill()
        before = reserve.demand.rate
        asked = [asyncio.create_task(server.desk.take("photos", 10)) for _ in range(40)]
        await settled()
        site.servers[0].deadlocks = 1
        await asyncio.gather(*asked)
        await asyncio.sleep(0.1)
        await server.desk.take("photos")
        assert reserve.demand.rate > 6 * before


@virtual_time
async def test_what_is_asked_for_again_and_again_is_used_once() -> None:
    """Databases that are up and busy: a request asks all lanes many times before it is served."""
    async with Site(2) as site:
        server = await site.ticket_server(reserve_seconds=SECONDS)
        await use(server, 20, 6)
        empty(server)
        for database in site.servers:
            database.deadlocks = 10_000

        async def client() -> None:
            with pytest.raises((OutOfTime, NoTicketDatabase)):
                await server.desk.take("photos")

        clients = []
        for _ in range(80):
            clients.append(asyncio.create_task(client()))
            await asyncio.sleep(0.05)
        assert reserve_of(server).demand.rate < 1.6 * 20
        for database in site.servers:
            database.deadlocks = 0
        await asyncio.gather(*clients, return_exceptions=True)


@virtual_time
async def test_a_request_counts_once_however_often_the_lanes_are_asked_for_it() -> None:
    async with Site(1) as site:
        server, reserve, _ = await used_up(site)
        for shelf in reserve.shelves:
            shelf.asks_at = math.inf  # no refill
        before, site.servers[0].deadlocks = reserve.demand.by_lanes, 6
        await server.desk.take("photos")
        assert site.servers[0].deadlocks == 0
        assert reserve.demand.by_lanes == before + 1
