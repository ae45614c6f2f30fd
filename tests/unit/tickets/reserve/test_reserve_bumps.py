"""Bumps and tickets drawn ahead: after the answer no server hands out what has been passed."""

import asyncio
from collections.abc import Callable, Iterable

import pytest

from app.common.errors import NoTicketDatabase
from app.common.sequences import Width, bump_name
from app.databases.protocol import LARGEST_INCREMENT, Mark, ServerEntry
from tests.fakes.ticket_server import REQUEST_TIMEOUT, FakeTicketServer, Site
from tests.fakes.virtual_time import VirtualLoop, virtual_time
from tests.unit.tickets.reserves import SECONDS, WINDOW, gaps, now, reserve_of, use


@virtual_time
async def test_without_reserves_anywhere_a_bump_waits_for_nobody() -> None:
    async with Site(2) as site:
        server = await site.ticket_server()
        began = now()
        await server.admin.bump("photos", 5_000, force=False)
        assert now() - began < 0.2


@virtual_time
async def test_a_bump_waits_for_the_window_of_every_server_that_has_announced_one() -> None:
    async with Site(2) as site:
        bumping = await site.ticket_server()
        holding = await site.ticket_server(reserve_seconds=SECONDS)
        await use(holding, 100, 6)
        began = now()
        await bumping.admin.bump("photos", 50_000, force=False)
        assert WINDOW <= now() - began < REQUEST_TIMEOUT
        assert (await holding.desk.take("photos"))[0] > 50_000
        assert gaps(holding)["bumped"] > 300


@virtual_time
async def test_a_server_whose_clock_is_slow_has_no_more_time_than_a_bump_waits_for() -> None:
    async with Site(2) as site:
        server = await site.ticket_server(reserve_seconds=SECONDS)
        announced = {entry.reserve_window for entry in await server.databases[0].servers(10.0)}
        assert announced == {server.reserves.announced}
        assert server.reserves.announced > 1.001 * server.reserves.window.seconds


@virtual_time
async def test_the_own_reserve_is_dropped_at_once() -> None:
    async with Site(2) as site:
        server = await site.ticket_server(reserve_seconds=SECONDS)
        await use(server, 100, 6)
        bump = asyncio.create_task(server.admin.bump("photos", 50_000, force=False))
        await asyncio.sleep(0.2)
        assert reserve_of(server).left == 0
        await bump


@virtual_time
async def test_a_server_that_stands_where_it_last_looked_hands_out_nothing_after_its_window() -> None:
    async with Site(2) as site:
        bumping = await site.ticket_server()
        holding = await site.ticket_server(reserve_seconds=SECONDS)
        await use(holding, 100, 6)
        holding.cut_off()
        await asyncio.sleep(0.01)
        await holding.prober.stop()  # as one that stands still: no look ends any more
        await bumping.admin.bump("photos", 50_000, force=False)
        assert holding.desk.ready("photos") is None
        assert reserve_of(holding).left > 300


@virtual_time
async def test_one_that_cannot_be_answered_in_time_is_under_way_and_ends_when_it_is_asked_for_again() -> None:
    async with Site(2) as site:
        await site.ticket_server(reserve_seconds=SECONDS, probe_interval=3.0)
        server = await site.ticket_server()
        began = now()
        with pytest.raises(NoTicketDatabase, match="the bump is under way: ask again"):
            await server.admin.bump("photos", 5_000, force=False)
        assert now() - began < 0.2
        await asyncio.sleep(1.8)
        await server.admin.bump("photos", 4_000, force=False)  # a smaller one has been committed, too
        assert 3.5 <= now() - began < 3.7
        with pytest.raises(NoTicketDatabase, match="under way"):
            await server.admin.bump("photos", 6_000, force=False)


@virtual_time
async def test_one_that_is_asked_for_again_as_it_was_ends_when_it_would_have_ended() -> None:
    async with Site(2) as site:
        await site.ticket_server(reserve_seconds=SECONDS, probe_interval=3.0)
        server = await site.ticket_server()
        began = now()
        for _ in range(2):
            with pytest.raises(NoTicketDatabase, match="under way"):
                await server.admin.bump("photos", 5_000, force=False)
            await asyncio.sleep(0.8)
        await server.admin.bump("photos", 5_000, force=False)
        assert 3.5 <= now() - began < 3.7


