"""The times in a counter's tickets, where the counter is not where this server left it."""

import asyncio
import itertools

import pytest

from app.common.errors import TicketError
from app.tickets.lanes.lane import Lane
from app.tickets.sources.lane_stamps import AHEAD_MS
from tests.fakes.ticket_server import FakeTicketServer, Site
from tests.fakes.virtual_time import virtual_time
from tests.unit.tickets.sources.stamping import EPOCH, read, take, true_ms

PER_MS = 1024


def stamped(server: FakeTicketServer, id_: object) -> int:
    """The time in an id, in milliseconds since 1970."""
    return int(read(server, id_)["time_ms"])


def lanes(server: FakeTicketServer) -> tuple[Lane, ...]:
    return server.catalog.entries["likes"].rotation.lanes


@pytest.mark.parametrize("ahead_ms", [AHEAD_MS + 400, 2_000])
def test_what_comes_back_too_far_ahead_is_dropped_and_waited_for(ahead_ms: int) -> None:
    """Another server has advanced the counter since this one saw it."""

    @virtual_time
    async def scenario() -> None:
        async with Site(2) as site:
            server = await site.ticket_server(request_timeout=0.3)
            await server.admin.make("likes", "instagram", {"epoch": EPOCH})
            await take(server, 4)
            (table,) = {lane.sequence for lane in lanes(server)}
            now = int(true_ms())
            for database in site.servers:
                database.table(table).advance((now + ahead_ms - EPOCH) * PER_MS)
            with pytest.raises(TicketError):
                await take(server)
            assert all(lane.is_open for lane in lanes(server))
            await asyncio.sleep((now + ahead_ms - true_ms()) / 1000)
            for _ in range(4):
                (id_,) = await take(server)
                assert now + ahead_ms <= stamped(server, id_) <= true_ms() + AHEAD_MS

    scenario()


@pytest.mark.parametrize(("kind", "count"), [("instagram", 1), ("instagram", 500), ("instagram32", 4)])
@pytest.mark.parametrize("pause", [0.0, 0.3, 1.1, 8.0])
def test_a_counter_that_is_truncated_gives_nothing_twice(kind: str, count: int, pause: float) -> None:
    """The next draw advances it to the present; its server may not have heard what the other one has stamped."""

    @virtual_time
    async def scenario() -> None:
        async with Site(2) as site:
            servers = [await site.ticket_server() for _ in range(2)]
            await servers[0].admin.make("likes", kind, {"epoch": EPOCH})
            seen = [id_ for server in servers * 2 for id_ in await take(server)]
            await asyncio.sleep(30)
            for _ in range(4):
                seen += await take(servers[0], count)
            await asyncio.sleep(pause)
            site.servers[0].truncate(lanes(servers[0])[0].sequence)
            for server in itertools.chain([servers[1]] * 4, servers * 4):
                seen += await take(server, count)
            await asyncio.sleep(30)
            for server in servers * 4:
                seen += await take(server, count)
            assert len(set(seen)) == len(seen)
            assert all(server.admin.health()["status"] == "pass" for server in servers)

    scenario()
