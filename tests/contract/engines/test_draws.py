"""What a draw gives, by itself and with others of its table in between; far from the end of the column."""

import asyncio
import itertools

import pytest

from app.common.errors import SequenceMissing, SequenceWentBack, TicketDatabaseUnavailable
from app.common.sequences import Width
from app.databases.protocol import Draw, Drawn, Table, TicketDatabase
from tests.contract.engines.storages import INCREMENT, Storage, made, on_each_engine, residue_of, rows_of, take

SECONDS = 30.0
"""How long a test waits for an answer that has to come."""


def ids_of(draw: Draw) -> range:
    return range(draw.first, draw.last + 1, draw.step)


def counts_of(database: TicketDatabase, table: Table) -> list[int]:
    """Where engines go other ways: few, what a statement draws and one more, many, as many as there can be."""
    most = database.largest_block
    counts = {1, 2, 3, rows_of(table), rows_of(table) + 1, 1000, most}
    return sorted(count for count in counts if count <= most)


class Started:
    """A draw that has been started: what `done` was called with, each time."""

    def __init__(self, database: TicketDatabase, table: Table, count: int = 1, after: int = 0) -> None:
        self.came: list[Drawn] = []
        self._first: asyncio.Future[Drawn] = asyncio.get_running_loop().create_future()
        database.start_draw(residue_of(database), table, count, after, self._done)
        assert not self.came, "the answer comes from the event loop, not before start_draw has returned"

    def _done(self, drawn: Drawn) -> None:
        self.came.append(drawn)
        if not self._first.done():
            self._first.set_result(drawn)

    async def result(self) -> Drawn:
        """What it came to first."""
        async with asyncio.timeout(SECONDS):
            return await self._first


@on_each_engine
async def test_the_first_ticket_is_the_offset_and_the_next_one_an_increment_above(storage: Storage) -> None:
    for offset in (1, 2):
        database = await storage.client(offset)
        table = await made(database)
        for number in range(5):
            first = offset + number * INCREMENT
            assert await take(database, table, 1, max(0, first - INCREMENT)) == Draw(first, INCREMENT, 1)


@on_each_engine
async def test_so_many_tickets_come_as_were_asked_for_in_steps_of_the_increment(storage: Storage) -> None:
    for offset in (1, 2):
        database = await storage.client(offset)
        table = await made(database)
        highest = 0
        for count in counts_of(database, table):
            drawn = await take(database, table, count, highest)
            assert (drawn.size, drawn.step, drawn.first % INCREMENT) == (count, INCREMENT, offset % INCREMENT)
            assert drawn.first > highest
            highest = drawn.last


@on_each_engine
async def test_a_draw_leaves_no_gap_that_other_tickets_would_be_missing_in(storage: Storage) -> None:
    """A block may cost a few ids beside its own, and no more."""
    database = await storage.client()
    table = await made(database)
    highest = (await take(database, table, 1, 0)).last
    for count in (2, rows_of(table), 1, min(5000, database.largest_block), 1):
        drawn = await take(database, table, count, highest)
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
        assert (await take(database, table, 1, 0)).first == 1
    assert (await take(database, tables[0], 200, 1)).first <= 7
    assert [(await take(database, table, 1, 1)).first for table in tables[1:]] == [3, 3]


@on_each_engine
async def test_what_one_client_drew_no_other_one_draws(storage: Storage) -> None:
    one, other = await storage.client(), await storage.client()
    table = await made(one)
    highest = 0
    for count in (1, 2, 500, 1, 1000):
        for client in (one, other):
            drawn = await take(client, table, count, highest)
            assert drawn.first > highest
            highest = drawn.last


@on_each_engine
async def test_a_draw_is_committed_when_it_is_answered(storage: Storage) -> None:
    database = await storage.client()
    table = await made(database)
    highest = 0
    for count in (1, 3, 2000):
        highest = (await take(database, table, count, highest)).last
        await storage.close(database)
        database = await storage.client()
        assert (await database.position(table.sequence)).next_id > highest
        drawn = await take(database, table, 1, 0)
        assert drawn.first > highest
        highest = drawn.last


@on_each_engine
async def test_a_sequence_without_a_table_is_missing_and_the_database_well(storage: Storage) -> None:
    database = await storage.client()
    table, gone = await made(database), await made(database, "gone")
    storage.drop("gone")
    for count in counts_of(database, gone):
        with pytest.raises(SequenceMissing):
            await take(database, gone, count, 0)
    assert (await take(database, table, 1, 0)).first == 1


@on_each_engine
async def test_one_of_several_that_fails_does_not_fail_the_others(storage: Storage) -> None:
    database = await storage.client()
    table, gone = await made(database), await made(database, "gone")
    storage.drop("gone")
    draws = [take(database, each, 1, 0) for each in [table, gone] * 10]
    came = await asyncio.gather(*draws, return_exceptions=True)
    assert all(isinstance(each, SequenceMissing) for each in came[1::2])
    assert len({each.first for each in came if isinstance(each, Draw)}) == 10


@on_each_engine
async def test_nothing_is_drawn_before_the_first_look(storage: Storage) -> None:
    table = await made(await storage.client())
    database = await storage.client(probe=False)
    for count in counts_of(database, table):
        with pytest.raises(TicketDatabaseUnavailable):
            await take(database, table, count, 0)
    await database.probe()
    assert (await take(database, table, 1, 0)).first == 1


