"""Blocks right after the last id that is known: what they do to a table, and what they notice."""

import asyncio
from contextlib import suppress
from itertools import chain

import pytest

from app.common.errors import SequenceMissing, SequenceWentBack
from app.databases.mysql.line.connection import MySQLConnection
from app.databases.mysql.line.url import DatabaseURL
from app.databases.protocol import Draw, Table, TicketDatabase
from tests.contract.engines.mysql_storage import MySQLStorage
from tests.contract.engines.storages import (
    INCREMENT,
    SIGNED_BIGINT,
    TIMEOUT,
    UNSIGNED_BIGINT,
    UNSIGNED_INT,
    Column,
    made,
    take,
)
from tests.harness.pair import MySQLPair
from tests.harness.schema import SCHEMA


def test_a_statement_takes_steps_of_its_own_and_the_session_keeps_its_own(mysql_pair: MySQLPair) -> None:
    async def scenario() -> None:
        url = DatabaseURL.parse(mysql_pair.odd.url_of(SCHEMA, query="?ssl-mode=DISABLED&get-server-public-key=true"))
        connection = MySQLConnection(url, INCREMENT, 1, None)
        assert (await connection.open_unchecked()).takes_steps
        await connection.start("SELECT @@auto_increment_increment, @@auto_increment_offset")
        assert tuple(connection.rows) == ((INCREMENT, 1),)
        connection.drop()

    asyncio.run(scenario())


def statements(pair: MySQLPair, kind: str) -> int:
    """How many statements of this kind the odd database has had."""
    return int(pair.odd.execute(f"SHOW GLOBAL STATUS LIKE 'Com_{kind}'")[0][1])


@pytest.mark.parametrize("count", [9, 24, 25, 500, 10_000])
def test_they_follow_one_another_and_move_the_counter_by_what_was_drawn(mysql_pair: MySQLPair, count: int) -> None:
    storage = MySQLStorage(mysql_pair)

    async def scenario() -> None:
        database = await storage.client()
        table = await made(database)
        last = (await take(database, table, count, 0)).last
        replaces = statements(mysql_pair, "replace")
        for _ in range(5):
            drawn = await take(database, table, count, last)
            assert drawn == Draw(last + INCREMENT, INCREMENT, count)
            last = drawn.last
            assert (await database.position(table.sequence)).largest == last, "the last id is on disk"
        assert statements(mysql_pair, "replace") == replaces + 10
        assert (await take(database, table, 1, last)).first == last + INCREMENT

    storage.run(scenario())


@pytest.mark.parametrize("count", [9, 100, 10_000])
def test_a_table_that_begins_again_is_noticed_by_the_next_of_them(mysql_pair: MySQLPair, count: int) -> None:
    """However soon that is: what is known of it then is a block or two."""
    storage = MySQLStorage(mysql_pair)

    async def scenario() -> None:
        database = await storage.client()
        table = await made(database)
        for blocks in range(1, 4):
            last = 0
            for _ in range(blocks):
                last = (await take(database, table, count, last)).last
            storage.drop(table.sequence)
            await made(database)
            with suppress(SequenceWentBack):
                assert (await take(database, table, count, last)).first <= last, "the check on ids refuses those"
            storage.drop(table.sequence)
            await made(database)

    storage.run(scenario())


@pytest.mark.parametrize("count", [9, 100])
def test_an_error_in_the_midst_of_its_answers_is_read_at_once(mysql_pair: MySQLPair, count: int) -> None:
    """Several answers wake this process together: an error, which ends them, has to do so as well."""
    storage = MySQLStorage(mysql_pair)

    async def scenario() -> None:
        database = await storage.client()
        table = await made(database)
        last = 0
        for _ in range(3):
            last = (await take(database, table, count, last)).last
        storage.drop(table.sequence)
        async with asyncio.timeout(TIMEOUT / 2):
            with pytest.raises(SequenceMissing):
                await take(database, table, count, last)
        assert await database.tables([]) == {}, "the driver reads short answers too"

    storage.run(scenario())


def test_two_clients_and_lone_draws_in_between_get_nothing_twice(mysql_pair: MySQLPair) -> None:
    storage = MySQLStorage(mysql_pair)

    async def draws(database: TicketDatabase, table: Table, counts: list[int]) -> list[Draw]:
        drawn: list[Draw] = []
        for count in counts * 20:
            drawn.append(await take(database, table, count, drawn[-1].last if drawn else 0))
            if len(drawn) % 7 == 0:
                await asyncio.sleep(0.002)  # the others meet nobody meanwhile
        return drawn

    async def scenario() -> None:
        clients = [await storage.client(), await storage.client(), await storage.client()]
        table = await made(clients[0])
        drawn = await asyncio.gather(
            draws(clients[0], table, [100, 100, 9]),
            draws(clients[1], table, [12, 500, 12]),
            draws(clients[2], table, [1, 1, 24]),
        )
        ids = [id_ for draw in chain(*drawn) for id_ in range(draw.first, draw.last + 1, draw.step)]
        assert len(ids) == len(set(ids)) == 20 * (209 + 524 + 26)

    storage.run(scenario())


@pytest.mark.parametrize("column", [UNSIGNED_INT, SIGNED_BIGINT, UNSIGNED_BIGINT])
def test_high_up_in_a_column_they_are_the_same(mysql_pair: MySQLPair, column: Column) -> None:
    storage = MySQLStorage(mysql_pair)

    async def scenario() -> None:
        database = await storage.client()
        table = await storage.make_column(database, "high", column)
        await database.advance({table.sequence: table.ceiling // 10 * 9})
        last = (await take(database, table, 1, 0)).last
        for count in (500, 500, 9):
            drawn = await take(database, table, count, last)
            assert drawn == Draw(last + INCREMENT, INCREMENT, count)
            last = drawn.last
        assert (await database.position(table.sequence)).largest == last

    storage.run(scenario())
