"""What a lane does after each error of a database: it suspends, closes, checks one draw, or ends."""

import asyncio
from collections.abc import Callable

import pytest

from app.common.errors import (
    ColumnExhausted,
    MarkRefused,
    SequenceMissing,
    SequenceUnavailable,
    SequenceWentBack,
    TicketDatabaseBusy,
    TicketDatabaseError,
    TicketDatabaseHung,
    TicketDatabaseUnavailable,
)
from app.databases.protocol import ProbeResult
from app.tickets.lanes.id_guard import WrongResidue
from app.tickets.lanes.state import LaneState
from app.tickets.ring.ring import Status
from tests.fakes.virtual_time import settled, virtual_time
from tests.unit.tickets.lanes.lane_bench import Bench


@pytest.mark.parametrize(
    ("error", "state", "status"),
    [
        (SequenceUnavailable("is locked"), LaneState.SUSPENDED, Status.UP),
        (SequenceMissing("has no table"), LaneState.SUSPENDED, Status.UP),
        (SequenceWentBack("gave id 3 after 5"), LaneState.SUSPENDED, Status.UP),
        (ColumnExhausted("is at its end"), LaneState.EXHAUSTED, Status.UP),
        (TicketDatabaseBusy("deadlocked"), LaneState.OPEN, Status.UP),
        (MarkRefused("another incarnation"), LaneState.CLOSED, Status.UP),
        (TicketDatabaseUnavailable("refused"), LaneState.OPEN, Status.DOWN),
        (TicketDatabaseHung("hung"), LaneState.SUSPENDED, Status.DOWN),
        (WrongResidue("gave id 4"), LaneState.OPEN, Status.QUARANTINED),
    ],
)
def test_the_state_that_follows_from_each_error(error: TicketDatabaseError, state: LaneState, status: Status) -> None:
    @virtual_time
    async def scenario() -> None:
        bench = await Bench().begin()
        await bench.ask()
        bench.database.fails_with = error
        assert await bench.ask() is None
        assert bench.lane.state is state
        assert bench.member.status is status

    scenario()


@virtual_time
async def test_a_wrong_residue_is_never_handed_out_and_quarantines_the_database() -> None:
    bench = await Bench().begin()
    await bench.ask()
    bench.server.draws_as = (2, 2)
    assert await bench.ask() is None
    assert bench.member.status is Status.QUARANTINED
    assert bench.member.residue_of == "photos"
    assert bench.metrics.violations[bench.member.name, "residue"] == 1


@virtual_time
async def test_an_id_below_the_floor_is_never_handed_out_and_suspends_the_lane() -> None:
    bench = await Bench().begin()
    await bench.ask(50)
    bench.server.truncate("photos")
    assert await bench.ask() is None
    assert bench.lane.state is LaneState.SUSPENDED
    assert bench.lane.must_advance
    assert bench.metrics.violations[bench.member.name, "order"] == 1
    assert bench.member.up


@virtual_time
async def test_recovery_checks_one_draw_and_drops_it() -> None:
    bench = await Bench().begin()
    await bench.ask()
    bench.lane.suspend(SequenceUnavailable("its table was locked"))
    assert not bench.lane.can_be_asked
    await bench.lane.recover()
    assert bench.lane.state is LaneState.OPEN
    assert bench.metrics.gaps[bench.member.name, "checked"] == 1
    assert await bench.ask() == range(5, 7, 2)


@virtual_time
async def test_recovery_that_draws_a_wrong_id_leaves_it_suspended() -> None:
    bench = await Bench().begin()
    await bench.ask(50)
    bench.lane.suspend(SequenceUnavailable("its table was locked"))
    bench.server.truncate("photos")
    with pytest.raises(SequenceWentBack):
        await bench.lane.recover()
    assert not bench.lane.can_be_asked


@virtual_time
async def test_suspending_sends_everybody_on() -> None:
    bench = await Bench().begin()
    await bench.ask()
    waiting = [bench.ask() for _ in range(3)]
    await settled()
    waiting += [bench.ask() for _ in range(3)]
    bench.lane.suspend(SequenceUnavailable("for a test"))
    assert await asyncio.gather(*waiting) == [None] * 6


def near_the_end(left: int) -> Callable[[Bench], None]:
    def use_up(bench: Bench) -> None:
        bench.server.table("photos").advance(bench.server.table("photos").ceiling - left)

    return use_up


@virtual_time
async def test_close_to_the_end_what_does_not_fit_in_one_statement_comes_one_at_a_time() -> None:
    bench = await Bench().begin()
    near_the_end(left=10)(bench)
    first = bench.ask(2)
    await settled()
    answers = await asyncio.gather(first, bench.ask(2), bench.ask(2))
    ids = [ticket for tickets in answers for ticket in tickets or ()]
    assert len(ids) == len(set(ids)) >= 4
    assert max(ids) <= bench.server.table("photos").ceiling


@virtual_time
async def test_the_end_is_reached_without_a_repeat_and_stays_reached() -> None:
    bench = await Bench().begin()
    near_the_end(left=11)(bench)
    answers = [await bench.ask() for _ in range(8)]
    ids = [tickets[0] for tickets in answers if tickets]
    assert len(ids) == len(set(ids))
    assert max(ids) <= bench.server.table("photos").ceiling
    assert bench.lane.state is LaneState.EXHAUSTED
    assert not bench.lane.can_be_asked


@virtual_time
async def test_a_block_at_the_end_is_whole_or_not_at_all() -> None:
    bench = await Bench().begin()
    near_the_end(left=30)(bench)
    assert await bench.ask(20, whole=True) is None
    assert await bench.ask(1) is not None


@virtual_time
async def test_an_error_that_nobody_knows_sends_everybody_on_and_the_lane_goes_on() -> None:
    bench = await Bench().begin()
    await bench.ask()
    bench.witness.breaks, bench.lane.marks.next_mark_at = True, 0
    assert await bench.asked(3) == [None] * 3
    bench.witness.breaks = False
    assert await bench.ask() is not None
    assert isinstance(bench.member.probe_result, ProbeResult)
