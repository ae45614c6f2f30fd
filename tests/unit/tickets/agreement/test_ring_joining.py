"""Databases that come with another ring record than the ring's, or with none."""

import asyncio

import pytest

from app.databases.protocol import Mark, RingRecord, RingState, ServerEntry
from app.tickets.ring.ring import Status
from tests.fakes.ticket_database import FakeServer
from tests.fakes.ticket_server import FakeTicketServer, Site
from tests.fakes.virtual_time import virtual_time
from tests.unit.tickets.ledgers import take


def statuses(server: FakeTicketServer) -> list[Status]:
    return [member.status for member in server.ring.members]


def has_grown(servers: list[FakeServer]) -> None:
    """From an increment of 2: the records and the marks that growth leaves."""
    for server in servers:
        server.state.ring = RingRecord(3, 3, 3, (1, 2, 3), own=server.offset)
        for other in (1, 2, 3):
            if other != server.offset:
                server.keep([Mark("photos", other, 2, 900, 900, "older.t:1")])
                server.keep([Mark("photos", other, 3, 1_000, 1_000, "raised:2")])
        server.table("photos").advance(1_000)


@virtual_time
async def test_a_database_that_lost_its_record_comes_back_into_a_ring_that_has_grown() -> None:
    async with Site(3) as site:
        has_grown(site.servers)
        site.servers[0].state.ring = None
        server = await site.ticket_server()
        assert statuses(server) == [Status.UP] * 3, server.ring.members
        tickets = await take(server, 6)
        assert min(tickets) > 1_000
        assert {ticket % 3 for ticket in tickets} == {0, 1, 2}


@virtual_time
async def test_one_from_before_another_increment_is_raised_whatever_marks_the_others_keep() -> None:
    """Its numbers were other databases' then. Somebody has emptied the ledgers that would say so."""
    async with Site(3) as site:
        has_grown(site.servers)
        for server in site.servers:
            server.state.marks.clear()
        older = site.servers[1].state
        older.ring = RingRecord(1, 4, 1, (1, 2, 3), own=2)
        older.tables["photos"].counter, older.tables["photos"].largest = 500, 499
        ticket_server = await site.ticket_server()
        assert statuses(ticket_server) == [Status.UP] * 3, ticket_server.ring.members
        assert min(await take(ticket_server, 6)) > 1_000


@virtual_time
async def test_one_from_before_the_growth_stays_out_where_no_marks_can_be_read() -> None:
    async with Site(3) as site:
        has_grown(site.servers)
        older = site.servers[1].state
        older.ring = RingRecord(1, 2, 1, (1, 2), own=2)
        older.tables["photos"].counter, older.tables["photos"].largest = 500, 499
        site.servers[0].ledger_fails = True
        site.servers[2].down = True
        ticket_server = await site.ticket_server()
        assert not ticket_server.ring.members[1].up
        site.servers[0].ledger_fails = False
        await asyncio.sleep(3)
        assert statuses(ticket_server) == [Status.UP, Status.UP, Status.DOWN]
        assert min(await take(ticket_server, 6)) > 1_000


@virtual_time
async def test_one_that_kept_marks_of_another_increment_alone_stays_out() -> None:
    async with Site(3) as site:
        has_grown(site.servers)
        state = site.servers[0].state
        state.ring = None
        state.marks = {key: mark for key, mark in state.marks.items() if mark.increment == 2}
        server = await site.ticket_server()
        assert statuses(server) == [Status.QUARANTINED, Status.UP, Status.UP]


@pytest.mark.parametrize("half_formed", [True, False])
@virtual_time
async def test_a_ring_that_was_never_drawn_is_not_formed_with_a_smaller_increment_than_the_list(
    half_formed: bool,
) -> None:
    async with Site(3, recorded=False) as site:
        for server in site.servers:
            server.increment = 2
        for server, other in zip(site.servers[:2], (2, 1), strict=True):
            if half_formed:
                server.state.ring = RingRecord(1, 2, 1, (1, 2), own=server.offset, state=RingState.FORMING)
            else:
                server.keep([Mark("photos", other, 2, 0, 0, "life.t:1")])
        ticket_server = await site.ticket_server()
        assert statuses(ticket_server) == [Status.QUARANTINED] * 3
        for server in site.servers:
            server.increment = 3
        await asyncio.sleep(2.2)
        assert statuses(ticket_server) == [Status.UP] * 3
        tickets = await take(ticket_server, 9)
        assert sorted(tickets) == list(range(1, 10))


@pytest.mark.parametrize("drawn", [True, False])
@virtual_time
async def test_a_ring_begun_on_an_empty_database_does_not_outrank_the_one_that_was_drawn(drawn: bool) -> None:
    """Increment 3 and a third database without `ticketd grow`, and the third has begun a ring by itself."""
    async with Site(3, recorded=False) as site:
        for server in site.servers[:2]:
            server.state.ring = RingRecord(1, 2, 1, (1, 2), own=server.offset)
        site.servers[2].state.ring = RingRecord(2, 3, 1, (3,), own=3)
        if drawn:
            site.servers[0].draw("photos", 1_000, 2)
            site.servers[1].draw("photos", 10, 2)
        ticket_server = await site.ticket_server()
        await asyncio.sleep(2.2)
        if drawn:
            assert statuses(ticket_server) == [Status.QUARANTINED] * 3
            assert "two rings" in str(ticket_server.ring.members[0].last_error)
        else:
            assert statuses(ticket_server) == [Status.UP] * 3
            assert sorted(await take(ticket_server, 9)) == list(range(1, 10))


