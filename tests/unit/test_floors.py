"""Floors: how they are kept and read, and what the number of the floors stands for."""

import asyncio

import pytest

from app.databases.session import Book, Note
from app.tickets import everywhere
from app.tickets.floors import NUMBER, Floors
from tests.unit.lane_bench import Bench, make_bench


def floor_rows(bench: Bench) -> list[Note | None]:
    return [server.data.notes[Book.FLOORS].get("photos") for server in bench.servers]


def numbers(bench: Bench) -> list[int]:
    return [server.data.notes[Book.COUNTS].get(NUMBER, Note()).high for server in bench.servers]


async def test_a_floor_is_kept_on_every_database_and_the_number_rises_behind_it() -> None:
    bench = await make_bench()
    lives = {member: member.life for member in bench.members}
    assert await bench.floors.keep("Photos", 500) == lives
    assert floor_rows(bench) == [Note(500), Note(500)]
    assert numbers(bench) == [1, 1]
    assert bench.floors.known == {"photos": 500}
    assert await bench.floors.keep("photos", 100) == lives
    assert floor_rows(bench) == [Note(500), Note(500)]
    assert bench.floors.known == {"photos": 500}


async def test_the_number_rises_above_every_number_that_was_seen() -> None:
    bench = await make_bench()
    bench.servers[1].data.notes[Book.COUNTS][NUMBER] = Note(7)
    heard = Floors(bench.sight, lambda: 20)
    await bench.floors.keep("photos", 5)
    assert numbers(bench) == [8, 8]
    await heard.keep("photos", 5)
    assert numbers(bench) == [21, 21]


async def read(bench: Bench, reader: Floors) -> None:
    """Read the floors of the first database, as a look that saw its number does."""
    member = bench.members[0]
    await reader.read(member, member.life or "", numbers(bench)[0])


async def test_two_servers_that_keep_floors_at_once_lose_none() -> None:
    bench = await make_bench()
    others = [Floors(bench.sight) for _ in range(4)]
    await asyncio.gather(*(each.keep("photos", 100 * value) for value, each in enumerate(others, 1)))
    assert floor_rows(bench) == [Note(400), Note(400)]
    assert min(numbers(bench)) >= 1
    reader = Floors(bench.sight)
    await read(bench, reader)
    assert reader.number == max(numbers(bench))
    assert reader.known == {"photos": 400}


async def test_a_database_that_fails_has_not_taken_the_floor_and_is_out_of_sight() -> None:
    bench = await make_bench()
    bench.servers[0].read_only = True
    assert list(await bench.floors.keep("photos", 500)) == [bench.members[1]]
    assert bench.members[0].life is None


async def test_no_floor_is_kept_under_another_ring_number() -> None:
    bench = await make_bench()
    bench.servers[0].data.ring = bench.servers[0].data.ring._replace(stamp="9.other")
    looked: list[object] = []
    bench.sight.look_at = looked.append
    assert list(await bench.floors.keep("photos", 500)) == [bench.members[1]]
    assert bench.members[0] in looked
    bench.sight.refused = True
    assert await bench.floors.keep("photos", 500) == {}


async def test_the_number_counts_as_read_only_with_every_floor_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(everywhere, "PAGE", 2)
    bench = await make_bench()
    for value in range(1, 8):
        await bench.floors.keep(f"s{value}", value)
    reader = Floors(bench.sight)
    raised = False

    def keep_another(_client: str, call: str) -> bool:
        nonlocal raised
        if call == "page" and not raised:
            raised = True
            for server in bench.servers:
                server.data.notes[Book.FLOORS]["a"] = Note(9)
                server.data.notes[Book.COUNTS][NUMBER] = Note(50)
        return False

    bench.servers[0].loses = keep_another
    await read(bench, reader)
    assert reader.known.items() >= {f"s{value}": value for value in range(1, 8)}.items()
    assert reader.number == 7
    await read(bench, reader)
    assert reader.number == 50
    assert reader.known["a"] == 9


async def test_what_fails_in_an_earlier_life_says_nothing_of_the_present_one() -> None:
    bench = await make_bench()
    lives = everywhere.lives_in_sight(bench.sight)
    bench.servers[0].restart()
    bench.sight.leave(bench.members[0], bench.members[0].status, "restarted")
    await bench.see(bench.members[0])
    assert await bench.floors.raise_number(lives) is None
    assert bench.members[0].life is not None
