"""A database that could not keep marks for a while, and can again."""

import asyncio

from tests.fakes.ticket_server import Site
from tests.fakes.virtual_time import virtual_time
from tests.unit.tickets.ledgers import mark_about, of, take


@virtual_time
async def test_it_is_told_what_a_server_that_is_gone_had_drawn_meanwhile() -> None:
    async with Site(2, ("photos", "accounts")) as site:
        server, other = await site.ticket_server(), await site.ticket_server()
        await take(other, 2)
        site.servers[1].ledger_fails = True
        drawn = of(1, await take(other, 12_000))
        for client in other.databases:
            client.cut = True  # type: ignore[attr-defined]
        await asyncio.sleep(1.2)
        site.servers[1].ledger_fails = False
        await asyncio.sleep(4.2)
        assert mark_about(site, 1, on=2).mark >= drawn[-1]
        assert not server.admin.health()["warnings"]


@virtual_time
async def test_lanes_that_could_not_ask_it_open_again() -> None:
    async with Site(3) as site:
        server = await site.ticket_server()
        await take(server, 3)
        site.servers[1].ledger_fails = True
        await take(server, 12_000)
        site.servers[0].restart()
        await asyncio.sleep(2.2)
        assert any("could not be asked" in each["reason"] for each in server.admin.health()["warnings"])
        site.servers[1].ledger_fails = False
        await asyncio.sleep(4.2)
        assert not server.admin.health()["warnings"]
