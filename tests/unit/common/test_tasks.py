"""Tasks: held while they run, waited for, cancelled."""

import asyncio
import gc

import pytest

from app.common.tasks import Tasks
from tests.fakes.virtual_time import virtual_time


class Log:
    """The tasks that have ended, and how."""

    def __init__(self) -> None:
        self.ended: list[str] = []

    async def work(self, name: str, seconds: float) -> None:
        try:
            await asyncio.sleep(seconds)
        except asyncio.CancelledError:
            await asyncio.sleep(1)
            self.ended.append(f"{name} cancelled")
            raise
        self.ended.append(name)


@virtual_time
async def test_a_task_that_waits_for_something_nobody_holds_is_not_collected() -> None:
    tasks, ended = Tasks(), Log().ended

    async def wait_for_ever() -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            ended.append("ended")

    tasks.spawn(wait_for_ever())
    await asyncio.sleep(0)
    gc.collect()
    assert ended == []
    await tasks.cancel()
    assert ended == ["ended"]


@virtual_time
async def test_it_waits_for_all_or_for_so_many_seconds() -> None:
    tasks, log, time = Tasks(), Log(), asyncio.get_running_loop().time
    await tasks.wait()
    tasks.spawn(log.work("slow", 5))
    tasks.spawn(log.work("quick", 1))
    began = time()
    await tasks.wait(2)
    assert log.ended == ["quick"]
    assert time() - began == pytest.approx(2)
    await tasks.wait()
    assert log.ended == ["quick", "slow"]
    assert time() - began == pytest.approx(5)


@virtual_time
async def test_cancelled_tasks_have_ended_when_it_returns() -> None:
    tasks, log = Tasks(), Log()
    await tasks.cancel()
    for name in ("one", "two"):
        tasks.spawn(log.work(name, 5))
    await asyncio.sleep(0)
    await tasks.cancel()
    assert log.ended == ["one cancelled", "two cancelled"]
    began = asyncio.get_running_loop().time()
    await tasks.wait()
    assert asyncio.get_running_loop().time() == began
