"""A database that could not keep marks for a while, and can again."""

import asyncio
from collections.abc import Iterable

from app.databases.protocol import Position
from app.tickets.watch.chores import COUNTERS_AT_ONCE
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
        other.cut_off()
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


@virtual_time
async def test_counters_that_were_read_before_it_kept_marks_again_do_not_count_as_told() -> None:
    """Others draw without a mark until it does; they are read again."""
    every = [f"s{number:03}" for number in range(COUNTERS_AT_ONCE + 10)]
    async with Site(2, every) as site:
        site.servers[1].ledger_fails = True
        server = await site.ticket_server()
        first, second = server.ring.members
        positions = first.database.positions
        drawn = 0

        async def before(names: Iterable[str]) -> dict[str, Position]:
            nonlocal drawn
            asked = list(names)
            found = await positions(asked)
            if len(asked) == COUNTERS_AT_ONCE and not drawn:  # while they are brought to those that keep marks
                drawn = site.servers[0].draw(every[0], 1_000).last
                site.servers[1].ledger_fails = False
                while second.marks_error is not None:
                    second.wake.set()
                    await asyncio.sleep(0.1)
            return found

        first.database.positions = before  # type: ignore[method-assign]
        await asyncio.sleep(8)
        assert drawn
        assert not server.admin.health()["warnings"]
        assert mark_about(site, 1, on=2, sequence=every[0]).mark >= drawn
