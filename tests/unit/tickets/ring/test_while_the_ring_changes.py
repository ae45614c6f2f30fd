"""What is under way across a change of the ring, or across a database's way out and back, leaves nothing old behind."""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import replace

import pytest

from app.common.errors import MarkRefused, RingChanged
from app.databases.protocol import Mark, Position
from app.tickets.watch.chores import COUNTERS_AT_ONCE
from tests.fakes.ticket_server import PROBE_INTERVAL, FakeTicketServer, Site
from tests.fakes.virtual_time import virtual_time
from tests.unit.tickets.ledgers import mark_about, probed, take


def another_ring(server: FakeTicketServer) -> None:
    """What the health loops do first where the databases record another ring."""
    record = server.ring.record
    assert record is not None
    server.ring.record = replace(record, number=record.number + 1, since=record.number + 1)
    server.catalog.forget()
    server.ledger.forget()


@virtual_time
async def test_marks_that_were_read_in_the_ring_before_are_not_remembered() -> None:
    async with Site(2) as site:
        server = await site.ticket_server()
        await take(server, 20)
        witness = server.databases[1]
        marks, changed = witness.marks, asyncio.Event()

        async def across_a_change(changed_within: float | None = None, *, anybody: bool = True) -> list[Mark]:
            found = await marks(changed_within, anybody=anybody)
            if changed_within is None:
                another_ring(server)
                changed.set()
            return found

        witness.marks = across_a_change  # type: ignore[method-assign]
        assert server.ledger.known_mark("photos", server.ring.members[0]) > 0
        await changed.wait()  # until the whole ledger is read
        await asyncio.sleep(0)
        assert server.ledger.known_mark("photos", server.ring.members[0]) == 0


@virtual_time
async def test_a_mark_that_was_answered_in_the_ring_before_is_not_remembered() -> None:
    async with Site(2) as site:
        server = await site.ticket_server()
        await take(server, 2)
        witness = server.databases[1]
        keep = witness.keep

        async def across_a_change(marks: Iterable[Mark], ring: int) -> Mapping[tuple[str, int], Mark]:
            found = await keep(marks, ring)
            another_ring(server)
            return found

        witness.keep = across_a_change  # type: ignore[method-assign]
        lane = server.lane("photos", 1)
        with pytest.raises(RingChanged):
            await server.ledger.set_mark(lane, lane.guard.highest, protected=True)
        assert server.ledger.known_mark("photos", server.ring.members[0]) == 0


@virtual_time
async def test_a_replacement_that_was_answered_in_the_ring_before_is_not_remembered() -> None:
    async with Site(2) as site:
        server = await site.ticket_server()
        await take(server, 2)
        witness = server.databases[1]
        supersede = witness.supersede

        async def across_a_change(old: Mark, new: Mark, ring: int) -> Mark:
            found = await supersede(old, new, ring)
            another_ring(server)
            return found

        witness.supersede = across_a_change  # type: ignore[method-assign]
        lane = server.lane("photos", 1)
        lane.close()
        lane.must_advance = True
        with pytest.raises(RingChanged):
            await lane.open()
        assert server.ledger.known_mark("photos", server.ring.members[0]) == 0


@virtual_time
async def test_tables_that_were_listed_in_the_ring_before_are_listed_again() -> None:
    async with Site(2, ["photos", "accounts"]) as site:
        server = await site.ticket_server()
        listed = server.databases[0]
        names = listed.names

        async def across_a_change() -> dict[str, str]:
            found = await names()
            another_ring(server)
            return found

        listed.names = across_a_change  # type: ignore[method-assign]
        await server.catalog.refresh(server.ring.members[0])
        assert not server.catalog.entries
        listed.names = names  # type: ignore[method-assign]
        await server.catalog.refresh(server.ring.members[0])
        assert sorted(server.catalog.entries) == ["accounts", "photos"]


@virtual_time
async def test_a_witness_replaced_while_it_is_told_the_live_counters_is_told_all_of_them_again() -> None:
    every = [f"s{number:03}" for number in range(150)]
    async with Site(2, every) as site:
        for name in every:
            site.servers[0].table(name).advance(7_000)
        server = await site.ticket_server()
        await probed()
        counted = server.databases[0]
        positions = counted.positions
        replaced = 0

        async def slowly(names: Iterable[str]) -> dict[str, Position]:
            nonlocal replaced
            asked = list(names)
            found = await positions(asked)
            if len(asked) == COUNTERS_AT_ONCE and every[0] not in asked and not replaced:  # some have been told
                replaced += 1
                site.servers[1].replace_by_empty()
                server.ring.members[1].wake.set()
                await asyncio.sleep(3 * PROBE_INTERVAL)
                assert server.ring.members[1].up
            return found

        counted.positions = slowly  # type: ignore[method-assign]
        site.servers[1].restart()
        await asyncio.sleep(8 * PROBE_INTERVAL)
        assert replaced
        for name in every:
            assert mark_about(site, 1, on=2, sequence=name).mark >= 7_000
        assert not server.admin.health()["warnings"]


@virtual_time
async def test_a_counter_whose_row_another_server_changed_is_told_again() -> None:
    async with Site(2) as site:
        server = await site.ticket_server()
        await take(server, 2)
        await probed()
        row = mark_about(site, 1, on=2)
        site.servers[1].supersede(row, replace(row, token=f"{row.token}1"))
        member, witness = server.ring.members
        found = {"photos": Position(row.mark + 1_001, row.mark, "2026")}
        with pytest.raises(MarkRefused):
            await server.ledger.exchange.complete(witness, member, found, server.catalog.lanes)
        await server.ledger.exchange.complete(witness, member, found, server.catalog.lanes)
        assert mark_about(site, 1, on=2).mark == row.mark + 1_000
