"""The fake ticket database counts as MySQL does, and fails as it is told to."""

import asyncio

import pytest

from app.common.errors import (
    SequenceMissing,
    SequenceUnavailable,
    TicketDatabaseBusy,
    TicketDatabaseHung,
    TicketDatabaseMisconfigured,
    TicketDatabaseUnavailable,
)
from app.databases.protocol import Draw, Mark, Position, RingRecord, Table, TicketDatabase
from tests.contract.engines.storages import take
from tests.fakes.ticket_database import TRUE_TIME, FakeServer, FakeTicketDatabase
from tests.fakes.virtual_time import virtual_time

TOP_OF_INT = 2**32 - 1


async def connected(server: FakeServer) -> tuple[FakeTicketDatabase, Table]:
    database = FakeTicketDatabase(server)
    await database.probe()
    await database.record_ring(None, RingRecord(1, 2, 1, (1, 2), own=server.offset))
    return database, (await database.tables(["photos"]))["photos"]


def mark(high: int, token: str = "life:1", issued: int = 0) -> Mark:
    return Mark("photos", 2, 2, high, issued, token)


def the_fake_keeps_the_protocol(database: FakeTicketDatabase) -> TicketDatabase:
    return database  # mypy is the test


# --- arithmetic ------------------------------------------------------------------------------------------------------


@virtual_time
async def test_ids_are_of_the_offset_in_steps_of_the_increment() -> None:
    database, table = await connected(FakeServer(offset=2, increment=3))
    assert [(await take(database, table, 1, 0)).first for _ in range(3)] == [2, 5, 8]
    assert await take(database, table, 4, 8) == Draw(11, 3, 4)
    assert await take(database, table, 10_000, 20) == Draw(23, 3, 10_000)
    assert (await take(database, table, 1, 0)).first == 23 + 3 * 10_000


# --- the ledger ------------------------------------------------------------------------------------------------------


@virtual_time
async def test_marks_can_be_asked_for_by_when_they_changed() -> None:
    server = FakeServer(1, clock=asyncio.get_running_loop().time)
    database, _ = await connected(server)
    await database.keep([mark(10)], 1)
    await asyncio.sleep(10)
    assert await database.marks(5) == []
    await database.keep([mark(10)], 1)  # nothing new
    assert await database.marks(5) == []
    await database.keep([mark(11)], 1)
    assert await database.marks(5) == [mark(11)]


# --- faults ----------------------------------------------------------------------------------------------------------


@virtual_time
async def test_down_and_cut_refuse_everything() -> None:
    server = FakeServer(1)
    database, table = await connected(server)
    server.down = True
    for statement in (
        database.probe(),
        take(database, table, 1, 0),
        database.marks(),
        database.names(),
    ):
        with pytest.raises(TicketDatabaseUnavailable, match="refuses"):
            await statement
    server.heal()
    database.cut = True
    with pytest.raises(TicketDatabaseUnavailable, match="refuses"):
        await database.probe()
    other, _ = await connected(server)
    assert (await take(other, table, 1, 0)).first == 1


@virtual_time
async def test_a_hanging_server_answers_when_it_thaws_in_time() -> None:
    server = FakeServer(1)
    database, table = await connected(server)
    server.hang()
    asyncio.get_running_loop().call_later(0.3, server.thaw)
    assert (await take(database, table, 1, 0)).first == 1


@virtual_time
async def test_a_hanging_server_executes_later_what_nobody_waits_for_any_more() -> None:
    server = FakeServer(1)
    database, table = await connected(server)
    server.hang()
    began = asyncio.get_running_loop().time()
    with pytest.raises(TicketDatabaseHung):
        await take(database, table, 1, 0)
    assert asyncio.get_running_loop().time() - began == pytest.approx(0.5)
    assert server.table("photos").largest == 0
    server.thaw()
    assert server.table("photos").largest == 1
    assert (await take(database, table, 1, 0)).first == 3


@virtual_time
async def test_a_restart_loses_what_had_not_begun_and_keeps_the_data() -> None:
    server = FakeServer(1)
    database, table = await connected(server)
    await take(database, table, 1, 0)
    server.hang()
    late = asyncio.ensure_future(take(database, table, 1, 0))
    await asyncio.sleep(0.1)
    server.restart()
    with pytest.raises(TicketDatabaseUnavailable):
        await late
    with pytest.raises(TicketDatabaseUnavailable, match="restarted"):
        await take(database, table, 1, 0)
    await database.probe()
    assert (await take(database, table, 1, 0)).first == 3


@virtual_time
async def test_a_lost_reply_is_of_a_statement_that_was_committed() -> None:
    server = FakeServer(1)
    database, table = await connected(server)
    server.loses_replies = 1
    with pytest.raises(TicketDatabaseUnavailable):
        await take(database, table, 1, 0)
    assert (await take(database, table, 1, 0)).first == 3


@virtual_time
async def test_a_locked_table_hangs_alone_for_one_timeout() -> None:
    server = FakeServer(1, sequences=["photos", "accounts"])
    database, table = await connected(server)
    accounts = (await database.tables(["accounts"]))["accounts"]
    server.lock("photos")
    with pytest.raises(SequenceUnavailable):
        await take(database, table, 1, 0)
    with pytest.raises(SequenceUnavailable):
        await database.position(table.sequence)
    assert (await take(database, accounts, 1, 0)).first == 1
    await database.probe()


