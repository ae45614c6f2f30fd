"""When draws that wait expire: after so much time in which this process ran."""

import asyncio
import time
from collections.abc import Callable

import pytest

from app.common.patience import SLICES
from app.databases.mysql.draws.pending_draw import Deadlines, PendingDraw
from app.databases.protocol import Draw
from tests.unit.databases.draw_bench import table

TIMEOUT = 0.4
PHOTOS = table()


class Clock:
    """Stands for the time and the event loop's timers."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.due: list[tuple[float, Callable[[], None]]] = []

    def monotonic(self) -> float:
        return self.now

    def call_later(self, seconds: float, callback: Callable[[], None]) -> asyncio.TimerHandle:
        self.due.append((self.now + seconds, callback))
        return asyncio.TimerHandle(self.now + seconds, callback, (), asyncio.get_running_loop())

    def tick(self, late: float = 0.0) -> None:
        """The next timer goes off, so many seconds late."""
        when, callback = self.due.pop(0)
        self.now = when + late
        callback()


@pytest.fixture
async def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(time, "monotonic", clock.monotonic)
    monkeypatch.setattr(asyncio.get_running_loop(), "call_later", clock.call_later)
    return clock


def watched(deadlines: Deadlines, clock: Clock, seconds: float = TIMEOUT) -> PendingDraw:
    draw = PendingDraw(PHOTOS, 1, 0, clock.now, clock.now + seconds, lambda _: None)
    deadlines.watch(draw)
    return draw


async def test_time_in_which_this_process_stood_still_does_not_count(clock: Clock) -> None:
    expired: list[PendingDraw] = []
    deadlines = Deadlines(TIMEOUT, expired.append)
    draw = watched(deadlines, clock)
    for number in range(SLICES):
        clock.tick(late=100.0 if number == 3 else 0.0)
        assert not expired
    clock.tick()
    assert expired == [draw]
    assert clock.now == pytest.approx(1000.0 + TIMEOUT + 100.0, abs=2 * TIMEOUT / SLICES)
    assert not clock.due


async def test_what_has_come_while_it_stood_still_is_read_before_a_draw_expires(clock: Clock) -> None:
    expired: list[PendingDraw] = []
    deadlines = Deadlines(TIMEOUT, expired.append)
    watched(deadlines, clock, TIMEOUT / SLICES)
    clock.tick(late=100.0)
    assert not expired
    clock.tick()
    assert len(expired) == 1


async def test_a_process_that_never_runs_in_time_does_not_wait_for_ever(clock: Clock) -> None:
    expired: list[PendingDraw] = []
    watched(Deadlines(TIMEOUT, expired.append), clock)
    ticks = 0
    while clock.due:
        clock.tick(late=1.0)
        ticks += 1
    assert len(expired) == 1
    assert 60 < ticks < 80


async def test_the_timer_ticks_only_while_any_draw_waits(clock: Clock) -> None:
    deadlines = Deadlines(TIMEOUT, lambda _: None)
    draw = watched(deadlines, clock)
    watched(deadlines, clock)
    assert len(clock.due) == 1
    draw.answer(Draw(1, 2, 1))
    for _ in range(SLICES + 2):
        if clock.due:
            clock.tick()
    assert not clock.due
