"""Until when tickets in reserve may be handed out: what looks and readings of records say of bumps."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import NoReturn

import pytest

from app.common.errors import SequenceUnavailable, TicketDatabaseBusy, TicketDatabaseUnavailable
from app.common.sequences import bump_name
from app.databases.protocol import LARGEST_INCREMENT, Mark, ServerEntry
from app.tickets.reserve.window import Window, window_seconds
from app.tickets.ring.ring import Member
from tests.fakes.ticket_server import Site
from tests.fakes.virtual_time import VirtualLoop, virtual_time
from tests.unit.tickets.reserves import SECONDS, gaps, now, reserve_of, use


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
            database.keep([Mark(bump_name("photos"), LARGEST_INCREMENT, 2, 50_000, 0, "bumped:")])
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
async def test_one_that_is_too_busy_has_been_reached() -> None:
    async with Site(2) as site:
        server = await site.ticket_server(reserve_seconds=20)
        await use(server, 100, 6)
        site.servers[0].down = True
        site.servers[1].deadlocks = 10_000
        await asyncio.sleep(3)
        assert reserve_of(server).left > 300
        assert not server.reserves.any_gives


@virtual_time
async def test_one_that_answers_and_is_lost_in_the_midst_of_a_look_has_been_reached() -> None:
    """It is in quarantine, so that a look draws there too. What failed was not the look, and no record was read."""
    async with Site(2) as site:
        server = await site.ticket_server(reserve_seconds=20)
        await use(server, 100, 6)
        site.servers[0].draws_as = (1, 1)
        for _ in range(2):
            await server.desk.take("photos", 4, whole=True)
        assert server.ring.members[0].residue_of == "photos"

        async def lost(_: object) -> NoReturn:
            raise TicketDatabaseUnavailable("broke the connection off")

        server.databases[0].tables = lost  # type: ignore[assignment,method-assign]
        site.servers[1].down = True
        await asyncio.sleep(3)
        assert reserve_of(server).left > 300
        assert not server.reserves.any_gives
        site.servers[0].down = True
        await asyncio.sleep(1)
        assert server.reserves.any_gives


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
            database.keep([Mark(bump_name("photos"), LARGEST_INCREMENT, 2, 50_000, 0, "bumped:")])
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
        holding.cut_off()
        await asyncio.sleep(3)
        await bumping.admin.bump("photos", 50_000, force=False)
        await site.stop(bumping)
        site.servers[0].restore(copy)

        async def refused(*_: object) -> NoReturn:
            raise SequenceUnavailable("has a damaged table for it")

        holding.databases[0].keep = refused  # type: ignore[assignment,method-assign]
        holding.databases[0].cut = False  # type: ignore[attr-defined]
        await asyncio.sleep(2)
        assert holding.ring.members[0].up
        assert holding.ring.members[0].marks_error
        assert reserve_of(holding).left > 300
        assert holding.desk.ready("photos") is None
        del holding.databases[0].keep
        await asyncio.sleep(2)
        assert not holding.ring.members[0].marks_error
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
