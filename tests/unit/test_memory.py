"""Ids that a server makes in memory, with and without a right."""

import asyncio
from typing import Any

import pytest

from app.errors import ClockAhead, Exhausted, NoTicketDatabase
from app.kinds.table import KINDS
from app.service import Service
from app.settings import Settings
from app.tickets.definitions import Definition
from app.tickets.memory import Memory, MemorySource
from app.tickets.request import Shape
from app.tickets.rights import FOR_EVER, INSTANCES, Holder, Right
from app.tickets.sight import Sight
from tests.contract.http_bench import databases_on
from tests.fakes.server import FakeServer
from tests.unit.lane_bench import Asked
from tests.unit.test_stamps import NOW, Time

EPOCH = {"epoch": 1_700_000_000_000}


class Held(Holder):
    """A right that the test gives and takes."""

    def __init__(self, right: Right) -> None:
        super().__init__(Sight([], 1.0, 1.0, lambda: 0.0))
        self.held: Right | None = right

    def right(self) -> Right | None:
        return self.held

    async def _keep(self) -> None:
        """Nothing is due."""


class Bench:
    """The memory sources of a server whose clocks stand still."""

    def __init__(self, number: int = 7) -> None:
        self.time = Time()
        self.worker, self.instance = Held(Right(number, 0, NOW + 120_000)), Held(Right(number, 0, FOR_EVER))
        self.memory = Memory(self.time.server, self.worker, self.instance)

    def source(self, kind: str = "snowflake", **parameters: int) -> MemorySource:
        given = {name: value for name, value in {**EPOCH, **parameters}.items() if name in KINDS[kind].parameters}
        return self.memory.source("ids", Definition(kind, given))

    def said(self, kind: str, made: object) -> dict[str, Any]:
        return KINDS[kind].decode(EPOCH, str(made))


def put(source: MemorySource, count: int = 1, *, seconds: float = 2.0) -> Asked:
    """Ask a source as the desk does."""
    asked = Asked(count, Shape.LIST)
    asked.request.deadline = asyncio.get_running_loop().time() + seconds
    source.ask(asked.request)
    return asked


async def test_ids_rise_while_the_clock_goes_back_and_wait_for_it_if_that_is_soon() -> None:
    bench = Bench()
    source = bench.source()
    (first,) = await put(source).answer
    bench.time.ms -= 20
    waiting, behind = put(source), put(source)
    assert not waiting.answer.done()
    assert source._waiting
    bench.time.ms += 21
    (second,), (third,) = await waiting.answer, await behind.answer
    assert first < second < third
    bench.time.ms -= 3_600_000
    with pytest.raises(ClockAhead, match="ms behind its own ids"):
        await put(source).answer
    bench.time.ms += 3_605_000
    with pytest.raises(ClockAhead, match="ahead of the ticket databases"):
        await put(source).answer


async def test_a_full_counter_goes_on_into_the_next_moment_which_the_next_id_waits_for() -> None:
    bench = Bench()
    source = bench.source()
    ids = [each for _ in range(5) for each in await put(source, 1000).answer]
    assert {bench.said("snowflake", each)["time_ms"] for each in ids} == {NOW, NOW + 1}
    waiting = put(source)
    bench.time.ms += 1
    (last,) = await waiting.answer
    assert last == max([*ids, last])
    assert len(set(ids)) == 5000


async def test_another_number_makes_larger_ids_and_none_of_a_time_that_its_last_holder_had() -> None:
    bench = Bench()
    source = bench.source()
    (first,) = await put(source).answer
    bench.worker.held = Right(3, 0, NOW + 120_000)
    waiting = put(source)  # an id of this moment would be smaller
    assert not waiting.answer.done()
    bench.time.pass_by(1)
    (second,) = await waiting.answer
    bench.worker.held = Right(9, NOW + 400, NOW + 120_000)
    waiting = put(source)
    bench.time.pass_by(399)
    await asyncio.sleep(0.02)
    assert not waiting.answer.done()
    bench.time.pass_by(1)
    (third,) = await waiting.answer
    assert first < second < third
    said = [bench.said("snowflake", each) for each in (second, third)]
    assert [(each["worker"], each["time_ms"]) for each in said] == [(3, NOW + 1), (9, NOW + 401)]


async def test_a_lease_ends_with_its_time() -> None:
    bench = Bench()
    source = bench.source()
    assert bench.worker.needed.is_set()
    bench.time.pass_by(120_000)
    assert await put(source).answer
    assert bench.memory.gives
    bench.time.pass_by(1)
    waiting = put(source)
    await asyncio.sleep(0.01)
    assert not waiting.answer.done()
    bench.worker.held = Right(7, 0, NOW + 240_000)
    assert await waiting.answer
    bench.worker.held = None
    bench.worker.trouble = NoTicketDatabase("no ticket database is in sight")
    assert not bench.memory.gives
    with pytest.raises(NoTicketDatabase, match="in sight"):
        await put(source).answer
    assert list(bench.memory.warnings()) == ["no ticket database is in sight"]
    assert await put(bench.source("flake")).answer


async def test_a_request_that_waits_too_long_is_told_what_it_waited_for() -> None:
    bench = Bench()
    bench.worker.held = None
    source = bench.source()
    asked = put(source, seconds=0.05)
    with pytest.raises(NoTicketDatabase, match="no worker number yet"):
        await asked.answer
    await source.end()


async def test_a_sequence_that_is_looked_up_again_repeats_nothing() -> None:
    bench = Bench()
    assert bench.source() is bench.source()
    assert bench.source() is not bench.source(epoch=1)
    assert bench.source("uuid7") is not bench.source()


async def test_a_number_that_does_not_fit_is_refused() -> None:
    with pytest.raises(Exhausted):
        await put(Bench(2**40).source("objectid")).answer


@pytest.mark.looptime
async def test_the_instance_number_is_a_ticket_that_is_drawn_once_needed_and_tried_again() -> None:
    databases, clock = [FakeServer(name) for name in ("db1", "db2")], asyncio.get_running_loop().time
    settings = Settings.model_construct(databases=databases)
    servers = [Service(databases_on(databases, 0.5), settings, name, clock=clock) for name in "abc"]
    for each in servers:
        each.start()
    await asyncio.sleep(10)
    assert [each.catalog.entries for each in servers] == 3 * [{}]
    for database in databases:
        database.down = True
    await asyncio.sleep(10)
    for each in servers:
        each.instance.needed.set()
    await asyncio.sleep(10)
    assert {str(each.instance.trouble)[:48] for each in servers} == {"this server could not draw its instance number: "}
    for database in databases:
        database.down = False
    await asyncio.sleep(60)
    drawn = {right.number for each in servers if (right := each.instance.right()) is not None}
    assert (len(drawn), [set(each.catalog.entries) for each in servers]) == (3, 3 * [{INSTANCES}])
    assert [each.instance.trouble for each in servers] == 3 * [None]
    for each in servers:
        await each.stop()
