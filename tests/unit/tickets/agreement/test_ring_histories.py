"""What ring records say of how the ring came to be: newcomers, ancestors, and rings that know nothing of each other."""

import asyncio

import pytest

from app.common.errors import NoTicketDatabase
from app.databases.protocol import RingRecord
from app.tickets.agreement.record import RingContradiction, newest
from tests.fakes.ticket_server import Site
from tests.fakes.virtual_time import virtual_time
from tests.unit.tickets.ledgers import of, probed, take


def test_a_ring_that_a_change_began_from_gives_way() -> None:
    before = RingRecord(2, 2, 1, (1, 2), own=1)
    assert newest([before, RingRecord(4, 3, 4, (1, 2, 3), own=2)]).increment == 3


def test_two_rings_of_which_neither_came_from_the_other_contradict_each_other() -> None:
    """One was formed by databases that had lost theirs while the others were away; its number may be the larger one."""
    with pytest.raises(RingContradiction, match="number 2 with increment 2 and number 3 with increment 5"):
        newest([RingRecord(2, 2, 2, (1, 2), own=2), RingRecord(3, 5, 1, (1, 3), own=1)])


@virtual_time
async def test_databases_that_formed_a_ring_without_another_are_raised_above_it_when_they_meet() -> None:
    """Though both rings have the same number: one formed it when it had lost its own, the other had grown to it."""
    async with Site(3, increment=4, recorded=False) as site:
        one, other, third = site.servers
        one.state.ring = RingRecord(4, 4, 4, (1, 3), own=1)
        third.state.ring = RingRecord(4, 4, 4, (1, 3), own=3)
        other.state.ring = RingRecord(4, 4, 4, (1, 2), own=2)
        other.table("photos").advance(10_000)
        server = await site.ticket_server()
        assert min(await take(server, 3)) > 10_000


@virtual_time
async def test_it_draws_nothing_until_every_other_database_of_the_ring_can_be_asked() -> None:
    async with Site(3, recorded=False) as site:
        *others, added = site.servers
        for each in others:
            each.state.ring = RingRecord(2, 3, 2, (1, 2), own=each.offset)
            each.table("photos").advance(10_000)
        added.down = True
        server = await site.ticket_server()
        await take(server, 2)
        for each in others:
            each.down = True
        added.heal()
        await probed()
        with pytest.raises(NoTicketDatabase):
            await take(server)
        assert "start above the databases that cannot be asked now: offset 1, offset 2" in str(
            server.ring.members[2].last_error
        )
        for each in others:
            each.heal()
        await asyncio.sleep(8)
        tickets = of(3, await take(server, 6), 3)
        assert len(tickets) == 2
        assert min(tickets) > 10_000
