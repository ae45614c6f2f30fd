"""Each protection is needed: without it, the model hands out a ticket that it must not.

One is taken out of the program at a time, and schedules are tried until one goes wrong by a ticket
that must not be. (That the last id of a block is on disk is for real servers to show: `tests/system/test_crashes.py`.)
"""

import re
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
from tests.model.schedule import STEPS, Schedule

SCHEDULES = 2_000
WRONG = "|".join(
    [
        "had been given by",
        "gave [0-9]+ in [a-z]+ after",
        "after it was moved above",
        "were never drawn from",
        "are of two databases",
        "go in steps of",
        "is above the end of",
    ]
)
"""What the model says of a ticket that must not have been handed out."""
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


def run_until_wrong() -> str:
    """What the model says of the first ticket that must not have been handed out; nothing if there is none."""
    for seed in range(SCHEDULES):
        try:
            Schedule(seed, Counter()).run(STEPS)
        except AssertionError as error:
            if re.search(WRONG, str(error)):
                return str(error)
    return ""


@pytest.mark.parametrize(
    "take_out",
    [
        without_residue,
        without_floor,
        without_ledgers_floor,
        without_ceiling,
        without_ledger,
        without_incarnation,
    ],
    ids=lambda take_out: take_out.__name__.replace("_", " "),
)
@pytest.mark.timeout(300)
def test_without_it_a_schedule_goes_wrong(
    take_out: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    take_out(monkeypatch)
    assert run_until_wrong()
