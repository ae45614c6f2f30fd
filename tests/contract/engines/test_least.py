"""Draws that may not be below a number: the counter is advanced to it in the draw's own transaction."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest

from app.common.errors import ColumnExhausted, SequenceMissing, SequenceWentBack, TicketDatabaseBusy
from app.common.sequences import Width
from app.databases.protocol import Draw, Table, TicketDatabase
from tests.contract.engines.storages import INCREMENT, ROOM, Storage, made, on_each_engine, rows_of, take

FAR = 10**9
MANY = 1000
SPARE = 3 * INCREMENT
"""How far above the least a draw may begin that nobody else's was in the way of."""
SECONDS = 60.0


def counts_of(database: TicketDatabase, table: Table) -> list[int]:
    """Where engines go other ways: one, few, what a statement draws and one more, as many as there can be."""
    most = database.largest_block
    return sorted(count for count in {1, 3, rows_of(table), rows_of(table) + 1, most} if count <= most)


def ids_of(draws: Sequence[Draw]) -> list[int]:
    return [draw.first + number * draw.step for draw in draws for number in range(draw.size)]


@on_each_engine
async def test_no_ticket_is_below_the_least_and_none_is_left_out_above_it(storage: Storage) -> None:
    for offset in (1, 2):
        database = await storage.client(offset)
        table = await made(database)
        least, highest = FAR, 0
        for count in counts_of(database, table):
            for distance in (0, 1):
                drawn = await take(database, table, count, highest, least + distance)
                assert (drawn.size, drawn.step, drawn.first % INCREMENT) == (count, INCREMENT, offset % INCREMENT)
                assert least + distance <= drawn.first <= least + distance + SPARE
                position = await database.position(table.sequence)
                assert drawn.last <= position.largest < position.next_id
                highest = drawn.last
                least = highest + FAR


@on_each_engine
async def test_a_least_that_the_counter_has_passed_changes_nothing(storage: Storage) -> None:
    database, other = await storage.client(), await storage.client()
    table = await made(database)
    highest = (await take(database, table, 1, 0, 1001)).last
    assert highest == 1001
    for client in (database, other):
        for least in (0, 1, 2, 500, 1001, 1002):
            drawn = await take(client, table, 1, highest, least)
            assert drawn.first == highest + INCREMENT
            highest = drawn.last
    for count in counts_of(database, table)[1:]:
        drawn = await take(database, table, count, highest, highest - 400)
        assert highest < drawn.first <= highest + SPARE
        highest = drawn.last


@on_each_engine
async def test_a_least_of_one_is_none(storage: Storage) -> None:
    """On MySQL an advance above 0 would draw an id."""
    for offset in (1, 2):
        database = await storage.client(offset)
        table = await made(database)
        assert [(await take(database, table, 1, 0, 1)).first for _ in range(3)] == [
            offset,
            offset + 2,
            offset + 4,
        ]


@on_each_engine
async def test_draws_with_a_least_share_connections_with_others(storage: Storage) -> None:
    """Each gets tickets of its own table, at or above its own least."""
    database = await storage.client()
    names = [f"s{number}" for number in range(12)]
    tables = [await made(database, name) for name in names]
    leasts = [0 if number % 3 == 0 else FAR * number + 1 for number in range(len(tables))]
    wanted = [(table, least, 1 + number % 3) for number, (table, least) in enumerate(zip(tables, leasts, strict=True))]
    for round_ in range(4):
        draws = [
            take(database, table, count, 0, least + MANY * round_ if least else 0) for table, least, count in wanted
        ]
        async with asyncio.timeout(SECONDS):
            drawn = await asyncio.gather(*draws)
        for (_, least, count), each in zip(wanted, drawn, strict=True):
            expected = least + MANY * round_ if least else 1 + round_ * count * INCREMENT
            assert each == Draw(expected + (expected + 1) % 2, INCREMENT, count)


