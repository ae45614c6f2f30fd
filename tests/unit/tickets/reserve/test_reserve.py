"""Tickets drawn ahead: what is handed out from them, how many there are, and what is dropped."""

import asyncio
import math
import random
from collections import Counter

import pytest

from app.common.errors import Draining, NoTicketDatabase
from app.tickets.reserve.reserve import OLDEST
from tests.fakes.ticket_server import Site
from tests.fakes.virtual_time import settled, virtual_time
from tests.unit.tickets.reserves import (
    SECONDS,
    WINDOW,
    Noting,
    assert_in_order,
    coming,
    drawn,
    empty,
    gaps,
    reserve_of,
    use,
)


@virtual_time
async def test_without_the_setting_nothing_is_drawn_ahead() -> None:
    async with Site(2) as site:
        server = await site.ticket_server()
        await use(server, 100, 5)
        assert server.catalog.entries["photos"].reserve is None
        assert server.desk.ready("photos") is None
        assert drawn(site) == 500


@virtual_time
async def test_it_holds_what_the_present_rate_uses_up_in_its_time() -> None:
    async with Site(2) as site:
        server = await site.ticket_server(reserve_seconds=SECONDS)
        given = await use(server, 100, 10)
        reserve = reserve_of(server)
        assert 0.85 * 500 <= reserve.left <= 1.1 * 500
        assert reserve.lasts == pytest.approx(SECONDS, rel=0.15)
        assert_in_order(given)
        assert server.catalog.entries["photos"].issued == len(given) == 1_000
        assert drawn(site) == len(given) + reserve.left + sum(gaps(server).values())


@virtual_time
async def test_at_a_steady_rate_nobody_waits_for_a_database() -> None:
    async with Site(2) as site:
        server = await site.ticket_server(reserve_seconds=SECONDS)
        await use(server, 200, 5)
        for _ in range(2_000):
            assert server.desk.ready("photos") is not None
            await asyncio.sleep(0.005)
        statements = sum(len(database.draws) for database in site.servers)
        assert statements < 400


@virtual_time
async def test_the_databases_take_turns() -> None:
    async with Site(3) as site:
        server = await site.ticket_server(reserve_seconds=SECONDS)
        given = await use(server, 300, 6)
        of_each = Counter(ticket % 3 for ticket in given[900:])
        assert min(of_each.values()) > 150


@virtual_time
async def test_what_is_served_at_once_is_counted_like_any_other_request() -> None:
    async with Site(2) as site:
        server = await site.ticket_server(reserve_seconds=SECONDS)
        await use(server, 100, 5)
        before = server.metrics.requests["ticket", "ok"]
        assert server.desk.ready("photos") is not None
        assert server.desk.ready("photos", 10) is not None
        many = server.desk.ready("photos", 16, singly=True)
        assert many is not None
        assert server.metrics.requests["ticket", "ok"] == before + 18
        assert server.metrics.in_flight == 0
        assert server.desk.ready("nosuch") is server.desk.ready("nosuch", 2, singly=True) is None
        assert server.desk.ready("photos", 100_000) is server.desk.ready("photos", 100_000, singly=True) is None
        assert server.metrics.requests["ticket", "ok"] == before + 18


@virtual_time
async def test_singles_come_from_several_databases_and_a_list_from_one() -> None:
    async with Site(2) as site:
        server = await site.ticket_server(reserve_seconds=SECONDS)
        given = await use(server, 100, 6)
        reserve = reserve_of(server)
        most = max(len(shelf) for shelf in reserve.shelves)
        left = reserve.left
        assert server.desk.ready("photos", most + 1) is None
        singles = server.desk.ready("photos", most + 1, singly=True)
        assert singles is not None
        assert len(singles) == most + 1
        assert reserve.left == left - most - 1
        assert_in_order([*given, *singles])
        await asyncio.sleep(0.2)
        given += singles
        for count in (1, 7, 40, 90):
            listed = await server.desk.take("photos", count)
            assert len({ticket % 2 for ticket in listed}) == 1
            assert list(listed) == sorted(listed)
            given += listed
        assert_in_order(given)


@virtual_time
async def test_while_a_refill_is_under_way_requests_wait_for_it() -> None:
    async with Site(2) as site:
        server = await site.ticket_server(reserve_seconds=SECONDS)
        given = await use(server, 50, 6)
        given += empty(server)
        before = sum(len(database.draws) for database in site.servers)
        answers = await asyncio.gather(*(server.desk.take("photos") for _ in range(20)))
        given += [ticket for tickets in answers for ticket in tickets]
        assert_in_order(given)
        assert sum(len(database.draws) for database in site.servers) <= before + 4
        assert not gaps(server)