@virtual_time
async def test_read_only_reads_and_does_not_write() -> None:
    server = FakeServer(1)
    database, table = await connected(server)
    server.read_only = True
    assert await database.names() == {"photos": table.created}
    assert (await database.position("photos")).next_id == 1
    assert await database.marks() == []
    for statement in (
        database.probe(),
        take(database, table, 1, 0),
        database.keep([mark(1)], 1),
    ):
        with pytest.raises(TicketDatabaseUnavailable, match="read-only"):
            await statement


@virtual_time
async def test_a_ledger_that_fails_fails_alone() -> None:
    server = FakeServer(1)
    database, table = await connected(server)
    server.ledger_fails = True
    for statement in (database.marks(), database.keep([mark(1)], 1), database.supersede(mark(1), mark(2), 1)):
        with pytest.raises(SequenceUnavailable):
            await statement
    await take(database, table, 1, 0)
    await database.probe()


@virtual_time
async def test_deadlocks_are_as_many_as_asked_for_and_change_nothing() -> None:
    server = FakeServer(1)
    database, table = await connected(server)
    server.deadlocks = 2
    for _ in range(2):
        with pytest.raises(TicketDatabaseBusy):
            await take(database, table, 1, 0)
    assert (await take(database, table, 1, 0)).first == 1


@virtual_time
async def test_misconfigured_is_found_by_a_look() -> None:
    server = FakeServer(1)
    server.misconfigured = "has increment 1, expected 2"
    with pytest.raises(TicketDatabaseMisconfigured, match="increment 1"):
        await FakeTicketDatabase(server).probe()


@virtual_time
async def test_a_wrong_residue_is_in_the_draws_and_not_in_the_look() -> None:
    server = FakeServer(1)
    database, table = await connected(server)
    server.draws_as = (2, 2)
    await database.probe()
    assert (await take(database, table, 1, 0)).first == 2
    server.heal()
    assert (await take(database, table, 1, 0)).first == 5  # the counter stood at 4


@virtual_time
async def test_back_to_a_snapshot_is_another_incarnation_of_the_same_server() -> None:
    server = FakeServer(1)
    database, table = await connected(server)
    before = await database.probe()
    await take(database, table, 1, 0)
    copy = server.snapshot()
    await take(database, table, 8, 0)
    await database.keep([mark(10)], 1)
    server.restore(copy)
    after = await database.probe()
    assert after.incarnation != before.incarnation
    assert after.identity == before.identity
    assert await database.marks() == []
    assert await database.position(table.sequence) == Position(3, 1, table.created)
    await take(database, table, 1, 0)
    server.restore(copy)  # a copy can be put back more than once
    await database.probe()
    assert (await take(database, table, 1, 0)).first == 3


@virtual_time
async def test_truncated_keeps_created_and_remade_does_not() -> None:
    server = FakeServer(1)
    database, table = await connected(server)
    await take(database, table, 8, 0)
    server.truncate("photos")
    assert await database.position(table.sequence) == Position(1, 0, table.created)
    server.remake("photos")
    assert (await database.position(table.sequence)).created != table.created
    server.drop("photos")
    for statement in (
        database.position(table.sequence),
        take(database, table, 1, 0),
        database.advance({table.sequence: 9}),
    ):
        with pytest.raises(SequenceMissing):
            await statement
    assert await database.tables(["photos"]) == {}


@virtual_time
async def test_an_empty_one_in_its_place_is_another_server_without_tables() -> None:
    server = FakeServer(1)
    database, _ = await connected(server)
    await database.keep([mark(1)], 1)
    before = await database.probe()
    server.replace_by_empty()
    after = await database.probe()
    assert after.identity != before.identity
    assert after.incarnation != before.incarnation
    assert await database.names() == {}
    assert await database.marks() == []


def test_a_wait_that_nothing_can_end_is_an_error_in_virtual_time() -> None:
    @virtual_time
    async def stuck() -> None:
        await asyncio.Event().wait()

    with pytest.raises(RuntimeError, match="never happen"):
        stuck()


def test_virtual_time_takes_no_time() -> None:
    @virtual_time
    async def long() -> float:
        before = asyncio.get_running_loop().time()
        await asyncio.gather(asyncio.sleep(3600), asyncio.sleep(7200))
        return asyncio.get_running_loop().time() - before

    assert long() == pytest.approx(7200)


@virtual_time
async def test_its_clock_is_as_far_off_as_a_test_says() -> None:
    server = FakeServer(1)
    database = FakeTicketDatabase(server, latency=lambda: (0.1, 0.2))
    now = asyncio.get_running_loop().time
    for offset in (0.0, 3600.0, -0.2):
        server.clock_offset = offset
        asked = now()
        clock = (await database.probe()).clock
        assert clock.since == asked
        assert clock.until == pytest.approx(asked + 0.3)
        assert clock.seconds == pytest.approx(TRUE_TIME + asked + 0.1 + offset, abs=0.001)
