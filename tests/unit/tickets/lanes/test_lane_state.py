"""The states of a lane: every edge of the table, walked on a real lane."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from app.common.errors import ColumnExhausted, RingChanged, SequenceUnavailable
from app.tickets.lanes.lane import Lane
from app.tickets.lanes.state import TRANSITIONS, LaneEvent, LaneState, after
from app.tickets.ring.ring import Ring
from tests.fakes.asked import ask
from tests.fakes.ticket_server import FakeTicketServer, Site
from tests.fakes.virtual_time import virtual_time


async def opened(lane: Lane) -> None:
    await lane.open()


async def outdated(lane: Lane) -> None:
    lane.close()


async def failed(lane: Lane) -> None:
    lane.suspend(SequenceUnavailable("its table is locked"))


async def tried(lane: Lane) -> None:
    recovering = asyncio.create_task(lane.recover())
    recovering.add_done_callback(lambda task: task.exception())  # the test may end the lane meanwhile
    await asyncio.sleep(0)


async def recovered(lane: Lane) -> None:
    await lane.recover()


async def ended(lane: Lane) -> None:
    lane.report(ColumnExhausted())


async def left_the_ring(lane: Lane) -> None:
    lane.retire()


HAPPENS: dict[LaneEvent, Callable[[Lane], Awaitable[None]]] = {
    LaneEvent.OPENED: opened,
    LaneEvent.OUTDATED: outdated,
    LaneEvent.FAILED: failed,
    LaneEvent.TRIED: tried,
    LaneEvent.RECOVERED: recovered,
    LaneEvent.ENDED: ended,
    LaneEvent.LEFT_THE_RING: left_the_ring,
}
"""What brings each event about."""
TO: dict[LaneState, tuple[LaneEvent, ...]] = {
    LaneState.CLOSED: (LaneEvent.OUTDATED,),
    LaneState.SUSPENDED: (LaneEvent.FAILED,),
    LaneState.RECOVERING: (LaneEvent.FAILED, LaneEvent.TRIED),
    LaneState.EXHAUSTED: (LaneEvent.ENDED,),
    LaneState.RETIRED: (LaneEvent.LEFT_THE_RING,),
}
"""What leads from an open lane to each other state."""


IMPOSSIBLE = [(state, event) for state in LaneState for event in LaneEvent if event not in TRANSITIONS[state]]


async def lane_that_is(state: LaneState, server: FakeTicketServer) -> Lane:
    lane = server.lane("photos", 1)
    await lane.open()
    for event in TO.get(state, ()):
        await HAPPENS[event](lane)
    assert lane.state is state
    return lane


def test_every_state_and_every_event_is_in_the_table() -> None:
    assert set(TRANSITIONS) == set(LaneState)
    assert {event for row in TRANSITIONS.values() for event in row} == set(LaneEvent)
    assert set(HAPPENS) == set(LaneEvent)


@pytest.mark.parametrize(("state", "event"), [(state, event) for state, row in TRANSITIONS.items() for event in row])
def test_every_edge(state: LaneState, event: LaneEvent) -> None:
    """What it makes of the state, and of those who wait: they are served or sent on, and nobody waits for ever."""

    @virtual_time
    async def scenario() -> None:
        async with Site(2) as site:
            server = await site.ticket_server()
            await server.desk.take("photos", 2)
            lane = await lane_that_is(state, server)
            told: list[Ring] = []
            tell = server.ring.lanes_changed

            def noted() -> None:
                told.append(server.ring)
                tell()

            server.ring.lanes_changed = noted  # type: ignore[method-assign]
            await HAPPENS[event](lane)
            assert lane.state is TRANSITIONS[state][event]
            can_be_asked = lane.state in {LaneState.OPEN, LaneState.CLOSED}
            assert lane.can_be_asked is can_be_asked
            # the rotations leave it out, or take it in again, from this moment on
            assert bool(told) >= (can_be_asked is not (state in {LaneState.OPEN, LaneState.CLOSED}))
            asked = ask(lane)
            assert (await asked is not None) is can_be_asked

    scenario()


@pytest.mark.parametrize(("state", "event"), IMPOSSIBLE)
def test_what_cannot_happen_is_said(state: LaneState, event: LaneEvent) -> None:
    with pytest.raises(AssertionError, match=f"{state} cannot have {event}"):
        after(state, event)


@virtual_time
async def test_a_lane_that_leaves_the_ring_while_it_opens_or_recovers_stays_out() -> None:
    async with Site(2) as site:
        server = await site.ticket_server()
        await server.desk.take("photos", 2)
        lane = server.lane("photos", 1)
        open_with_the_ledger = server.ledger.open

        async def across_a_change(of: Lane) -> None:
            await open_with_the_ledger(of)
            of.retire()

        server.ledger.open = across_a_change  # type: ignore[method-assign,assignment]
        lane.close()
        with pytest.raises(RingChanged):
            await lane.open()
        assert lane.state is LaneState.RETIRED
        other = server.lane("photos", 2)
        other.suspend(SequenceUnavailable("its table is locked"))
        await other.recover()
        assert other.state is LaneState.RETIRED
