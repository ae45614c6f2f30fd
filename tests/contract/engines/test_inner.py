"""Inner sequences, whose names are `_` and digits: sequences like any other, which no older release finds."""

from dataclasses import replace

import pytest

from app.common.errors import RingChanged, SequenceMissing, TicketDatabaseUnavailable
from app.common.sequences import Width, counter_table
from app.databases.protocol import Draw, Mark
from tests.contract.engines.ledger import kept, witness
from tests.contract.engines.storages import INCREMENT, Storage, made, on_each_engine, take

COUNTER, INSTANCES, WORKER = counter_table("likes"), "_1", "_worker_1023"
A, B = "life-1.t1:a", "life-2.t1:b"


def mark(sequence: str, high: int = 10, token: str = A, *, issued: int = 5, offset: int = 2) -> Mark:
    return Mark(sequence, offset, INCREMENT, high, issued, token)


# --- tables ----------------------------------------------------------------------------------------------------------


@on_each_engine
async def test_an_inner_sequence_is_found_drawn_from_and_raised_like_any_other(storage: Storage) -> None:
    for offset in (1, 2):
        database = await storage.client(offset)
        photos, counter, instances = [await made(database, name) for name in ("photos", COUNTER, INSTANCES)]
        both = {COUNTER: counter, INSTANCES: instances}
        assert (counter.sequence, counter.width, counter.ceiling) == (COUNTER, Width.BIGINT, 2**63 - 1)
        names = await database.names()
        assert {name: names[name] for name in both} == {name: table.created for name, table in both.items()}
        assert await database.tables(["photos", *both]) == {"photos": photos, **both}
        assert [await take(database, counter, count, 0) for count in (1, 2)] == [
            Draw(offset, INCREMENT, 1),
            Draw(offset + INCREMENT, INCREMENT, 2),
        ]
        many = await take(database, counter, 1000, 0, 10**6)
        assert 10**6 <= many.first <= 10**6 + 3 * INCREMENT
        await database.advance({instances.sequence: 100})
        await database.advance({"photos": 200, INSTANCES: 300, COUNTER: 5})
        assert (await take(database, photos, 1, 0)).first == 200 + offset
        assert (await take(database, instances, 1, 0)).first == 300 + offset
        assert many.last < (await take(database, counter, 1, 0)).first <= many.last + 3 * INCREMENT
        positions = await database.positions(["photos", *both])
        for table in (photos, counter, instances):
            position = await database.position(table.sequence)
            assert positions[table.sequence] == position
            assert position.created == table.created


@on_each_engine
async def test_an_inner_sequence_that_is_missing_is_missing(storage: Storage) -> None:
    database = await storage.client()
    table, counter = await made(database), await made(database, COUNTER)
    storage.drop(COUNTER)
    assert COUNTER not in await database.names()
    assert set(await database.tables(["photos", COUNTER])) == {"photos"}
    assert set(await database.positions([table.sequence, counter.sequence])) == {"photos"}
    for draw in (
        take(database, counter, 1, 0),
        take(database, counter, 1, 0, 500),
    ):
        with pytest.raises(SequenceMissing):
            await draw
    with pytest.raises(SequenceMissing):
        await database.advance({COUNTER: 9})
    assert (await take(database, table, 1, 0)).first == 1


@on_each_engine
async def test_no_table_of_the_servers_own_is_one(storage: Storage) -> None:
    database = await witness(storage)
    foreign = storage.make_foreign_tables()
    await made(database, COUNTER)
    assert set(await database.tables([COUNTER, *foreign])) == {COUNTER}
    assert {name for name in await database.names() if name.startswith("_")} == {COUNTER}


# --- marks -----------------------------------------------------------------------------------------------------------


