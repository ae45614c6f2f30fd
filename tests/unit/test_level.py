"""Levels: what a row becomes, when databases are made level, and for how long /healthz warns (rule 5)."""

import asyncio
from collections.abc import AsyncIterator
from typing import NamedTuple

import pytest

from app.databases.session import Book, Note
from app.tickets import everywhere
from app.tickets.everywhere import lives_in_sight
from app.tickets.level import SECOND_LEVEL, Levels, level_row, make_level
from app.tickets.sight import Member
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
    server = bench.servers[1]
    server.read_only, server.data.ring = fails, server.data.ring._replace(stamp="9.other")
    assert not await make(bench)
    assert (bench.members[1].life is None) is fails
    assert row(bench, 2) is None


# --- when -------------------------------------------------------------------------------------------------------------


class Running(NamedTuple):
    """Two databases, both just in sight, and what makes them level."""

    bench: Bench
    levels: Levels

    async def back(self, member: Member) -> None:
        """Let a database come into sight again."""
        self.bench.lose(member)
        await self.bench.see(member)
        self.levels.came()

    @property
    def warns_of(self) -> list[str]:
        names = [name for name, _ in self.levels.warnings]
        assert self.levels.is_level is not bool(names)
        return names


@pytest.fixture
async def running(virtual_time: object) -> AsyncIterator[Running]:
    bench = await make_bench()
    bench.sight.clock = asyncio.get_running_loop().time
    levels = Levels(bench.sight)
    for member in bench.members:
        member.came = member.life or "", bench.sight.clock()
    levels.came()
    put(bench, 1, Note(5_000))
    task = asyncio.create_task(levels.run())
    yield Running(bench, levels)
    task.cancel()


async def test_another_life_warns_again_and_the_same_life_does_not(running: Running) -> None:
    one = running.bench.members[0]
    await asyncio.sleep(5)
    await running.back(one)
    assert running.warns_of == []
    running.bench.servers[0].restart()
    await running.back(one)
    await asyncio.sleep(1)
    assert running.warns_of == [one.name]
    await asyncio.sleep(SECOND_LEVEL)
    assert running.warns_of == []


async def test_a_level_is_made_again_if_a_database_comes_into_sight_in_the_middle(running: Running) -> None:
    bench = running.bench
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
