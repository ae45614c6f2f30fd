"""Bump: when it is answered, and when it has to be asked for again (rule 9)."""

from collections.abc import Callable

import pytest

from app.databases.record import State
from app.databases.session import Book
from app.errors import AboveCeiling, ForceRequired, Growing, NotConfirmed, NotForThisKind, UnknownSequence
from app.tickets.bump import Bumps
from app.tickets.floors import NUMBER
from tests.unit.catalog_bench import CatalogBench, lasts

DEADLINE = 1e9


async def bump(
    bench: CatalogBench,
    above: int,
    known: Callable[[], object] = lambda: True,
    *,
    name: str = "photos",
    force: bool = False,
) -> None:
    """Bump a sequence. known: whether every live server has the number of the floors in time."""

    async def wait_known(_number: int, deadline: float) -> bool:
        assert deadline == DEADLINE
        return known() is not False

    bumps = Bumps(bench.sight, bench.catalog, bench.bench.floors, wait_known)
    entry = await bumps.bump(name, above, force=force, deadline=DEADLINE)
    assert entry.name == "Photos"


async def with_photos() -> CatalogBench:
    bench = await CatalogBench.make()
    await bench.catalog.create("Photos", None, {"bits": 32})
    return bench


def floors(bench: CatalogBench) -> list[int]:
    return [note.high for server in bench.servers for note in server.data.notes[Book.FLOORS].values()]


async def test_a_bump_raises_floors_and_counters_before_it_waits_for_live_servers() -> None:
    bench = await with_photos()
    seen = []

    def known() -> None:
        numbers = [server.data.notes[Book.COUNTS][NUMBER].high for server in bench.servers]
        seen.append((numbers, floors(bench), lasts(bench, "Photos")))

    await bump(bench, 5_000, known)
    await bump(bench, 70, known)
    assert seen == [([number] * 2, [5_000] * 2, [5_000] * 2) for number in (1, 2)]
    assert bench.bench.floors.known == {"photos": 5_000}


async def test_a_bump_makes_the_counter_where_it_is_missing() -> None:
    bench = await CatalogBench.make()
    bench.servers[0].add("Photos")
    await bump(bench, 300)
    assert lasts(bench, "Photos") == [300, 300]


async def test_a_bump_is_refused_at_the_end_and_near_it_unless_forced() -> None:
    bench = await with_photos()
    await bench.catalog.create("likes", "instagram", {})
    for name, above, error in (
        ("photos", 2**32 - 1, AboveCeiling),
        ("photos", 4_000_000_000, ForceRequired),
        ("likes", 5, NotForThisKind),
        ("nothing", 5, UnknownSequence),
    ):
        with pytest.raises(error):
            await bump(bench, above, name=name)
    assert floors(bench) == []
    await bump(bench, 4_000_000_000, force=True)
    assert floors(bench) == [4_000_000_000] * 2


async def test_a_bump_is_confirmed_once_every_database_and_every_live_server_knows_of_it() -> None:
    bench = await with_photos()
    first, second = bench.members
    bench.away(2)
    with pytest.raises(NotConfirmed, match=second.name):
        await bump(bench, 50)
    await bench.bench.see()
    bench.servers[1].read_only = True
    with pytest.raises(NotConfirmed):
        await bump(bench, 50)
    assert second.life is None
    bench.servers[1].read_only = False
    await bench.bench.see()
    with pytest.raises(NotConfirmed, match="ask for the same bump again"):
        await bump(bench, 50, lambda: False)
    with pytest.raises(NotConfirmed, match=first.name):
        await bump(bench, 50, lambda: bench.sight.enter(first, "another life"))
    await bench.bench.see()
    await bump(bench, 50)


async def test_a_bump_waits_while_the_ring_grows() -> None:
    bench = await with_photos()
    record = bench.sight.record
    assert record is not None
    bench.sight.go_by(record.next(2, state=State.CHANGING))
    with pytest.raises(Growing):
        await bump(bench, 50)
    assert floors(bench) == []
