"""Rows that no ticket database of ours could send, from a damaged table or a hostile server: it answered nonsense.

Each is fed through a driver that answers with it: what a caller gets is seen, and what becomes of the connection.
"""

import math
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from app.common.errors import TicketDatabaseUnavailable
from app.common.sequences import TICKET_LIMIT
from app.databases.mysql import sequence_sql
from app.databases.mysql.books import own_sql
from app.databases.mysql.books.marks import mark_of
from app.databases.mysql.database import MySQLDatabase
from app.databases.mysql.inspection import MySQLInspector
from app.databases.mysql.line import session_sql
from app.databases.mysql.line.connection import MySQLConnection
from app.databases.mysql.line.driver import Rows
from app.databases.mysql.tables import positions_of, table_of
from app.databases.protocol import Mark, Position
from app.kinds.definition import Definition
from tests.unit.databases.mysql_driver import URL, Driver, Server

TOKEN = "0123456789abcdef01234567.1700000000:01ab23cd"
MARK = ("photos", 1, 2, 1000, 10, TOKEN)
ROW = ("photos", "InnoDB", 1_700_000_000, "bigint", "bigint unsigned", 1, "PRI", "")
CLOCK = session_sql.clock(mariadb=False)
PHOTOS: dict[str, Rows] = {
    sequence_sql.NAMES: (("photos",),),
    sequence_sql.moments(["photos"]): (("photos", 1_700_000_000),),
}


async def database_that_answers(server: Server, *answers: Rows) -> tuple[MySQLDatabase, Driver]:
    """One with a probe's connection, and an idle one that answers the next statements with these."""
    database = MySQLDatabase(URL, 1, 2, 1.0)
    await database.probe()
    await database.names()
    server.next = list(answers)
    return database, server.drivers[-1]


Ask = Callable[[MySQLDatabase], Awaitable[Any]]


def changed(row: tuple[Any, ...], index: int, value: Any) -> tuple[Any, ...]:
    return (*row[:index], value, *row[index + 1 :])


BAD_MARKS = [
    (),
    MARK[:5],
    (*MARK, 1),
    (None,) * 6,
    *(changed(MARK, i, bad) for i in (1, 2, 3, 4) for bad in (None, -1, "x", 2**63, math.inf, math.nan, 1.5, b"\xff")),
    *(changed(MARK, i, 0) for i in (1, 2)),
    *(
        changed(MARK, 0, bad)
        for bad in (None, "", "_", "_Layout", "_1a-", "_" + "1" * 41, "a b", "x' OR '1'='1", "a" * 65, b"photos", 7)
    ),
    *(changed(MARK, 5, bad) for bad in (None, "", "x'; DROP TABLE photos; -- ", "a\\", 'a"', "a\n", "ä", "a" * 129, 7)),
]
BAD_TABLES = [(), ROW[:7], (*ROW, 1), *(changed(ROW, 2, bad) for bad in ("1'", "", -1, b"1", "1 OR 1"))]
BAD_POSITIONS: list[tuple[Rows, Rows]] = [
    ((), (("photos", 1, 7),)),
    ((("photos", None),), (("photos", 1, 7),)),
    ((("photos", "x"),), (("photos", 1, 7),)),
    ((("photos", 2**64),), (("photos", 1, 7),)),
    ((("photos", 5),), ((),)),
    ((("photos", 5),), (("photos", 1),)),
    ((("photos", 5),), (("photos", 1, 7, 7),)),
    ((("photos", 5),), (("photos", None, 7),)),
    ((("photos", 5),), (("photos", -1, 7),)),
    ((("photos", 5),), (("photos", 2**64, 7),)),
    ((("photos", 5),), (("photos", 1, "7'"),)),
]
ours = Mark("photos", 1, 2, 1000, 10, TOKEN)
CASES: list[tuple[str, Ask, tuple[Rows, ...]]] = [
    *((f"marks {row}", lambda d: d.marks(), ((row,),)) for row in BAD_MARKS),
    *((f"reserve {row}", lambda d: d.keep([ours], 1), ((), ((1,),), (row,))) for row in BAD_MARKS[:4]),
    *((f"supersede {row}", lambda d: d.supersede(ours, ours, 1), ((), ((1,),), (row,))) for row in BAD_MARKS[:4]),
    *((f"tables {row}", lambda d: d.tables(["photos"]), ((row,),)) for row in BAD_TABLES),
    *(
        (f"largest {row}", lambda d: d.positions(["photos"]), ((row,),))
        for row in ((), ("photos",), ("a'b", 5), (7, 5), (None, 5))
    ),
    *((f"positions {rows}", lambda d: d.positions(["photos"]), rows) for rows in BAD_POSITIONS),
    *((f"names {row}", lambda d: d.names(), ((row,),)) for row in ((), ("photos", 1))),
    *(
        (f"moments {row}", lambda d: d.names(), ((("photos",),), (row,)))
        for row in ((), ("photos",), ("photos", 1, 2), ("photos", "1'"), ("a'b", 1))
    ),
]


