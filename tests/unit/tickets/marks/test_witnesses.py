"""The one writer of marks: which databases have to keep a mark, and what an error of theirs means for it."""

from dataclasses import replace

import pytest

from app.common.errors import RingChanged, TicketDatabaseMisconfigured
from app.databases.protocol import Mark
from app.tickets.marks.witnesses import WitnessLost
from app.tickets.ring.marks import Wanted, keep_marks
from app.tickets.ring.ring import Member
from tests.fakes.ticket_server import Site
from tests.fakes.virtual_time import virtual_time

MARK = Mark("unheard_of", 1, 3, 900, 800, "one.t:1")
OTHER = replace(MARK, mark=1_000, issued=1_000, token="two.t:2")


@virtual_time
async def test_a_database_that_comes_up_while_a_mark_is_written_has_to_keep_it_too() -> None:
    async with Site(3) as site:
        server = await site.ticket_server()
        _first, second, third = server.ring.members
        asked: list[list[Member]] = [[second], [second, third], [second, third]]
        rows = await server.ledger.witnesses.keep(Wanted(MARK), server.ring.number, lambda: asked.pop(0))
        assert set(rows) == {second, third}
        assert all(site.servers[offset - 1].mark("unheard_of", 1) == MARK for offset in (2, 3))


@virtual_time
async def test_a_mark_that_one_database_does_not_take_is_lost_and_the_ring_takes_note() -> None:
    async with Site(3) as site:
        server = await site.ticket_server()
        first, second, third = server.ring.members

        async def refuse(marks: object, ring: int) -> dict[tuple[str, int], Mark]:
            raise TicketDatabaseMisconfigured("does not allow this user to write marks")

        third.database.keep = refuse  # type: ignore[method-assign]
        with pytest.raises(WitnessLost, match=third.name):
            await server.ledger.witnesses.on_others(first, MARK, server.ring.number)
        assert third.up
        assert not third.is_witness
        assert set(await server.ledger.witnesses.on_others(first, MARK, server.ring.number)) == {second}


@virtual_time
async def test_a_mark_of_another_ring_is_refused_and_not_remembered() -> None:
    async with Site(2) as site:
        server = await site.ticket_server()
        first, _ = server.ring.members
        with pytest.raises(RingChanged):
            await server.ledger.witnesses.on_others(first, MARK, server.ring.number + 1)
        assert ("unheard_of", 1) not in server.ledger.witnesses.seen
        assert first.up


@virtual_time
async def test_a_mark_supersedes_only_a_row_that_it_may_and_keeps_the_larger_number() -> None:
    async with Site(2) as site:
        server = await site.ticket_server()
        database, ring = server.ring.members[1].database, server.ring.number
        assert await keep_marks(database, [Wanted(OTHER)], ring) == {("unheard_of", 1): OTHER}
        assert await keep_marks(database, [Wanted(MARK)], ring) == {("unheard_of", 1): OTHER}
        assert await keep_marks(database, [Wanted(MARK, lambda row: row.mark < 1_000)], ring) == {
            ("unheard_of", 1): OTHER
        }
        superseded = {("unheard_of", 1): replace(OTHER, token=MARK.token)}
        assert await keep_marks(database, [Wanted(MARK, lambda row: row.mark <= 1_000)], ring) == superseded
