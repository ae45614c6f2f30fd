"""Each protection of tickets drawn ahead is needed: without it, the model finds a ticket twice or below a bump.

As in `test_protections`, with schedules in which every ticket server draws ahead.
"""

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

import pytest

from app.tickets.reserve.reserve import Reserve
from app.tickets.reserve.shelf import Shelf
from app.tickets.reserve.window import Window
from app.tickets.ring.ring import Member
from tests.model.schedule import STEPS, Schedule
from tests.model.test_protections import SCHEDULES, WRONG
from tests.model.world import TABLES


def without_window(patch: pytest.MonkeyPatch) -> None:
    """What is in reserve is handed out whenever it was looked at last."""

    def read(self: Window, member: Member, began: float) -> None:
        self.until = math.inf

    patch.setattr(Window, "read", read)
    patch.setattr(Window, "looked", lambda self, member, began, *, reached: None)


def without_bump_records(patch: pytest.MonkeyPatch) -> None:
    """Nobody drops what a bump has passed."""
    patch.setattr(Reserve, "bumped", lambda self, number: None)


def without_order(patch: pytest.MonkeyPatch) -> None:
    """What a lane has passed by itself stays in reserve."""
    patch.setattr(Shelf, "passed", lambda self, ticket: None)


class Where(NamedTuple):
    """Where the search begins, and what its steps are."""

    seed: int
    more: Mapping[str, int] = MappingProxyType({})


BUMPS = MappingProxyType({"bump": 20, "take": 80, "stall": 30, "break": 0, "cut": 0, "restart": 0, "replace": 0})
NEEDED: dict[Callable[[pytest.MonkeyPatch], None], Where] = {
    without_window: Where(50, BUMPS),
    without_bump_records: Where(1, BUMPS),
    without_order: Where(0),
}


def run_until_wrong(where: Where, seeds: Iterable[int]) -> str:
    """The model's words about the first ticket that no server may hand out; empty if there is none."""
    for seed in seeds:
        schedule = Schedule(
            seed,
            Counter(),
            changes_ring=False,
            more=where.more,
            kinds=(),
            right_clocks=True,
            reserve_seconds=10.0,
            engines=TABLES,
        )
        try:
            schedule.run(STEPS)
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
    where = NEEDED[take_out]
    found = run_until_wrong(where, range(where.seed, where.seed + SCHEDULES))
    assert found
    print(found)


@pytest.mark.parametrize("schedules", [2, pytest.param(10, marks=pytest.mark.long)])
@pytest.mark.timeout(300)
def test_with_all_of_them_none_does(schedules: int) -> None:
    for where in NEEDED.values():
        assert not run_until_wrong(where, range(where.seed, where.seed + schedules))
