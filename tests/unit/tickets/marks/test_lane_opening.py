"""A lane that opens while what it has read grows old."""

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest

from app.common.errors import RingChanged, TicketDatabaseUnavailable
from app.databases.protocol import Mark
from tests.fakes.ticket_server import FakeTicketServer, Site
from tests.fakes.virtual_time import virtual_time
from tests.unit.tickets.ledgers import take


def when_superseded(server: FakeTicketServer, then: Callable[[], object]) -> None:
    """The last step of an opening is about to be made, and something happens first."""
    witness = server.databases[1]
    supersede = witness.supersede

    async def first(old: Mark, new: Mark, ring: int) -> Mark:
        witness.supersede = supersede  # type: ignore[method-assign]
        then()
        return await supersede(old, new, ring)

    witness.supersede = first  # type: ignore[method-assign]


@virtual_time
async def test_a_table_made_anew_while_its_lane_opens_gives_nothing_twice() -> None:
    """The lane is closed for it and opens all the same; the next id lies below those that are known."""
    async with Site(2) as site:
        server = await site.ticket_server()
        before = await take(server, 40)
        lane = server.lane("photos", 1)

        def remade() -> None:
            site.servers[0].remake("photos")
            lane.close()

        when_superseded(server, remade)
        lane.close()
        lane.must_advance = True
        await lane.open()
        assert lane.is_open
        after = await take(server, 10)
        await asyncio.sleep(8)
        after += await take(server, 20)
        assert not set(before) & set(after)
        assert len(set(after)) == len(after)
        assert server.admin.health()["status"] == "pass"


@virtual_time
async def test_a_database_replaced_while_a_lane_opens_leaves_it_closed() -> None:
    async with Site(2) as site:
        server = await site.ticket_server()
        await take(server, 4)
        lane = server.lane("photos", 1)

        def replaced() -> None:
            lane.member.incarnation = "another"
            lane.close()

        when_superseded(server, replaced)
        lane.close()
        lane.must_advance = True
        with pytest.raises(TicketDatabaseUnavailable, match="restarted or replaced"):
            await lane.open()
        assert not lane.is_open


@virtual_time
async def test_another_ring_while_a_lane_opens_leaves_it_closed() -> None:
    async with Site(2) as site:
        server = await site.ticket_server()
        await take(server, 4)
        lane = server.lane("photos", 1)
        record = server.ring.record
        assert record is not None

        def changed() -> None:
            server.ring.record = replace(record, number=record.number + 1)
            lane.close()

        when_superseded(server, changed)
        lane.close()
        lane.must_advance = True
        with pytest.raises(RingChanged):
            await lane.open()
        assert not lane.is_open