@virtual_time
async def test_a_holder_whose_announcement_is_lost_meanwhile_is_waited_for_when_a_bump_is_asked_for_again() -> None:
    async with Site(2) as site:
        holding = await site.ticket_server(reserve_seconds=20, probe_interval=3.0)
        bumping = await site.ticket_server()
        await use(holding, 100, 6)
        for member in holding.ring.members:
            member.wake.set()
        await asyncio.sleep(0.1)
        holding.cut_off()
        await holding.prober.stop()  # as one that stands still: no look ends any more
        began = now()
        with pytest.raises(NoTicketDatabase, match="under way"):
            await bumping.admin.bump("photos", 50_000, force=False)
        for database in site.servers:
            found = database.state.servers
            database.state.servers = {each: entry for each, entry in found.items() if not entry.reserve_window}
        assert holding.desk.ready("photos") is not None  # it knows of nothing
        await asyncio.sleep(1.8)
        await bumping.admin.bump("photos", 50_000, force=False)
        assert now() - began >= 3.5
        assert holding.desk.ready("photos") is None


@virtual_time
async def test_who_has_come_after_the_record_is_not_waited_for_and_gives_nothing_that_was_passed() -> None:
    async with Site(2) as site:
        await site.ticket_server(reserve_seconds=SECONDS, probe_interval=3.0)
        bumping = await site.ticket_server()
        began = now()
        with pytest.raises(NoTicketDatabase, match="under way"):
            await bumping.admin.bump("photos", 50_000, force=False)
        coming = await site.ticket_server(reserve_seconds=SECONDS, probe_interval=30.0)
        assert min(await use(coming, 100, 1.5)) > 50_000
        assert reserve_of(coming).left > 0
        await asyncio.sleep(0.2)
        await bumping.admin.bump("photos", 50_000, force=False)
        assert 3.5 <= now() - began < 3.7


@virtual_time
async def test_a_bump_is_not_answered_early_where_a_timer_goes_off_early() -> None:
    """The event loop's timers are not as fine as the clock that windows are held against."""
    async with Site(2) as site:
        bumping = await site.ticket_server()
        await site.ticket_server(reserve_seconds=SECONDS)
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        began = site.clock()
        bump = asyncio.create_task(bumping.admin.bump("photos", 50_000, force=False))
        await asyncio.sleep(0.5)
        loop.suspended -= 0.3
        await bump
        assert site.clock() - began >= WINDOW


def numbers(server: FakeTicketServer) -> set[int]:
    """What it has in reserve."""
    pieces = [piece for shelf in reserve_of(server).shelves for piece in shelf.left()]
    return {ticket for piece in pieces for ticket in range(piece.next_id, piece.end, piece.step)}


