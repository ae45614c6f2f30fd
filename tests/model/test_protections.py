"""Each protection is needed: without it, the model hands out a ticket that it must not.

One is taken out of the program at a time, and schedules are tried until one goes wrong by a ticket
that must not be. (That the last id of a block is on disk is for real servers to show: `tests/system/test_crashes.py`.)
"""

import asyncio
import contextlib
import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import NamedTuple, cast

import pytest

from app.databases.protocol import Draw, Mark
from app.tickets.agreement import changes as ring_changes
from app.tickets.lanes.id_guard import IdGuard, WrongResidue
from app.tickets.lanes.lane import Lane
from app.tickets.marks.lane_opening import LaneOpening
from app.tickets.marks.ledger import Ledger
from app.tickets.ring.ring import Ring
from tests.fakes.ticket_database import FakeServer, FakeTicketDatabase
from tests.model.operator import WATCHED, Operator
from tests.model.schedule import STEPS, Schedule
from tests.model.world import TABLES, World

SCHEDULES = 200
"""Tried at the most; the seeds that are named find it at once, as long as nothing else changes."""
WRONG = "|".join(
    [
        "had been given by",
        "were given by .* without a mark",
        "gave [0-9]+ in [a-z]+ after",
        "after it was moved above",
        "were never drawn from",
        "are of two databases",
        "are of another database than",
        "go in steps of",
        "is above the end of",
    ]
)
"""The model's words about a ticket that no server may hand out."""
_check = IdGuard.check
_may_have_gone_back = cast(property, LaneOpening.may_have_gone_back).fget


def without_residue(patch: pytest.MonkeyPatch) -> None:
    """An id of another database's offset passes."""

    def check(self: IdGuard, draw: Draw, highest_when_sent: int) -> None:
        with contextlib.suppress(WrongResidue):
            _check(self, draw, highest_when_sent)

    patch.setattr(IdGuard, "check", check)


def without_floor(patch: pytest.MonkeyPatch) -> None:
    """An id passes that is not above what is known issued."""
    patch.setattr(IdGuard, "check", lambda self, draw, _: _check(self, draw, 0))


def without_ledgers_floor(patch: pytest.MonkeyPatch) -> None:
    """A ticket server knows of those ids alone that it has received itself."""
    marks = FakeTicketDatabase.marks

    async def nothing_issued(
        self: FakeTicketDatabase, changed_within: float | None = None, *, anybody: bool = True
    ) -> list[Mark]:
        return [replace(mark, issued=0) for mark in await marks(self, changed_within, anybody=anybody)]

    patch.setattr(FakeTicketDatabase, "marks", nothing_issued)


def without_ceiling(patch: pytest.MonkeyPatch) -> None:
    """An id passes that lies at or beyond the end of its column."""

    def set_ceiling(self: IdGuard, ceiling: int, last: int) -> None:
        self.ceiling = ceiling
        self.last_allowed = 2**64

    patch.setattr(IdGuard, "set_ceiling", set_ceiling)


def without_ledger(patch: pytest.MonkeyPatch) -> None:
    """Tickets are handed out above every mark on the other databases."""

    async def set_mark(_: Ledger, lane: Lane, last: int, *, protected: bool) -> None:
        lane.marks.mark = lane.marks.next_mark_at = last + 2**40

    patch.setattr(Ledger, "set_mark", set_mark)


def without_incarnation(patch: pytest.MonkeyPatch) -> None:
    """A mark of another epoch of the database counts as one of this epoch."""

    def may_have_gone_back(self: LaneOpening) -> bool:
        known, self.known = self.known, [replace(row, token=f"{self.epoch}:") for row in self.known]
        try:
            assert _may_have_gone_back is not None
            return bool(_may_have_gone_back(self))
        finally:
            self.known = known

    patch.setattr(LaneOpening, "may_have_gone_back", property(may_have_gone_back))


def without_ring_number(patch: pytest.MonkeyPatch) -> None:
    """A database keeps a mark in whatever ring a server set it."""
    keep, supersede = FakeServer.keep, FakeServer.supersede
    patch.setattr(FakeServer, "keep", lambda self, marks, ring=None: keep(self, marks))
    patch.setattr(FakeServer, "supersede", lambda self, old, new, ring=None: supersede(self, old, new))


def without_own_ring_number(patch: pytest.MonkeyPatch) -> None:
    """A draw that no other database protects is not held against its own database's record."""

    async def check_ring(self: FakeTicketDatabase, number: int) -> None:
        await asyncio.sleep(0)

    patch.setattr(FakeTicketDatabase, "check_ring", check_ring)


def without_unverified(patch: pytest.MonkeyPatch) -> None:
    """The databases that answer count as all that there are."""
    patch.setattr(Ring, "not_asked", lambda self, member, asked: "")


