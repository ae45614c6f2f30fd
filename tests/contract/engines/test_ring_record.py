"""The ring that a database records, the increment that is drawn with, and who else uses the database."""

import asyncio
from dataclasses import replace

import pytest

from app.common.errors import RingChanged, TicketDatabaseMisconfigured, TicketDatabaseUnavailable
from app.databases.protocol import Residue, RingRecord, RingState
from tests.contract.engines.storages import INCREMENT, Storage, made, on_each_engine, take

RING = RingRecord(1, 2, 1, (1, 2), own=1)
OTHERS = [
    replace(RING, number=2),
    replace(RING, increment=3),
    replace(RING, since=2),
    replace(RING, offsets=(1,)),
    replace(RING, offsets=(2, 1)),
    replace(RING, own=2),
    replace(RING, state=RingState.GROWING),
]
"""Each differs from RING in one thing."""


# --- the record ------------------------------------------------------------------------------------------------------


@on_each_engine
async def test_a_database_records_no_ring_at_first(storage: Storage) -> None:
    database = await storage.client()
    assert await database.recorded_ring() is None  # before any probe has made a table for it
    assert (await database.probe()).record is None
    for number in (0, 1, 2):
        with pytest.raises(RingChanged):
            await database.check_ring(number)


@on_each_engine
async def test_the_first_record_is_written_once(storage: Storage) -> None:
    one, other = await storage.client(), await storage.client()
    assert await one.record_ring(None, RING) == RING
    assert await other.record_ring(None, replace(RING, number=5)) == RING
    for client in (one, other):
        assert (await client.probe()).record == RING
        assert await client.recorded_ring() == RING


@on_each_engine
async def test_every_part_of_a_record_is_read_as_it_was_written(storage: Storage) -> None:
    database = await storage.client()
    records = [
        RING,
        RingRecord(2, 3, 2, (2, 1, 3), own=1, state=RingState.FORMING),
        RingRecord(10**15, 65_535, 10**15, tuple(range(1, 301)), own=1, state=RingState.GROWING),
        RingRecord(10**15 + 1, 1, 10**15, (1,), own=1),
    ]
    for old, new in zip([None, *records], records, strict=False):
        assert await database.record_ring(old, new) == new
        assert (await database.probe()).record == new


@on_each_engine
async def test_a_record_that_is_another_one_by_now_stays(storage: Storage) -> None:
    database = await storage.client()
    await database.record_ring(None, RING)
    for old in OTHERS:
        assert await database.record_ring(old, replace(RING, number=9)) == RING
        assert (await database.probe()).record == RING
    assert await database.record_ring(RING, replace(RING, number=9)) == replace(RING, number=9)


@on_each_engine
async def test_a_record_that_is_gone_is_not_taken_for_written(storage: Storage) -> None:
    database = await storage.client()
    with pytest.raises(TicketDatabaseUnavailable):
        await database.record_ring(RING, replace(RING, number=2))
    assert (await database.probe()).record is None


@on_each_engine
async def test_a_record_is_committed(storage: Storage) -> None:
    database = await storage.client()
    await database.record_ring(None, RING)
    await database.record_ring(RING, replace(RING, number=2))
    await storage.close(database)
    database = await storage.client()
    assert (await database.probe()).record == replace(RING, number=2)
    await database.check_ring(2)


@on_each_engine
async def test_a_record_is_that_of_one_database(storage: Storage) -> None:
    odd, even = await storage.client(1), await storage.client(2)
    await odd.record_ring(None, RING)
    assert (await even.probe()).record is None


@on_each_engine
async def test_two_databases_are_told_apart(storage: Storage) -> None:
    odd, even = await storage.client(1), await storage.client(2)
    one, other = await odd.probe(), await even.probe()
    assert odd.name != even.name
    assert one.identity != other.identity
    assert one.incarnation != other.incarnation


@on_each_engine
async def test_a_ring_is_checked_by_its_number(storage: Storage) -> None:
    one, other = await storage.client(), await storage.client()
    await one.record_ring(None, RING)
    for client in (one, other):
        await client.check_ring(1)
        for number in (0, 2, 3):
            with pytest.raises(RingChanged):
                await client.check_ring(number)
    await one.record_ring(RING, replace(RING, number=2))
    await other.check_ring(2)
    with pytest.raises(RingChanged):
        await other.check_ring(1)


