"""Bumps and tickets drawn ahead: after the answer no server hands out what has been passed."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import NoReturn

import pytest

from app.common.errors import NoTicketDatabase, SequenceUnavailable, TicketDatabaseBusy
from app.common.sequences import bump_name
from app.databases.protocol import LARGEST_INCREMENT, Mark
from app.tickets.reserve_window import Window, window_seconds
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


def cut_off(server: FakeTicketServer, *, cut: bool = True) -> None:
    for database in server.databases:
        database.cut = cut  # type: ignore[attr-defined]


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
            read, failed = witness.marks, []

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

            witness.marks = marks  # type: ignore[method-assign]
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

        holding.databases[0].reserve = refused  # type: ignore[method-assign]
        holding.databases[0].cut = False  # type: ignore[attr-defined]
        await asyncio.sleep(2)
        assert holding.ring.members[0].up
        assert holding.ring.members[0].marks_trouble
        assert reserve_of(holding).left > 300
        assert holding.desk.ready("photos") is None


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


@virtual_time
async def test_a_database_that_keeps_no_marks_stands_in_the_way_where_tickets_lie_in_reserve() -> None:
    async with Site(2) as site:
        server = await site.ticket_server(reserve_seconds=SECONDS)
        await use(server, 100, 6)
        site.servers[1].ledger_fails = True
        await asyncio.sleep(3 * PROBE_INTERVAL)
        with pytest.raises(NoTicketDatabase, match="servers hold tickets drawn ahead"):
            await server.admin.bump("photos", 50_000, force=False)
        site.servers[1].ledger_fails = False
        await asyncio.sleep(4)
        await server.admin.bump("photos", 50_000, force=False)
        assert (await server.desk.take("photos"))[0] > 50_000
