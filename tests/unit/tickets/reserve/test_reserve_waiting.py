"""Requests that wait for a refill: which wait, which are served, and which go to the lanes or are refused."""

import asyncio
import math

import pytest

from app.common.errors import Draining, NoTicketDatabase, OutOfTime, TicketDatabaseBusy
from app.databases.protocol import Draw
from tests.fakes.ticket_server import Site
from tests.fakes.virtual_time import settled, virtual_time
from tests.unit.tickets.reserves import SECONDS, Noting, assert_in_order, coming, empty, now, reserve_of, use, used_up


@virtual_time
async def test_nobody_waits_for_a_refill_that_could_not_be_handed_out() -> None:
    async with Site(2) as site:
        server, reserve, _ = await used_up(site)
        reserve.refill()
        assert coming(reserve)
        server.reserves.window.until = -math.inf
        asked = asyncio.create_task(server.desk.take("photos"))
        await settled()
        assert not reserve.waiting
        await asked


@virtual_time
async def test_who_waits_is_sent_on_where_what_comes_may_not_be_handed_out() -> None:
    """One of two refills has come, and there is no use in waiting for the other."""
    async with Site(2) as site:
        server, reserve, _ = await used_up(site, 100)
        site.servers[0].lock("photos")
        reserve.refill()
        assert all(shelf.refilling for shelf in reserve.shelves)
        asked = asyncio.create_task(server.desk.take("photos", 600))
        await settled()
        assert reserve.waiting
        server.reserves.window.until = -math.inf
        await asyncio.sleep(0.02)
        assert [shelf.refilling for shelf in reserve.shelves] == [True, False]
        assert not reserve.waiting
        site.servers[0].unlock()
        await asked


@virtual_time
async def test_nobody_overtakes_those_who_wait() -> None:
    async with Site(1) as site:
        server, reserve, _ = await used_up(site, 100)
        reserve.refill()
        await asyncio.sleep(0.1)
        assert server.desk.ready("photos", reserve.left - 5) is not None
        assert coming(reserve) > 0
        first: list[int] = []
        second: list[int] = []
        server.desk.accept(Noting(first, 100))
        server.desk.accept(Noting(second))
        await settled()
        assert reserve.waiting
        assert reserve.left
        assert server.desk.ready("photos", singly=True) is None
        await asyncio.sleep(0.1)
        assert max(first) < min(second)


@virtual_time
async def test_who_has_waited_long_enough_is_sent_on_alone() -> None:
    async with Site(1) as site:
        server, reserve, _ = await used_up(site, 100)
        reserve.refill()
        await asyncio.sleep(0.1)
        assert server.desk.ready("photos", reserve.left - 5) is not None
        site.servers[0].lock("photos")
        assert coming(reserve) > 0
        given: list[list[int]] = [[], [], []]
        requests = [Noting(each, count) for each, count in zip(given, (100, 2, 50), strict=True)]
        for request in requests:
            server.desk.accept(request)
        assert reserve.waiting
        requests[0].until = -math.inf
        reserve.expire(asyncio.get_running_loop().time())
        assert requests[0].lane is server.lane("photos", 1)
        assert len(given[1]) == 2  # it was only behind
        assert requests[2].lane is None
        assert reserve.waiting
        site.servers[0].unlock()
        await asyncio.sleep(0.1)
        assert max(given[1]) < min(given[2]) < min(given[0])


@virtual_time
async def test_who_has_gone_away_while_it_waited_gets_nothing() -> None:
    for fails in (False, True):
        async with Site(1) as site:
            server, reserve, given = await used_up(site)
            reserve.refill()
            asked = [asyncio.create_task(server.desk.take("photos", 5)) for _ in range(4)]
            await settled()
            assert reserve.waiting
            for task in asked[:2]:
                task.cancel()
            site.servers[0].loses_replies = int(fails)
            answers = await asyncio.gather(*asked, return_exceptions=True)
            given += [ticket for tickets in answers if not isinstance(tickets, BaseException) for ticket in tickets]
            assert len(answers) == 4
            await asyncio.sleep(2)
            given += await use(server, 20, 0.5)
            assert server.metrics.in_flight == 0
            assert server.catalog.entries["photos"].issued == len(given)
            assert_in_order(given, 1)


