"""Ring records that are missing, old or contradictory, and the tickets that the servers then draw."""

import asyncio
from dataclasses import replace

import pytest

from app.common.errors import TicketError
from app.tickets.ring.ring import Status
from tests.fakes.virtual_time import virtual_time
from tests.unit.tickets.agreement.rings import SOON, Rings, errors, statuses


@virtual_time
async def test_the_record_is_written_once_by_whoever_comes_first() -> None:
    async with Rings(2, 2) as rings:
        await asyncio.gather(*(rings.start(1, 2) for _ in range(4)))
        one, two = (each.state.ring for each in rings.servers)
        assert one is not None
        assert (one.increment, one.since, one.offsets, one.own) == (2, 1, (1, 2), 1)
        assert two is not None
        assert two == replace(one, own=2, body=two.body, life=two.life)
        for server in rings.running:
            await rings.take(server, 4)


@virtual_time
async def test_marks_that_agree_are_recorded_and_nothing_is_skipped() -> None:
    async with Rings(2, 2) as rings:
        server = await rings.start(1, 2)
        before = await rings.take(server, 10)
        await rings.stop(server)
        for each in rings.servers:
            each.state.ring = None
        server = await rings.start(1, 2)
        assert sorted(await rings.take(server, 4)) == [max(before) + i for i in range(1, 5)]


@virtual_time
async def test_tables_of_other_programs_are_raised_above_every_database_first() -> None:
    async with Rings(2, 2) as rings:
        rings.drift(1, 5001)  # of whatever residue: they were drawn with increment 1
        rings.drift(2, 7777)
        server = await rings.start(1, 2)
        assert min(await rings.take(server, 4)) > 7777


@virtual_time
async def test_one_that_held_tickets_of_other_programs_and_comes_later_raises_all() -> None:
    async with Rings(2, 2) as rings:
        rings.servers[1].down = True
        rings.drift(1, 5001)
        rings.drift(2, 7777)
        server = await rings.start(1, 2)
        await rings.take(server, 4)
        rings.servers[1].down = False
        await asyncio.sleep(SOON)
        assert statuses(server) == [Status.UP] * 2
        assert min(await rings.take(server, 4)) > 7777


@virtual_time
async def test_while_nothing_was_drawn_the_settings_overwrite_the_record_if_all_can_be_reached() -> None:
    async with Rings(2, 2, 3) as rings:
        await rings.stop(await rings.start(1, 2))
        rings.configure(3, 1, 2)
        rings.servers[2].down = True
        server = await rings.start(1, 2, 3)
        assert statuses(server) == [Status.QUARANTINED, Status.QUARANTINED, Status.DOWN]
        rings.servers[2].down = False
        await asyncio.sleep(SOON)
        assert statuses(server) == [Status.UP] * 3
        assert {each % 3 for each in await rings.take(server, 6)} == {0, 1, 2}


@virtual_time
async def test_one_that_is_empty_takes_the_record_and_starts_above_the_others() -> None:
    async with Rings(4, 4, 4) as rings:
        server = await rings.start(1, 2, increment=4)
        rings.drift(1)
        await rings.take(server, 10)
        rings.servers[1].replace_by_empty()
        await asyncio.sleep(3 * SOON)
        assert {each % 4 for each in await rings.take(server, 4)} == {1, 2}
        joined = await rings.start(1, 2, 3)
        highest = max(rings.issued)
        tickets = await rings.take(joined, 9)
        assert all(each > highest for each in tickets if each % 4 == 3)
        assert {each % 4 for each in tickets} == {1, 2, 3}
        record = rings.servers[2].state.ring
        assert record is not None
        assert (record.increment, record.since, record.offsets, record.own) == (4, 1, (1, 2, 3), 3)
        await asyncio.sleep(SOON)
        assert {each % 4 for each in await rings.take(server, 6)} == {1, 2}  # the old list is served as well


@virtual_time
async def test_two_rings_of_one_number_are_refused() -> None:
    async with Rings(2, 2) as rings:
        server = await rings.start(1, 2)
        await rings.take(server, 4)
        await rings.stop(server)
        record = rings.servers[1].state.ring
        assert record is not None
        rings.servers[1].state.ring = replace(record, increment=3)
        server = await rings.start(1, 2)
        assert all("record two rings" in error for error in errors(server))
        with pytest.raises(TicketError):
            await server.desk.take("photos", 1)
