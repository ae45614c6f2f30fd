"""How marks, the ring record, definitions and floors are written: one packet each, and what follows an error in it."""

import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from app.common.errors import RingChanged, SequenceMissing, TicketDatabaseBusy
from app.databases.mysql.books import own_sql
from app.databases.mysql.books.book import RETRIES
from app.databases.mysql.database import MySQLDatabase
from app.databases.mysql.line.driver import Rows
from app.databases.protocol import Mark, RingRecord
from app.kinds.definition import Definition
from tests.unit.databases.mysql_driver import URL, Driver, Server

MARK = Mark("photos", 1, 2, 1000, 10, "life:1")
ROW = ("photos", 1, 2, 1000, 10, "life:1")
RING = RingRecord(1, 2, 1, (1, 2), own=1)
RING_ROWS: Rows = (("ring", 1, 2, 1, 1, "1,2", "drawn", ""),)
CLAIM = Definition("photos", "uuid4", {}, decided=False, by="a1")
NUMBER: Rows = ((1,),)
DEADLOCK, NO_TABLE = 1213, 1146

Write = Callable[[MySQLDatabase], Awaitable[Any]]
IN_A_TRANSACTION: dict[str, tuple[Write, list[Rows]]] = {
    "supersede all": (lambda it: it.supersede_all([(MARK, MARK), (MARK, MARK)], 1), [(), (), (), (), NUMBER]),
    "record the ring": (lambda it: it.record_ring(None, RING), [(), (), (), (), (), (), (), RING_ROWS]),
    "advance": (lambda it: it.advance({"photos": 10, "likes": 20}), [(), (), (), ()]),
}
OF_ONE_STATEMENT: dict[str, tuple[Write, list[Rows]]] = {
    "keep": (lambda it: it.keep([MARK], 1), [(), NUMBER, (ROW,)]),
    "supersede": (lambda it: it.supersede(MARK, MARK, 1), [(), NUMBER, (ROW,)]),
}
DEFINE: tuple[Write, list[Rows]] = (
    lambda it: it.define(CLAIM),
    [(), (), (), (("photos", "uuid4", "{}", 0, "a1"),)],
)
AGAIN = {name: write for name, write in (IN_A_TRANSACTION | OF_ONE_STATEMENT).items() if name != "advance"}
"""The writes that are tried again after a deadlock."""


async def database_of(server: Server, retried: list[str]) -> tuple[MySQLDatabase, Driver]:
    """One with a probe's connection, and an idle one; what follows is sent on that."""
    database = MySQLDatabase(URL, 1, 2, 1.0, on_retry=retried.append)
    await database.probe()
    await database.names()
    server.packets.clear()
    return database, server.drivers[-1]


ALL = IN_A_TRANSACTION | OF_ONE_STATEMENT | {"define": DEFINE}


@pytest.mark.parametrize(("write", "answers"), ALL.values(), ids=ALL)
async def test_a_write_is_one_packet(server: Server, write: Write, answers: list[Rows]) -> None:
    """A server that stood still between two of them would keep the row of the ring record locked."""
    database, idle = await database_of(server, [])
    server.next = [*answers]
    await write(database)
    assert len(server.packets) == 1
    assert not server.next
    assert idle.usable


@pytest.mark.parametrize("name", AGAIN)
async def test_deadlocks_are_tried_again_for_a_while(server: Server, name: str) -> None:
    retried: list[str] = []
    database, _ = await database_of(server, retried)
    if name in IN_A_TRANSACTION:
        server.says["BEGIN"] = DEADLOCK
    else:
        server.next = [DEADLOCK] * RETRIES
    with pytest.raises(TicketDatabaseBusy):
        await AGAIN[name][0](database)
    assert len(retried) == RETRIES
    assert not server.next


async def test_a_write_is_not_tried_again_after_the_timeout(server: Server) -> None:
    """A lock that is waited for costs each attempt its time."""
    attempts: list[str] = []

    def waited(reason: str) -> None:
        attempts.append(reason)
        time.sleep(0.06)

    database = MySQLDatabase(URL, 1, 2, 0.1, on_retry=waited)
    await database.probe()
    server.next = [DEADLOCK] * RETRIES
    with pytest.raises(TicketDatabaseBusy):
        await database.keep([MARK], 1)
    assert 1 <= len(attempts) <= 2


@pytest.mark.parametrize("failed", range(4))
@pytest.mark.parametrize("write", [write for write, _ in IN_A_TRANSACTION.values()], ids=IN_A_TRANSACTION)
async def test_an_error_inside_a_transaction_ends_its_connection(server: Server, write: Write, failed: int) -> None:
    """The next user of the connection would be in that transaction, and COMMIT half of it."""
    database, idle = await database_of(server, [])
    server.next = [*[()] * failed, NO_TABLE]
    with pytest.raises(SequenceMissing):
        await write(database)
    assert not idle.usable


@pytest.mark.parametrize("name", ["supersede all", "record the ring"])
async def test_a_deadlock_inside_a_transaction_is_tried_again_on_another_connection(server: Server, name: str) -> None:
    retried: list[str] = []
    database, idle = await database_of(server, retried)
    write, _ = IN_A_TRANSACTION[name]
    server.says |= {own_sql.RING_NUMBER: NUMBER, own_sql.RECORD: RING_ROWS}
    server.next = [(), DEADLOCK]
    await write(database)
    assert len(retried) == 1
    assert not idle.usable
    assert server.drivers[-1].usable


@pytest.mark.parametrize(("write", "answers"), OF_ONE_STATEMENT.values(), ids=OF_ONE_STATEMENT)
async def test_a_deadlock_of_one_statement_leaves_the_connection(
    server: Server, write: Write, answers: list[Rows]
) -> None:
    """It may be the last that can be had."""
    retried: list[str] = []
    database, idle = await database_of(server, retried)
    server.next = [DEADLOCK, *answers]
    await write(database)
    assert len(retried) == 1
    assert idle.usable
    assert len(server.packets) == 2


@pytest.mark.parametrize("number", [(), ((2,),)])
@pytest.mark.parametrize("name", ["supersede all", *OF_ONE_STATEMENT])
async def test_a_mark_is_refused_where_the_ring_has_another_number(server: Server, name: str, number: Rows) -> None:
    database, idle = await database_of(server, [])
    write, answers = AGAIN[name]
    server.next = [number if each is NUMBER else each for each in answers]
    with pytest.raises(RingChanged):
        await write(database)
    assert idle.usable