@virtual_time
async def test_those_who_wait_are_sent_to_the_lanes_when_the_refill_fails() -> None:
    async with Site(2) as site:
        server = await site.ticket_server(reserve_seconds=SECONDS)
        given = await use(server, 50, 6)
        given += empty(server)
        for database in site.servers:
            database.loses_replies = 1
        answers = await asyncio.gather(*(server.desk.take("photos") for _ in range(20)))
        given += [ticket for tickets in answers for ticket in tickets]
        assert_in_order(given)
        await asyncio.sleep(3)
        given += await use(server, 50, 2)
        assert_in_order(given)


@pytest.mark.parametrize("seed", range(30))
def test_the_tickets_of_one_database_increase_whatever_is_asked_for(seed: int) -> None:
    @virtual_time
    async def scenario() -> None:
        chance = random.Random(seed)
        async with Site(2) as site:
            server = await site.ticket_server(reserve_seconds=chance.choice([0.5, 2.0, 10.0]))
            given: list[int] = []

            async def client() -> None:
                for _ in range(60):
                    server.desk.accept(Noting(given, chance.choice([1, 1, 1, 3, 50, 400])))
                    if chance.random() < 0.1:
                        server.desk.accept(Noting([], 2_000, whole=True))
                    await asyncio.sleep(chance.choice([0, 0.001, 0.02, 0.3]))
                    if chance.random() < 0.03:
                        chance.choice(site.servers).deadlocks = 2
                    if chance.random() < 0.02:
                        chance.choice(site.servers).restart()

            await asyncio.gather(*(client() for _ in range(6)))
            await asyncio.sleep(3)
            assert len(given) > 1_000
            assert_in_order(given)

    scenario()


@virtual_time
async def test_a_lane_that_gives_by_itself_leaves_nothing_below_in_reserve() -> None:
    async with Site(2) as site:
        server = await site.ticket_server(reserve_seconds=SECONDS)
        await use(server, 100, 6)
        reserve = reserve_of(server)
        (ticket, *_), of_each = await server.desk.take("photos", 1_000), [len(shelf) for shelf in reserve.shelves]
        assert of_each[(ticket - 1) % 2] == 0
        assert gaps(server)["passed"] > 100
        assert of_each[ticket % 2] > 100


@virtual_time
async def test_blocks_come_from_the_databases_and_leave_it_alone() -> None:
    async with Site(2) as site:
        server = await site.ticket_server(reserve_seconds=SECONDS)
        await use(server, 100, 6)
        left = reserve_of(server).left
        await server.desk.take("photos", 100, whole=True)
        assert reserve_of(server).left == left
        assert not gaps(server)


@virtual_time
async def test_what_is_three_times_its_time_old_is_dropped_whether_anybody_asks_or_not() -> None:
    async with Site(2) as site:
        server = await site.ticket_server(reserve_seconds=SECONDS)
        await use(server, 100, 6)
        left = reserve_of(server).left
        await asyncio.sleep(OLDEST * SECONDS - 1.5)
        assert 0 < reserve_of(server).left <= left
        await asyncio.sleep(3)
        assert reserve_of(server).left == 0
        assert gaps(server)["aged"] == left


@virtual_time
async def test_near_the_end_of_a_sequence_nothing_is_drawn_ahead() -> None:
    async with Site(2) as site:
        for database in site.servers:
            database.table("photos").advance(2**63 - 60_000)
        server = await site.ticket_server(reserve_seconds=SECONDS)
        await use(server, 100, 3)
        assert reserve_of(server).left > 0  # its size was small at first
        for _ in range(20):
            await use(server, 400, 1)
        assert reserve_of(server).demand.size * 100 > 60_000
        left = reserve_of(server).left
        before = drawn(site)
        await use(server, 400, 0.5)
        assert drawn(site) - before <= 200
        assert reserve_of(server).left <= left


@virtual_time
async def test_the_end_of_the_server_drops_what_is_left() -> None:
    async with Site(2) as site:
        server = await site.ticket_server(reserve_seconds=SECONDS)
        await use(server, 100, 6)
        left = reserve_of(server).left
        server.desk.closed = True
        assert server.desk.ready("photos") is None
        with pytest.raises(Draining):
            await server.desk.take("photos")
        await site.stop(server)
        assert gaps(server)["ended"] == left > 0
        assert reserve_of(server).take() is None


@virtual_time
async def test_when_no_database_can_be_reached_it_is_lived_on() -> None:
    async with Site(2) as site:
        server = await site.ticket_server(reserve_seconds=10)
        given = await use(server, 200, 12)
        for database in site.servers:
            database.down = True
        given += await use(server, 200, 8)
        assert server.admin.ready
        with pytest.raises(NoTicketDatabase):
            await use(server, 200, 8)
        assert not server.admin.ready
        site.servers[0].down = False
        await asyncio.sleep(1)
        assert server.admin.ready
        given += await use(server, 200, 3)
        assert_in_order(given)


@virtual_time
async def test_when_all_databases_hang_it_is_lived_on() -> None:
    async with Site(2) as site:
        server = await site.ticket_server(reserve_seconds=10)
        given = await use(server, 200, 12)
        for database in site.servers:
            database.hang()
        given += await use(server, 200, 7)
        assert_in_order(given)


