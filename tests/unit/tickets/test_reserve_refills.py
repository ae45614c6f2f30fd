"""How a reserve of tickets is refilled, and what becomes of those who wait for a refill."""

import asyncio
from collections.abc import Callable

import pytest

from app.common.errors import NoTicketDatabase, OutOfTime
from app.databases.protocol import Drawn, Table
from tests.fakes.ticket_server import Site
from tests.fakes.virtual_time import settled, virtual_time
from tests.unit.tickets.test_reserve import SECONDS, assert_in_order, drawn, empty, reserve_of, use


def now() -> float:
    return asyncio.get_running_loop().time()


@virtual_time
async def test_those_behind_a_list_that_does_not_fit_are_served_from_the_refill() -> None:
    async with Site(2) as site:
        server = await site.ticket_server(reserve_seconds=SECONDS)
        given = await use(server, 20, 6)
        given += empty(server)
        reserve_of(server).refill()
        before = [len(database.draws) for database in site.servers]
        listed, *singles = await asyncio.gather(*(server.desk.take("photos", count) for count in (900, *[1] * 20)))
        refills = [database.draws[there][1] for database, there in zip(site.servers, before, strict=True)]
        assert all(any(refill.first <= ticket <= refill.last for refill in refills) for (ticket,) in singles)
        assert_in_order([*given, *(ticket for tickets in singles for ticket in tickets), *listed])


@virtual_time
async def test_who_waits_for_refills_that_hang_is_refused_when_its_time_is_over() -> None:
    async with Site(2) as site:
        server = await site.ticket_server(reserve_seconds=SECONDS, request_timeout=0.3)
        await use(server, 50, 6)
        empty(server)
        for database in site.servers:
            database.hang()
        began = now()
        answers = await asyncio.gather(*(server.desk.take("photos") for _ in range(5)), return_exceptions=True)
        assert {type(answer) for answer in answers} <= {OutOfTime, NoTicketDatabase}
        assert now() - began < 0.4


@virtual_time
async def test_a_refill_that_breaks_in_the_midst_of_an_answer_costs_nobody_a_ticket_or_gives_two() -> None:
    """The lane of the next refill breaks at once, while those who wait are served from the one that has come."""
    async with Site(1) as site:
        server = await site.ticket_server(reserve_seconds=SECONDS)
        given = await use(server, 50, 6)
        given += empty(server)
        database, sent = server.databases[0], 0
        start_draw = database.start_draw

        def breaks(table: Table, count: int, after: int, done: Callable[[Drawn], None], least: int = 0) -> None:
            nonlocal sent
            sent += 1
            if sent == 2:
                raise RuntimeError("the driver broke")
            start_draw(table, count, after, done, least)

        database.start_draw = breaks  # type: ignore[method-assign]
        reserve_of(server).refill()
        answers = await asyncio.gather(*(server.desk.take("photos") for _ in range(400)))
        assert sent > 2
        assert all(len(tickets) == 1 for tickets in answers)
        assert server.metrics.in_flight == 0
        assert_in_order(given + [ticket for tickets in answers for ticket in tickets], 1)


@virtual_time
async def test_a_high_rate_is_kept_up_with() -> None:
    async with Site(2) as site:
        server = await site.ticket_server(reserve_seconds=2, longest=0.02)
        await server.desk.take("photos")
        refused = 0
        for number in range(3_000):
            if server.desk.ready("photos", 1_000) is None:
                await server.desk.take("photos", 1_000)
                refused += number > 600
            await asyncio.sleep(1 / 300)
        assert not refused
        assert reserve_of(server).left > 0.8 * 600_000


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
async def test_a_database_that_was_away_at_first_takes_its_part_in_refills() -> None:
    async with Site(2) as site:
        site.servers[1].down = True
        server = await site.ticket_server(reserve_seconds=SECONDS)
        given = await use(server, 100, 8)
        assert all(ticket % 2 for ticket in given)
        site.servers[1].down = False
        await asyncio.sleep(2)
        await use(server, 100, 4)
        given = await use(server, 100, 4)
        assert sum(ticket % 2 == 0 for ticket in given) > 100


@virtual_time
async def test_nobody_waits_for_a_refill_when_the_server_has_ended() -> None:
    async with Site(2) as site:
        server = await site.ticket_server(reserve_seconds=SECONDS)
        await use(server, 50, 6)
        empty(server)
        reserve_of(server).refill()
        assert "coming" in repr(reserve_of(server))
        await server.reserves.stop()
        asked = asyncio.create_task(server.desk.take("photos"))
        await settled()
        assert "waiting" not in repr(reserve_of(server))
        await asked


@virtual_time
async def test_while_nothing_may_be_handed_out_nothing_is_drawn_ahead() -> None:
    """Databases that cannot keep marks say nothing of bumps."""
    async with Site(2) as site:
        server = await site.ticket_server(reserve_seconds=60)
        await use(server, 100, 6)
        for database in site.servers:
            database.ledger_fails = True
        await asyncio.sleep(3)
        before = drawn(site)
        given = await use(server, 100, 3)
        assert drawn(site) - before == len(given)


@virtual_time
async def test_of_one_that_was_away_at_first_it_is_seen_first_where_it_stands() -> None:
    async with Site(2) as site:
        site.servers[1].down = True
        site.servers[1].table("photos").advance(2**63 - 1_000)
        server = await site.ticket_server(reserve_seconds=SECONDS)
        await use(server, 100, 8)
        site.servers[1].down = False
        await asyncio.sleep(2)
        await use(server, 100, 4)
        assert 0 < sum(draw.size for _, draw, _ in site.servers[1].draws) <= 3


@virtual_time
async def test_databases_are_not_looked_at_for_every_request_that_finds_the_window_over() -> None:
    async with Site(2) as site:
        server = await site.ticket_server(reserve_seconds=60)
        await use(server, 100, 6)
        for database in site.servers:
            database.ledger_fails = True
        await asyncio.sleep(3)
        assert reserve_of(server).left > 300
        before = [database.looks for database in site.servers]
        for _ in range(600):
            assert server.desk.ready("photos") is None
            await asyncio.sleep(0.005)
        looks = [database.looks - there for database, there in zip(site.servers, before, strict=True)]
        assert max(looks) < 30
