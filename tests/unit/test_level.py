"""Levels: what a row becomes, when databases are made level, and for how long /healthz warns (rule 5)."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest

from app.databases.session import Book, Note
from app.tickets import level
from app.tickets.level import SECOND_LEVEL, Levels, NotLevel, level_floors, level_marks, make_level
from app.tickets.sight import Status
from tests.unit.lane_bench import Bench, make_bench


def row(bench: Bench, offset: int, name: str, book: Book = Book.MARKS) -> Note | None:
    return bench.servers[offset - 1].data.notes[book].get(name)


def put(bench: Bench, offset: int, name: str, note: Note, book: Book = Book.MARKS) -> None:
    bench.servers[offset - 1].data.notes[book][name] = note


async def make(bench: Bench) -> None:
    record = bench.sight.record
    assert record is not None
    await make_level([(each.database, each.life or "", record.stamp) for each in bench.members])


@asynccontextmanager
async def running(levels: Levels) -> AsyncIterator[None]:
    task = asyncio.create_task(levels.run())
    yield
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


# --- what a row becomes -----------------------------------------------------------------------------------------------


def test_a_row_raised_from_another_tenure_loses_its_own() -> None:
    low, high = Note(5, 4, "life birth a", True), Note(9, 7, "life birth b", True)
    assert level_marks([low, high]) == [Note(9, 7), high]


def test_a_row_raised_from_its_own_tenure_keeps_it_and_whether_it_is_sure() -> None:
    low, high = Note(5, 4, "life birth a", False), Note(9, 3, "life birth a", True)
    assert level_marks([low, high]) == [Note(9, 4, "life birth a", False), high]


def test_a_missing_row_is_made_without_a_tenure() -> None:
    high = Note(9, 7, "life birth a", True)
    assert level_marks([high, None]) == [high, Note(9, 7)]


def test_rows_with_one_limit_stay_as_they_are() -> None:
    rows = [Note(9, 7, "life birth a"), Note(9, 2, "life birth b", True), Note(9)]
    assert level_marks(rows) == rows


def test_floors_take_the_largest() -> None:
    assert level_floors([Note(3), None, Note(8)]) == [Note(8)] * 3


# --- one level --------------------------------------------------------------------------------------------------------


async def test_marks_and_floors_of_all_databases_become_level() -> None:
    bench = await make_bench(3)
    put(bench, 1, "photos/1", Note(1_000, 10, "l b a", True))
    put(bench, 2, "photos/1", Note(5_000, 40, "l b a", True))
    put(bench, 3, "photos/2", Note(700))
    put(bench, 2, "photos", Note(80), Book.FLOORS)
    await make(bench)
    assert row(bench, 1, "photos/1") == Note(5_000, 40, "l b a", True)
    assert row(bench, 3, "photos/1") == Note(5_000, 40)
    assert [row(bench, offset, "photos/2") for offset in (1, 2, 3)] == [Note(700)] * 3
    assert [row(bench, offset, "photos", Book.FLOORS) for offset in (1, 2, 3)] == [Note(80)] * 3


async def test_pages_of_different_databases_are_merged_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(level, "PAGE", 3)
    monkeypatch.setattr(level, "PACKET", 2)
    bench = await make_bench()
    for number in range(20):
        put(bench, 1 + (number % 3 == 0), f"s{number:02}/1", Note(number + 1))
    await make(bench)
    expected = {f"s{number:02}/1": Note(number + 1) for number in range(20)}
    assert [server.data.notes[Book.MARKS] for server in bench.servers] == [expected, expected]


async def test_a_row_that_changes_meanwhile_is_read_again_and_no_limit_falls() -> None:
    bench = await make_bench()
    put(bench, 1, "photos/1", Note(5_000, 0, "l b a"))
    put(bench, 2, "photos/1", Note(1_000, 0, "l b a"))

    def overtake(_client: str, call: str) -> bool:
        if call == "page":
            put(bench, 2, "photos/1", Note(9_000, 0, "l b c"))
        return False

    bench.servers[1].loses = overtake
    await make(bench)
    assert row(bench, 1, "photos/1") == Note(9_000)
    assert row(bench, 2, "photos/1") == Note(9_000, 0, "l b c")


async def test_a_database_with_another_ring_number_takes_no_level() -> None:
    bench = await make_bench()
    put(bench, 1, "photos/1", Note(5_000))
    ring = bench.servers[1].data.ring
    bench.servers[1].data.ring = ring._replace(stamp="9.other")
    with pytest.raises(NotLevel):
        await make(bench)
    assert row(bench, 2, "photos/1") is None


async def test_a_failure_names_the_database() -> None:
    bench = await make_bench()
    put(bench, 1, "photos/1", Note(5_000))
    bench.servers[1].read_only = True
    with pytest.raises(NotLevel) as raised:
        await make(bench)
    assert raised.value.database is bench.members[1].database


# --- when -------------------------------------------------------------------------------------------------------------


async def seen_by_levels(bench: Bench) -> Levels:
    """Count time by the loop's clock, and let a Levels know of each member in sight."""
    bench.sight.clock = asyncio.get_running_loop().time
    levels = Levels(bench.sight)
    for member in bench.sight.in_sight:
        levels.came(member)
    return levels


