"""The issuer: turns between the databases, failover inside the request's own time, and what is said when none can."""

import asyncio
from collections import Counter

import pytest

from app.common.errors import InvalidRequest, NoTicketDatabase, OutOfTime, SequenceExhausted, UnknownSequence
from app.tickets.lanes.attempts import EXPIRY_SECONDS
from app.tickets.requests.request import Tickets
from tests.fakes.ticket_database import TIMEOUT, FakeTicketDatabase
from tests.fakes.ticket_server import REQUEST_TIMEOUT, FakeTicketServer, Site
from tests.fakes.virtual_time import virtual_time


def ids(*answers: Tickets) -> list[int]:
    return [ticket for tickets in answers for ticket in tickets]


async def singles(server: FakeTicketServer, times: int, sequence: str = "photos") -> list[int]:
    return [(await server.desk.take(sequence, 1))[0] for _ in range(times)]


async def take_all(server: FakeTicketServer, sequence: str, given: list[int]) -> None:
    while True:
        given += ids(await server.desk.take(sequence, 1))


def now() -> float:
    return asyncio.get_running_loop().time()


@virtual_time
async def test_requests_alternate_between_the_databases_and_each_sequence_has_its_own_turn() -> None:
    async with Site(2, ["photos", "accounts"]) as site:
        server = await site.ticket_server()
        assert await singles(server, 5) == [1, 2, 3, 4, 5]
        assert await singles(server, 3, "accounts") == [1, 2, 3]
        assert await singles(server, 3) == [6, 7, 8]


@virtual_time
async def test_several_tickets_come_from_one_database() -> None:
    async with Site(2) as site:
        server = await site.ticket_server()
        assert await server.desk.take("photos", 3) == range(1, 7, 2)
        assert await server.desk.take("photos", 3) == range(2, 8, 2)
        assert await server.desk.take("photos", 10_000, whole=True) == range(7, 20_007, 2)


@virtual_time
async def test_three_databases_with_room_for_a_fourth() -> None:
    async with Site(3, increment=4) as site:
        server = await site.ticket_server()
        assert await singles(server, 6) == [1, 2, 3, 5, 6, 7]


@pytest.mark.parametrize("fault", ["down", "read_only"])
def test_a_database_that_fails_costs_its_requests_one_attempt(fault: str) -> None:
    @virtual_time
    async def scenario() -> None:
        async with Site(2) as site:
            server = await site.ticket_server()
            await singles(server, 2)
            setattr(site.servers[0], fault, True)
            began = now()
            answers = await asyncio.gather(*(server.desk.take("photos", 1) for _ in range(20)))
            assert all(ticket % 2 == 0 for ticket in ids(*answers))
            assert now() - began < 0.05
            assert server.ring.members[0].failovers >= 1
            assert await singles(server, 4) == [44, 46, 48, 50]

    scenario()


@virtual_time
async def test_a_database_that_hangs_costs_at_most_one_timeout_and_then_nothing() -> None:
    async with Site(2) as site:
        server = await site.ticket_server()
        await singles(server, 2)
        site.servers[0].hang()
        began = now()
        await asyncio.gather(*(server.desk.take("photos", 1) for _ in range(20)))
        assert TIMEOUT * 0.9 < now() - began < TIMEOUT + 0.1
        began = now()
        await singles(server, 20)
        assert now() - began < 0.5


@virtual_time
async def test_requests_leave_a_database_that_goes_down_at_once() -> None:
    async with Site(2) as site:
        server = await site.ticket_server()
        await singles(server, 2)
        site.servers[0].hang()
        began = now()
        asked = [asyncio.create_task(server.desk.take("photos", 1)) for _ in range(4)]
        await asyncio.sleep(0.05)
        server.ring.mark_down(server.ring.members[0], "broke the connection off")
        await asyncio.gather(*asked)
        assert now() - began < 0.1


