"""Reserves beside ticket servers of releases that do not announce bumps: nothing is handed out from memory."""

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from app.common.errors import TicketDatabaseUnavailable
from app.databases.protocol import OLDER_SECONDS, ServerEntry
from app.tickets.reserve.reserve import Refill
from tests.fakes.ticket_database import FakeServer
from tests.fakes.ticket_server import FakeTicketServer, Site
from tests.fakes.virtual_time import virtual_time
from tests.unit.tickets.reserves import SECONDS, WINDOW, gaps, now, reserve_of, use

WARNING = "no tickets are drawn ahead"


@asynccontextmanager
async def older_server(servers: Sequence[FakeServer]) -> AsyncIterator[None]:
    """A ticket server of release 0.2.0 probes these databases each second."""

    async def probing() -> None:
        while True:
            for server in servers:
                server.older_probe = server.time_at(server.clock())
            await asyncio.sleep(1)

    task = asyncio.create_task(probing())
    await asyncio.sleep(0)
    try:
        yield
    finally:
        task.cancel()


def bump_as_older(site: Site, above: int) -> None:
    """All that a bump of release 0.2.0 leaves: tables whose counters are larger."""
    for server in site.servers:
        server.table("photos").advance(above)


def warned(server: FakeTicketServer) -> list[str]:
    found = server.admin.health()["warnings"]
    return [each["database"] for each in found if WARNING in each["reason"]]


@virtual_time
async def test_after_an_older_server_has_answered_a_bump_no_smaller_ticket_is_handed_out() -> None:
    async with Site(2) as site:
        holding = await site.ticket_server(reserve_seconds=20)
        await use(holding, 100, 6)
        assert reserve_of(holding).left > 300
        async with older_server(site.servers):
            await use(holding, 100, WINDOW)
            bump_as_older(site, 50_000)
            after = await use(holding, 100, 3)
        assert min(after) > 50_000
        assert gaps(holding)["older"] > 300


@virtual_time
async def test_nothing_lies_in_reserve_while_an_older_server_is_seen_and_health_and_log_say_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    async with Site(2) as site:
        server = await site.ticket_server(reserve_seconds=SECONDS)
        await use(server, 100, 6)
        assert warned(server) == []
        async with older_server(site.servers):
            for _ in range(10):
                await use(server, 100, 1)
            assert reserve_of(server).left == 0
            assert not server.reserves.any_gives
            assert warned(server) == ["fake1:3306", "fake2:3306"]
            assert server.admin.health()["status"] == "warn"
        await use(server, 100, OLDER_SECONDS + 3)
        assert reserve_of(server).left > 300
        assert warned(server) == []
    said = [record.getMessage() for record in caplog.records if "drawn ahead" in record.getMessage()]
    assert len(said) == 2, said


@virtual_time
async def test_what_was_drawn_while_it_was_seen_is_not_handed_out_when_it_has_gone() -> None:
    async with Site(2) as site:
        server = await site.ticket_server(reserve_seconds=20)
        await use(server, 100, 6)
        async with older_server(site.servers):
            await use(server, 100, 3)
            bump_as_older(site, 50_000)
        assert min(await use(server, 100, OLDER_SECONDS + 10)) > 50_000


@virtual_time
async def test_a_refill_that_was_under_way_when_it_was_seen_first_is_dropped() -> None:
    async with Site(2) as site:
        server = await site.ticket_server(reserve_seconds=20)
        await use(server, 100, 6)
        asked_at = site.clock()
        async with older_server(site.servers):
            await asyncio.sleep(WINDOW)
            reserve, shelf = reserve_of(server), reserve_of(server).shelves[0]
            reserve.came(Refill(reserve, shelf, 50, asked_at), range(9_001, 9_101, 2))
            assert reserve.left == 0


@virtual_time
async def test_a_server_that_starts_knows_of_it_before_its_first_ticket_from_a_reserve() -> None:
    async with Site(2) as site, older_server(site.servers):
        server = await site.ticket_server(reserve_seconds=SECONDS)
        await use(server, 100, 6)
        assert reserve_of(server).left == 0


@pytest.mark.parametrize("seen_on", [0, 1])
@virtual_time
async def test_one_database_that_has_seen_it_is_enough(seen_on: int) -> None:
    async with Site(2) as site:
        server = await site.ticket_server(reserve_seconds=SECONDS)
        await use(server, 100, 6)
        async with older_server([site.servers[seen_on]]):
            await use(server, 100, 3)
            assert reserve_of(server).left == 0
            assert warned(server) == [site.servers[seen_on].name]


@virtual_time
async def test_that_the_database_which_has_seen_it_goes_away_ends_nothing_at_once() -> None:
    async with Site(2) as site:
        server = await site.ticket_server(reserve_seconds=SECONDS)
        await use(server, 100, 6)
        async with older_server([site.servers[0]]):
            await use(server, 100, 3)
            server.databases[0].cut = True  # type: ignore[attr-defined]
            until = now() + OLDER_SECONDS - 2
            while now() < until:
                await use(server, 100, 0.5)
                assert reserve_of(server).left == 0
            await use(server, 100, 10)
            assert reserve_of(server).left > 0


@virtual_time
async def test_a_database_that_cannot_say_which_servers_use_it_gives_no_window(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with Site(2) as site:
        server = await site.ticket_server(reserve_seconds=SECONDS)
        await use(server, 100, 6)

        async def fails(_: float) -> list[ServerEntry]:
            raise TicketDatabaseUnavailable("lost its table _servers")

        monkeypatch.setattr(server.databases[0], "servers", fails)
        await use(server, 100, 3)
        assert reserve_of(server).left > 0  # the other one can say it
        monkeypatch.setattr(server.databases[1], "servers", fails)
        await asyncio.sleep(WINDOW + 1)
        assert server.desk.ready("photos") is None
        assert server.ring.any_up
        assert all(member.marks_error is None for member in server.ring.members)


@virtual_time
async def test_a_server_that_announces_itself_is_no_older_one() -> None:
    async with Site(2) as site:
        server = await site.ticket_server(reserve_seconds=SECONDS)
        await site.ticket_server()
        await use(server, 100, 8)
        assert reserve_of(server).left > 300


@virtual_time
async def test_without_reserves_nobody_asks_and_nobody_warns() -> None:
    async with Site(2) as site:
        server = await site.ticket_server()
        async with older_server(site.servers):
            await asyncio.sleep(3)
            assert warned(server) == []