@on_each_engine
async def test_a_block_is_not_taken_where_the_counter_is_below_what_was_issued(storage: Storage) -> None:
    """The counter stays down there too: not among ids that others have issued."""
    database = await storage.client()
    table = await made(database)
    highest = (await take(database, table, 1, 0)).last
    for count in counts_of(database, table):
        before = await database.position(table.sequence)
        if storage.needs_room and count > rows_of(table):
            with pytest.raises(SequenceWentBack):
                await take(database, table, count, 10**9)
            highest = before.next_id + 3 * INCREMENT
        else:
            highest = (await take(database, table, count, 10**9)).last
        assert before.next_id < (await database.position(table.sequence)).next_id <= highest + INCREMENT


@on_each_engine
async def test_after_is_no_floor_that_a_draw_rises_above(storage: Storage) -> None:
    database = await storage.client()
    table = await made(database, width=Width.INT)
    assert await take(database, table, 2, 1001) == Draw(1, INCREMENT, 2)


# --- started ---------------------------------------------------------------------------------------------------------


@on_each_engine
async def test_what_is_started_comes_to_what_a_draw_gives(storage: Storage) -> None:
    database = await storage.client()
    table = await made(database)
    highest = 0
    for count in counts_of(database, table):
        drawn = await Started(database, table, count, highest).result()
        assert isinstance(drawn, Draw)
        assert (drawn.size, drawn.step, drawn.first % INCREMENT) == (count, INCREMENT, 1)
        assert highest < drawn.first <= highest + 3 * INCREMENT
        highest = drawn.last


@on_each_engine
async def test_every_started_draw_is_answered_once_with_tickets_of_its_own(storage: Storage) -> None:
    """One by itself, several that share a connection, blocks among them."""
    database = await storage.client()
    tables = [await made(database, name) for name in ("photos", "albums")]
    await take(database, tables[0], 1, 0)
    counts = [1, 1, 3, rows_of(tables[0]) + 1, 1] * 8
    started = [Started(database, tables[number % 2], count) for number, count in enumerate(counts)]
    draws = [await each.result() for each in started]
    await take(database, tables[0], 1, 0)  # whatever else was to come has had its time
    assert [len(each.came) for each in started] == [1] * len(started)
    for number in range(2):
        ids = [id_ for draw in draws[number::2] if isinstance(draw, Draw) for id_ in ids_of(draw)]
        assert len(ids) == len(set(ids)) == sum(counts[number::2])


@on_each_engine
async def test_a_started_draw_is_answered_once_with_its_error(storage: Storage) -> None:
    database = await storage.client()
    table, gone = await made(database), await made(database, "gone")
    await take(database, table, 1, 0)
    storage.drop("gone")
    alone = Started(database, gone)
    assert isinstance(await alone.result(), SequenceMissing)
    among_others = [Started(database, each) for each in [table, gone] * 10]
    came = [await each.result() for each in among_others]
    assert all(isinstance(each, SequenceMissing) for each in came[1::2])
    assert len({each.first for each in came if isinstance(each, Draw)}) == 10
    assert isinstance(await take(database, table, 1, 0), Draw)
    assert [len(each.came) for each in (alone, *among_others)] == [1] * 21


@on_each_engine
async def test_nothing_that_is_started_before_the_first_look_is_drawn(storage: Storage) -> None:
    table = await made(await storage.client())
    database = await storage.client(probe=False)
    for count in counts_of(database, table):
        assert isinstance(await Started(database, table, count).result(), TicketDatabaseUnavailable)
    await database.probe()
    assert (await take(database, table, 1, 0)).first == 1


@on_each_engine
async def test_an_answer_can_start_the_next_draw(storage: Storage) -> None:
    """As a lane does, from within `done`."""
    database = await storage.client()
    table = await made(database)
    drawn: list[Draw] = []
    finished = asyncio.Event()

    def came(each: Drawn) -> None:
        assert isinstance(each, Draw)
        drawn.append(each)
        if len(drawn) == 10:
            finished.set()
        else:
            before = len(drawn)
            database.start_draw(
                residue_of(database), table, 1 if len(drawn) % 4 else rows_of(table) + 1, each.last, came
            )
            assert len(drawn) == before

    database.start_draw(residue_of(database), table, 1, 0, came)
    async with asyncio.timeout(SECONDS):
        await finished.wait()
    assert all(one.last < next_.first for one, next_ in itertools.pairwise(drawn))


@on_each_engine
async def test_a_draw_whose_caller_is_cancelled_loses_its_tickets_and_nothing_else(storage: Storage) -> None:
    database = await storage.client()
    table = await made(database)
    highest = (await take(database, table, 1, 0)).last
    for count in (1, 2, rows_of(table) + 1):
        for cancelled_after in range(4):
            calling = [asyncio.ensure_future(take(database, table, count, highest)) for _ in range(8)]
            for _ in range(cancelled_after):
                await asyncio.sleep(0)
            for each in calling[::2]:
                each.cancel()
            came = await asyncio.gather(*calling, return_exceptions=True)
            assert all(isinstance(each, Draw | asyncio.CancelledError) for each in came)
            draws = [each for each in came[1::2] if isinstance(each, Draw)]
            ids = [id_ for draw in draws for id_ in ids_of(draw)]
            assert len(ids) == len(set(ids)) == 4 * count
            assert min(ids) > highest
            highest = max(draw.last for draw in draws)
    drawn = await take(database, table, 1, highest)
    assert highest < drawn.first


@on_each_engine
async def test_draws_that_wait_when_the_database_is_closed_are_answered(storage: Storage) -> None:
    for turns in range(4):
        database = await storage.client()
        table = await made(database)
        await take(database, table, 1, 0)
        started = [Started(database, table, count) for count in [1, rows_of(table) + 1, 1, 2] * 6]
        for _ in range(turns):
            await asyncio.sleep(0)
        await storage.close(database)
        for each in started:
            assert isinstance(await each.result(), Draw | TicketDatabaseUnavailable)
        await asyncio.sleep(0.05)
        assert [len(each.came) for each in started] == [1] * len(started)