@on_each_engine
async def test_a_record_of_another_increment_can_be_written_and_read(storage: Storage) -> None:
    """By whoever changes the ring, before and after, whatever he draws with himself."""
    old, new = await storage.client(), await storage.client(increment=3)
    grown = replace(RING, number=2, increment=3)
    assert await new.record_ring(None, RING) == RING
    assert await old.record_ring(RING, grown) == grown
    assert (await old.probe()).record == (await new.probe()).record == grown


# --- the increment ---------------------------------------------------------------------------------------------------


@on_each_engine
async def test_what_is_under_way_with_another_increment_fails_or_comes_as_it_was_drawn(storage: Storage) -> None:
    database = await storage.client()
    table = await made(database)
    await take(database, table, 1, 0)
    draws = [asyncio.ensure_future(take(database, table, 1 + number % 3, 0)) for number in range(30)]
    await asyncio.sleep(0)
    database.use_increment(3)
    came = await asyncio.gather(*draws, return_exceptions=True)
    ids: list[int] = []
    for each in came:
        if isinstance(each, BaseException):
            assert isinstance(each, TicketDatabaseUnavailable | RingChanged)
        else:
            assert each.step in (2, 3)
            assert each.first % each.step == 1
            ids += [each.first + number * each.step for number in range(each.size)]
    assert len(ids) == len(set(ids))
    assert 1 not in ids


@on_each_engine
async def test_a_lane_of_another_increment_draws_nothing(storage: Storage) -> None:
    database = await storage.client()
    table = await made(database)
    for count in (1, 3, 1000):
        with pytest.raises(RingChanged):
            await database.draw(Residue(1, 3), table, count, 0)
    assert (await take(database, table, 1, 0)).first == 1


@on_each_engine
async def test_a_lane_of_another_ring_draws_nothing_where_the_draw_can_see_that(storage: Storage) -> None:
    database = await storage.client()
    table = await made(database)
    await database.record_ring(None, replace(RING, number=7))
    highest = (await take(database, table, 1, 0, ring=7)).last
    for count in (1, 3, 1000):
        if not storage.fences_draws:
            highest = (await take(database, table, count, highest, ring=6)).last  # its mark is refused
            continue
        with pytest.raises(RingChanged):
            await take(database, table, count, highest, ring=6)
    assert (await take(database, table, 1, highest, ring=7)).first == highest + INCREMENT


@on_each_engine
async def test_nothing_is_drawn_with_another_increment_than_the_servers(storage: Storage) -> None:
    one = await storage.client()
    table = await made(one)
    database = await storage.client(increment=3)
    if storage.has_settings:
        for count in (1, 1000):
            with pytest.raises(TicketDatabaseMisconfigured):
                await take(database, table, count, 0)
    else:
        assert (await take(database, table, 2, 0)).last == 4
    assert (await take(one, table, 1, 0)).first % INCREMENT == 1


# --- who else --------------------------------------------------------------------------------------------------------


@on_each_engine
async def test_a_database_that_nobody_else_uses_is_not_in_use(storage: Storage) -> None:
    database, beside = await storage.client(), await storage.client(2)
    await made(database)
    assert await database.in_use(0.0) == await database.in_use(0.2) == []
    assert await beside.in_use(0.0) == []


@on_each_engine
async def test_whoever_else_uses_the_database_is_named(storage: Storage) -> None:
    database, other = await storage.client(), await storage.client()
    for client in (database, other):
        found = await client.in_use(0.0)
        assert found
        assert all(words and isinstance(words, str) for words in found)
    await storage.close(other)
    for _ in range(200):  # a server needs a moment to see that a connection has ended
        if not (found := await database.in_use(0.0)):
            break
        await asyncio.sleep(0.05)
    assert found == []


@on_each_engine
async def test_whoever_comes_during_the_watch_is_seen(storage: Storage) -> None:
    database = await storage.client()
    watch = asyncio.ensure_future(database.in_use(1.0))
    other = await storage.client()
    await other.probe()
    assert await watch