@pytest.mark.parametrize(("ask", "answers"), [pytest.param(*case[1:], id=case[0][:60]) for case in CASES])
async def test_it_answered_nonsense_and_the_connection_is_dropped(
    server: Server, ask: Ask, answers: tuple[Rows, ...]
) -> None:
    database, asked = await database_that_answers(server, *answers)
    assert database.connections == 2
    with pytest.raises(TicketDatabaseUnavailable, match="answered nonsense"):
        await ask(database)
    assert not server.next
    assert not asked.usable
    assert database.connections == 1


@pytest.mark.parametrize("rows", [(), ((*MARK[:1], 2, *MARK[2:]),), (MARK, changed(MARK, 0, "other"))])
async def test_rows_of_a_ledger_that_were_not_asked_for_or_are_missing(server: Server, rows: Rows) -> None:
    database, _ = await database_that_answers(server, (), ((1,),), rows)
    with pytest.raises(TicketDatabaseUnavailable, match="lost a row of its ledger"):
        await database.keep([ours], 1)
    database, _ = await database_that_answers(server, (), ((1,),), rows)
    with pytest.raises(TicketDatabaseUnavailable, match="lost a row of its ledger"):
        await database.supersede(ours, ours, 1)


@pytest.mark.parametrize("kind", [None, 7, "", "Ticket", "x' OR '1'='1", "a" * 33])
async def test_a_definition_whose_kind_is_no_name_has_one_that_is(server: Server, kind: Any) -> None:
    """Its sequence is there, and no kind of this release serves it."""
    database, _ = await database_that_answers(server, (("likes", kind, "{}", 1, ""), ("other", "uuid4", "{}", 0, "ab")))
    found = await database.definitions()
    assert found == {
        "likes": Definition("likes", "unreadable", {}),
        "other": Definition("other", "uuid4", {}, decided=False, by="ab"),
    }


@pytest.mark.parametrize(
    "row",
    [
        (),
        ("likes", "uuid4", "{}"),
        ("_1", "uuid4", "{}", 1, ""),
        ("a'b", "uuid4", "{}", 1, ""),
        ("likes", "uuid4", "{}", 1, "x'"),
        ("likes", "uuid4", "{}", "yes", ""),
        (None,) * 5,
    ],
)
async def test_a_definition_of_no_sequence(server: Server, row: tuple[Any, ...]) -> None:
    database, driver = await database_that_answers(server, (row,))
    with pytest.raises(TicketDatabaseUnavailable, match="answered nonsense"):
        await database.definitions()
    assert not driver.usable


@pytest.mark.parametrize(
    "row",
    [
        (),
        ("ab", "1.0", "", 1.0),
        ("x'", "1.0", "", 1.0, 1.7e9),
        ("ab", "1'0", "", 1.0, 1.7e9),
        ("ab", "1.0", "a,'", 1.0, 1.7e9),
        ("ab", "1.0", "", -1.0, 1.7e9),
        ("ab", "1.0", "", 1.0, math.nan),
        (None,) * 5,
    ],
)
async def test_a_server_that_is_none(server: Server, row: tuple[Any, ...]) -> None:
    database, driver = await database_that_answers(server, (row,))
    with pytest.raises(TicketDatabaseUnavailable, match="answered nonsense"):
        await database.servers(5)
    assert not driver.usable


@pytest.mark.parametrize("clock", [(), ((),), ((None,),), (("x",),), ((math.nan,),), ((math.inf,),)])
async def test_a_clock_that_says_nothing(server: Server, clock: Rows) -> None:
    server.says[session_sql.CLOCK] = clock
    with pytest.raises(TicketDatabaseUnavailable, match="answered nonsense"):
        await MySQLDatabase(URL, 1, 2, 1.0).probe()
    assert not server.drivers[-1].usable


