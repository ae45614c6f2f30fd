"""The ring: turn order, who is skipped, and what a state changes."""

import asyncio
from dataclasses import dataclass

import pytest

from app.databases.protocol import ClockReading, ProbeResult
from app.tickets.ring.ring import Member, Ring, Rotation, Status
from tests.fakes.ticket_database import FakeServer, FakeTicketDatabase
from tests.fakes.virtual_time import virtual_time


@dataclass
class FakeLane:
    member: Member
    can_be_asked: bool = True


def look(incarnation: str = "one") -> ProbeResult:
    return ProbeResult(incarnation, "identity", 0.001, increment=2, offset=1, record=None, clock=ClockReading(0, 0, 0))


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def ring_of(databases: int, *, up: bool = True, clock: Clock | None = None) -> Ring:
    servers = [FakeServer(offset, databases) for offset in range(1, databases + 1)]
    ring = Ring([FakeTicketDatabase(server) for server in servers], now=clock or Clock())
    for member in ring.members:
        if up:
            ring.mark_up(member, look())
    return ring


def rotation_of(ring: Ring) -> Rotation[FakeLane]:
    return Rotation(tuple(FakeLane(member) for member in ring.members))


def offsets(order: tuple[FakeLane, ...]) -> list[int]:
    return [lane.member.database.offset for lane in order]


def turns(ring: Ring, rotation: Rotation[FakeLane], times: int) -> list[int]:
    return [offsets(ring.take_turn(rotation))[0] for _ in range(times)]


def test_two_databases_alternate() -> None:
    ring = ring_of(2)
    assert turns(ring, rotation_of(ring), 6) == [1, 2, 1, 2, 1, 2]


def test_three_databases_take_turns_and_each_order_begins_with_whose_turn_it_is() -> None:
    ring = ring_of(3)
    rotation = rotation_of(ring)
    assert [offsets(ring.take_turn(rotation)) for _ in range(4)] == [[1, 2, 3], [2, 3, 1], [3, 1, 2], [1, 2, 3]]


def test_each_sequence_has_a_turn_of_its_own() -> None:
    ring = ring_of(2)
    photos, accounts = rotation_of(ring), rotation_of(ring)
    assert turns(ring, photos, 1) == [1]
    assert turns(ring, accounts, 2) == [1, 2]
    assert turns(ring, photos, 2) == [2, 1]


def test_a_database_that_is_down_or_quarantined_is_skipped_and_comes_back() -> None:
    ring = ring_of(3)
    rotation = rotation_of(ring)
    ring.mark_down(ring.members[0], "refused")
    ring.quarantine(ring.members[2], "has a wrong offset")
    assert turns(ring, rotation, 3) == [2, 2, 2]
    ring.mark_up(ring.members[0], look())
    assert sorted(turns(ring, rotation, 4)) == [1, 1, 2, 2]


def test_a_lane_that_cannot_be_asked_is_skipped_in_its_sequence_alone() -> None:
    ring = ring_of(2)
    photos, accounts = rotation_of(ring), rotation_of(ring)
    assert turns(ring, photos, 2) == [1, 2]
    photos.lanes[0].can_be_asked = False
    ring.lanes_changed()
    assert turns(ring, photos, 3) == [2, 2, 2]
    assert turns(ring, accounts, 2) == [1, 2]


def test_nobody_up_is_no_turn() -> None:
    ring = ring_of(2, up=False)
    assert ring.take_turn(rotation_of(ring)) == ()
    assert not ring.any_up


def test_since_changes_with_the_status_and_the_last_error_stays() -> None:
    clock = Clock()
    ring = ring_of(2, clock=clock)
    member = ring.members[0]
    clock.now = 1010.0
    ring.mark_down(member, "refused")
    clock.now = 1020.0
    ring.mark_down(member, "hung")
    assert (member.status, member.since, member.last_error) == (Status.DOWN, 1010.0, "hung")
    clock.now = 1030.0
    ring.mark_up(member, look())
    assert (member.status, member.since, member.last_error) == (Status.UP, 1030.0, "hung")


def test_changes_are_told_once_each() -> None:
    ring = ring_of(2)
    told: list[tuple[str, Status]] = []
    ring.follow(lambda member: told.append((member.name, member.status)))
    for _ in range(3):
        ring.mark_down(ring.members[0], "refused")
    ring.mark_up(ring.members[0], look())
    assert [status for _, status in told] == [Status.DOWN, Status.UP]


def test_down_does_not_end_a_quarantine_and_up_does() -> None:
    ring = ring_of(2)
    member = ring.members[0]
    ring.quarantine(member, "has increment 1")
    ring.mark_down(member, "a statement failed")
    assert (member.status, member.last_error) == (Status.QUARANTINED, "has increment 1")
    ring.mark_up(member, look())
    assert member.up


def test_a_probe_without_an_answer_ends_a_quarantine_unless_it_is_for_a_bad_id() -> None:
    ring = ring_of(2)
    settings, residue = ring.members
    ring.quarantine(settings, "has increment 1")
    ring.quarantine(residue, "gave id 4", residue_of="photos")
    ring.unreachable(settings, "refused")
    ring.unreachable(residue, "refused")
    assert (settings.status, residue.status) == (Status.DOWN, Status.QUARANTINED)
    ring.quarantine(residue, "has increment 1")
    assert residue.residue_of == "photos"
    assert residue.quarantines == 1
    ring.mark_up(residue, look())
    assert residue.residue_of is None


def test_going_down_wakes_the_probe_at_once() -> None:
    ring = ring_of(2)
    member = ring.members[0]
    member.wake.clear()
    ring.mark_down(member, "refused")
    assert member.wake.is_set()
    assert not member.settled


def test_witnesses_are_the_others_that_are_up_and_can_keep_marks() -> None:
    ring = ring_of(3)
    first, second, third = ring.members
    assert ring.witnesses(first) == [second, third]
    ring.keeps_no_marks(second, "has a damaged table")
    ring.mark_down(third, "refused")
    assert ring.witnesses(first) == []
    assert ring.witnesses(third) == [first]
    assert second.up


@virtual_time
async def test_waiting_ends_with_a_change_or_with_the_time() -> None:
    ring = ring_of(2, up=False)
    now = asyncio.get_running_loop().time
    asyncio.get_running_loop().call_later(0.3, ring.mark_up, ring.members[1], look())
    began = now()
    assert await ring.wait_for_change(2.0)
    assert now() - began == pytest.approx(0.3)
    assert not await ring.wait_for_change(0.5)
    assert now() - began == pytest.approx(0.8)


@virtual_time
async def test_nobody_waits_where_nothing_is_about_to_be_looked_at() -> None:
    ring = ring_of(2, up=False)
    for member in ring.members:
        ring.settle(member)
    began = asyncio.get_running_loop().time()
    assert not await ring.wait_for_change(2.0)
    assert asyncio.get_running_loop().time() == began
