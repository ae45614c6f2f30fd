"""How a reserve of tickets is refilled: when, and whom it asks."""

import asyncio
from collections.abc import Callable

import pytest

from app.common.errors import SequenceUnavailable
from app.databases.protocol import Drawn, Residue, Table
from tests.fakes.ticket_server import PROBE_INTERVAL, FakeTicketServer, Site
from tests.fakes.virtual_time import virtual_time
from tests.unit.tickets.reserves import SECONDS, assert_in_order, coming, drawn, empty, reserve_of, use, used_up


@virtual_time
async def test_a_refill_that_breaks_in_the_midst_of_an_answer_costs_nobody_a_ticket_or_gives_two() -> None:
    """The lane of the next refill breaks at once, while those who wait are served from the one that has come."""
    async with Site(1) as site:
        server = await site.ticket_server(reserve_seconds=SECONDS)
        given = await use(server, 50, 6)
        given += empty(server)
        database, sent = server.databases[0], 0
        start_draw = database.start_draw

        def breaks(
            residue: Residue, table: Table, count: int, after: int, done: Callable[[Drawn], None], *, least: int = 0
        ) -> None:
            nonlocal sent
            sent += 1
            if sent == 2:
                raise RuntimeError("the driver broke")
            start_draw(residue, table, count, after, done, least=least)

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


@virtual_time
async def test_what_is_coming_is_not_asked_for_twice() -> None:
    async with Site(2) as site:
        _, reserve, _ = await used_up(site, 20)
        reserve.refill()
        asked = coming(reserve)
        assert 0 < asked <= reserve.demand.size
        assert sum(shelf.refilling for shelf in reserve.shelves) == 1  # so few are one statement's
        reserve.refill()
        assert coming(reserve) == asked


@virtual_time
async def test_a_lane_has_one_refill_under_way() -> None:
    async with Site(2) as site:
        _, reserve, _ = await used_up(site, 100, largest_block=60)
        reserve.refill()
        assert coming(reserve) == 60
        reserve.refill()
        assert coming(reserve) == 60


@virtual_time
async def test_a_little_that_is_missing_is_not_drawn() -> None:
    async with Site(2) as site:
        server = await site.ticket_server(reserve_seconds=SECONDS)
        await use(server, 100, 20)
        reserve = reserve_of(server)
        assert server.desk.ready("photos", reserve.left - int(0.93 * reserve.demand.size), singly=True) is not None
        assert coming(reserve) == 0
        assert server.desk.ready("photos", int(0.05 * reserve.demand.size), singly=True) is not None
        assert coming(reserve) > 0


@virtual_time
async def test_a_lane_that_could_not_give_a_refill_is_asked_again_a_moment_later() -> None:
    async with Site(1) as site:
        _, reserve, _ = await used_up(site)
        site.servers[0].deadlocks = 1
        reserve.refill()
        assert coming(reserve)
        await asyncio.sleep(0.05)
        reserve.refill()
        assert coming(reserve) == 0
        await asyncio.sleep(0.3)
        reserve.refill()
        assert coming(reserve) > 0


def suspend(server: FakeTicketServer) -> None:
    server.lane("photos", 1).suspend(SequenceUnavailable("cannot be locked"))


def mark_down(server: FakeTicketServer) -> None:
    server.ring.mark_down(server.ring.members[0], "refuses connections")


def come_to_the_end(server: FakeTicketServer) -> None:
    guard = server.lane("photos", 1).guard
    guard.advance(guard.ceiling - 100 * reserve_of(server).demand.size + 2)


def close(server: FakeTicketServer) -> None:
    reserve_of(server).close()


def come_close_to_the_end(server: FakeTicketServer) -> None:
    guard = server.lane("photos", 1).guard
    guard.advance(guard.ceiling - 100 * reserve_of(server).demand.size - 2)


@pytest.mark.parametrize(
    ("happens", "asked"),
    [(suspend, False), (mark_down, False), (come_to_the_end, False), (close, False), (come_close_to_the_end, True)],
)
def test_a_lane_that_cannot_or_must_not_give_one_is_not_asked(
    happens: Callable[[FakeTicketServer], None], *, asked: bool
) -> None:
    @virtual_time
    async def scenario() -> None:
        async with Site(1) as site:
            server, reserve, _ = await used_up(site)
            happens(server)
            reserve.refill()
            assert (coming(reserve) > 0) is asked

    scenario()


@virtual_time
async def test_a_database_that_may_not_draw_is_not_asked_for_a_refill() -> None:
    async with Site(2) as site:
        server, reserve, _ = await used_up(site, refuse_unverified=True)
        site.servers[1].down = True
        await asyncio.sleep(PROBE_INTERVAL + 0.2)
        assert server.ring.members[0].up
        reserve.refill()
        assert coming(reserve) == 0
