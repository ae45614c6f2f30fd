"""Each protection of the ids of other kinds is needed: without it, the model finds an id that must not be given.

What the schedules do not come upon by themselves is shown where one server after the other is led there, in
`tests/unit/tickets/sources/test_worker_lease*.py`: that T is committed on the number's own database and on the others,
that the next holder stamps above it, that a renewal is refused where another holds the number, that a database which
comes up has the lease before it is used again, and that a renewal names its ring. That marks of such counters are not
far ahead keeps a database that went back in use; `test_kind_sequences.py` shows it. That a tick which comes back too
far ahead is dropped is for `test_lane_stamps.py`, and that another worker number is used from the next moment on for
`test_worker_numbers.py`.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import pytest

from app.kinds.ticks import Ticks
from app.tickets.sources import worker_lease
from app.tickets.sources.instance_number import Instance, InstanceNumber
from app.tickets.sources.lane_stamps import LaneStamps
from app.tickets.sources.server_clock import ServerClock
from tests.model.schedule import STEPS, Schedule
from tests.model.world import TABLES

SCHEDULES = 120
"""Tried at the most; the seeds that are named find it at once, as long as nothing else changes."""


def without_time(patch: pytest.MonkeyPatch) -> None:
    """A counter in a database is not advanced to the present."""
    least = LaneStamps.least
    patch.setattr(LaneStamps, "least", lambda self, highest, ids: 0 * least(self, highest, ids))


def without_comparing_clocks(patch: pytest.MonkeyPatch) -> None:
    """A server believes its own clock."""
    patch.setattr(ServerClock, "now_ms", ServerClock.wall_ms)


def without_end(patch: pytest.MonkeyPatch) -> None:
    """A number counts as free while its lease lasts."""
    patch.setattr(worker_lease, "MARGIN_MS", -10 * worker_lease.LEASE_MS)


def without_last_tick(patch: pytest.MonkeyPatch) -> None:
    """What is counted in memory begins at the present moment each time."""
    patch.setattr(Ticks, "take", lambda _, count, first: range(first, first + count))


def without_instance_ticket(patch: pytest.MonkeyPatch) -> None:
    """A life of a server has a number that nobody drew."""
    patch.setattr(InstanceNumber, "right", lambda _: Instance(7))


class Where(NamedTuple):
    """Where the search begins, and what its schedules are."""

    seed: int
    kinds: Sequence[str]
    right_clocks: bool | None = None
    more: Mapping[str, int] = MappingProxyType({})


AWAY = MappingProxyType({"absence": 30, "leave": 8, "make_kind": 1})
NEEDED: dict[Callable[[pytest.MonkeyPatch], None], Where] = {
    without_time: Where(0, ["likes"]),
    without_comparing_clocks: Where(3, ["likes", "flakes"], right_clocks=False),
    without_end: Where(0, ["flakes"], more=AWAY),
    without_last_tick: Where(1, ["flakes", "objects"]),
    without_instance_ticket: Where(1, ["instances", "objects"]),
}


def run_until_wrong(where: Where) -> str:
    """The model's words about the first schedule that goes wrong; empty if none does."""
    for seed in range(where.seed, where.seed + SCHEDULES):
        try:
            schedule = Schedule(
                seed,
                Counter(),
                kinds=where.kinds,
                right_clocks=where.right_clocks,
                more=where.more,
                reserve_seconds=0.0,
                engines=TABLES,
            )
            schedule.run(STEPS)
        except AssertionError as error:
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