@pytest.mark.parametrize("version", [None, "x", -1, 0, 2**64])
async def test_a_layout_that_is_none(server: Server, version: Any) -> None:
    server.says[own_sql.LAYOUT] = ((version,),)
    database = MySQLDatabase(URL, 1, 2, 1.0)
    with pytest.raises(TicketDatabaseUnavailable, match="answered nonsense"):
        await database.probe()
    assert not server.drivers[-1].usable
    assert database.connections == 0


async def opened() -> MySQLConnection:
    connection = MySQLConnection(URL, 2, 1, None)
    await connection.open()
    return connection


async def test_facts(server: Server) -> None:
    assert (await (await opened()).check()).now == 1.7e9


@pytest.mark.parametrize(
    ("statement", "rows"),
    [
        (session_sql.SHOW_VARIABLES, ((),)),
        (session_sql.SHOW_VARIABLES, (("auto_increment_increment",),)),
        (session_sql.SHOW_VARIABLES, (("auto_increment_increment", "two"), ("auto_increment_offset", "1"))),
        (session_sql.SHOW_CIPHER, ((1, 2, 3),)),
        (CLOCK, ()),
        (CLOCK, ((1.0,),)),
        (CLOCK, ((None, 5),)),
        (CLOCK, ((math.nan, 5),)),
        (CLOCK, ((math.inf, 5),)),
        (CLOCK, ((1.0, math.inf),)),
    ],
)
async def test_facts_that_are_none(server: Server, statement: str, rows: Rows) -> None:
    connection = await opened()
    server.says[statement] = rows
    with pytest.raises(TicketDatabaseUnavailable, match="answered nonsense"):
        await connection.check()
    assert not connection.usable
    with pytest.raises(TicketDatabaseUnavailable, match="answered nonsense"):
        await opened()
    assert not server.drivers[-1].usable


@pytest.mark.parametrize(
    "says",
    [
        {own_sql.LAYOUT: (("x",),)},
        {own_sql.RECORD: (("x",) * 8,)},
        {own_sql.ALL_MARKS: ((None,) * 6,)},
        {own_sql.ALL_MARKS: (MARK,), sequence_sql.NAMES: (("photos", 1),)},
        PHOTOS | {sequence_sql.tables(["photos"]): (ROW,), sequence_sql.keys(["photos"]): (("photos", "PRIMARY"),)},
        PHOTOS | {sequence_sql.tables(["photos"]): (ROW[:6],)},
    ],
    ids=lambda says: list(says)[-1][:60],
)
async def test_a_check_up_says_so_too(server: Server, says: dict[str, Rows]) -> None:
    server.says |= {own_sql.LAYOUT: ((own_sql.LAYOUT_VERSION,),), **says}
    inspector = MySQLInspector(URL, 1, 2, 1.0)
    await inspector.inspect()
    assert inspector.inspection.trouble == "answered nonsense"
    assert not server.drivers[-1].usable


def test_what_a_healthy_database_sends() -> None:
    assert mark_of(MARK) == ours
    assert mark_of(changed(MARK, 5, "0123456789abcdef01234567.None:01ab23cd")).token.endswith(".None:01ab23cd")
    assert mark_of(changed(MARK, 3, TICKET_LIMIT)).mark == TICKET_LIMIT
    table = table_of(ROW)
    assert table is not None
    assert (table.sequence, table.created) == ("photos", "1700000000")
    assert table_of(changed(ROW, 3, "smallint")) is None
    assert table_of(changed(ROW, 0, "_ring")) is None
    inner = table_of(changed(ROW, 0, "_1234"))
    assert inner is not None
    assert inner.sequence == "_1234"
    assert mark_of(changed(MARK, 0, "_worker_17")).sequence == "_worker_17"
    high = positions_of({"photos": 2**64 - 1}, {"photos": (2**64 - 1, None)})
    assert high == {"photos": Position(2**63, 2**63 - 1, "None")}
    assert positions_of({"photos": -5}, {"photos": (1, 7)}) == {"photos": Position(1, 0, "7")}
    assert positions_of({"photos": 0}, {}) == {}