@virtual_time
async def test_requests_that_arrive_while_one_hangs_leave_each_in_their_own_time() -> None:
    async with Site(2) as site:
        server = await site.ticket_server()
        await singles(server, 2)
        site.servers[0].hang()
        took = []

        async def one() -> None:
            began = now()
            await server.desk.take("photos", 1)
            took.append(now() - began)

        tasks = []
        for _ in range(20):
            tasks.append(asyncio.create_task(one()))
            await asyncio.sleep(0.02)
        await asyncio.gather(*tasks)
        assert max(took) < TIMEOUT + 0.1


@virtual_time
async def test_a_reply_that_was_lost_is_a_gap_and_never_a_second_ticket() -> None:
    async with Site(2) as site:
        server = await site.ticket_server()
        before = await singles(server, 4)
        site.servers[0].loses_replies = 1
        after = ids(*await asyncio.gather(*(server.desk.take("photos", 1) for _ in range(10))))
        await asyncio.sleep(2)
        later = await singles(server, 10)
        every = before + after + later
        assert len(every) == len(set(every))
        assert 5 not in every  # drawn, and its answer lost


@virtual_time
async def test_deadlocks_mark_nothing_down() -> None:
    async with Site(2) as site:
        server = await site.ticket_server()
        await singles(server, 2)
        site.servers[0].deadlocks = 3
        assert len(set(await singles(server, 10))) == 10
        assert all(member.up for member in server.ring.members)


@virtual_time
async def test_deadlocks_that_last_are_outlasted() -> None:
    async with Site(2) as site:
        server = await site.ticket_server()
        await singles(server, 2)
        for database in site.servers:
            database.deadlocks = 10
        began = now()
        assert (await singles(server, 1))[0] > 2
        assert 0.2 < now() - began < REQUEST_TIMEOUT
        assert all(database.deadlocks == 0 for database in site.servers)


@virtual_time
async def test_deadlocks_cost_a_request_its_time_and_no_more() -> None:
    for milliseconds in range(200, 290, 10):  # one of them ends within the longest pause
        async with Site(2) as site:
            server = await site.ticket_server(request_timeout=milliseconds / 1000)
            await singles(server, 2)
            for database in site.servers:
                database.deadlocks = 1_000
            began = now()
            with pytest.raises(OutOfTime):
                await singles(server, 1)
            assert now() - began == pytest.approx(milliseconds / 1000, abs=EXPIRY_SECONDS)


@virtual_time
async def test_one_that_may_not_draw_is_said_at_once() -> None:
    async with Site(2) as site:
        server = await site.ticket_server(refuse_unverified=True)
        await singles(server, 2)
        site.servers[1].down = True
        await asyncio.sleep(2)
        began = now()
        with pytest.raises(NoTicketDatabase, match="can draw for photos"):
            await server.desk.take("photos", 1)
        assert now() - began < 0.1


@virtual_time
async def test_a_locked_table_leaves_the_other_sequences_alone() -> None:
    async with Site(2, ["photos", "accounts"]) as site:
        server = await site.ticket_server()
        await singles(server, 2)
        await singles(server, 2, "accounts")
        site.servers[0].lock("photos")
        assert all(ticket % 2 == 0 for ticket in await singles(server, 4))
        assert {ticket % 2 for ticket in await singles(server, 6, "accounts")} == {0, 1}
        assert all(member.up for member in server.ring.members)
        site.servers[0].unlock()
        await asyncio.sleep(3)
        assert {ticket % 2 for ticket in await singles(server, 6)} == {0, 1}


