"""What a draw gives, by itself and with others of its table in between; far from the end of the column."""

import asyncio

import pytest

from app.common.errors import SequenceMissing, SequenceWentBack, TicketDatabaseUnavailable
from app.common.sequences import Width
from app.databases.protocol import Draw, Drawn, Table, TicketDatabase
from tests.contract.engines.storages import INCREMENT, Storage, made, on_each_engine


def counts_of(database: TicketDatabase, table: Table) -> list[int]:
    """Where engines go other ways: few, what a statement draws and one more, many, as many as there can be."""
    most = database.largest_block
    counts = {1, 2, 3, table.rows_per_statement, table.rows_per_statement + 1, 1000, most}
    return sorted(count for count in counts if count <= most)


async def drawn_at_once(database: TicketDatabase, table: Table, count: int, after: int = 0) -> Drawn | None:
    """What a draw that could be sent at once came to; None where none could be sent."""
    came: asyncio.Future[Drawn] = asyncio.get_running_loop().create_future()
    if not database.draw_at_once(table, count, after, came.set_result):
        await asyncio.sleep(0)
        assert not came.done(), "what is not sent has no answer"
        return None
    assert not came.done(), "the answer comes from the event loop"
    return await came


@on_each_engine
async def test_the_first_ticket_is_the_offset_and_the_next_one_an_increment_above(storage: Storage) -> None:
    for offset in (1, 2):
        database = await storage.client(offset)
        table = await made(database)
        for number in range(5):
            first = offset + number * INCREMENT
            assert await database.draw(table, 1, max(0, first - INCREMENT)) == Draw(first, INCREMENT, 1)


@on_each_engine
async def test_so_many_tickets_come_as_were_asked_for_in_steps_of_the_increment(storage: Storage) -> None:
    for offset in (1, 2):
        database = await storage.client(offset)
        table = await made(database)
        highest = 0
        for count in counts_of(database, table):
            drawn = await database.draw(table, count, highest)
            assert (drawn.size, drawn.step, drawn.first % INCREMENT) == (count, INCREMENT, offset % INCREMENT)
            assert drawn.first > highest
            highest = drawn.last


@on_each_engine
async def test_a_draw_leaves_no_gap_that_other_tickets_would_be_missing_in(storage: Storage) -> None:
    """A block may cost a few ids beside its own, and no more."""
    database = await storage.client()
    table = await made(database)
    highest = (await database.draw(table, 1, 0)).last
    for count in (2, table.rows_per_statement, 1, min(5000, database.largest_block), 1):
        drawn = await database.draw(table, count, highest)
        assert drawn.first <= highest + 3 * INCREMENT
        highest = drawn.last


@on_each_engine
async def test_the_largest_block_goes_with_the_increment(storage: Storage) -> None:
    database = await storage.client()
    assert database.largest_block >= 10_000
    assert database.largest_block * INCREMENT <= 65_535


@on_each_engine
async def test_sequences_do_not_share_a_counter_even_where_only_their_case_differs(storage: Storage) -> None:
    database = await storage.client()
    tables = [await made(database, name) for name in ("songs", "albums", "Songs")]
    for table in tables:
        assert (await database.draw(table, 1, 0)).first == 1
    assert (await database.draw(tables[0], 200, 1)).first <= 7
    assert [(await database.draw(table, 1, 1)).first for table in tables[1:]] == [3, 3]


@on_each_engine
async def test_what_one_client_drew_no_other_one_draws(storage: Storage) -> None:
    one, other = await storage.client(), await storage.client()
    table = await made(one)
    highest = 0
    for count in (1, 2, 500, 1, 1000):
        for client in (one, other):
            drawn = await client.draw(table, count, highest)
            assert drawn.first > highest
            highest = drawn.last


@on_each_engine
async def test_a_draw_is_committed_when_it_is_answered(storage: Storage) -> None:
    database = await storage.client()
    table = await made(database)
    highest = 0
    for count in (1, 3, 2000):
        highest = (await database.draw(table, count, highest)).last
        await storage.close(database)
        database = await storage.client()
        assert (await database.position(table)).next_id > highest
        drawn = await database.draw(table, 1, 0)
        assert drawn.first > highest
        highest = drawn.last


@on_each_engine
async def test_a_sequence_without_a_table_is_missing_and_the_database_well(storage: Storage) -> None:
    database = await storage.client()
    table, gone = await made(database), await made(database, "gone")
    storage.drop("gone")
    for count in counts_of(database, gone):
        with pytest.raises(SequenceMissing):
            await database.draw(gone, count, 0)
    assert (await database.draw(table, 1, 0)).first == 1


