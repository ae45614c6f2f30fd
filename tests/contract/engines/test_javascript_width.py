"""Sequences of 53 bits: they end at 2^53 - 1, where readers in JavaScript begin to lose integers."""

import pytest

from app.common.errors import ColumnExhausted
from app.common.sequences import Width, ceiling_of
from app.databases.protocol import Draw
from tests.contract.engines.storages import INCREMENT, ROOM, Storage, made, on_each_engine, take

END = 2**53 - 1
MANY = 1000


def test_its_ceiling_is_the_largest_integer_of_javascript_whatever_the_column_holds() -> None:
    assert ceiling_of(Width.JAVASCRIPT, unsigned=True) == ceiling_of(Width.JAVASCRIPT, unsigned=False) == END


@on_each_engine
async def test_it_is_found_as_it_was_made(storage: Storage) -> None:
    one, other = await storage.client(), await storage.client()
    table = await made(one, "small", Width.JAVASCRIPT, 1001)
    assert (table.width, table.ceiling, table.last, table.warnings) == (Width.JAVASCRIPT, END, END, ())
    assert await other.tables(["small"]) == {"small": table}
    assert await made(other, "small", Width.BIGINT) == table
    assert (await take(one, table, 1, 0)).first == 1001
    assert (await made(one, "large")).width is Width.BIGINT
    assert (await made(one, "smaller", Width.INT)).width is Width.INT


@on_each_engine
async def test_it_ends_there(storage: Storage) -> None:
    for offset in (1, 2):
        database = await storage.client(offset)
        table = await made(database, "small", Width.JAVASCRIPT)
        await database.advance({table.sequence: END - 2 * INCREMENT})
        ids = [(await take(database, table, 1, 0)).first for _ in range(2)]
        assert ids[1] == END - (END - offset) % INCREMENT
        assert ids[0] == ids[1] - INCREMENT
        with pytest.raises(ColumnExhausted):
            await take(database, table, 1, 0)


@on_each_engine
async def test_blocks_and_leasts_end_there_too(storage: Storage) -> None:
    database = await storage.client()
    table = await made(database, "small", Width.JAVASCRIPT)
    for count, least in ((1, END + 1), (2, END), (MANY, END - MANY * INCREMENT + 3)):
        with pytest.raises(ColumnExhausted):
            await take(database, table, count, 0, least)
    assert (await database.position(table.sequence)).next_id == 1
    room = (ROOM * MANY + 1 if storage.needs_room else MANY - 1) * INCREMENT
    drawn = await take(database, table, MANY, 0, END - room)
    assert END - room <= drawn.first
    assert drawn.last <= END
    if storage.needs_room:
        with pytest.raises(ColumnExhausted):
            await take(database, table, MANY, drawn.last)
    if drawn.last < END:
        assert await take(database, table, 1, 0, END) == Draw(END, INCREMENT, 1)


@on_each_engine
async def test_it_stays_so_when_its_table_is_altered_by_hand(storage: Storage) -> None:
    database = await storage.client()
    table = await made(database, "small", Width.JAVASCRIPT)
    storage.alter_by_hand("small")
    (altered,) = (await database.tables(["small"])).values()
    assert (altered.width, altered.ceiling) == (table.width, table.ceiling)