@virtual_time
async def test_nobody_left_is_said_inside_the_requests_time() -> None:
    async with Site(2) as site:
        server = await site.ticket_server()
        await singles(server, 2)
        for database in site.servers:
            database.down = True
        began = now()
        with pytest.raises((NoTicketDatabase, OutOfTime)):
            await server.desk.take("photos", 1)
        assert now() - began < REQUEST_TIMEOUT
        await asyncio.sleep(2)
        began = now()
        with pytest.raises(NoTicketDatabase):
            await server.desk.take("photos", 1)
        assert now() - began < 0.1  # known by then, so nobody waits
        for database in site.servers:
            database.down = False
        await asyncio.sleep(1.5)
        assert len(await singles(server, 2)) == 2


@virtual_time
async def test_all_that_hang_take_no_longer_than_a_request_may() -> None:
    async with Site(2) as site:
        server = await site.ticket_server()
        await singles(server, 2)
        for database in site.servers:
            database.hang()
        began = now()
        with pytest.raises((NoTicketDatabase, OutOfTime)):
            await server.desk.take("photos", 1)
        assert now() - began < REQUEST_TIMEOUT + 0.1


@virtual_time
async def test_it_starts_with_all_of_them_dead_and_takes_each_in_when_it_comes() -> None:
    async with Site(2) as site:
        for database in site.servers:
            database.down = True
        server = await site.ticket_server()
        with pytest.raises(NoTicketDatabase):
            await server.desk.take("photos", 1)
        site.servers[1].down = False
        await asyncio.sleep(1.5)
        assert await singles(server, 2) == [2, 4]
        site.servers[0].down = False
        await asyncio.sleep(1.5)
        assert {ticket % 2 for ticket in await singles(server, 4)} == {0, 1}


@virtual_time
async def test_unknown_and_malformed_names() -> None:
    async with Site(2) as site:
        server = await site.ticket_server()
        with pytest.raises(UnknownSequence):
            await server.desk.take("songs", 1)
        for name in ("", "a;b", "_high_water", "a" * 65, "1a", "ä"):
            with pytest.raises(InvalidRequest):
                await server.desk.take(name, 1)


@virtual_time
async def test_exhausted_on_every_database_is_said_and_the_others_go_on() -> None:
    async with Site(2, ["photos", "accounts"]) as site:
        server = await site.ticket_server()
        ceiling = site.servers[0].table("photos").ceiling
        for database in site.servers:
            database.use_up("photos", 0)
            database.table("photos").advance(ceiling - 6)
        given: list[int] = []
        with pytest.raises(SequenceExhausted):
            await take_all(server, "photos", given)
        assert len(given) == len(set(given))
        assert all(ticket <= ceiling for ticket in given)
        assert len(await singles(server, 4, "accounts")) == 4


@virtual_time
async def test_one_that_is_away_might_still_have_some() -> None:
    async with Site(2) as site:
        server = await site.ticket_server()
        site.servers[0].table("photos").advance(site.servers[0].table("photos").ceiling)
        await singles(server, 1)
        site.servers[1].down = True
        await asyncio.sleep(1.5)
        with pytest.raises(NoTicketDatabase):
            await server.desk.take("photos", 1)


@virtual_time
async def test_thousands_of_requests_that_come_and_go_leave_nothing_behind() -> None:
    async with Site(2) as site:
        server = await site.ticket_server()
        outcomes: Counter[str] = Counter()
        every: list[int] = []

        async def one(number: int) -> None:
            await asyncio.sleep(number * 0.0005)
            try:
                every.extend(await server.desk.take("photos", 1 + number % 3))
            except asyncio.CancelledError:
                outcomes["gone"] += 1
                raise

        tasks = [asyncio.create_task(one(number)) for number in range(1000)]
        for number, task in enumerate(tasks):
            if number % 3 == 0:
                asyncio.get_running_loop().call_later(number * 0.0005 + 0.001 * (number % 7), task.cancel)
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(0.1)
        assert outcomes["gone"] > 50
        assert len(every) == len(set(every))
        assert not any(lane.waiting for lane in server.catalog.lanes.values())
        for database in server.databases:
            assert isinstance(database, FakeTicketDatabase)
            assert database.in_flight == 0