@virtual_time
async def test_those_who_wait_are_refused_when_the_server_ends() -> None:
    async with Site(1) as site:
        server, reserve, _ = await used_up(site)
        reserve.refill()
        asked = asyncio.create_task(server.desk.take("photos"))
        await settled()
        assert reserve.waiting
        await server.reserves.stop()
        with pytest.raises(Draining):
            await asked


@virtual_time
async def test_those_who_wait_in_a_sequence_of_another_ring_are_served_in_this_one() -> None:
    async with Site(1) as site:
        server, reserve, given = await used_up(site)
        reserve.refill()
        asked = asyncio.create_task(server.desk.take("photos"))
        await settled()
        assert reserve.waiting
        server.catalog.forget()
        given += await asked
        assert_in_order(given, 1)


@virtual_time
async def test_those_who_wait_when_a_reserve_is_closed_are_sent_on_but_not_who_has_gone_away() -> None:
    async with Site(1) as site:
        server, reserve, given = await used_up(site)
        reserve.refill()
        asked, gone = (asyncio.create_task(server.desk.take("photos")) for _ in range(2))
        await settled()
        gone.cancel()
        await settled()
        assert reserve.waiting
        reserve.close()
        assert not reserve.waiting
        given += await asked
        await asyncio.sleep(1)
        assert server.metrics.in_flight == 0
        assert server.catalog.entries["photos"].issued == len(given)


@virtual_time
async def test_who_found_no_database_is_served_from_what_may_be_handed_out_by_then() -> None:
    async with Site(1) as site:
        server = await site.ticket_server(reserve_seconds=20)
        await use(server, 100, 6)
        site.servers[0].down = True
        await asyncio.sleep(3)
        server.reserves.window.until = -math.inf
        server.ring.members[0].settled = True
        given: list[int] = []
        request = Noting(given)
        server.desk.accept(request)
        server.ring.members[0].settled = True
        server.reserves.window.until = math.inf
        await settled()
        assert given


@virtual_time
async def test_who_waited_for_a_busy_database_is_served_from_what_may_be_handed_out_by_then() -> None:
    async with Site(1) as site:
        server = await site.ticket_server(reserve_seconds=20)
        await use(server, 100, 6)
        reserve = reserve_of(server)
        until, server.reserves.window.until = server.reserves.window.until, -math.inf
        draw, busy = site.servers[0].draw, asyncio.Event()

        def deadlocked(*_: object, **__: object) -> Draw:
            site.servers[0].draw = draw  # type: ignore[method-assign]
            busy.set()
            raise TicketDatabaseBusy("deadlocked again and again")

        site.servers[0].draw = deadlocked  # type: ignore[method-assign]
        asked = asyncio.create_task(server.desk.take("photos"))
        await busy.wait()
        await asyncio.sleep(0.001)  # then the answer is on its way, and after it comes a pause of five of these
        draws, left = len(site.servers[0].draws), reserve.left
        server.reserves.window.until = until + 1
        await asked
        assert len(site.servers[0].draws) == draws
        assert reserve.left == left - 1


@virtual_time
async def test_a_block_that_a_busy_database_has_to_be_asked_for_again_is_drawn_there_too() -> None:
    async with Site(1) as site:
        server = await site.ticket_server(reserve_seconds=20)
        await use(server, 100, 6)
        left = reserve_of(server).left
        site.servers[0].deadlocks = 1
        await server.desk.take("photos", 5, whole=True)
        assert site.servers[0].deadlocks == 0
        assert server.ring.members[0].failovers == 1
        assert reserve_of(server).left == left


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
