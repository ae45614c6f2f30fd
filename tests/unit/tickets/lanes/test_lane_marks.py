"""A lane asks the ledger before it draws, and hands out no ticket above its mark."""

import asyncio

import pytest

from app.common.errors import (
    MarkRefused,
    RingChanged,
)
from app.databases.protocol import RingRecord
from app.tickets.lanes.state import LaneState
from tests.fakes.virtual_time import settled, virtual_time
from tests.unit.tickets.lanes.lane_bench import Bench


@virtual_time
async def test_it_opens_before_its_first_draw_and_again_when_it_was_closed() -> None:
    bench = await Bench().begin()
    await bench.asked(3)
    assert bench.witness.opened == 1
    bench.lane.close()
    await bench.asked(3)
    assert bench.witness.opened == 2


@virtual_time
async def test_the_ledger_is_asked_before_every_draw() -> None:
    bench = await Bench().begin()
    await bench.ask()
    bench.witness.refuses = True
    assert await bench.ask() is None
    assert bench.database.counts == [1]
    bench.witness.refuses, bench.witness.lost_touch = False, True
    assert await bench.ask() == range(3, 5, 2)
    assert bench.witness.opened == 2


@virtual_time
async def test_what_was_drawn_while_the_lane_was_closed_is_dropped() -> None:
    bench = await Bench().begin()
    await bench.ask()
    asked = bench.ask()
    await settled()
    bench.lane.close()
    assert await asked is None
    assert await bench.ask() == range(5, 7, 2)


@virtual_time
async def test_no_ticket_above_the_mark_is_handed_out_before_the_next_mark_is_set() -> None:
    bench = await Bench().begin()
    bench.witness.step = 100
    await bench.ask(20)
    assert bench.witness.marks_set_for == []
    await bench.ask(20)
    await bench.ask(20)  # ends at 119
    assert bench.witness.marks_set_for == [119]


@virtual_time
async def test_a_refused_mark_drops_what_was_drawn_and_closes_the_lane() -> None:
    bench = await Bench().begin()
    bench.witness.step = 1
    await bench.ask()
    bench.witness.fails_with = MarkRefused()
    assert await bench.ask() is None
    assert bench.lane.state is LaneState.CLOSED
    assert bench.member.up
    assert bench.metrics.violations[bench.member.name, "mark"] == 1


@pytest.mark.parametrize("opened_in", [5, 4])
@virtual_time
async def test_a_draw_of_the_present_ring_that_a_database_refuses_takes_all_of_them_down(opened_in: int) -> None:
    """One of an earlier ring is only dropped: this server has changed the ring since, and the databases are well."""
    bench = await Bench().begin()
    bench.ring.record = RingRecord(5, 2, 5, (1, 2), own=1)
    bench.ring.mark_up(bench.ring.members[1], await bench.ring.members[1].database.probe())
    bench.witness.step = 1
    await bench.ask()
    bench.lane.residue = bench.lane.residue._replace(ring=opened_in)
    bench.witness.fails_with = RingChanged()
    assert await bench.ask() is None
    assert bench.lane.state is LaneState.CLOSED
    assert [member.up for member in bench.ring.members] == [opened_in == 4] * 2
    assert bench.metrics.violations[bench.member.name, "ring"] == 1


@virtual_time
async def test_the_next_step_is_reserved_ahead_without_anybody_waiting() -> None:
    bench = await Bench().begin()
    await bench.ask()
    bench.lane.marks.next_mark_at = 2
    began = asyncio.get_running_loop().time()
    await bench.ask()
    assert bench.witness.soon == 1
    assert asyncio.get_running_loop().time() - began == pytest.approx(0.01)
