"""What a database says of itself, across restarts, and what of a client goes on then."""

import asyncio

import pytest

from app.common.errors import TicketDatabaseError, TicketDatabaseUnavailable
from app.common.sequences import Width
from app.databases.protocol import Mark, RingRecord, TicketDatabase
from tests.contract.engines.storages import INCREMENT, Storage, made, on_each_engine, rows_of, take, until

RING = RingRecord(1, 2, 1, (1, 2), own=1)
ROW = Mark("photos", 2, INCREMENT, 10, 7, "life.t1:a")


@pytest.fixture
def storage(own_storage: Storage) -> Storage:
    return own_storage


CLOCK_STEP = 0.02
"""How much two clocks of one machine may differ by, in seconds: they tick, and are slewed."""


# --- results ---------------------------------------------------------------------------------------------------------


@on_each_engine
async def test_looks_of_one_life_agree(storage: Storage) -> None:
    one, other = await storage.client(), await storage.client()
    results = [await client.probe() for client in (one, other, one)]
    one.forget_connections()
    results.append(await one.probe())
    await storage.close(other)
    results.append(await (await storage.client()).probe())
    for each in ("incarnation", "identity", "increment", "offset", "record", "warnings"):
        assert len({getattr(result, each) for result in results}) == 1, each
    assert results[0].incarnation
    assert results[0].identity
    assert not results[0].warnings


@on_each_engine
async def test_a_look_tells_what_the_server_is_configured_with(storage: Storage) -> None:
    database = await storage.client()
    result = await database.probe()
    configured = (INCREMENT, 1) if storage.has_settings else (None, None)
    assert (result.increment, result.offset) == configured
    assert result.latency >= 0
    storage.configure(5)
    changed = await (await storage.client()).probe()
    assert (changed.increment, changed.offset) == ((5, 1) if storage.has_settings else configured)
    assert (changed.incarnation, changed.identity) == (result.incarnation, result.identity)


@on_each_engine
async def test_a_look_tells_what_the_databases_clock_said(storage: Storage) -> None:
    """Between two moments by the clock of whoever asked."""
    database = await storage.client(probe=False)
    for _ in range(3):  # on a new connection, and on that again
        before, asked_after = storage.true_time(), storage.monotonic()
        clock = (await database.probe()).clock
        answered_before, after = storage.monotonic(), storage.true_time()
        assert asked_after <= clock.since <= clock.until <= answered_before
        assert clock.since < clock.until or not storage.has_settings  # a server is asked
        begin, end = before + (clock.since - asked_after), after - (answered_before - clock.until)
        assert begin - CLOCK_STEP <= clock.seconds <= end + CLOCK_STEP


@on_each_engine
async def test_looks_at_the_same_time_do_not_disturb_each_other(storage: Storage) -> None:
    clients = [await storage.client(probe=False) for _ in range(4)]
    results = await asyncio.gather(*(client.probe() for client in clients * 3))
    assert len({result.incarnation for result in results}) == 1
    table = await made(clients[0])
    assert (await take(clients[3], table, 1, 0)).first == 1


# --- another life ----------------------------------------------------------------------------------------------------


@on_each_engine
async def test_another_life_has_another_incarnation_and_all_that_was_committed(storage: Storage) -> None:
    database = await storage.client()
    before = await database.probe()
    tables = [await made(database, name) for name in ("songs", "albums")]
    await database.record_ring(None, RING)
    await database.keep([ROW], 1)
    last = [(await take(database, tables[0], count, 0, ring=1)).last for count in (1, 3, 1000)][-1]
    await database.advance({"albums": 5000})
    await storage.begin_another_life()
    await storage.close(database)
    database = await storage.client()
    result = await database.probe()
    assert result.incarnation != before.incarnation
    assert storage.renames_itself or result.identity == before.identity
    assert result.record == RING
    assert await database.marks() == [ROW]
    assert await database.tables(["songs", "albums"]) == {table.sequence: table for table in tables}
    assert (await database.position(tables[0].sequence)).next_id > last
    assert last < (await take(database, tables[0], 1, 0, ring=1)).first <= last + 3 * INCREMENT
    assert (await take(database, tables[1], 1, 0, ring=1)).first == 5001


@on_each_engine
async def test_nothing_is_drawn_in_another_life_before_a_look_at_it(storage: Storage) -> None:
    database = await storage.client()
    before = await database.probe()
    table = await made(database, "songs")
    last = (await take(database, table, 1, 0)).last
    await storage.begin_another_life()
    for count in (1, 1, 1000, 1):
        with pytest.raises(TicketDatabaseUnavailable):
            await take(database, table, count, last)
    result = await looked_again(database)
    assert result != before.incarnation
    assert last < (await take(database, table, 1, 0)).first <= last + INCREMENT
    assert await looked_again(database) == result


@on_each_engine
async def test_marks_are_read_of_the_life_that_was_looked_at_unless_anybody_will_do(storage: Storage) -> None:
    database = await storage.client()
    await database.probe()
    await database.record_ring(None, RING)
    await database.keep([ROW], 1)
    assert await database.marks(anybody=False) == await database.marks(3600, anybody=False) == [ROW]
    await storage.begin_another_life()
    for within in (None, 3600, None, 3600):
        with pytest.raises(TicketDatabaseUnavailable):
            await database.marks(within, anybody=False)
    await looked_again(database)
    assert await database.marks(anybody=False) == await database.marks(3600, anybody=False) == [ROW]


