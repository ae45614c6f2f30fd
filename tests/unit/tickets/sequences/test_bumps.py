"""Bumps: a sequence is advanced above a number on every database, also where it ends."""

import asyncio

import pytest

from app.common.errors import NoTicketDatabase, SequenceExhausted, TicketDatabaseBusy
from app.common.sequences import Width
from app.tickets.lanes.state import LaneState
from tests.fakes.ticket_database import FakeTicketDatabase
from tests.fakes.ticket_server import FakeTicketServer, Site
from tests.fakes.virtual_time import virtual_time
from tests.unit.tickets.ledgers import mark_about, probed, take, take_all

TOP_OF_INT = 2**32 - 1

# --- bump ------------------------------------------------------------------------------------------------------------


@virtual_time
async def test_after_a_bump_everything_is_larger_on_every_database_and_every_server() -> None:
    async with Site(2) as site:
        one, other = await site.ticket_server(), await site.ticket_server()
        await take(one, 4)
        await take(other, 4)
        await one.admin.bump("photos", 100_000, force=False)
        assert min(await take(one, 4) + await take(other, 4)) > 100_000


@virtual_time
async def test_a_server_that_lists_fewer_databases_than_the_ring_has_bumps_nothing() -> None:
    async with Site(2) as site:
        server = await site.ticket_server()
        await take(server, 4)
        short = FakeTicketServer([FakeTicketDatabase(site.servers[0])], clock=asyncio.get_running_loop().time)
        await short.start()
        with pytest.raises(NoTicketDatabase, match="lists none for offset 2"):
            await short.admin.bump("photos", 100_000, force=False)
        assert max(await take(short, 1) + await take(server, 2)) < 100_000
        await short.stop()


@virtual_time
async def test_a_database_that_has_just_come_up_is_bumped_before_its_tables_are_listed() -> None:
    async with Site(2) as site:
        site.servers[1].down = True
        server = await site.ticket_server()
        await take(server, 2)
        site.servers[1].down = False
        second = server.ring.members[1]
        while not second.up:
            await server.ring.wait_for_change(5, expected=True)
        assert second not in server.catalog.entries["photos"].tables
        await server.admin.bump("photos", 100_000, force=False)
        assert min(await take(server, 4)) > 100_000


@virtual_time
async def test_a_number_that_a_database_has_not_kept_was_not_bumped_above() -> None:
    """One went down after the bump had looked: where the other comes back older, nobody would know of the number."""
    async with Site(2) as site:
        server = await site.ticket_server()
        await take(server, 4)
        await probed()
        server.ring.mark_down(server.ring.members[0], "has just gone down")
        with pytest.raises(TicketDatabaseBusy, match="kept on every other database"):
            await server.domain.bumps.advance(server.lane("photos", 2), 100_000)


@virtual_time
async def test_a_database_that_draws_and_keeps_no_marks_does_not_stand_in_the_way_of_a_bump() -> None:
    """It is told the number as soon as it can keep it; until then the health page warns."""
    async with Site(2) as site:
        server = await site.ticket_server()
        await take(server, 4)
        site.servers[1].ledger_fails = True
        await probed()
        assert server.ring.members[1].up
        assert any(each["reason"].startswith("unprotected") for each in server.admin.health()["warnings"])
        copy = site.servers[0].snapshot()
        await server.admin.bump("photos", 100_000, force=False)
        assert min(await take(server, 4)) > 100_000
        site.servers[1].ledger_fails = False
        await asyncio.sleep(4)
        assert not server.admin.health()["warnings"]
        site.servers[0].restore(copy)
        await asyncio.sleep(3)
        assert min(await take(server, 4)) > 100_000


@virtual_time
async def test_a_smaller_number_changes_nothing() -> None:
    async with Site(2) as site:
        server = await site.ticket_server()
        await take(server, 10)
        await server.admin.bump("photos", 3, force=False)
        assert await take(server, 2) == [11, 12]


