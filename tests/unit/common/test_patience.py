"""Waits that count only the time in which this process ran."""

import asyncio

import pytest

from app.common.patience import SLICES, STALLS, patience
from tests.fakes.virtual_time import BEGINNING, VirtualLoop, virtual_time


def stand_still(seconds: float) -> None:
    """The process is stopped here, and its clock goes on."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    loop.clock.now += seconds


@virtual_time
async def test_patience_ends_after_its_seconds() -> None:
    began = asyncio.get_running_loop().time()
    with pytest.raises(TimeoutError):
        async with patience(0.4):
            await asyncio.sleep(10)
    assert asyncio.get_running_loop().time() - began == pytest.approx(0.4)


@virtual_time
async def test_patience_that_was_not_needed_ends_nothing_later() -> None:
    async with patience(0.4):
        await asyncio.sleep(0.1)
    await asyncio.sleep(1)


@pytest.mark.parametrize("begins", [0.0, 0.1, 0.3])
@pytest.mark.parametrize("lasts", [0.03, 0.36, 0.48, 5.0, 3600.0])
@virtual_time
async def test_patience_does_not_count_a_stall(begins: float, lasts: float) -> None:
    """What had 0.05 s to go when the process was stopped has it still."""
    loop = asyncio.get_running_loop()
    loop.call_later(begins, stand_still, lasts)
    async with patience(0.4):
        await asyncio.sleep(begins + 0.01)  # over when the stall is
        assert loop.time() > BEGINNING + 0.99 * (begins + lasts)
        await asyncio.sleep(0.05)


@virtual_time
async def test_patience_ends_although_the_process_never_runs_in_time() -> None:
    loop = asyncio.get_running_loop()

    async def always_late() -> None:
        while True:
            stand_still(1.0)
            await asyncio.sleep(0.001)

    late = loop.create_task(always_late())
    began = loop.time()
    with pytest.raises(TimeoutError):
        async with patience(0.4):
            await asyncio.Event().wait()
    late.cancel()
    assert loop.time() - began < 2 * (SLICES + STALLS)
