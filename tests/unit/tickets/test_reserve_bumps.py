"""Bumps and tickets drawn ahead: after the answer no server hands out what has been passed."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import NoReturn

import pytest

from app.common.errors import NoTicketDatabase, SequenceUnavailable, TicketDatabaseBusy
from app.common.sequences import Width, bump_name
from app.databases.protocol import LARGEST_INCREMENT, Mark, ServerEntry
from app.tickets.reserve_window import Window, window_seconds
from app.tickets.ring import Member
from tests.fakes.ticket_database import TIMEOUT
from tests.fakes.ticket_server import PROBE_INTERVAL, REQUEST_TIMEOUT, FakeTicketServer, Site
from tests.fakes.virtual_time import VirtualLoop, virtual_time
from tests.unit.tickets.test_reserve import SECONDS, gaps, reserve_of, use

WINDOW = PROBE_INTERVAL + TIMEOUT


def now() -> float:
    return asyncio.get_running_loop().time()


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
        for database in holding.databases:
            database.cut = True  # type: ignore[attr-defined]
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
        for database in holding.databases:
            database.cut = True  # type: ignore[attr-defined]
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
        cut_off(holding)
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
            reserve, servers_since = database.reserve, database.servers_since

            def noted(
                marks: Iterable[Mark],
                ring: int | None = None,
                reserve: Callable[..., dict[tuple[str, int], Mark]] = reserve,
            ) -> dict[tuple[str, int], Mark]:
                nonlocal committed
                marks = list(marks)
                if marks[0].sequence == bump_name("photos"):
                    steps.append("record")
                    committed = now()
                return reserve(marks, ring)

            def asked(
                at: float, servers_since: Callable[[float], list[ServerEntry]] = servers_since
            ) -> list[ServerEntry]:
                steps.append("servers")
                return servers_since(at)

            database.reserve, database.servers_since = noted, asked  # type: ignore[method-assign]
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
        site.servers[1].reserve([Mark(bump_name("photos"), LARGEST_INCREMENT, 2, 10, 0, "somebody's")])
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


@virtual_time
async def test_a_look_begins_before_it_has_announced_the_server() -> None:
    """What it finds holds from when it began: who bumps after that has seen the announcement, or waits."""
    async with Site(2) as site:
        server = await site.ticket_server(reserve_seconds=SECONDS, longest=0.1)
        announced: list[tuple[str, float]] = []
        began: list[tuple[str, float]] = []
        for database in site.servers:
            probes, name = database.probes, database.name

            def noted(
                entry: ServerEntry,
                at: float,
                probes: Callable[[ServerEntry, float], None] = probes,
                name: str = name,
            ) -> None:
                announced.append((name, at))
                probes(entry, at)

            database.probes = noted  # type: ignore[assignment,method-assign]
        window = server.reserves.window
        read, looked = window.read, window.looked

        def noted_reading(member: Member, at: float) -> None:
            began.append((member.name, at))
            read(member, at)

        def noted_look(member: Member, at: float, *, reached: bool) -> None:
            began.append((member.name, at))
            looked(member, at, reached=reached)

        window.read, window.looked = noted_reading, noted_look  # type: ignore[assignment,method-assign]
        await asyncio.sleep(1.2)
        first = now()
        await asyncio.sleep(6)
        later = [(name, at) for name, at in began if at > first]
        assert len(later) >= 16
        for name, at in later:
            assert any(0 <= there - at <= 0.1 for of, there in announced if of == name)


@virtual_time
async def test_a_window_begins_when_what_was_read_is_known() -> None:
    async with Site(2) as site:
        server = await site.ticket_server(reserve_seconds=20)
        await use(server, 100, 6)

        async def busy(within: float | None = None, *, anybody: bool = True) -> list[Mark]:
            raise TicketDatabaseBusy("had no connection free in time")

        for witness in server.databases:
            witness.marks = busy  # type: ignore[assignment,method-assign]
        await asyncio.sleep(3)
        for database in site.servers:
            database.reserve([Mark(bump_name("photos"), LARGEST_INCREMENT, 2, 50_000, 0, "bumped:")])
        left = reserve_of(server).left
        window, seen = server.reserves.window, []
        read = window.read

        def noted(member: Member, began: float) -> None:
            seen.append(reserve_of(server).left)
            read(member, began)

        window.read = noted  # type: ignore[method-assign]
        for witness in server.databases:
            del witness.marks
        await asyncio.sleep(2)
        assert left > 300
        assert seen
        assert max(seen) < left


@virtual_time
async def test_one_that_is_not_what_it_should_be_has_been_reached() -> None:
    """Who reaches a database, and reads no record there, does not live on its reserve."""
    async with Site(2) as site:
        server = await site.ticket_server(reserve_seconds=20)
        await use(server, 100, 6)
        site.servers[0].down = True
        site.servers[1].misconfigured = "has another increment"
        await asyncio.sleep(3)
        assert reserve_of(server).left > 300
        assert not server.reserves.any_gives
        site.servers[1].misconfigured = None
        site.servers[1].down = True
        await asyncio.sleep(1)
        assert server.reserves.any_gives
        assert server.admin.ready


@virtual_time
async def test_one_that_comes_back_alone_as_it_was_has_kept_every_record() -> None:
    async with Site(2) as site:
        server = await site.ticket_server(reserve_seconds=20)
        await use(server, 100, 6)
        left = reserve_of(server).left
        for database in site.servers:
            database.down = True
        await asyncio.sleep(3)
        site.servers[0].down = False
        await asyncio.sleep(2)
        assert [member.up for member in server.ring.members] == [True, False]
        assert reserve_of(server).left == left > 300
        assert server.desk.ready("photos") is not None


def cut_off(server: FakeTicketServer) -> None:
    for database in server.databases:
        database.cut = True  # type: ignore[attr-defined]


@virtual_time
async def test_after_a_suspension_everything_is_read_even_where_the_first_reading_fails() -> None:
    """The bump was recorded while the machine stood still, and its own clock with it: for this server it is longer
    past than what it reads again."""
    async with Site(2) as site:
        server = await site.ticket_server(reserve_seconds=60)
        await use(server, 100, 33)
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        for witness in server.databases:
            read, failed = witness.marks, list[bool]()

            async def marks(
                within: float | None = None,
                *,
                anybody: bool = True,
                read: Callable[..., Awaitable[list[Mark]]] = read,
                failed: list[bool] = failed,
            ) -> list[Mark]:
                if loop.suspended and not failed:
                    failed.append(True)
                    raise TicketDatabaseBusy("had no connection free in time")
                return await read(within, anybody=anybody)

            witness.marks = marks  # type: ignore[assignment,method-assign]
        site.clock.now += 10
        for database in site.servers:
            database.reserve([Mark(bump_name("photos"), LARGEST_INCREMENT, 2, 50_000, 0, "bumped:")])
        site.clock.now += 10
        loop.suspended += 20
        left = reserve_of(server).left
        assert left > 1_000
        assert server.desk.ready("photos") is None
        await asyncio.sleep(2.5)
        tickets = server.desk.ready("photos")
        assert tickets is None or tickets[0] > 50_000
        assert gaps(server)["bumped"] >= left


@virtual_time
async def test_one_that_cannot_keep_marks_does_not_say_that_there_was_no_bump() -> None:
    """It may have come back from before the bump, and nobody could bring the record there."""
    async with Site(2) as site:
        bumping = await site.ticket_server()
        holding = await site.ticket_server(reserve_seconds=20)
        await use(holding, 100, 6)
        copy = site.servers[0].snapshot()
        cut_off(holding)
        await asyncio.sleep(3)
        await bumping.admin.bump("photos", 50_000, force=False)
        await site.stop(bumping)
        site.servers[0].restore(copy)

        async def refused(*_: object) -> NoReturn:
            raise SequenceUnavailable("has a damaged table for it")

        holding.databases[0].reserve = refused  # type: ignore[assignment,method-assign]
        holding.databases[0].cut = False  # type: ignore[attr-defined]
        await asyncio.sleep(2)
        assert holding.ring.members[0].up
        assert holding.ring.members[0].marks_trouble
        assert reserve_of(holding).left > 300
        assert holding.desk.ready("photos") is None
        del holding.databases[0].reserve
        await asyncio.sleep(2)
        assert not holding.ring.members[0].marks_trouble
        assert gaps(holding)["blind"] > 300


class Members:
    """Databases that are up."""

    up = True

    def __init__(self) -> None:
        self.settled = True
        self.wake = asyncio.Event()


@virtual_time
async def test_the_window_begins_with_the_look_and_not_with_its_end() -> None:
    one, other = Members(), Members()
    window = Window([one, other], 1.5, now)  # type: ignore[list-item]
    assert window.until < now()
    window.looked(one, 10.0, reached=True)  # type: ignore[arg-type]
    assert window.until < 0
    window.read(one, 10.0)  # type: ignore[arg-type]
    assert window.until == 11.5
    window.read(other, 9.0)  # type: ignore[arg-type]
    assert window.until == 11.5
    window.read(one, 9.5)  # type: ignore[arg-type]
    assert window.until == 11.5  # an older reading that ended later
    window.looked(one, 11.0, reached=False)  # type: ignore[arg-type]
    assert window.until == 11.5  # the other one may be reached
    window.looked(other, 10.8, reached=False)  # type: ignore[arg-type]
    assert window.until == pytest.approx(12.3)
    window.looked(one, 11.2, reached=True)  # type: ignore[arg-type]
    assert window.until == 11.5  # reached, and not read yet
    window.looked(one, 11.1, reached=False)  # type: ignore[arg-type]
    assert window.until == 11.5  # an older look that ended later
    window.look_again()
    assert one.wake.is_set()


def test_the_window_lets_the_next_look_end_in_time() -> None:
    assert window_seconds(1.0, 0.5) == 1.5
    for interval, timeout in ((0.1, 0.5), (1.0, 2.0), (5.0, 0.1)):
        assert window_seconds(interval, timeout) >= max(interval + timeout, 0.25 + 2 * timeout)
