"""Bump: when it is answered, and when it has to be asked for again (rule 9)."""

from collections.abc import Callable

import pytest

from app.databases.record import State
from app.databases.session import Book
from app.errors import (
    AboveCeiling,
    ForceRequired,
    Growing,
    NotConfirmed,
    NotForThisKind,
    UnknownSequence,
)
from app.tickets.bump import Bumps
from app.tickets.floors import NUMBER
from tests.unit.catalog_bench import CatalogBench, lasts

DEADLINE = 1e9


def bumps_of(bench: CatalogBench, known: Callable[[int], bool] = lambda _number: True) -> Bumps:
    """The bumps of a server. known: whether every live server has the number of the floors in time."""

    async def wait_known(number: int, deadline: float) -> bool:
        assert deadline == DEADLINE
        return known(number)

    return Bumps(bench.sight, bench.catalog, bench.bench.floors, wait_known)


def floors(bench: CatalogBench) -> list[int]:
    return [note.high for server in bench.servers for note in server.data.notes[Book.FLOORS].values()]


async def test_a_bump_raises_floors_and_counters_before_it_waits_for_live_servers() -> None:
    bench = await CatalogBench.make()
    await bench.maker.create("Photos", None, {})
    seen: list[tuple[int, list[int], list[int | None]]] = []

    def known(number: int) -> bool:
        seen.append((number, floors(bench), lasts(bench, "Photos")))
        return True

    entry = await bumps_of(bench, known).bump("photos", 5_000, force=False, deadline=DEADLINE)
    assert entry.name == "Photos"
    assert seen == [(1, [5_000, 5_000], [5_000, 5_000])]
    assert [server.data.notes[Book.COUNTS][NUMBER].high for server in bench.servers] == [1, 1]
    await bumps_of(bench, known).bump("photos", 70, force=False, deadline=DEADLINE)
    assert seen[1] == (2, [5_000, 5_000], [5_000, 5_000])
    assert bench.bench.floors.known == {"photos": 5_000}


async def test_a_bump_makes_the_counter_where_it_is_missing() -> None:
    bench = await CatalogBench.make()
    bench.servers[0].add("photos")
    await bumps_of(bench).bump("photos", 300, force=False, deadline=DEADLINE)
    assert lasts(bench, "photos") == [300, 300]


async def test_a_bump_is_refused_at_the_end_and_near_it_unless_forced() -> None:
    bench = await CatalogBench.make()
    await bench.maker.create("photos", None, {"bits": 32})
    await bench.maker.create("likes", "instagram", {})
    bumps = bumps_of(bench)
    for name, above, error in (
        ("photos", 2**32 - 1, AboveCeiling),
        ("photos", 4_000_000_000, ForceRequired),
        ("likes", 5, NotForThisKind),
        ("nothing", 5, UnknownSequence),
    ):
        with pytest.raises(error):
            await bumps.bump(name, above, force=False, deadline=DEADLINE)
    assert floors(bench) == []
    await bumps.bump("photos", 4_000_000_000, force=True, deadline=DEADLINE)
    assert floors(bench) == [4_000_000_000] * 2


async def test_a_bump_needs_every_database_of_the_ring() -> None:
    bench = await CatalogBench.make()
    await bench.maker.create("photos", None, {})
    bench.away(2)
    with pytest.raises(NotConfirmed, match=bench.members[1].name):
        await bumps_of(bench).bump("photos", 50, force=False, deadline=DEADLINE)
    await bench.bench.see()
    bench.servers[1].read_only = True
    with pytest.raises(NotConfirmed):
        await bumps_of(bench).bump("photos", 50, force=False, deadline=DEADLINE)
    assert bench.members[1].life is None


async def test_a_bump_is_not_confirmed_while_a_live_server_does_not_know_of_it() -> None:
    bench = await CatalogBench.make()
    await bench.maker.create("photos", None, {})
    with pytest.raises(NotConfirmed, match="ask for the same bump again"):
        await bumps_of(bench, lambda _number: False).bump("photos", 50, force=False, deadline=DEADLINE)
    await bumps_of(bench).bump("photos", 50, force=False, deadline=DEADLINE)


async def test_a_bump_is_not_confirmed_if_a_database_changed_its_life_meanwhile() -> None:
    bench = await CatalogBench.make()
    await bench.maker.create("photos", None, {})

    def restart(_number: int) -> bool:
        bench.sight.enter(bench.members[0], "another")
        return True

    with pytest.raises(NotConfirmed, match=bench.members[0].name):
        await bumps_of(bench, restart).bump("photos", 50, force=False, deadline=DEADLINE)


async def test_a_bump_waits_while_the_ring_grows() -> None:
    bench = await CatalogBench.make()
    await bench.maker.create("photos", None, {})
    record = bench.sight.record
    assert record is not None
    bench.sight.go_by(record.next(2, state=State.CHANGING))
    with pytest.raises(Growing):
        await bumps_of(bench).bump("photos", 50, force=False, deadline=DEADLINE)
    assert floors(bench) == []