async def looked_again(database: TicketDatabase) -> str:
    """The incarnation; a result that finds the old connections broken has the next one make new ones."""
    try:
        return (await database.probe()).incarnation
    except TicketDatabaseError:
        return (await database.probe()).incarnation


# --- the increment ---------------------------------------------------------------------------------------------------


@on_each_engine
async def test_tickets_are_drawn_with_the_increment_that_is_used(storage: Storage) -> None:
    database = await storage.client()
    table = await made(database)
    await take(database, table, 3, 0)  # 1, 3, 5
    storage.configure(3)
    database.use_increment(3)
    assert database.increment == 3
    await database.probe()
    assert 1000 < database.largest_block <= 65_535 // 3
    for count in (1, 5, 1000, database.largest_block):
        before = (await database.position(table.sequence)).next_id
        drawn = await take(database, table, count, before - 1)
        assert (drawn.size, drawn.step, drawn.first % 3) == (count, 3, 1)
        assert before <= drawn.first
    database.use_increment(3)
    assert (await take(database, table, 1, 0)).first > drawn.last


@on_each_engine
async def test_what_was_raised_or_made_before_another_increment_stays_so(storage: Storage) -> None:
    database = await storage.client()
    tables = [await made(database, f"s{number}") for number in range(6)]
    for number, table in enumerate(tables):
        await database.advance({table.sequence: 1000 + number})
    tables += [await made(database, f"m{number}", Width.BIGINT, 1001 + number) for number in range(6)]
    storage.configure(3)
    database.use_increment(3)
    await database.probe()
    for number, table in enumerate(tables):
        first = (await take(database, table, 1, 0)).first
        assert 1000 + number % 6 < first <= 1003 + number % 6


# --- connections -----------------------------------------------------------------------------------------------------


@on_each_engine
async def test_forgotten_connections_are_not_used_after_the_next_look(storage: Storage) -> None:
    database = await storage.client()
    table = await made(database)
    await asyncio.gather(*(take(database, table, 1, 0) for _ in range(10)))
    before = storage.sessions()
    database.forget_connections()
    assert (await take(database, table, 1, 0)).first == 21
    await database.probe()
    assert (await take(database, table, 1, 0)).first == 23
    assert len(await database.names())
    await until(lambda: before.isdisjoint(storage.sessions()))


@on_each_engine
async def test_a_client_counts_its_connections(storage: Storage) -> None:
    database = await storage.client(probe=False)
    assert database.connections == 0
    await database.probe()
    assert database.connections >= 1
    table = await made(database)
    await asyncio.gather(*(take(database, table, 1, 0) for _ in range(10)))
    assert 1 <= database.connections < 10
    await storage.close(database)
    assert database.connections == 0
    await until(lambda: not storage.sessions())


@on_each_engine
async def test_a_client_that_is_closed_leaves_the_others_alone(storage: Storage) -> None:
    one, other = await storage.client(), await storage.client()
    table = await made(one)
    await asyncio.gather(take(one, table, 1, 0), take(other, table, 1, 0))
    before = await other.probe()
    await storage.close(one)
    assert (await take(other, table, 1, 0)).first == 5
    assert (await other.probe()).incarnation == before.incarnation


@on_each_engine
async def test_what_waits_when_a_client_is_closed_ends(storage: Storage) -> None:
    database, other = await storage.client(), await storage.client()
    table = await made(other)
    draws = [asyncio.ensure_future(take(database, table, 1, 0)) for _ in range(10)]
    await asyncio.sleep(0)
    await storage.close(database)
    came = await asyncio.gather(*draws, return_exceptions=True)
    ids = [each.first for each in came if not isinstance(each, BaseException)]
    assert all(isinstance(each, TicketDatabaseError) for each in came if isinstance(each, BaseException))
    assert (await take(other, table, 1, 0)).first > max(ids, default=0)


@on_each_engine
async def test_a_database_is_known_by_a_name_without_secrets(storage: Storage) -> None:
    one, other = await storage.client(probe=False), await storage.client()
    assert one.name == other.name
    assert "@" not in one.name
    assert "/" not in one.name
    assert (one.offset, one.increment) == (1, INCREMENT)


# --- a crash ---------------------------------------------------------------------------------------------------------


@on_each_engine
async def test_what_was_drawn_above_a_least_just_before_a_crash_stays_used_up(storage: Storage) -> None:
    database = await storage.client()
    table = await made(database)
    await take(database, table, 1, 0)
    least = 0
    for count in (1, rows_of(table), min(10_000, database.largest_block)):
        least += 10**6
        before = await database.probe()
        drawn = await take(database, table, count, 0, least)
        await storage.crash()
        await storage.close(database)
        database = await storage.client()
        assert (await database.probe()).incarnation != before.incarnation
        assert (await database.position(table.sequence)).next_id > drawn.last
        assert (await take(database, table, 1, 0, least)).first > drawn.last