@on_each_engine
async def test_one_of_several_that_fails_does_not_fail_the_others(storage: Storage) -> None:
    database = await storage.client()
    table, gone = await made(database), await made(database, "gone")
    storage.drop("gone")
    draws = [database.draw(each, 1, 0) for each in [table, gone] * 10]
    came = await asyncio.gather(*draws, return_exceptions=True)
    assert all(isinstance(each, SequenceMissing) for each in came[1::2])
    assert len({each.first for each in came if isinstance(each, Draw)}) == 10


@on_each_engine
async def test_nothing_is_drawn_before_the_first_look(storage: Storage) -> None:
    table = await made(await storage.client())
    database = await storage.client(probe=False)
    for count in counts_of(database, table):
        with pytest.raises(TicketDatabaseUnavailable):
            await database.draw(table, count, 0)
    await database.probe()
    assert (await database.draw(table, 1, 0)).first == 1


@on_each_engine
async def test_a_block_is_not_taken_where_the_counter_is_below_what_was_issued(storage: Storage) -> None:
    """The counter stays down there too: not among ids that others have issued."""
    database = await storage.client()
    table = await made(database)
    highest = (await database.draw(table, 1, 0)).last
    for count in counts_of(database, table):
        before = await database.position(table)
        if count > table.rows_per_statement:
            with pytest.raises(SequenceWentBack):
                await database.draw(table, count, 10**9)
            highest = before.next_id + 3 * INCREMENT
        else:
            highest = (await database.draw(table, count, 10**9)).last
        assert before.next_id < (await database.position(table)).next_id <= highest + INCREMENT


@on_each_engine
async def test_after_is_no_floor_that_a_draw_rises_above(storage: Storage) -> None:
    database = await storage.client()
    table = await made(database, width=Width.INT)
    assert await database.draw(table, 2, 1001) == Draw(1, INCREMENT, 2)


# --- at once ---------------------------------------------------------------------------------------------------------


@on_each_engine
async def test_what_is_drawn_at_once_is_what_a_draw_gives(storage: Storage) -> None:
    database = await storage.client()
    table = await made(database)
    highest = (await database.draw(table, 1, 0)).last
    for count in counts_of(database, table):
        drawn = await drawn_at_once(database, table, count, highest)
        if drawn is None:
            drawn = await database.draw(table, count, highest)
        assert isinstance(drawn, Draw)
        assert (drawn.size, drawn.step, drawn.first % INCREMENT) == (count, INCREMENT, 1)
        assert highest < drawn.first <= highest + 3 * INCREMENT
        highest = drawn.last


@on_each_engine
async def test_at_once_goes_only_what_one_statement_draws(storage: Storage) -> None:
    database = await storage.client()
    table = await made(database)
    await database.draw(table, 1, 0)
    for count in counts_of(database, table):
        if count > table.rows_per_statement:
            assert await drawn_at_once(database, table, count) is None


@on_each_engine
async def test_many_at_once_are_distinct(storage: Storage) -> None:
    database = await storage.client()
    table = await made(database)
    await database.draw(table, 1, 0)
    futures: list[asyncio.Future[Drawn]] = [asyncio.get_running_loop().create_future() for _ in range(20)]
    sent = [each for each in futures if database.draw_at_once(table, 1, 0, each.set_result)]
    draws = await asyncio.gather(*sent, *(database.draw(table, 1, 0) for _ in range(20)))
    ids = [drawn.first for drawn in draws if isinstance(drawn, Draw)]
    assert len(set(ids)) == len(ids) == 20 + len(sent)


@on_each_engine
async def test_at_once_the_same_error_comes_as_an_answer(storage: Storage) -> None:
    database = await storage.client()
    table, gone = await made(database), await made(database, "gone")
    await database.draw(table, 1, 0)
    storage.drop("gone")
    drawn = await drawn_at_once(database, gone, 1)
    assert drawn is None or isinstance(drawn, SequenceMissing)
    assert (await database.draw(table, 1, 0)).first == 3


@on_each_engine
async def test_nothing_goes_at_once_before_the_first_look(storage: Storage) -> None:
    table = await made(await storage.client())
    database = await storage.client(probe=False)
    drawn = await drawn_at_once(database, table, 1)
    assert drawn is None or isinstance(drawn, TicketDatabaseUnavailable)
    await database.probe()
    assert (await database.draw(table, 1, 0)).first == 1