@virtual_time
async def test_one_that_is_merely_down_keeps_its_reserve() -> None:
    async with Site(2) as site:
        server = await site.ticket_server(reserve_seconds=SECONDS)
        await use(server, 100, 6)
        site.servers[0].down = True
        await asyncio.sleep(2)
        assert len(reserve_of(server).shelves[0]) > 50
        assert any(ticket % 2 for ticket in await use(server, 100, 0.2))


@virtual_time
async def test_one_whose_token_has_changed_loses_its_reserve() -> None:
    async with Site(2) as site:
        server = await site.ticket_server(reserve_seconds=SECONDS)
        await use(server, 100, 6)
        copy = site.servers[0].snapshot()
        given = await use(server, 100, 1)
        site.servers[0].restore(copy)
        await asyncio.sleep(3)
        given += await use(server, 100, 3)
        assert gaps(server)["superseded"] > 50
        assert_in_order(given)


@virtual_time
async def test_what_was_drawn_without_a_witness_is_warned_of() -> None:
    async with Site(2) as site:
        server = await site.ticket_server(reserve_seconds=SECONDS)
        site.servers[1].down = True
        await asyncio.sleep(2)
        await use(server, 100, 6)
        left = reserve_of(server).left
        assert left > 300
        (warning,) = [each for each in server.admin.health()["warnings"] if "in reserve" in each["reason"]]
        assert warning["sequence"] == "photos"
        assert warning["database"] == site.servers[0].name
        assert f"{left:,}" in warning["reason"]
        site.servers[1].down = False
        await asyncio.sleep(2)
        await server.desk.take("photos", 1_000)  # marked on the one that has come back
        await server.desk.take("photos", 1_000)
        await settled()
        assert not [each for each in server.admin.health()["warnings"] if "in reserve" in each["reason"]]


@virtual_time
async def test_a_sequence_of_another_ring_leaves_its_reserve_behind() -> None:
    async with Site(2) as site:
        server = await site.ticket_server(reserve_seconds=SECONDS)
        await use(server, 100, 6)
        reserve = reserve_of(server)
        server.catalog.forget()
        assert reserve.left == 0
        assert reserve.take() is None


# --- what may not be handed out -------------------------------------------------------------------------------------


@virtual_time
async def test_a_lane_whose_token_is_another_gives_nothing_from_that_moment_on() -> None:
    async with Site(1) as site:
        server = await site.ticket_server(reserve_seconds=SECONDS)
        await use(server, 100, 6)
        left = reserve_of(server).left
        server.lane("photos", 1).marks.adopt("another:1")
        assert server.desk.ready("photos") is None
        assert gaps(server)["superseded"] == left > 300
        assert reserve_of(server).left == 0


@virtual_time
async def test_nothing_is_given_after_the_window_whatever_is_asked_for() -> None:
    async with Site(2) as site:
        server = await site.ticket_server(reserve_seconds=SECONDS)
        await use(server, 100, 6)
        reserve = reserve_of(server)
        assert server.reserves.any_gives
        await server.prober.stop()
        await asyncio.sleep(WINDOW + 0.1)
        left = reserve.left
        most = max(len(shelf) for shelf in reserve.shelves)
        assert most + 1 <= left
        assert server.desk.ready("photos") is server.desk.ready("photos", 2) is None
        assert server.desk.ready("photos", 3, singly=True) is server.desk.ready("photos", most + 1, singly=True) is None
        assert reserve.left == left
        assert not server.reserves.any_gives


@virtual_time
async def test_many_singles_at_once_cause_a_refill_too() -> None:
    async with Site(2) as site:
        server = await site.ticket_server(reserve_seconds=SECONDS)
        await use(server, 100, 6)
        reserve = reserve_of(server)
        assert server.desk.ready("photos", max(len(shelf) for shelf in reserve.shelves) + 1, singly=True) is not None
        assert coming(reserve) > 200
        await asyncio.sleep(0.1)
        assert reserve.left > 400


@virtual_time
async def test_what_is_too_old_is_not_given_before_anybody_has_swept_it() -> None:
    async with Site(2) as site:
        server = await site.ticket_server(reserve_seconds=SECONDS)
        await use(server, 100, 6)
        site.clock.now += 3 * SECONDS + 1  # nothing else happens meanwhile
        server.reserves.window.until = math.inf
        assert server.desk.ready("photos") is None
        assert gaps(server)["aged"] > 300


@virtual_time
async def test_after_the_end_nothing_is_handed_out() -> None:
    async with Site(2) as site:
        server = await site.ticket_server(reserve_seconds=SECONDS)
        await use(server, 100, 6)
        assert server.desk.ready("photos", 2, singly=True) is not None
        server.desk.closed = True
        assert server.desk.ready("photos", 2, singly=True) is server.desk.ready("photos") is None