@pytest.mark.looptime
async def test_a_level_is_made_at_once_and_again_three_seconds_later() -> None:
    bench = await make_bench()
    levels = await seen_by_levels(bench)
    put(bench, 1, "photos/1", Note(5_000))
    async with running(levels):
        await asyncio.sleep(1)
        assert row(bench, 2, "photos/1") == Note(5_000)
        assert not levels.is_level
        assert [name for name, _ in levels.warnings] == [member.name for member in bench.members]
        put(bench, 2, "photos/1", Note(8_000))
        await asyncio.sleep(SECOND_LEVEL - 1.1)
        assert row(bench, 1, "photos/1") == Note(5_000)
        await asyncio.sleep(0.2)
        assert row(bench, 1, "photos/1") == Note(8_000)
        assert levels.is_level
        assert not levels.warnings


@pytest.mark.looptime
async def test_the_warning_stays_until_a_level_with_all_databases_of_the_ring() -> None:
    bench = await make_bench()
    bench.sight.leave(bench.members[1], Status.DOWN, "away")
    levels = await seen_by_levels(bench)
    async with running(levels):
        await asyncio.sleep(10)
        assert len(levels.warnings) == 1
        await bench.see(bench.members[1])
        levels.came(bench.members[1])
        await asyncio.sleep(1)
        assert [name for name, _ in levels.warnings] == [bench.members[1].name]  # the other was found long ago
        await asyncio.sleep(SECOND_LEVEL)
        assert not levels.warnings


@pytest.mark.looptime
async def test_another_life_warns_again_and_the_same_life_does_not() -> None:
    bench = await make_bench()
    levels = await seen_by_levels(bench)
    async with running(levels):
        await asyncio.sleep(5)
        bench.sight.leave(bench.members[0], Status.DOWN, "away")
        await bench.see(bench.members[0])
        levels.came(bench.members[0])
        assert levels.is_level
        bench.servers[0].restart()
        bench.sight.leave(bench.members[0], Status.DOWN, "restarted")
        await bench.see(bench.members[0])
        levels.came(bench.members[0])
        await asyncio.sleep(1)
        assert [name for name, _ in levels.warnings] == [bench.members[0].name]
        await asyncio.sleep(SECOND_LEVEL)
        assert levels.is_level


@pytest.mark.looptime
async def test_a_database_that_fails_during_a_level_goes_out_of_sight_and_the_level_is_made_again() -> None:
    bench = await make_bench()
    levels = await seen_by_levels(bench)
    put(bench, 1, "photos/1", Note(5_000))
    bench.servers[1].read_only = True
    async with running(levels):
        await asyncio.sleep(5)
        assert bench.members[1].life is None
        assert not levels.is_level
        bench.servers[1].read_only = False
        await bench.see(bench.members[1])
        levels.came(bench.members[1])
        await asyncio.sleep(5)
        assert row(bench, 2, "photos/1") == Note(5_000)
        assert levels.is_level


@pytest.mark.looptime
async def test_a_level_is_made_again_if_a_database_comes_into_sight_in_the_middle() -> None:
    bench = await make_bench()
    levels = await seen_by_levels(bench)
    await asyncio.sleep(SECOND_LEVEL)
    put(bench, 1, "photos/1", Note(5_000))
    raised = asyncio.Event()

    def enter_again(_client: str, call: str) -> bool:
        if call == "write" and not raised.is_set():
            raised.set()
            bench.sight.enter(bench.members[0], bench.members[0].life or "")
            put(bench, 1, "photos/1", Note(6_000))
        return False

    bench.servers[1].loses = enter_again
    async with running(levels):
        await raised.wait()
        await asyncio.sleep(0.1)
        assert row(bench, 2, "photos/1") == Note(6_000)
