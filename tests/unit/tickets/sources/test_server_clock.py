"""The clock that ids are stamped by, compared with the databases'."""

import asyncio

import pytest

from app.common.errors import ClockAhead, ClockUnknown
from app.databases.protocol import ClockReading
from app.tickets.sources.server_clock import AHEAD_SECONDS, FRESH_SECONDS, SHARP_SECONDS, ServerClock
from tests.fakes.ticket_database import TRUE_TIME
from tests.fakes.ticket_server import PROBE_INTERVAL, Site
from tests.fakes.virtual_time import VirtualLoop, virtual_time

TRUE = 1_700_000_000.0


class Clocks:
    """What two clocks of a process say. `off`: how far its own is from the true time."""

    def __init__(self, off: float = 0.0) -> None:
        self.off = off
        self.passed = 100.0
        self.clock = ServerClock(lambda: TRUE + self.passed + self.off, lambda: self.passed)

    def reading(self, off: float = 0.0, took: float = 0.002) -> ClockReading:
        """What a database says that was asked just now, its clock being off by so much."""
        return ClockReading(TRUE + self.passed + off, self.passed - took / 2, self.passed + took / 2)


def test_before_any_database_was_asked_nothing_is_stamped() -> None:
    clocks = Clocks()
    with pytest.raises(ClockUnknown):
        clocks.clock.now_ms()
    assert clocks.clock.ahead == 0


@pytest.mark.parametrize("off", [-31_536_000, -3600, -0.2, 0, 0.2, 0.9])
def test_a_clock_that_is_not_ahead_is_believed(off: float) -> None:
    clocks = Clocks(off)
    clocks.clock.note("odd", clocks.reading())
    assert clocks.clock.now_ms() == pytest.approx((TRUE + 100 + off) * 1000, abs=1)
    assert clocks.clock.ahead == pytest.approx(off, abs=0.01)


@pytest.mark.parametrize("off", [1.1, 3600, 31_536_000])
def test_one_that_is_ahead_stamps_nothing(off: float) -> None:
    clocks = Clocks(off)
    clocks.clock.note("odd", clocks.reading())
    with pytest.raises(ClockAhead, match="ahead of the ticket databases'"):
        clocks.clock.now_ms()


def test_it_is_noticed_between_two_probes() -> None:
    clocks = Clocks()
    clocks.clock.note("odd", clocks.reading())
    clocks.passed += 60
    clocks.clock.now_ms()
    clocks.off = 3600
    with pytest.raises(ClockAhead):
        clocks.clock.now_ms()
    clocks.off = -3600
    clocks.clock.now_ms()
    assert clocks.clock.latest_ms() == pytest.approx((TRUE + clocks.passed) * 1000, abs=5)


def test_of_several_databases_the_latest_counts_while_it_answers() -> None:
    clocks = Clocks(off=5)
    clocks.clock.note("odd", clocks.reading())
    with pytest.raises(ClockAhead):
        clocks.clock.now_ms()
    clocks.clock.note("even", clocks.reading(off=5))
    clocks.clock.now_ms()
    clocks.passed += FRESH_SECONDS + 1  # the even one is gone, and nobody knows whether it was right
    clocks.clock.note("odd", clocks.reading())
    with pytest.raises(ClockAhead):
        clocks.clock.now_ms()


def test_a_reading_that_took_long_says_nothing() -> None:
    clocks = Clocks(off=5)
    clocks.clock.note("odd", clocks.reading())
    clocks.clock.note("odd", clocks.reading(off=5, took=SHARP_SECONDS + 0.01))
    with pytest.raises(ClockAhead):
        clocks.clock.now_ms()


def test_a_suspended_machine_stamps_nothing_until_the_next_probe() -> None:
    clocks = Clocks()
    clocks.clock.note("odd", clocks.reading())
    clocks.off = 2 * AHEAD_SECONDS  # the monotonic clock stood still for so long
    with pytest.raises(ClockAhead):
        clocks.clock.now_ms()
    clocks.clock.note("odd", clocks.reading(off=clocks.off))
    clocks.clock.now_ms()


@pytest.mark.parametrize("kind", ["instagram", "snowflake", "flake", "uuid7"])
def test_a_server_whose_machine_was_suspended_stamps_again_after_one_probe(kind: str) -> None:
    """Until then it refuses at once what holds the time, and gives plain tickets."""

    @virtual_time
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        async with Site(2) as site:
            server = await site.ticket_server(wall=lambda: TRUE_TIME + loop.clock.now)
            await server.admin.make("likes", kind, {})
            before = await server.desk.take("likes", 1)
            await asyncio.sleep(0.5 * PROBE_INTERVAL)
            loop.clock.now += 30
            loop.suspended += 30
            with pytest.raises(ClockAhead):
                await server.desk.take("likes", 1)
            await server.desk.take("photos", 1)
            await asyncio.sleep(PROBE_INTERVAL)
            assert await server.desk.take("likes", 1) != before
            assert server.admin.health()["status"] == "pass"

    scenario()