@on_each_engine
async def test_of_one_table_too_and_beside_blocks(storage: Storage) -> None:
    database = await storage.client()
    table = await made(database)
    await take(database, table, 1, 0)
    wanted = [(1, 0), (1, FAR), (2, FAR // 2), (rows_of(table) + 1, FAR), (1, 2 * FAR), (3, 0)] * 4
    async with asyncio.timeout(SECONDS):
        drawn = await asyncio.gather(*(take(database, table, count, 0, least) for count, least in wanted))
    assert all(each.first >= least for each, (_, least) in zip(drawn, wanted, strict=True))
    ids = ids_of(drawn)
    assert len(ids) == len(set(ids)) == sum(count for count, _ in wanted)


@on_each_engine
async def test_one_of_several_that_fails_does_not_fail_the_others(storage: Storage) -> None:
    database = await storage.client()
    table, gone = await made(database), await made(database, "gone")
    storage.drop("gone")
    for count in counts_of(database, gone):
        with pytest.raises(SequenceMissing):
            await take(database, gone, count, 0, FAR)
    draws = [take(database, each, 1, 0, FAR) for each in [table, gone] * 10]
    came = await asyncio.gather(*draws, return_exceptions=True)
    assert all(isinstance(each, SequenceMissing) for each in came[1::2])
    assert len({each.first for each in came if isinstance(each, Draw) and each.first >= FAR}) == 10


@on_each_engine
async def test_the_advance_is_committed_with_the_draw(storage: Storage) -> None:
    database = await storage.client()
    table = await made(database)
    least = FAR
    for count in counts_of(database, table):
        last = (await take(database, table, count, 0, least)).last
        await storage.close(database)
        database = await storage.client()
        assert (await database.position(table.sequence)).next_id > last
        assert (await take(database, table, 1, last)).first > last
        least += FAR


@on_each_engine
async def test_a_block_is_not_taken_where_the_counter_is_below_what_was_issued(storage: Storage) -> None:
    """A least below that makes no difference."""
    database = await storage.client()
    table = await made(database)
    await take(database, table, 1, 0)
    for number, count in enumerate(counts_of(database, table)):
        if storage.needs_room and count > rows_of(table):
            least = 5000 * (number + 1)
            with pytest.raises(SequenceWentBack):
                await take(database, table, count, FAR, least)
            assert (await database.position(table.sequence)).next_id <= least + SPARE + INCREMENT


# --- the end ---------------------------------------------------------------------------------------------------------


@on_each_engine
async def test_a_least_beyond_the_end_uses_nothing_up(storage: Storage) -> None:
    for offset in (1, 2):
        database = await storage.client(offset)
        for number, width in enumerate((Width.INT, Width.BIGINT)):
            table = await made(database, f"s{offset}_{number}", width)
            highest = (await take(database, table, 1, 0)).last
            before = await database.position(table.sequence)
            for count in counts_of(database, table):
                plain = count <= rows_of(table) or not storage.needs_room
                room = (count - 1 if plain else ROOM * count) * INCREMENT
                last_first = table.last - (table.last - offset) % INCREMENT
                for least in (last_first - room + 1, table.ceiling + 1, 2 * table.ceiling):
                    with pytest.raises(ColumnExhausted):
                        await take(database, table, count, highest, least)
            assert await database.position(table.sequence) == before
            assert (await take(database, table, 1, highest)).first == highest + INCREMENT


@on_each_engine
async def test_the_end_is_the_ceiling_of_the_table_that_is_handed_in(storage: Storage) -> None:
    database = await storage.client()
    table = replace(await made(database), ceiling=10_000_001)
    highest = (await take(database, table, 1, 0)).last
    before = await database.position(table.sequence)
    for count, least in ((1, 10_000_002), (2, 10_000_001), (3, 9_999_998), (rows_of(table), 10_000_000)):
        with pytest.raises(ColumnExhausted):
            await take(database, table, count, highest, least)
    block = min(rows_of(table) + 1, database.largest_block)
    with pytest.raises(ColumnExhausted):
        await take(database, table, block, highest, table.ceiling - (block - 2) * INCREMENT)
    assert await database.position(table.sequence) == before
    if not storage.needs_room:
        assert await take(database, table, 2, highest, 9_999_998) == Draw(9_999_999, INCREMENT, 2)
    else:
        assert await take(database, table, 1, highest, 10_000_000) == Draw(10_000_001, INCREMENT, 1)


@on_each_engine
async def test_what_just_fits_below_the_end_is_drawn(storage: Storage) -> None:
    database = await storage.client()
    for count in (1, 2, 10):
        table = await made(database, f"s{count}", Width.INT)
        last = table.last - (table.last - 1) % INCREMENT
        least = last - (count * (ROOM if storage.needs_room and count > 1 else 1) - 1) * INCREMENT
        drawn = await take(database, table, count, 0, least)
        assert (drawn.first, drawn.last) == (least, least + (count - 1) * INCREMENT)
    table = await made(database, "blocks", Width.INT)
    room = (ROOM * MANY + 1 if storage.needs_room else MANY - 1) * INCREMENT
    drawn = await take(database, table, MANY, 0, table.last - room - 1)
    assert table.last - room - 1 <= drawn.first <= table.last - room + SPARE
    assert drawn.last <= table.last


# --- with others -----------------------------------------------------------------------------------------------------


async def draw_again_and_again(
    client: TicketDatabase, tables: Sequence[Table], counts: Sequence[int], leasts: Sequence[int]
) -> list[tuple[str, Draw]]:
    """From each table in turn; each ticket at or above its least, each draw of a table above the one before."""
    drawn: list[tuple[str, Draw]] = []
    highest = dict.fromkeys((table.sequence for table in tables), 0)
    for number, (count, least) in enumerate(zip(counts, leasts, strict=True)):
        table = tables[number % len(tables)]
        while True:
            try:
                draw = await take(client, table, count, highest[table.sequence], least)
                break
            except TicketDatabaseBusy:
                await asyncio.sleep(0.01)
        assert draw.size == count
        assert draw.first >= least
        assert draw.first > highest[table.sequence]
        highest[table.sequence] = draw.last
        drawn.append((table.sequence, draw))
    return drawn


async def race(storage: Storage, counts: Sequence[int]) -> None:
    """Four clients with leasts of their own draw from two tables, all at once."""
    clients = [await storage.client(2) for _ in range(4)]
    tables = [await made(clients[0], name) for name in ("photos", "albums")]
    drawing = []
    for number, client in enumerate(clients * 3):
        leasts = [(10_000 * place + 777 * number) * (place % 5 > 0) for place in range(len(counts))]
        drawing.append(draw_again_and_again(client, tables[:: 1 if number % 2 else -1], counts, leasts))
    async with asyncio.timeout(SECONDS):
        drawn = [each for draws in await asyncio.gather(*drawing) for each in draws]
    for table in tables:
        ids = ids_of([draw for name, draw in drawn if name == table.sequence])
        assert len(ids) == len(set(ids))
        assert {id_ % INCREMENT for id_ in ids} == {0}
        assert (await clients[0].position(table.sequence)).next_id > max(ids)
    assert len(ids_of([draw for _, draw in drawn])) == 12 * sum(counts)


@on_each_engine
async def test_clients_with_other_leasts_get_nothing_twice(storage: Storage) -> None:
    await race(storage, [1, 2, 1, 64, 1, 3, 1] * 6)
    assert storage.deadlocks == []


@on_each_engine
async def test_nor_do_they_where_blocks_are_among_the_draws(storage: Storage) -> None:
    await race(storage, [1, 65, 2, 1000, 1, 300, 1] * 3)
    assert storage.deadlocks == []
