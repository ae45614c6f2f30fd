"""Floors: how they are kept and read, and what the number of the floors stands for."""

import asyncio

import pytest

from app.databases.session import Book, Note
from app.tickets import everywhere
from app.tickets.floors import NUMBER, Floors
from tests.unit.lane_bench import Bench, make_bench


def floor_rows(bench: Bench) -> list[int]:
    return [server.data.notes[Book.FLOORS]["photos"].high for server in bench.servers]


def numbers(bench: Bench) -> list[int]:
    return [server.data.notes[Book.COUNTS][NUMBER].high for server in bench.servers]


async def read(bench: Bench, reader: Floors) -> None:
    """Read the floors of the first database, as a look that saw its number does."""
    member = bench.members[0]
    await reader.read(member, member.life or "", numbers(bench)[0])


async def test_a_floor_is_kept_on_every_database_and_the_number_rises_above_every_number_seen() -> None:
    bench = await make_bench()
    lives = {member: member.life for member in bench.members}
    heard = Floors(bench.sight, lambda: 20)
    for floors, above, number in ((bench.floors, 500, 1), (bench.floors, 100, 2), (heard, 100, 21)):
        assert await floors.keep("Photos", above) == (lives, number)
        assert floor_rows(bench) == [500, 500]
        assert numbers(bench) == [number, number]
    assert bench.floors.known == {"photos": 500}


async def test_two_servers_that_keep_floors_at_once_lose_none() -> None:
    bench = await make_bench()
    others = [Floors(bench.sight) for _ in range(4)]
    await asyncio.gather(*(each.keep("photos", 100 * value) for value, each in enumerate(others, 1)))
    assert floor_rows(bench) == [400, 400]
    reader = Floors(bench.sight)
    await read(bench, reader)
    assert reader.number == max(numbers(bench))
    assert reader.known == {"photos": 400}


async def test_no_floor_is_kept_on_a_database_that_fails_or_has_another_ring_number() -> None:
    bench = await make_bench()
    ring = bench.servers[0].data.ring
    bench.servers[0].data.ring = ring._replace(stamp="9.other")
    assert list((await bench.floors.keep("photos", 500))[0]) == [bench.members[1]]
    bench.servers[0].data.ring = ring
    bench.servers[0].read_only = True
    assert list((await bench.floors.keep("photos", 500))[0]) == [bench.members[1]]
    assert bench.members[0].life is None
    bench.sight.refused = True
    assert (await bench.floors.keep("photos", 500))[0] == {}


async def test_the_number_counts_as_read_only_with_every_floor_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(everywhere, "PAGE", 2)
    bench = await make_bench()
    for value in range(1, 8):
        await bench.floors.keep(f"s{value}", value)
    reader = Floors(bench.sight)

    def keep_another(_client: str, call: str) -> bool:
        if call == "page":
            bench.servers[0].loses = None
            bench.servers[0].data.notes[Book.FLOORS]["a"] = Note(9)
            bench.servers[0].data.notes[Book.COUNTS][NUMBER] = Note(50)
        return False

    bench.servers[0].loses = keep_another
    await read(bench, reader)
    assert reader.known.items() >= {f"s{value}": value for value in range(1, 8)}.items()
    assert reader.number == 7
    await read(bench, reader)
    assert (reader.number, reader.known["a"]) == (50, 9)
