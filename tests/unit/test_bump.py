"""Bump (rule 9): when it is answered or has to be asked for again; floors, and what their number stands for."""

import asyncio
from collections.abc import Callable

import pytest

from app.databases.record import State
from app.databases.session import Book, Note
from app.errors import AboveCeiling, Growing, NotConfirmed
from app.tickets import everywhere
from app.tickets.floors import NUMBER, Floors
from tests.unit.lane_bench import Bench, make_bench

DEADLINE = 1e9


async def bump(bench: Bench, above: int, known: Callable[[], object] = lambda: True) -> None:
    """Bump a sequence. known: whether every live server has the number of the floors in time."""

    async def wait_known(_number: int, deadline: float) -> bool:
        assert deadline == DEADLINE
        return known() is not False

    bench.floors.wait_known = wait_known
    entry = await bench.catalog.bump("photos", above, force=False, deadline=DEADLINE)
    assert entry.name == "Photos"


async def with_photos() -> Bench:
    bench = await make_bench(last=None)
    await bench.catalog.create("Photos", None, {"bits": 32})
    return bench


def floor_rows(bench: Bench) -> list[int]:
    return [note.high for server in bench.servers for note in server.data.notes[Book.FLOORS].values()]


def numbers(bench: Bench) -> list[int]:
    return [server.data.notes[Book.COUNTS][NUMBER].high for server in bench.servers]


async def test_a_bump_raises_floors_and_counters_before_it_waits_for_live_servers() -> None:
    bench = await with_photos()
    seen = []

    def known() -> None:
        seen.append((numbers(bench), floor_rows(bench), bench.lasts("Photos")))

    await bump(bench, 5_000, known)
    await bump(bench, 70, known)
    assert seen == [([number] * 2, [5_000] * 2, [5_000] * 2) for number in (1, 2)]
    assert bench.floors.known == {"photos": 5_000}


async def test_a_bump_makes_the_counter_where_it_is_missing() -> None:
    bench = await make_bench(last=None)
    bench.servers[0].add("Photos")
    await bump(bench, 300)
    assert bench.lasts("Photos") == [300, 300]


async def test_a_bump_is_confirmed_once_every_database_and_every_live_server_knows_of_it() -> None:
    bench = await with_photos()
    first, second = bench.members
    bench.lose(bench.members[1])
    with pytest.raises(NotConfirmed, match=second.name):
        await bump(bench, 50)
    await bench.see()
    bench.servers[1].read_only = True
    with pytest.raises(NotConfirmed):
        await bump(bench, 50)
    assert second.life is None
    bench.servers[1].read_only = False
    await bench.see()
    with pytest.raises(NotConfirmed, match="ask for the same bump again"):
        await bump(bench, 50, lambda: False)
    with pytest.raises(NotConfirmed, match=first.name):
        await bump(bench, 50, lambda: bench.sight.enter(first, "another life"))
    await bench.see()
    await bump(bench, 50)


async def test_nothing_is_written_for_a_bump_to_the_end_or_while_the_ring_grows() -> None:
    bench = await with_photos()
    with pytest.raises(AboveCeiling):
        await bump(bench, 2**32 - 1)
    record = bench.sight.record
    assert record is not None
    bench.sight.go_by(record.next(2, state=State.CHANGING))
    with pytest.raises(Growing):
        await bump(bench, 50)
    assert floor_rows(bench) == []


# --- floors -----------------------------------------------------------------------------------------------------------


async def read(bench: Bench, reader: Floors) -> None:
    """Read the floors of the first database, as a look that saw its number does."""
    member = bench.members[0]
    await reader.read(member, member.life or "", numbers(bench)[0])


async def test_the_number_of_the_floors_rises_above_every_number_that_was_heard() -> None:
    bench = await make_bench()
    lives = {member: member.life for member in bench.members}
    for heard, number in ((lambda: 0, 1), (lambda: 20, 21)):
        assert await Floors(bench.sight, heard).keep("Photos", 100) == (lives, number)
        assert numbers(bench) == [number, number]


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
