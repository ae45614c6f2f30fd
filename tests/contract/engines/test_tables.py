"""What tables there are, where their counters stand, and how they are made and raised."""

from dataclasses import replace

import pytest

from app.common.errors import ColumnExhausted, SequenceMissing
from app.common.sequences import Width, ceiling_of
from app.databases.protocol import Position, Table, TicketDatabase
from tests.contract.engines.storages import INCREMENT, Storage, made, on_each_engine, remade, take

MISSING = "missing"


async def next_ticket(database: TicketDatabase, table: Table) -> int:
    return (await take(database, table, 1, 0)).first


# --- what there is ---------------------------------------------------------------------------------------------------


@on_each_engine
async def test_a_table_is_found_by_its_name(storage: Storage) -> None:
    database = await storage.client()
    assert {"songs", "albums"}.isdisjoint(await database.names())
    songs, albums = await made(database, "songs"), await made(database, "albums", Width.INT)
    assert (songs.sequence, songs.width, songs.ceiling) == ("songs", Width.BIGINT, 2**63 - 1)
    assert (albums.sequence, albums.width, albums.ceiling) == ("albums", Width.INT, 2**32 - 1)
    names = await database.names()
    assert (names["songs"], names["albums"]) == (songs.created, albums.created)
    assert await database.tables(["songs", "albums"]) == {"songs": songs, "albums": albums}
    assert await database.tables(iter(["albums"])) == {"albums": albums}
    positions = await database.positions(["songs", "albums"])
    assert {name: each.created for name, each in positions.items()} == {n: names[n] for n in ("songs", "albums")}


@on_each_engine
async def test_names_are_read_as_they_are_written(storage: Storage) -> None:
    database = await storage.client()
    longest = "a" * 64
    tables = [await made(database, name) for name in ("songs", "Songs", "SONGS", "order", "s_1", "s11", longest)]
    await database.advance({"Songs": 1000})
    for table in tables:
        raised = table.sequence == "Songs"
        assert list(await database.tables([table.sequence])) == [table.sequence]
        assert ((await database.position(table.sequence)).next_id > 1000) == raised
        assert {name: each.next_id > 1000 for name, each in (await database.positions([table.sequence])).items()} == {
            table.sequence: raised
        }


@on_each_engine
async def test_what_differs_by_case_alone_is_missing(storage: Storage) -> None:
    database = await storage.client()
    table = await made(database, "Songs")
    other = replace(table, sequence="songs")
    assert await database.tables(["songs"]) == {}
    assert await database.positions(["songs"]) == {}
    with pytest.raises(SequenceMissing):
        await database.position("songs")
    with pytest.raises(SequenceMissing):
        await take(database, other, 1, 0)


@on_each_engine
async def test_of_many_tables_none_is_left_out(storage: Storage) -> None:
    database = await storage.client()
    requested = [f"s{number}" for number in range(60)]
    for name in requested:
        await database.make(name, Width.BIGINT, 1)
    tables = await database.tables(requested)
    assert set(requested) == set(tables) == set(requested) & set(await database.names())
    assert set(await database.positions(requested)) == set(requested)
    await database.advance(dict.fromkeys(requested, 500))
    assert all(position.next_id > 500 for position in (await database.positions(requested)).values())


@on_each_engine
async def test_what_is_missing_is_left_out(storage: Storage) -> None:
    database = await storage.client()
    await made(database)
    await made(database, MISSING)
    storage.drop(MISSING)
    assert MISSING not in await database.names()
    assert set(await database.tables(["photos", MISSING])) == {"photos"}
    assert set(await database.positions([MISSING, "photos"])) == {"photos"}
    assert await database.positions([MISSING]) == {}
    assert await database.tables([]) == {}
    assert await database.positions([]) == {}


@on_each_engine
async def test_what_is_no_sequences_table_is_none(storage: Storage) -> None:
    database = await storage.client()
    foreign = storage.make_foreign_tables()
    await made(database)
    assert set(await database.tables(["photos", *foreign])) == {"photos"}
    assert not any(name.startswith("_") for name in await database.names())


@on_each_engine
async def test_a_table_made_anew_says_so(storage: Storage) -> None:
    database = await storage.client()
    table = await made(database)
    await take(database, table, 100, 0)
    assert (await database.position(table.sequence)).created == table.created
    anew = await remade(storage, database, table)
    assert anew.created != table.created
    assert (await database.names())["photos"] == anew.created
    assert (await database.position(table.sequence)).created == anew.created
    assert (await database.positions(["photos"]))["photos"].created == anew.created
    assert await next_ticket(database, anew) == 1


# --- positions -------------------------------------------------------------------------------------------------------


@on_each_engine
async def test_a_new_table_stands_at_its_beginning(storage: Storage) -> None:
    database = await storage.client()
    table = await made(database)
    position = await database.position(table.sequence)
    assert position == Position(1, 0, table.created)
    assert await database.positions(["photos"]) == {"photos": position}


@on_each_engine
async def test_a_position_is_above_all_that_was_drawn_and_below_what_comes_next(storage: Storage) -> None:
    for offset in (1, 2):
        database, other = await storage.client(offset), await storage.client(offset)
        table = await made(database)
        for count in (1, 3, 500, 1):
            last = (await take(database, table, count, 0)).last
            for client in (database, other):
                position = await client.position(table.sequence)
                assert last <= position.largest < position.next_id <= position.largest + INCREMENT
                assert await client.positions(["photos"]) == {"photos": position}
            drawn = await next_ticket(database, table)
            assert position.next_id <= drawn <= position.next_id + INCREMENT