@virtual_time
async def test_a_bump_is_kept_by_the_others_so_that_an_older_copy_is_moved_above_it() -> None:
    async with Site(2) as site:
        server = await site.ticket_server()
        await take(server, 4)
        copy = site.servers[0].snapshot()
        await server.admin.bump("photos", 100_000, force=False)
        site.servers[0].restore(copy)
        await asyncio.sleep(3)
        assert min(await take(server, 6)) > 100_000


@virtual_time
async def test_a_bump_while_tickets_are_drawn_gives_none_twice() -> None:
    async with Site(2) as site:
        server = await site.ticket_server()
        tickets: list[int] = []
        floor = 0

        async def draw() -> None:
            while floor < 50_000 or len(tickets) < 300:
                asked_above = floor
                tickets.extend(await server.desk.take("photos", 1))
                assert tickets[-1] > asked_above

        drawing = [asyncio.create_task(draw()) for _ in range(4)]
        for above in (500, 5_000, 50_000):
            await asyncio.sleep(0.03)
            await server.admin.bump("photos", above, force=False)
            floor = above
        await asyncio.gather(*drawing)
        assert len(tickets) == len(set(tickets))


@virtual_time
async def test_while_a_database_is_away_there_is_no_bump() -> None:
    async with Site(2) as site:
        server = await site.ticket_server()
        await take(server, 2)
        site.servers[1].down = True
        await probed()
        with pytest.raises(NoTicketDatabase):
            await server.admin.bump("photos", 1_000, force=False)


def make_small(site: Site, *left: int) -> None:
    """A 32-bit sequence `small` that has so many numbers left on the first database, on the second, and so on."""
    for database, numbers in zip(site.servers, left, strict=True):
        database.make("small", Width.INT, 1)
        database.use_up("small", numbers)


async def with_its_end_near(site: Site, *left: int) -> FakeTicketServer:
    """A ticket server on databases with such a sequence."""
    make_small(site, *left)
    return await site.ticket_server()


async def take_all_of_the_first(server: FakeTicketServer) -> None:
    while server.lane("small", 1).state is not LaneState.EXHAUSTED:
        await take(server, 1, "small")


@virtual_time
@pytest.mark.parametrize("restart", [False, True])
async def test_a_database_at_its_end_does_not_stand_in_the_way_of_a_bump(restart: bool) -> None:
    async with Site(2, []) as site:
        server = await with_its_end_near(site, 20, 2_000_000_000)
        await take_all_of_the_first(server)
        if restart:
            server = await site.restart(server)
        for above in (10, 3_000_000_000, 3_000_000_000):
            await server.admin.bump("small", above, force=False)
        assert min(await take(server, 5, "small")) > 3_000_000_000


@virtual_time
async def test_a_bump_of_a_sequence_that_is_at_its_end_everywhere() -> None:
    async with Site(2, []) as site:
        server = await with_its_end_near(site, 20, 20)
        with pytest.raises(SequenceExhausted):
            await take_all(server, "small", [])
        for above in (10, TOP_OF_INT - 10, TOP_OF_INT - 1):
            await server.admin.bump("small", above, force=True)
        with pytest.raises(SequenceExhausted):
            await take(server, 1, "small")


@virtual_time
async def test_a_bump_between_the_ends_of_the_two_sides() -> None:
    """The largest ticket but one belongs to the second database."""
    async with Site(2, []) as site:
        server = await with_its_end_near(site, 1_000, 1_000)
        await take(server, 4, "small")
        for _ in range(2):
            await server.admin.bump("small", TOP_OF_INT - 2, force=True)
        given: list[int] = []
        with pytest.raises(SequenceExhausted):
            await take_all(server, "small", given)
        assert given in ([], [TOP_OF_INT - 1])
        await server.admin.bump("small", TOP_OF_INT - 1, force=True)


