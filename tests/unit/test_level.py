"""Levels: what a row becomes, when databases are made level, and for how long /healthz warns (rule 5)."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from app.databases.session import Book, Note
from app.tickets import everywhere
from app.tickets.everywhere import lives_in_sight
from app.tickets.level import SECOND_LEVEL, Levels, level_row, make_level
from tests.unit.lane_bench import Bench, make_bench


def row(bench: Bench, offset: int, name: str = "photos/1", book: Book = Book.MARKS) -> Note | None:
    return bench.servers[offset - 1].data.notes[book].get(name)


def put(bench: Bench, offset: int, note: Note, name: str = "photos/1", book: Book = Book.MARKS) -> None:
    bench.servers[offset - 1].data.notes[book][name] = note


async def make(bench: Bench) -> bool:
    return await make_level(bench.sight, lives_in_sight(bench.sight))


# --- what a row becomes -----------------------------------------------------------------------------------------------

HIGH = Note(9, 7, "life birth a", True)


@pytest.mark.parametrize(
    ("row", "becomes"),
    [
        (None, Note(9, 7)),
        (Note(5, 4, "life birth b", True), Note(9, 7)),  # of another tenure
        (Note(5, 4, "life birth a", False), Note(9, 7, "life birth a", False)),
        (Note(5, 8, "life birth a", True), Note(9, 8, "life birth a", True)),
        (Note(9, 2, "life birth b", True), Note(9, 2, "life birth b", True)),
        (Note(9), Note(9)),
    ],
)
def test_a_mark_takes_the_largest_limit_and_keeps_its_tenure_only_if_that_has_it(
    row: Note | None, becomes: Note
) -> None:
    assert level_row([row, HIGH]) == [becomes, HIGH]


# --- one level --------------------------------------------------------------------------------------------------------


async def test_marks_and_floors_of_all_databases_become_level() -> None:
    bench = await make_bench(3)
    put(bench, 1, Note(1_000, 10, "l b a", True))
    put(bench, 2, Note(5_000, 40, "l b a", True))
    put(bench, 3, Note(700), "photos/2")
    put(bench, 1, Note(30), "photos", Book.FLOORS)
    put(bench, 2, Note(80), "photos", Book.FLOORS)
    assert await make(bench)
    assert [row(bench, offset) for offset in (1, 3)] == [Note(5_000, 40, "l b a", True), Note(5_000, 40)]
    assert [row(bench, offset, "photos/2") for offset in (1, 2, 3)] == [Note(700)] * 3
    assert [row(bench, offset, "photos", Book.FLOORS) for offset in (1, 2, 3)] == [Note(80)] * 3


async def test_pages_of_different_databases_are_merged_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(everywhere, "PAGE", 3)
    monkeypatch.setattr(everywhere, "PACKET", 2)
    bench = await make_bench()
    expected = {f"s{number:02}/1": Note(number + 1) for number in range(20)}
    for number, (name, note) in enumerate(expected.items()):
        put(bench, 1 + (number % 3 == 0), note, name)
    assert await make(bench)
    assert [server.data.notes[Book.MARKS] for server in bench.servers] == [expected, expected]


async def test_a_row_that_changes_meanwhile_is_read_again_and_no_limit_falls() -> None:
    bench = await make_bench()
    put(bench, 1, Note(5_000, 0, "l b a"))
    put(bench, 2, Note(1_000, 0, "l b a"))

    def overtake(_client: str, call: str) -> bool:
        if call == "page":
            put(bench, 2, Note(9_000, 0, "l b c"))
        return False

    bench.servers[1].loses = overtake
    assert await make(bench)
    assert [row(bench, offset) for offset in (1, 2)] == [Note(9_000), Note(9_000, 0, "l b c")]


@pytest.mark.parametrize("fails", [False, True])
async def test_a_level_ends_where_a_database_fails_or_has_another_ring_number(fails: bool) -> None:
    bench = await make_bench()
    put(bench, 1, Note(5_000))
    server, record = bench.servers[1], bench.sight.record
    assert record is not None
    record, server.read_only = record.next(9), fails
    server.data.ring = server.data.ring._replace(stamp=record.stamp, text=record.dump())
    assert not await make(bench)
    assert (bench.members[1].life is None) is fails
    assert row(bench, 2) is None


# --- when -------------------------------------------------------------------------------------------------------------


@pytest.fixture
async def running(virtual_time: object) -> AsyncIterator[tuple[Bench, Levels]]:
    """Two databases, both just in sight, and what makes them level."""
    bench = await make_bench()
    bench.sight.clock = asyncio.get_running_loop().time
    levels = Levels(bench.sight)
    for member in bench.members:
        member.came = bench.sight.clock()
    put(bench, 1, Note(5_000))
    task = asyncio.create_task(levels.run())
    yield bench, levels
    task.cancel()


async def test_another_life_warns_again_and_the_same_life_does_not(running: tuple[Bench, Levels]) -> None:
    bench, levels = running
    one = bench.members[0]

    async def come_back() -> None:
        bench.lose(one)
        await bench.see(one)

    await asyncio.sleep(5)
    await come_back()
    assert (levels.is_level, list(levels.warnings)) == (True, [])
    bench.servers[0].restart()
    await come_back()
    await asyncio.sleep(1)
    assert (levels.is_level, [name for name, _ in levels.warnings]) == (False, [one.name])
    await asyncio.sleep(SECOND_LEVEL)
    assert (levels.is_level, list(levels.warnings)) == (True, [])


async def test_a_level_is_made_again_if_a_database_comes_into_sight_in_the_middle(
    running: tuple[Bench, Levels],
) -> None:
    bench, _ = running
    one, server = bench.members[0], bench.servers[1]

    def enter_again(_client: str, call: str) -> bool:
        if call == "write":
            server.loses = None
            bench.sight.enter(one, one.life or "")
            put(bench, 1, Note(6_000))
        return False

    server.loses = enter_again
    await asyncio.sleep(SECOND_LEVEL - 1)
    assert row(bench, 2) == Note(6_000)