@on_each_engine
async def test_a_position_of_a_missing_table_is_an_error(storage: Storage) -> None:
    database = await storage.client()
    await made(database, MISSING)
    storage.drop(MISSING)
    with pytest.raises(SequenceMissing):
        await database.position(MISSING)


# --- making ----------------------------------------------------------------------------------------------------------


@on_each_engine
async def test_the_first_ticket_is_the_first_of_its_residue_from_the_start_on(storage: Storage) -> None:
    for offset in (1, 2):
        database = await storage.client(offset)
        for start in (1, 2, 3, 100, 101, 10**12):
            table = await made(database, f"s{start}", start=start)
            assert (await database.position(table.sequence)).next_id <= start
            assert await next_ticket(database, table) == start + (offset - start) % INCREMENT


@on_each_engine
async def test_a_start_close_to_the_end_leaves_what_is_above_it(storage: Storage) -> None:
    database = await storage.client()
    for width in Width:
        table = await made(database, f"s{int(width)}", width, ceiling_of(width, unsigned=True) - 1)
        if table.last == table.ceiling:
            assert await next_ticket(database, table) == table.ceiling
        else:
            with pytest.raises(ColumnExhausted):
                await next_ticket(database, table)


@on_each_engine
async def test_making_what_is_there_changes_nothing(storage: Storage) -> None:
    one, other = await storage.client(), await storage.client()
    table = await made(one, "albums", Width.INT, 101)
    assert await next_ticket(one, table) == 101
    for client in (one, other):
        assert await made(client, "albums", Width.BIGINT, 9) == table
        assert await made(client, "albums", Width.INT, 10**6) == table
    assert await next_ticket(other, table) == 103


# --- raising ---------------------------------------------------------------------------------------------------------


@on_each_engine
async def test_every_later_ticket_is_larger_than_what_it_was_raised_above(storage: Storage) -> None:
    for offset in (1, 2):
        database = await storage.client(offset)
        table = await made(database)
        for above in (0, 1, 2, 10, 11, 999, 10**15, 10**15 + 1):
            await database.advance({table.sequence: above})
            position = await database.position(table.sequence)
            drawn = await next_ticket(database, table)
            assert drawn > above
            assert position.next_id <= drawn
            assert drawn <= max(above, 0) + 2 * INCREMENT


@on_each_engine
async def test_raising_goes_up_and_never_down(storage: Storage) -> None:
    database, other = await storage.client(), await storage.client()
    table = await made(database)
    await database.advance({table.sequence: 1000})
    for above in (10, 0, 999, 1000):
        before = (await database.position(table.sequence)).next_id
        await database.advance({table.sequence: above})
        await other.advance({"photos": above})
        assert (await database.position(table.sequence)).next_id == before
    assert await next_ticket(database, table) == 1001
    await database.advance({table.sequence: 5})
    assert await next_ticket(other, table) == 1003


@on_each_engine
async def test_a_raise_is_committed(storage: Storage) -> None:
    database = await storage.client()
    table, other = await made(database), await made(database, "songs")
    await database.advance({table.sequence: 10**6})
    await database.advance({"songs": 10**7})
    await storage.close(database)
    database = await storage.client()
    assert await next_ticket(database, table) == 10**6 + 1
    assert await next_ticket(database, other) == 10**7 + 1


@on_each_engine
async def test_a_raised_table_says_so_in_its_position(storage: Storage) -> None:
    """Whoever asks for it afterwards takes it for one that has been drawn from."""
    for offset in (1, 2):
        database = await storage.client(offset)
        other = await storage.client(offset)
        one, two = await made(database, "songs"), await made(database, "albums")
        await database.advance({"songs": 1001})
        await database.advance({"albums": 1001})
        for client in (database, other):
            positions = await client.positions(["songs", "albums"])
            for table in (one, two):
                position = await client.position(table.sequence)
                assert (position.largest, position.next_id) == (1001, 1002)
                assert positions[table.sequence] == position


@on_each_engine
async def test_many_are_raised_each_above_its_own(storage: Storage) -> None:
    database = await storage.client(2)
    tables = [await made(database, name) for name in ("songs", "albums", "photos")]
    await database.advance({"songs": 100, "albums": 0})
    assert [await next_ticket(database, table) for table in tables] == [102, 2, 2]
    await database.advance({})
    await database.advance({"songs": 50, "albums": 200, "photos": 3})
    assert [await next_ticket(database, table) for table in tables] == [104, 202, 4]


@on_each_engine
async def test_a_missing_table_cannot_be_raised(storage: Storage) -> None:
    database = await storage.client()
    table, _gone = await made(database), await made(database, MISSING)
    storage.drop(MISSING)
    with pytest.raises(SequenceMissing):
        await database.advance({MISSING: 9})
    with pytest.raises(SequenceMissing):
        await database.advance({MISSING: 9, "photos": 9})
    await database.advance({table.sequence: 9})
    assert await next_ticket(database, table) == 11