@pytest.mark.parametrize("databases", [2, 3])
@virtual_time
async def test_an_empty_database_takes_no_place_while_the_order_of_the_others_is_wrong(databases: int) -> None:
    """The URLs have changed places, and the first database came back empty: it would draw what the second has drawn."""
    async with Site(databases) as site:
        server = await site.ticket_server()
        before = await take(server, 4 * databases)
        await server.stop()
        first, second = site.servers[:2]
        first.replace_by_empty()
        for each, offset in ((first, 2), (second, 1)):
            each.configure(offset, databases)
        site.servers[:2] = [second, first]
        server = await site.ticket_server()
        assert statuses(server)[:2] == [Status.QUARANTINED] * 2
        assert "put the URLs back" in str(server.ring.members[0].last_error)
        assert "its place is in doubt" in str(server.ring.members[1].last_error)
        await server.stop()
        for each, offset in ((first, 1), (second, 2)):
            each.configure(offset, databases)
        site.servers[:2] = [first, second]
        server = await site.ticket_server()
        assert statuses(server) == [Status.UP] * databases
        assert not set(before) & set(await take(server, 4 * databases))


@virtual_time
async def test_an_empty_database_moves_to_another_place_only_where_all_can_be_asked() -> None:
    """It went back to before its first ticket, and is listed at the place of another one, which is away."""
    async with Site(3) as site:
        empty = site.servers[0].snapshot()
        server = await site.ticket_server()
        before = await take(server, 12)
        await server.stop()
        first, second, third = site.servers
        first.restore(empty)
        third.down = True
        first.configure(3, 3)
        site.servers[:] = [third, second, first]
        server = await site.ticket_server()
        assert statuses(server) == [Status.DOWN, Status.UP, Status.QUARANTINED]
        assert "only where every database answers" in str(server.ring.members[2].last_error)
        await server.stop()
        third.down = False
        first.configure(1, 3)
        site.servers[:] = [first, second, third]
        server = await site.ticket_server()
        assert statuses(server) == [Status.UP] * 3
        assert not set(before) & set(await take(server, 12))


@pytest.mark.parametrize("increment", [None, 5])
@virtual_time
async def test_empty_ones_form_no_ring_of_their_own_beside_one_that_can_only_be_read(increment: int | None) -> None:
    """A database that is full or read-only cannot draw, and says what the ring is."""
    async with Site(3, increment=increment or 3) as site:
        has_grown(site.servers)
        first, *others = site.servers
        first.read_only = True
        for server in others:
            server.replace_by_empty()
            server.configure(server.offset, increment or 3)
        ticket_server = await site.ticket_server()
        if increment is None:
            await ticket_server.make("photos", None, None)
            assert min(await take(ticket_server, 6)) > 900  # in the ring that is recorded, above the marks
        else:
            assert statuses(ticket_server) == [Status.DOWN, Status.QUARANTINED, Status.QUARANTINED]
            assert all(server.state.ring is None for server in others)


@virtual_time
async def test_one_that_cannot_say_what_it_keeps_goes_on_drawing_while_another_waits_to_join() -> None:
    async with Site(3) as site:
        for server in site.servers:
            server.state.ring = RingRecord(2, 3, 2, (1, 2), own=server.offset)  # it has grown
        site.servers[2].state.ring = None
        site.servers[2].down = True
        ticket_server = await site.ticket_server()
        await take(ticket_server, 4)
        site.servers[0].ledger_fails = True
        await asyncio.sleep(2)
        site.servers[2].down = False
        for _ in range(500):
            await asyncio.sleep(0.01)
            assert statuses(ticket_server)[0] is Status.UP
        assert statuses(ticket_server) == [Status.UP, Status.UP, Status.QUARANTINED]
        assert {ticket % 3 for ticket in await take(ticket_server, 4)} == {1, 2}
        site.servers[0].ledger_fails = False
        await asyncio.sleep(3)
        assert statuses(ticket_server) == [Status.UP] * 3
        assert {ticket % 3 for ticket in await take(ticket_server, 6)} == {0, 1, 2}


@virtual_time
async def test_one_that_is_restored_after_it_was_raised_and_before_it_is_recorded_is_raised_by_the_marks() -> None:
    """Its record, written a moment later, says that it stands above the others."""
    async with Site(3) as site:
        has_grown(site.servers)
        for server in site.servers:
            server.state.marks = {key: mark for key, mark in server.state.marks.items() if key[1] != 2}
        late = site.servers[1]
        late.state.ring = RingRecord(1, 3, 1, (1, 2, 3), own=2)
        late.state.tables["photos"].counter, late.state.tables["photos"].largest = 500, 499
        before, record = late.snapshot(), late.record_ring

        def restored(
            old: RingRecord | None, new: RingRecord, entry: ServerEntry | None = None, now: float = 0.0
        ) -> RingRecord:
            late.record_ring = record  # type: ignore[method-assign]
            late.restore(before)
            return record(old, new, entry, now)

        late.record_ring = restored  # type: ignore[method-assign]
        ticket_server = await site.ticket_server()
        await asyncio.sleep(3)
        tickets = await take(ticket_server, 9)
        assert {ticket % 3 for ticket in tickets} == {0, 1, 2}
        assert min(tickets) > 1_000
