"""Draws where the id column ends: what is refused, what is used up, what comes again and again."""

import pytest

from app.common.errors import ColumnExhausted
from app.common.sequences import TICKET_LIMIT, ceiling_of
from app.databases.protocol import Table, TicketDatabase
from tests.contract.engines.storages import (
    INCREMENT,
    ROOM,
    Column,
    Storage,
    made,
    on_each_engine,
    rows_of,
    take,
)

MANY = 1000
SPARE = 4 * INCREMENT
"""How many numbers a refused block may use up, and a drawn one beside its own."""


def columns_of(storage: Storage) -> list[tuple[str, Column]]:
    """Every kind of column that the engine has, with a name for a sequence on it."""
    return [(f"s{int(column.width)}_{number}", column) for number, column in enumerate(storage.columns)]


async def raised(database: TicketDatabase, table: Table, left: int) -> int:
    """Raise the table so far that `left` numbers are left up to its ceiling; how far that is."""
    above = table.ceiling - left
    await database.advance({table.sequence: above})
    return above


async def check_no_new_ticket(database: TicketDatabase, table: Table) -> None:
    """The table's counter stands beyond its last ticket, whatever its column gives there."""
    for count in (1, 2, MANY, 1):
        with pytest.raises(ColumnExhausted):
            await take(database, table, count, 0)


@on_each_engine
async def test_a_table_says_how_wide_its_column_is_and_where_it_ends(storage: Storage) -> None:
    database = await storage.client()
    for name, column in columns_of(storage):
        table = await storage.make_column(database, name, column)
        assert (table.sequence, table.width) == (name, column.width)
        assert table.ceiling == min(column.end, TICKET_LIMIT) == ceiling_of(column.width, unsigned=column.unsigned)
        assert table.last == table.ceiling - (storage.needs_room and column.end == table.ceiling)
        assert not table.warnings


@on_each_engine
async def test_single_draws_go_up_to_the_last_id_that_there_is(storage: Storage) -> None:
    for offset in (1, 2):
        database = await storage.client(offset)
        for name, column in columns_of(storage)[:2]:
            table = await made(database, name, column.width)
            above = await raised(database, table, 5 * INCREMENT)
            ids = [(await take(database, table, 1, 0)).first for _ in range(4)]
            try:
                ids.append((await take(database, table, 1, 0)).first)
            except ColumnExhausted:
                assert (table.last < table.ceiling) if offset == 1 else storage.leaves_the_last
                assert column.end == table.ceiling
            first = above + (INCREMENT if offset == 1 else 1)
            assert ids == [first + number * INCREMENT for number in range(len(ids))]


@on_each_engine
async def test_beyond_the_last_id_there_is_none_whatever_the_column_does(storage: Storage) -> None:
    """It ends, repeats its last id, or goes on above the ceiling. That is odd in any column: of this residue."""
    database = await storage.client()
    for name, column in columns_of(storage):
        table = await storage.make_column(database, name, column)
        await raised(database, table, INCREMENT)
        if table.last == table.ceiling:
            assert (await take(database, table, 1, 0)).first == table.ceiling
        for _ in range(3):
            await check_no_new_ticket(database, table)


@on_each_engine
async def test_the_even_database_of_an_odd_end_has_no_further_id(storage: Storage) -> None:
    database = await storage.client(2)
    name, column = columns_of(storage)[0]
    table = await made(database, name, column.width)
    await raised(database, table, INCREMENT)
    assert (await take(database, table, 1, 0)).first == table.ceiling - 1
    for count in (1, 2, MANY, 1):
        with pytest.raises(ColumnExhausted):
            await take(database, table, count, 0)


@on_each_engine
async def test_a_block_close_to_the_end_is_refused_and_uses_up_a_few_ids(storage: Storage) -> None:
    database = await storage.client()
    for name, column in columns_of(storage):
        table = await storage.make_column(database, name, column)
        above = await raised(database, table, 2 * MANY * INCREMENT)
        if storage.needs_room:
            for tried in range(3):
                with pytest.raises(ColumnExhausted):
                    await take(database, table, MANY, above)
                assert (await database.position(table.sequence)).next_id <= above + (tried + 1) * SPARE + INCREMENT
        else:
            above = (await take(database, table, MANY, above)).last
        drawn = await take(database, table, 1, above)
        assert above < drawn.first <= above + 4 * SPARE


@on_each_engine
async def test_a_block_with_room_enough_is_drawn(storage: Storage) -> None:
    database = await storage.client()
    for name, column in columns_of(storage):
        table = await storage.make_column(database, name, column)
        above = await raised(database, table, ROOM * MANY * INCREMENT + 2 * SPARE)
        for after in (0, above):
            highest = (await database.position(table.sequence)).next_id - 1
            drawn = await take(database, table, MANY, after)
            assert (drawn.size, drawn.step) == (MANY, INCREMENT)
            assert highest < drawn.first
            assert drawn.last <= table.ceiling
            storage.drop(name)
            table = await storage.make_column(database, name, column)
            await database.advance({table.sequence: above})


@on_each_engine
async def test_the_room_is_enough_for_the_largest_block(storage: Storage) -> None:
    database = await storage.client()
    largest = database.largest_block
    for name, column in columns_of(storage):
        table = await storage.make_column(database, name, column)
        above = await raised(database, table, ROOM * largest * INCREMENT + 2 * SPARE)
        drawn = await take(database, table, largest, above)
        assert (drawn.size, drawn.step) == (largest, INCREMENT)
        assert above < drawn.first
        assert drawn.last <= table.ceiling


@on_each_engine
async def test_few_that_run_past_the_end_fail_whole_and_leave_what_is_left(storage: Storage) -> None:
    database = await storage.client()
    for name, column in columns_of(storage):
        table = await storage.make_column(database, name, column)
        above = await raised(database, table, 10 * INCREMENT)
        for few in (20, 11, min(64, rows_of(table))):
            with pytest.raises(ColumnExhausted):
                await take(database, table, few, above)
        assert (await take(database, table, 1, above)).first == above + INCREMENT


@on_each_engine
async def test_few_that_fit_are_drawn(storage: Storage) -> None:
    """As many as are left, unless the engine needs room for them: then a third."""
    database = await storage.client()
    for name, column in columns_of(storage):
        table = await storage.make_column(database, name, column)
        few = 10 if not storage.needs_room else 3
        above = await raised(database, table, 10 * INCREMENT)
        drawn = await take(database, table, few, above)
        assert (drawn.first, drawn.size, drawn.step) == (above + INCREMENT, few, INCREMENT)


@on_each_engine
async def test_a_table_raised_to_its_end_draws_nothing_new(storage: Storage) -> None:
    database = await storage.client()
    for name, column in columns_of(storage):
        table = await storage.make_column(database, name, column)
        await raised(database, table, 0)
        assert (await database.position(table.sequence)).next_id >= table.ceiling
        await check_no_new_ticket(database, table)


@on_each_engine
async def test_the_end_of_one_column_is_no_matter_to_another(storage: Storage) -> None:
    database = await storage.client(2)
    (end, column), (other, wide) = columns_of(storage)[:2]
    ended, well = await made(database, end, column.width), await made(database, other, wide.width)
    await raised(database, ended, 1)
    with pytest.raises(ColumnExhausted):
        await take(database, ended, 1, 0)
    assert (await take(database, well, 1, 0)).first == 2
