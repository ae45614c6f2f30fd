"""Two bodies of data for one offset: ticket servers that are led to different databases, by a list or a name."""

import asyncio

import pytest

from tests.fakes.ticket_database import FakeServer
from tests.fakes.ticket_server import FakeTicketServer, Site
from tests.fakes.virtual_time import virtual_time
from tests.unit.tickets.ledgers import take


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
