"""The ledger: a database that kept the marks is lost while it is asked to keep a mark."""

import asyncio
from dataclasses import replace

import pytest

from app.common.errors import TicketDatabaseBusy
from app.databases.protocol import Mark, Position
from app.tickets.lanes.lane import Lane
from app.tickets.marks.token import epoch_of, is_verified
from tests.fakes.asked import ask
from tests.fakes.ticket_server import FakeTicketServer, Site
from tests.fakes.virtual_time import virtual_time
from tests.unit.tickets.ledgers import mark_about, probed, take


def reserving_anew(server: FakeTicketServer) -> Lane:
    """The first database's lane, whose next draw sets a mark."""
    lane = server.lane("photos", 1)
    assert lane.is_open
    lane.marks.lapse()
    return lane


async def restarted(site: Site, server: FakeTicketServer) -> Lane:
    """The first database's lane, closed, in the next incarnation of that database, which the server has seen."""
    site.servers[0].restart()
    lane = server.lane("photos", 1)
    lane.close()
    await server.databases[0].probe()
    server.ring.members[0].incarnation = site.servers[0].incarnation
    return lane


def why_tried_again(server: FakeTicketServer) -> list[str]:
    """The reasons of draws on the first database that were tried again."""
    name = server.ring.members[0].name
    return [cause for database, cause in server.metrics.retries if database == name]


@pytest.mark.parametrize("databases", [2, 3])
@virtual_time
async def test_a_ticket_whose_mark_lost_a_witness_is_dropped(databases: int) -> None:
    """Although another witness may have committed the mark: this one may be the one that is asked later."""
    async with Site(databases) as site:
        server = await site.ticket_server()
        await take(server, databases)
        lane = reserving_anew(server)
        site.servers[1].hang()
        at = site.servers[0].table("photos").counter
        assert await ask(lane) is None
        assert "lost fake2:3306" in " ".join(why_tried_again(server))
        assert not server.ring.members[1].up
        assert await ask(lane) == range(at + databases, at + 2 * databases, databases)


@virtual_time
async def test_a_ticket_that_was_drawn_while_its_only_witness_went_down_is_dropped() -> None:
    """The prober found the witness down meanwhile, so the ledger has no witness left to ask for the mark."""
    async with Site(2) as site:
        server = await site.ticket_server()
        await take(server, 2)
        lane = reserving_anew(server)
        at = site.servers[0].table("photos").counter
        drawing = ask(lane)
        server.ring.mark_down(server.ring.members[1], "refuses connections")
        assert await drawing is None
        assert "lost the database that kept its marks" in " ".join(why_tried_again(server))
        assert await ask(lane) == range(at + 2, at + 4, 2)


@virtual_time
async def test_a_lane_is_not_moved_up_while_a_witness_is_lost() -> None:
    """Another life of the first database: its lane does not open over marks that nobody has."""
    async with Site(3) as site:
        server = await site.ticket_server()
        before = await take(server, 30)
        lane = await restarted(site, server)
        witness = server.databases[1]
        supersede = witness.supersede

        async def supersede_on_one_that_hangs(old: Mark, new: Mark, ring: int) -> Mark:
            site.servers[1].hang()
            return await supersede(old, new, ring)

        witness.supersede = supersede_on_one_that_hangs  # type: ignore[method-assign]
        with pytest.raises(TicketDatabaseBusy, match="lost fake2:3306"):
            await lane.open()
        assert not lane.is_open
        await lane.open()  # without the one that is down
        assert not set(before) & set(await take(server, 4))


@virtual_time
async def test_a_lane_is_opened_once_though_two_ask_for_it() -> None:
    """Two at a time would take the marks from each other, and move the sequence up twice."""
    async with Site(2) as site:
        server = await site.ticket_server()
        await take(server, 20)
        lane = await restarted(site, server)
        opened = 0
        open_with_the_ledger = server.ledger.open

        async def noted(of: Lane) -> None:
            nonlocal opened
            opened += of is lane
            await open_with_the_ledger(of)

        server.ledger.open = noted  # type: ignore[method-assign,assignment]
        await asyncio.gather(lane.open(), ask(lane), lane.open())
        assert opened == 1


async def restarted_without_the_third(site: Site) -> tuple[FakeTicketServer, list[int], Lane]:
    """A server that counts its third database as down, the tickets that it has issued, and a lane to open again."""
    server = await site.ticket_server()
    before = await take(server, 30)
    server.ring.mark_down(server.ring.members[2], "refuses connections")
    return server, before, await restarted(site, server)


async def assert_the_third_is_asked_too(server: FakeTicketServer, before: list[int], lane: Lane) -> None:
    """Check that opening the lane fails because the third database came up, and that the next try asks it."""
    with pytest.raises(TicketDatabaseBusy, match="while another database came up"):
        await lane.open()
    assert not set(before) & set(await take(server, 9))
    await asyncio.sleep(3)
    assert not server.admin.health()["warnings"]


@virtual_time
async def test_a_lane_that_was_opened_while_another_database_came_up_asks_it_too() -> None:
    """Those that were open then have been closed, to ask it; this one would stay unverified for good."""
    async with Site(3) as site:
        server, before, lane = await restarted_without_the_third(site)
        late = server.ring.members[2]
        database = server.databases[0]
        position = database.position

        async def position_when_it_is_up(sequence: str) -> Position:
            while not late.up:
                await server.ring.wait_for_change(1.0, expected=True)
            return await position(sequence)

        database.position = position_when_it_is_up  # type: ignore[method-assign]
        await assert_the_third_is_asked_too(server, before, lane)


@virtual_time
async def test_a_lane_that_was_advanced_anew_while_another_database_came_up_asks_it_too() -> None:
    """If another server sets a mark meanwhile, the lane reads the rows again and still names the unasked database."""
    async with Site(3) as site:
        server, before, lane = await restarted_without_the_third(site)
        late = server.ring.members[2]
        witness = server.databases[1]
        supersede = witness.supersede

        async def after_another_server_set_a_mark(old: Mark, new: Mark, ring: int) -> Mark:
            if not late.up:
                while not late.up:
                    await server.ring.wait_for_change(1.0, expected=True)
                await witness.keep([replace(old, mark=old.mark + 1_000)], ring)
            return await supersede(old, new, ring)

        witness.supersede = after_another_server_set_a_mark  # type: ignore[method-assign]
        await assert_the_third_is_asked_too(server, before, lane)


@virtual_time
async def test_marks_of_the_same_unverified_epoch_replace_the_smaller_ones_of_a_database_that_comes_back() -> None:
    """The first database's life was witnessed by the second alone, then by the third alone: each time unverified. The
    second is back before the third is lost, and vouches for the first from then on."""
    async with Site(3) as site:
        first, second, third = site.servers
        server = await site.ticket_server()
        third.down = True
        first.restart()
        await probed()
        before = await take(server, 20)
        copy = first.snapshot()
        second.down, third.down = True, False
        await probed()
        before += await take(server, 10)
        for _ in range(6):
            before += await server.desk.take("photos", 1_000)
        first.down = True
        await site.stop(server)
        second.down = False
        one, other = mark_about(site, 1, on=2), mark_about(site, 1, on=3)
        assert epoch_of(one.token) == epoch_of(other.token)
        assert not is_verified(one.token)
        assert not is_verified(other.token)
        server = await site.ticket_server()
        assert mark_about(site, 1, on=2).mark >= other.mark
        await site.stop(server)
        third.replace_by_empty()
        first.restore(copy)
        first.down = False
        server = await site.ticket_server()
        assert not set(before) & set(await take(server, 30))