@virtual_time
@pytest.mark.parametrize("restart", [False, True])
async def test_a_bump_is_kept_for_a_database_at_its_end_for_when_an_older_copy_comes_back(restart: bool) -> None:
    """It came there by an operator's hand, without a mark."""
    async with Site(2, []) as site:
        server = await with_its_end_near(site, 2_000_000_000, 2_000_000_000)
        await take(server, 4, "small")
        site.servers[0].use_up("small", 0)
        if restart:
            server = await site.restart(server)
        await take_all_of_the_first(server)
        await server.admin.bump("small", 3_000_000_000, force=False)
        row = mark_about(site, 1, on=2, sequence="small")
        assert min(row.mark, row.issued) >= 3_000_000_000


# --- the end of a sequence -------------------------------------------------------------------------------------------


@virtual_time
async def test_an_int_column_gives_each_id_once_to_the_very_end_on_both_sides() -> None:
    async with Site(2, []) as site:
        server = await with_its_end_near(site, 40, 40)
        given: list[int] = []
        with pytest.raises(SequenceExhausted):
            await take_all(server, "small", given)
        assert len(given) == len(set(given)) >= 30
        assert max(given) < 2**32 - 1  # MySQL gives that one again and again: never certain to be the first time


@virtual_time
async def test_a_database_restored_from_before_its_end_is_moved_to_the_end_at_once() -> None:
    """The marks that say so may be lost later, with the database that keeps them."""
    async with Site(2, []) as site:
        server = await with_its_end_near(site, 100, 100)
        copy = site.servers[1].snapshot()
        given: list[int] = []
        with pytest.raises(SequenceExhausted):
            await take_all(server, "small", given)
        await probed()
        site.servers[1].restore(copy)
        await probed()
        with pytest.raises(SequenceExhausted):
            await take_all(server, "small", given)
        site.servers[0].replace_by_empty()
        server = await site.restart(server)
        await asyncio.sleep(8)
        with pytest.raises(SequenceExhausted):
            await take_all(server, "small", given)
        assert len(given) == len(set(given))


@virtual_time
async def test_the_ceiling_of_an_int_column_is_never_handed_out_twice() -> None:
    async with Site(2, []) as site:
        make_small(site, 4, 4)
        one, other = await site.ticket_server(), await site.ticket_server()
        given: list[int] = []
        for server in (one, other, one, other):
            with pytest.raises((SequenceExhausted, NoTicketDatabase)):
                await take_all(server, "small", given)
        assert len(given) == len(set(given))


@virtual_time
async def test_a_list_of_a_server_that_has_not_heard_of_the_others_does_not_run_into_the_end() -> None:
    """It would fail whole and use up what is left."""
    async with Site(2, []) as site:
        make_small(site, 200, 200)
        one, other = [await site.ticket_server(probe_interval=30) for _ in range(2)]
        given = [*await one.desk.take("small", 2), *await other.desk.take("small", 2)]
        for _ in range(4):
            given += await one.desk.take("small", 40)
        with pytest.raises(SequenceExhausted):
            await other.desk.take("small", 40)
        with pytest.raises(SequenceExhausted):
            await take_all(other, "small", given)
        assert len(given) == len(set(given)) >= 198


@virtual_time
async def test_a_block_that_does_not_fit_leaves_the_rest_to_smaller_ones_and_to_single_tickets() -> None:
    async with Site(2, []) as site:
        server = await with_its_end_near(site, 5_000, 5_000)
        for size in (1_000, 900):
            with pytest.raises(SequenceExhausted):
                await server.desk.take("small", size, whole=True)
        given = [*await server.desk.take("small", 500, whole=True), *await server.desk.take("small", 300)]
        with pytest.raises(SequenceExhausted):
            await take_all(server, "small", given)
        assert len(given) == len(set(given)) >= 4_990


@virtual_time
async def test_a_block_that_fits_is_not_refused_because_another_in_its_company_does_not() -> None:
    async with Site(1, []) as site:
        server = await with_its_end_near(site, 5_000)
        await take(server, 1, "small")
        asked = [server.desk.take("small", size, whole=True) for size in (10, 2_000, 100, 200)]
        found = await asyncio.gather(*asked, return_exceptions=True)
        assert [isinstance(each, range) for each in found] == [True, False, True, True]