def without_raising(patch: pytest.MonkeyPatch) -> None:
    """A change of the ring takes no sequence above what was drawn before."""

    async def floors_of(*_: object) -> dict[str, int]:
        return {}

    patch.setattr(ring_changes, "floors_of", floors_of)


class Where(NamedTuple):
    """Where the search begins: the seed of a schedule that goes wrong at once, and what its steps are."""

    seed: int
    changes_ring: bool | None = None
    databases: int | None = None
    more: Mapping[str, int] = MappingProxyType({})
    reserve_seconds: float = 0.0


GROWTH = MappingProxyType({"grow_by_the_runbook": 40, "quiet_down": 6})
NIGHTS = MappingProxyType({"night": 60})
LOSS = MappingProxyType({"lose_table": 6, "take": 80, "break": 0, "cut": 0, "restart": 12})
NEEDED: dict[Callable[[pytest.MonkeyPatch], None], Where] = {
    without_residue: Where(2),
    without_floor: Where(37),
    without_ledgers_floor: Where(36, changes_ring=False, more=LOSS),
    without_ceiling: Where(79),
    without_ledger: Where(0),
    without_incarnation: Where(47),
    without_unverified: Where(0, changes_ring=False, databases=3, more=NIGHTS),
    without_raising: Where(0, changes_ring=True, more=GROWTH),
}


def run_until_wrong(where: Where) -> str:
    """The model's words about the first ticket that no server may hand out; empty if there is none."""
    for seed in range(where.seed, where.seed + SCHEDULES):
        try:
            Schedule(
                seed,
                Counter(),
                where.databases,
                changes_ring=where.changes_ring,
                more=where.more,
                kinds=(),
                right_clocks=True,
                reserve_seconds=where.reserve_seconds,
                engines=TABLES,
            ).run(STEPS)
        except AssertionError as error:
            if re.search(WRONG, str(error)):
                return f"{seed}: {error}"
    return ""


@pytest.mark.parametrize("take_out", NEEDED, ids=lambda take_out: take_out.__name__.replace("_", " "))
@pytest.mark.timeout(300)
def test_without_it_a_schedule_goes_wrong(
    take_out: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    take_out(monkeypatch)
    found = run_until_wrong(NEEDED[take_out])
    assert found
    print(found)


MOMENTS = 40
"""At so many a ticket server wakes, 5 ms apart."""


def wakes_during_a_growth(seed: int, *, alone: bool = False) -> None:
    """A ticket server was frozen when its connections were ended; it wakes while the sequences are raised.

    The databases have no increment of their own that would keep it from drawing, as files have none. `alone`: it
    reaches the first database only, all the while, and draws unprotected.
    """
    world = World(2, 1, seed, spare=True)
    operator = Operator(world)
    (host,) = world.hosts
    host.refuses = False
    try:
        world.pass_time(0.5)
        if alone:
            host.clients[1].cut = True
        for _ in range(4):
            world.request(host, "photos", 50, whole=False)
            world.pass_time(0.1)
        host.freeze()
        for offset, server in enumerate(world.servers, start=1):
            server.has_settings = False
            server.set_global(offset, 3)
        growing = operator.begin_to_grow(world.servers, 3)
        world.resize(3, 3)
        world.pass_time(WATCHED + 0.005 * (seed % MOMENTS))
        host.thaw()
        for _ in range(8):
            world.request(host, "photos", 1_000, whole=False)
        while not growing.ended:
            world.pass_time(0.1)
        host.stop()
        operator.put_right()
        for _ in range(8):
            world.request(host, "photos", 1_000, whole=False)
        world.pass_time(1.0)
    finally:
        world.end()


def wake_during_growths(times: int, *, alone: bool = False) -> None:
    for seed in range(times):
        wakes_during_a_growth(seed, alone=alone)


@pytest.mark.parametrize("alone", [False, True])
@pytest.mark.parametrize("times", [MOMENTS, pytest.param(3 * MOMENTS, marks=pytest.mark.long)])
def test_one_that_wakes_during_a_growth_draws_nothing_twice(times: int, alone: bool) -> None:
    wake_during_growths(times, alone=alone)


@pytest.mark.parametrize(
    ("take_out", "alone"),
    [(without_ring_number, False), (without_own_ring_number, True)],
    ids=["marks", "own record"],
)
def test_without_the_ring_number_one_that_wakes_during_a_growth_draws_twice(
    take_out: Callable[[pytest.MonkeyPatch], None], alone: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    take_out(monkeypatch)
    with pytest.raises(AssertionError, match=WRONG):
        wake_during_growths(600, alone=alone)