@pytest.mark.parametrize("whose", [0, 1], ids=["the own", "another's"])
def test_what_is_above_the_number_is_kept_and_the_number_itself_is_not(whose: int) -> None:
    @virtual_time
    async def scenario() -> None:
        async with Site(2) as site:
            servers = [await site.ticket_server(reserve_seconds=20) for _ in range(2)]
            for server in servers:
                await use(server, 100, 6)
            before = [numbers(server) for server in servers]
            above = sorted(before[whose])[len(before[whose]) // 2]
            kept = [{ticket for ticket in of_one if ticket > above} for of_one in before]
            bump = asyncio.create_task(servers[0].admin.bump("photos", above, force=False))
            await asyncio.sleep(0.2)
            assert numbers(servers[0]) == kept[0]
            await bump
            assert [numbers(server) for server in servers] == kept

    scenario()


@virtual_time
async def test_the_record_lies_on_every_database_and_comes_to_one_that_was_restored() -> None:
    async with Site(2) as site:
        server = await site.ticket_server(reserve_seconds=SECONDS)
        copy = site.servers[0].snapshot()
        await server.admin.bump("photos", 5_000, force=False)
        name = bump_name("photos")
        for database in site.servers:
            assert [mark.mark for mark in database.marks(None) if mark.sequence == name] == [5_000]
        site.servers[0].restore(copy)
        await asyncio.sleep(3)
        assert [mark.mark for mark in site.servers[0].marks(None) if mark.sequence == name] == [5_000]


@virtual_time
async def test_a_bump_that_is_repeated_is_read_again() -> None:
    async with Site(2) as site:
        server = await site.ticket_server()
        await server.admin.bump("photos", 5_000, force=False)
        await asyncio.sleep(60)
        assert not [mark for mark in site.servers[0].marks(10) if mark.sequence == bump_name("photos")]
        await server.admin.bump("photos", 5_000, force=False)
        assert [mark for mark in site.servers[0].marks(10) if mark.sequence == bump_name("photos")]


@virtual_time
async def test_one_that_comes_back_alone_as_another_says_nothing_of_bumps_before() -> None:
    """The record may be lost with it, and nobody else can be asked: what was drawn before is dropped."""
    async with Site(2) as site:
        bumping = await site.ticket_server()
        holding = await site.ticket_server(reserve_seconds=20)
        await use(holding, 100, 6)
        copy = site.servers[0].snapshot()
        holding.cut_off()
        await asyncio.sleep(3)
        await bumping.admin.bump("photos", 50_000, force=False)
        site.servers[0].restore(copy)
        holding.databases[0].cut = False  # type: ignore[attr-defined]
        await asyncio.sleep(2)
        assert holding.ring.members[0].up
        assert gaps(holding)["blind"] > 300
        assert holding.desk.ready("photos") is None


@virtual_time
async def test_a_server_that_reaches_one_database_alone_or_none_any_more_is_waited_for() -> None:
    async with Site(2) as site:
        bumping = await site.ticket_server()
        holding = await site.ticket_server(reserve_seconds=SECONDS)
        await use(holding, 100, 6)
        holding.cut_off()
        await asyncio.sleep(5)
        ((instance, entry),) = [(i, e) for i, e in site.servers[0].state.servers.items() if e.reserve_window]
        del site.servers[0].state.servers[instance]
        assert entry.reserve_window >= WINDOW
        began = now()
        await bumping.admin.bump("photos", 50_000, force=False)
        assert now() - began >= WINDOW


@virtual_time
async def test_the_wait_begins_when_the_last_record_has_been_committed_and_with_whom_is_read_after_that() -> None:
    async with Site(2) as site:
        bumping = await site.ticket_server(longest=0.15, request_timeout=10.0)
        await site.ticket_server(reserve_seconds=SECONDS)
        steps: list[str] = []
        committed = 0.0
        for database in site.servers:
            keep, servers_since = database.keep, database.servers_since

            def noted(
                marks: Iterable[Mark],
                ring: int | None = None,
                keep: Callable[..., dict[tuple[str, int], Mark]] = keep,
            ) -> dict[tuple[str, int], Mark]:
                nonlocal committed
                marks = list(marks)
                if marks[0].sequence == bump_name("photos"):
                    steps.append("record")
                    committed = now()
                return keep(marks, ring)

            def asked(
                at: float, servers_since: Callable[[float], list[ServerEntry]] = servers_since
            ) -> list[ServerEntry]:
                if at < 1_000_000_000:  # whatever its age: a look asks for those of the last seconds alone
                    steps.append("servers")
                return servers_since(at)

            database.keep, database.servers_since = noted, asked  # type: ignore[method-assign]
        await bumping.admin.bump("photos", 50_000, force=False)
        assert steps == ["record"] * 4 + ["servers"] * 2
        assert now() >= committed + WINDOW


@virtual_time
async def test_a_sequence_that_was_made_anew_has_not_been_bumped_yet() -> None:
    async with Site(2) as site:
        await site.ticket_server(reserve_seconds=SECONDS, probe_interval=3.0)
        server = await site.ticket_server()
        with pytest.raises(NoTicketDatabase, match="under way"):
            await server.admin.bump("photos", 5_000, force=False)
        for database in site.servers:
            database.drop("photos")
        await asyncio.sleep(8)
        assert "photos" not in server.catalog.entries
        for database in site.servers:
            database.make("photos", Width.BIGINT, 1)
        await asyncio.sleep(8)
        with pytest.raises(NoTicketDatabase, match="under way"):
            await server.admin.bump("photos", 5_000, force=False)


@virtual_time
async def test_a_record_that_a_database_does_not_take_is_no_record() -> None:
    async with Site(2) as site:
        server = await site.ticket_server()
        site.servers[1].keep([Mark(bump_name("photos"), LARGEST_INCREMENT, 2, 10, 0, "somebody's")])
        with pytest.raises(NoTicketDatabase, match="did not take the bump's record"):
            await server.admin.bump("photos", 5_000, force=False)


@virtual_time
async def test_while_servers_draw_ahead_every_database_has_to_keep_the_record() -> None:
    async with Site(2) as site:
        bumping = await site.ticket_server()
        holding = await site.ticket_server(reserve_seconds=SECONDS)
        await use(holding, 100, 6)
        site.servers[1].ledger_fails = True
        await asyncio.sleep(3)
        assert bumping.ring.members[1].up
        with pytest.raises(NoTicketDatabase, match="cannot keep the bump's record"):
            await bumping.admin.bump("photos", 50_000, force=False)
        await site.stop(holding)
        await bumping.admin.bump("photos", 50_000, force=False)
