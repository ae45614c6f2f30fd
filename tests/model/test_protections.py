"""Each protection is needed: without it, the model hands out a ticket that it must not.

One is taken out of the program at a time, and schedules are tried until one goes wrong in the way that it guards
against. (That the last id of a block is on disk is for real servers to show: `tests/system/test_crashes.py`.)
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from app.databases.protocol import Draw, Mark
from app.fence import Fence
from app.lane import Lane
from app.ledger import Ledger
from tests.fakes.ticket_database import FakeTicketDatabase
from tests.model.schedule import Schedule

SCHEDULES = 2_000
STEPS = 100
_check = Fence.check
_may_have_gone_back = Ledger._may_have_gone_back


def without_residue(patch: pytest.MonkeyPatch) -> None:
    """An id of another database's offset passes."""

    def check(self: Fence, draw: Draw, highest_when_sent: int) -> None:
        residue, increment = self._residue, self._increment
        self._residue, self._increment = 0, 1
        try:
            _check(self, draw, highest_when_sent)
        finally:
            self._residue, self._increment = residue, increment

    patch.setattr(Fence, "check", check)


def without_floor(patch: pytest.MonkeyPatch) -> None:
    """An id passes that is not above what is known issued."""
    patch.setattr(Fence, "check", lambda self, draw, _: _check(self, draw, 0))


def without_ledgers_floor(patch: pytest.MonkeyPatch) -> None:
    """A ticket server knows of those ids alone that it has received itself."""
    marks = FakeTicketDatabase.marks

    async def nothing_issued(self: FakeTicketDatabase, changed_within: float | None = None) -> list[Mark]:
        return [replace(mark, issued=0) for mark in await marks(self, changed_within)]

    patch.setattr(FakeTicketDatabase, "marks", nothing_issued)


def without_ceiling(patch: pytest.MonkeyPatch) -> None:
    """An id passes that lies at or beyond the end of its column."""

    def set_ceiling(self: Fence, ceiling: int, *, repeats_ceiling: bool) -> None:
        self.ceiling = ceiling
        self.last_allowed = 2**64

    patch.setattr(Fence, "set_ceiling", set_ceiling)


def without_ledger(patch: pytest.MonkeyPatch) -> None:
    """Tickets are handed out above every mark on the other databases."""

    async def reserve(_: Ledger, lane: Lane, last: int) -> None:
        lane.mark = lane.reserve_at = last + 2**40

    patch.setattr(Ledger, "reserve", reserve)


def without_incarnation(patch: pytest.MonkeyPatch) -> None:
    """A mark that another life of the database was given counts as one of this life."""

    def may_have_gone_back(self: Ledger, lane: Lane, life: str, known: list[Mark], *where: Any) -> bool:
        known = [replace(row, token=f"{life}:") for row in known]
        return _may_have_gone_back(self, lane, life, known, *where)

    patch.setattr(Ledger, "_may_have_gone_back", may_have_gone_back)


def run_schedules() -> None:
    for seed in range(SCHEDULES):
        Schedule(seed, Counter()).run(STEPS)


@pytest.mark.parametrize(
    ("take_out", "goes_wrong"),
    [
        (without_residue, "go in steps of|were never drawn from|are of two databases|had been given by"),
        (without_floor, "had been given by| gave "),
        (without_ledgers_floor, "had been given by"),
        (without_ceiling, "is above the end of|had been given by| gave "),
        (without_ledger, "had been given by"),
        (without_incarnation, "had been given by"),
    ],
    ids=lambda value: value.__name__.replace("_", " ") if callable(value) else "",
)
@pytest.mark.timeout(300)
def test_without_it_a_schedule_goes_wrong(
    take_out: Callable[[pytest.MonkeyPatch], None], goes_wrong: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    take_out(monkeypatch)
    with pytest.raises(AssertionError, match=goes_wrong):
        run_schedules()
