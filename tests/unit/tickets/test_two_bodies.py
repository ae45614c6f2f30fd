"""Two bodies of data for one offset: ticket servers that are led to different databases, by a list or a name."""

import asyncio

import pytest

from app.databases.protocol import OLDER_SECONDS, ServerEntry
from tests.fakes.ticket_database import FakeServer
from tests.fakes.ticket_server import PROBE_INTERVAL, FakeTicketServer, Site
from tests.fakes.virtual_time import virtual_time
from tests.unit.tickets.ledgers import probed, take


def another(site: Site, at: int, *, copied: bool = False) -> FakeServer:
    """A database for this offset beside the one that the site has: empty, or a copy of its data."""
    original = site.servers[at - 1]
    made = FakeServer(at, original.increment, (), original.clock)
    made.name = f"other{at}:3306"
    if copied:
        made.restore(original.snapshot())
    return made


def advances(servers: list[FakeServer]) -> int:
    """How far the sequence stands above the tickets that were drawn."""
    return max(server.table("photos").counter for server in servers if "photos" in server.state.tables)


async def drawn_by(servers: list[FakeTicketServer], seconds: float) -> list[int]:
    """Tickets of all of these for so long, one after the other."""
    tickets: list[int] = []
    until = asyncio.get_running_loop().time() + seconds
    while asyncio.get_running_loop().time() < until:
        for server in servers:
            tickets += await take(server, 2)
        await asyncio.sleep(0.05)
    return tickets


@pytest.mark.parametrize("copied", [False, True], ids=["an empty one", "a copy"])
@virtual_time
async def test_two_servers_with_different_bodies_do_not_fight_over_an_offset(copied: bool) -> None:
    async with Site(2) as site:
        first = await site.ticket_server()
        tickets = await drawn_by([first], 1)
        other = another(site, 1, copied=copied)
        second = await site.ticket_server(servers=[other, site.servers[1]])
        tickets += await drawn_by([first, second], 60)
        assert len(set(tickets)) == len(tickets)
        assert max(tickets) < 20_000


@virtual_time
async def test_health_warns_while_a_server_of_an_earlier_release_is_seen() -> None:
    async with Site(2) as site:
        server = await site.ticket_server()
        assert server.admin.health()["status"] == "pass"
        older = ServerEntry("0ef", "0.2.0", ("ticket",), PROBE_INTERVAL, uses=None)
        site.servers[1].probes(older, asyncio.get_running_loop().time())
        await probed()
        health = server.admin.health()
        assert health["status"] == "warn"
        (warning,) = health["warnings"]
        assert warning["database"] == server.databases[1].name
        assert "release 0.2.0 uses it" in warning["reason"]
        await asyncio.sleep(OLDER_SECONDS + PROBE_INTERVAL)
        assert server.admin.health()["status"] == "pass"
