"""The simulated loop and network: virtual time, processes that stand still or end, packets that travel on."""

import asyncio
import random
from collections.abc import Coroutine, Iterator
from typing import Any

import pytest

from app.databases.address import Address
from app.databases.session import Drawn, Residue, Want
from app.errors import DatabaseFailed
from tests.fakes.server import FakeServer
from tests.fakes.session import FakeSession
from tests.model.network import Network
from tests.model.simulation import Loop, Stuck

PLACE = Address("db1", 3306, "", "tickets")


class Scene:
    """One database, one process, and a session between them."""

    def __init__(self) -> None:
        self.loop = Loop(random.Random(1))
        self.network = Network(self.loop, random.Random(2))
        self.server = FakeServer("db1")
        self.server.add("photos")
        self.network.places[PLACE.name] = self.server
        self.process = self.loop.process("one")
        self.session: FakeSession = self.run(self.network.connector(self.process)(PLACE, Residue(1, 2), 0.5))

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self.loop.run_until_complete(self.process.run(work))

    def wait(self, seconds: float) -> None:
        self.loop.run_until_complete(asyncio.sleep(seconds))

    def draw(self) -> Coroutine[Any, Any, Any]:
        return self.session.draw([Want("photos", 1)])

    @property
    def last(self) -> int:
        return self.server.data.counters["photos"].last


@pytest.fixture
def scene() -> Iterator[Scene]:
    scene = Scene()
    yield scene
    assert scene.loop.errors == []
    scene.loop.end()


async def ticks(said: list[float], count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(1)
        said.append(asyncio.get_running_loop().time())


def test_an_hour_takes_no_time_and_a_wait_without_an_end_is_an_error(scene: Scene) -> None:
    scene.wait(3600)
    with pytest.raises(Stuck):
        scene.loop.run_until_complete(asyncio.Event().wait())


@pytest.mark.parametrize(("suspend", "said"), [(False, [1, 11.5, 12.5]), (True, [1, 2, 3])])
def test_a_frozen_process_goes_on_where_it_stood_and_the_others_do_not_wait(suspend: bool, said: list[float]) -> None:
    loop = Loop(random.Random(1))
    processes = [loop.process("one"), loop.process("other")]
    times: list[list[float]] = [[], []]
    tasks = [process.run(ticks(said, 3)) for process, said in zip(processes, times, strict=True)]
    loop.after(1.5, lambda: processes[0].freeze(10, suspend=suspend))
    loop.run_until_complete(asyncio.gather(*tasks))
    assert times == [said, [1, 2, 3]]
    loop.end()


def test_nothing_of_a_killed_process_runs_any_more_not_even_what_ends_it(scene: Scene) -> None:
    said: list[str] = []

    async def work() -> None:
        try:
            await asyncio.sleep(1)
        finally:
            said.append("ended")

    scene.process.run(work())
    scene.wait(0.5)
    scene.process.kill()
    scene.wait(5)
    assert said == []


def test_a_process_may_stand_still_before_any_callback(scene: Scene) -> None:
    scene.process.stalls = 0.05
    scene.run(ticks([], 300))
    assert scene.loop.now > 301


@pytest.mark.parametrize("what", ["freeze", "kill"])
def test_a_request_takes_effect_whatever_becomes_of_its_sender(scene: Scene, what: str) -> None:
    scene.process.run(scene.draw())
    scene.loop.after(0.0001, lambda: scene.process.kill() if what == "kill" else scene.process.freeze(100))
    scene.wait(1)
    assert scene.last == 1


def test_a_request_that_waited_for_a_database_takes_effect_after_its_sender_has_given_up(scene: Scene) -> None:
    scene.network.stop(PLACE.name)
    task = scene.process.run(scene.draw())
    scene.loop.after(5, scene.session.abort)
    with pytest.raises(DatabaseFailed):
        scene.loop.run_until_complete(task)
    scene.network.resume(PLACE.name)
    scene.wait(1)
    assert scene.last == 1


def test_a_script_stops_a_packet_and_lets_it_go_on(scene: Scene) -> None:
    hold = scene.network.hold("draw answer", "one", PLACE.name)
    task = scene.process.run(scene.draw())
    scene.loop.run_until_complete(hold.caught.wait())
    scene.wait(10)
    assert (scene.last, task.done()) == (1, False)
    hold.go_on()
    assert scene.loop.run_until_complete(task) == [Drawn(1, 1)]


def test_a_restart_and_a_cut_end_a_call(scene: Scene) -> None:
    scene.server.restart()
    with pytest.raises(DatabaseFailed):
        scene.run(scene.draw())
    scene.network.cut("one", PLACE.name, silent=False)
    with pytest.raises(DatabaseFailed):
        scene.run(scene.network.connector(scene.process)(PLACE, None, 0.5))