@on_each_engine
async def test_marks_of_both_sorts_are_kept_together(storage: Storage) -> None:
    database = await witness(storage)
    rows = [mark(name, 10 + place) for place, name in enumerate(("photos", COUNTER, "Songs", WORKER, INSTANCES))]
    rows.append(mark(COUNTER, 99, offset=1))
    found = await database.keep(iter(rows), 7)
    assert found == {(row.sequence, row.offset): row for row in rows}
    assert await kept(database) == set(rows)
    higher = [replace(row, mark=row.mark + 5, issued=row.issued + 1) for row in rows]
    assert set((await database.keep(higher, 7)).values()) == set(higher)
    stale = [replace(row, token=B, mark=10**6) for row in rows]
    assert set((await database.keep(stale, 7)).values()) == set(higher)
    assert await kept(database) == set(higher)


@on_each_engine
async def test_a_mark_of_an_inner_sequence_is_superseded(storage: Storage) -> None:
    database, other = await witness(storage), await storage.client()
    photos, counter, worker = mark("photos"), mark(COUNTER), mark(WORKER)
    await database.keep([photos, counter, worker], 7)
    new = replace(counter, token=B, mark=20, issued=15)
    assert await database.supersede(counter, new, 7) == new
    assert await other.supersede(counter, replace(new, mark=30), 7) == new
    renewed = [replace(row, token=B, mark=40) for row in (photos, worker)]
    await database.supersede_all(
        [(photos, renewed[0]), (worker, renewed[1]), (mark(INSTANCES), mark(INSTANCES, token=B))], 7
    )
    assert await kept(other) == {new, *renewed}
    with pytest.raises(TicketDatabaseUnavailable):
        await database.supersede(mark(INSTANCES), mark(INSTANCES, token=B), 7)


@on_each_engine
async def test_more_of_both_sorts_than_a_statement_or_a_page_holds(storage: Storage) -> None:
    database = await witness(storage)
    names = [f"{first}{number}" for number in range(560) for first in ("s", "_")]
    rows = [mark(name, place, offset=offset) for place, name in enumerate(names) for offset in (2, 1)]
    assert set((await database.keep(rows, 7)).values()) == set(rows)
    assert await kept(database) == set(rows)
    new = [replace(row, token=B, mark=row.mark + 1) for row in rows]
    await database.supersede_all(zip(rows, new, strict=True), 7)
    assert await kept(database) == set(new)
    assert set(await database.marks(3600)) == set(new)


@on_each_engine
async def test_under_another_number_of_the_ring_neither_is_kept(storage: Storage) -> None:
    database = await witness(storage)
    await database.keep([mark("photos"), mark(COUNTER)], 7)
    before = await kept(database)
    for number in (6, 8):
        with pytest.raises(RingChanged):
            await database.keep([mark(COUNTER, 99), mark(WORKER)], number)
        with pytest.raises(RingChanged):
            await database.supersede(mark(COUNTER), mark(COUNTER, 99, B), number)
        with pytest.raises(RingChanged):
            await database.supersede_all([(mark(COUNTER), mark(COUNTER, 99, B))], number)
    assert await kept(database) == before


@on_each_engine
async def test_of_another_increment_too(storage: Storage) -> None:
    database, other = await witness(storage), await storage.client(increment=3)
    row, of_other = mark(COUNTER), replace(mark(COUNTER, 20), increment=3, offset=3)
    await database.keep([row, of_other], 7)
    assert await other.marks() == await other.marks(3600) == [of_other]
    assert await database.marks() == await database.marks(3600) == [row]
    assert set(await database.marks_of_all_rings()) == {row, of_other}


# --- an older release ------------------------------------------------------------------------------------------------


@on_each_engine
async def test_an_older_release_finds_nothing_of_them(storage: Storage) -> None:
    """It would serve the tables as plain sequences, and take the marks for damage."""
    database = await witness(storage)
    for name in ("photos", COUNTER, INSTANCES):
        await take(database, await made(database, name), 1, 0, ring=7)
    rows = [mark("photos"), mark(COUNTER), mark(WORKER), mark(INSTANCES)]
    await database.keep(rows, 7)
    await database.supersede(rows[1], replace(rows[1], token=B), 7)
    await database.supersede_all([(row, replace(row, mark=row.mark + 1)) for row in rows], 7)
    assert not [name for name in storage.seen_by_older_releases() if name.startswith("_")]
