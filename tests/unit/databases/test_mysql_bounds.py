"""What a server costs that sends without end: less than a few MiB, wherever it begins to.

It is a thread of this process. What it sends lies there before anything is measured.
"""

import asyncio
import tracemalloc
from collections.abc import Awaitable, Callable

import pytest

from app.common.errors import TicketDatabaseError, TicketDatabaseUnavailable
from app.common.sequences import Width
from app.common.slices import sliced
from app.databases.mysql import sequence_sql
from app.databases.mysql.books import own_sql
from app.databases.mysql.database import MySQLDatabase
from app.databases.mysql.inspection import MySQLInspector
from app.databases.mysql.line import session_sql
from app.databases.mysql.line.bounds import MOST_TABLES
from app.databases.mysql.line.connection import MySQLConnection
from app.databases.mysql.line.driver import Rows
from app.databases.mysql.line.url import DatabaseURL
from app.databases.mysql.other_tables import Column, used_by
from app.databases.protocol import Drawn, Mark, RingRecord, RingState
from app.kinds.definition import Definition
from tests.contract.engines.storages import residue_of
from tests.fakes.mysql_server import (
    FLOODS,
    FakeMySQL,
    Serve,
    Talk,
    database,
    huge_packets,
    rows_without_end,
)
from tests.unit.databases.draw_bench import table
from tests.unit.databases.mysql_driver import variables

MIB = 2**20
FEW = 3 * MIB
SECONDS = 100.0
"""A deadline that no test should meet, just below the test's own: no time is measured here, and tracemalloc makes a
flood of rows ten times as slow."""
MARK = Mark("photos", 2, 2, 100, 50, "token")
LIKES = Definition("likes", "instagram", {"shards": 5})
RECORD = RingRecord(1, 2, 1, (1, 2), 1, RingState.DRAWN)
SAYS = {
    session_sql.SHOW_VARIABLES: variables(),
    session_sql.SHOW_CIPHER: (("Ssl_cipher", ""),),
    session_sql.CONNECTION_ID: ((1,),),
    session_sql.read_back(2, 1, mariadb=False): ((1, ""),),
    session_sql.clock(mariadb=False): ((1.7e9, 1_600_000_000),),
    session_sql.CLOCK: ((1.7e9,),),
    session_sql.sources(mariadb=False)[0]: (),
    own_sql.LAYOUT: ((own_sql.LAYOUT_VERSION,),),
    own_sql.OWN_TABLES_ARE_THERE: (),
    own_sql.RECORD: (),
    own_sql.RING: (),
    own_sql.standing_uses(""): (),
    own_sql.RING_NUMBER: ((1,),),
    own_sql.probed(""): (("", "2026-01-01"),),
    sequence_sql.NAMES: (("photos",),),
    sequence_sql.largest("photos", "id"): ((7,),),
    sequence_sql.positions(["photos"])[0]: (("photos", 7),),
}

Ask = Callable[[MySQLDatabase], Awaitable[object]]


def url_of(server: FakeMySQL) -> DatabaseURL:
    return DatabaseURL.parse(f"mysql://u:p@127.0.0.1:{server.port}/d?ssl-mode=DISABLED")


async def peak_of(what: Awaitable[object]) -> int:
    """What Python holds at the most, in bytes, beyond what it held before; `what` has to end in an error of ours."""
    tracemalloc.start()
    try:
        with pytest.raises(TicketDatabaseUnavailable, match=r"^answered nonsense"):
            async with asyncio.timeout(SECONDS):
                await what
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def greets_without_end(flood: Serve) -> Serve:
    return flood


def answers_the_login_without_end(flood: Serve) -> Serve:
    def serve(talk: Talk) -> None:
        talk.greet()
        flood(talk)

    return serve


def switches_without_end(flood: Serve) -> Serve:
    def serve(talk: Talk) -> None:
        talk.greet()
        talk.say(b"\xfecaching_sha2_password\0" + bytes(21))
        talk.hear()
        flood(talk)

    return serve


def sends_a_key_without_end(flood: Serve) -> Serve:
    def serve(talk: Talk) -> None:
        talk.greet("caching_sha2_password")
        talk.say(b"\x01\x04")
        talk.hear()
        flood(talk)

    return serve


LOGINS = [greets_without_end, answers_the_login_without_end, switches_without_end, sends_a_key_without_end]


@pytest.mark.parametrize("login", LOGINS)
async def test_nobody_who_logs_in_collects_16_mib(login: Callable[[Serve], Serve]) -> None:
    with FakeMySQL(login(huge_packets)) as server:
        url = DatabaseURL.parse(f"mysql://u:p@127.0.0.1:{server.port}/d?get-server-public-key=true")
        assert await peak_of(MySQLConnection(url, 2, 1, None).log_in()) < FEW


PROBES: dict[str, tuple[str, Ask]] = {
    "facts": (session_sql.SHOW_VARIABLES, lambda it: it.probe()),
    "cipher": (session_sql.SHOW_CIPHER, lambda it: it.probe()),
    "clock": (session_sql.clock(mariadb=False), lambda it: it.probe()),
    "session": ("SET SESSION", lambda it: it.probe()),
    "probe": (own_sql.PROBE, lambda it: it.probe()),
    "layout": (own_sql.LAYOUT, lambda it: it.probe()),
    "ring": (own_sql.RECORD, lambda it: it.probe()),
    "uses": (own_sql.standing_uses(""), lambda it: it.probe()),
    "the clock alone": (session_sql.CLOCK, lambda it: it.probe()),
    "recorded ring": (own_sql.RECORD, lambda it: it.recorded_ring()),
}
ASKS: dict[str, tuple[str, Ask]] = {
    "moments": (sequence_sql.moments(["photos"]), lambda it: it.names()),
    "tables": ("SELECT t.TABLE_NAME", lambda it: it.tables(["photos"])),
    "all largest": ("SELECT 'photos'", lambda it: it.positions(["photos"])),
    "all counters": ("SELECT TABLE_NAME, COALESCE", lambda it: it.positions(["photos"])),
    "make": ("CREATE TABLE", lambda it: it.make("photos", Width.BIGINT, 1)),
    "advance": ("REPLACE INTO `photos`", lambda it: it.advance({"photos": 10})),
    "advance all": ("COMMIT", lambda it: it.advance({"photos": 10})),
    "a page of marks": (own_sql.marks_in("_high_water"), lambda it: it.marks()),
    "reserve": ("INSERT INTO _high_water", lambda it: it.keep([MARK], 1)),
    "read back": (own_sql.marks_in("_high_water"), lambda it: it.keep([MARK], 1)),
    "supersede": ("UPDATE _high_water", lambda it: it.supersede(MARK, MARK, 1)),
    "supersede all": (own_sql.RING_NUMBER, lambda it: it.supersede_all([(MARK, MARK)], 1)),
    "keep a definition": ("INSERT INTO _definitions", lambda it: it.define(LIKES)),
    "the kept definition": ("SELECT sequence, kind, parameters, decided", lambda it: it.define(LIKES)),
    "record the ring": ("INSERT IGNORE INTO _ring", lambda it: it.record_ring(None, RECORD)),
    "check the ring": (own_sql.RING_NUMBER, lambda it: it.check_ring(1)),
    "probed": (own_sql.probed(""), lambda it: it.in_use(0)),
    "servers": (own_sql.servers(60), lambda it: it.servers(60)),
    "a draw": ("REPLACE INTO `photos`", lambda it: draw(it, 1)),
    "the first of a block": ("BEGIN", lambda it: draw(it, 1_000)),
    "the last of a block": ("COMMIT", lambda it: draw(it, 1_000)),
}
LISTINGS: dict[str, tuple[str, Ask]] = {
    "names": (sequence_sql.NAMES, lambda it: it.names()),
    "definitions": (own_sql.DEFINITIONS, lambda it: it.definitions()),
    "changed marks": (own_sql.marks_in("_high_water"), lambda it: it.marks(5)),
    "all marks": (own_sql.ALL_MARKS, lambda it: it.marks_of_all_rings()),
    "connections": (session_sql.CONNECTED, lambda it: it.in_use(0)),
}


async def draw(ticket_database: MySQLDatabase, count: int) -> Drawn:
    """Draw, and raise what it came to where that is an error."""
    drawn: asyncio.Future[Drawn] = asyncio.get_running_loop().create_future()
    ticket_database.start_draw(residue_of(ticket_database), table(), count, 0, drawn.set_result)
    found = await drawn
    if isinstance(found, TicketDatabaseError):
        raise found
    return found


async def cost(flood: Serve, trap: str, ask: Ask, *, probe: bool = True) -> int:
    """What asking costs, in bytes, where the answer to one statement is such a flood. `probe`: after a first probe."""
    with FakeMySQL(database(SAYS, trap, flood)) as server:
        ticket_database = MySQLDatabase(url_of(server), 1, 2, SECONDS)
        try:
            if probe:
                await ticket_database.probe()
            return await peak_of(ask(ticket_database))
        finally:
            await ticket_database.close()


@pytest.mark.parametrize("what", PROBES)
@pytest.mark.parametrize("flood", FLOODS)
async def test_no_probe_costs_more_than_a_few_mib(flood: Serve, what: str) -> None:
    assert await cost(flood, *PROBES[what], probe=False) < FEW


@pytest.mark.parametrize("what", ASKS)
@pytest.mark.parametrize("flood", FLOODS)
async def test_no_answer_costs_more_than_a_few_mib(flood: Serve, what: str) -> None:
    assert await cost(flood, *ASKS[what]) < FEW


@pytest.mark.parametrize("what", LISTINGS)
@pytest.mark.parametrize("flood", [flood for flood in FLOODS if flood is not rows_without_end])
async def test_a_listing_collects_no_16_mib_either(flood: Serve, what: str) -> None:
    assert await cost(flood, *LISTINGS[what]) < FEW


@pytest.mark.parametrize(
    "what",
    [
        "names",
        "changed marks",
        "connections",
        pytest.param("definitions", marks=pytest.mark.long),  # as many rows as of names
        pytest.param("all marks", marks=pytest.mark.long),  # as many as of changed ones
    ],
)
async def test_a_listing_ends_at_the_most_rows_there_may_be(what: str) -> None:
    assert await cost(rows_without_end, *LISTINGS[what]) < 40 * MIB


@pytest.mark.parametrize("flood", FLOODS)
async def test_what_a_bump_and_the_doctor_read_is_bounded(flood: Serve) -> None:
    with FakeMySQL(database(SAYS, "SHOW CREATE TABLE", flood)) as server:
        assert await peak_of(used_by(Column(url_of(server), "photos", "id"))) < 8 * MIB
    with FakeMySQL(database(SAYS, "EXPLAIN", flood)) as server:
        inspector = MySQLInspector(url_of(server), 1, 2, SECONDS)
        await inspector.inspect()
        await inspector.close()
        assert inspector.inspection.trouble == "answered nonsense: more than was asked for"


async def test_the_answer_to_a_draw_that_waits_in_line_is_bounded_too() -> None:
    """Several draws share a packet, and what comes is not taken off the socket but read by the driver."""

    async def many(ticket_database: MySQLDatabase) -> None:
        await asyncio.gather(*(draw(ticket_database, 1) for _ in range(20)))

    assert await cost(huge_packets, "REPLACE INTO `photos`", many) < FEW


@pytest.mark.parametrize("number", [10_000, MOST_TABLES])
async def test_as_many_sequences_as_there_may_be_are_listed(number: int) -> None:
    expected = [f"sequence_{place:055d}" for place in range(number)]
    says: dict[str, Rows] = {sequence_sql.NAMES: tuple((name,) for name in expected)}
    for part in sliced(expected, 200):
        says[sequence_sql.moments(part)] = tuple((name, 1_600_000_000) for name in part)
    with FakeMySQL(database(SAYS | says)) as server:
        ticket_database = MySQLDatabase(url_of(server), 1, 2, SECONDS)
        await ticket_database.probe()
        names = await ticket_database.names()
        await ticket_database.close()
    assert list(names) == expected


async def test_what_each_statement_of_several_is_answered_with_has_a_bound_of_its_own() -> None:
    """Two hundred results of a packet are more than one result may hold."""
    floors = {f"s{number}": 10 for number in range(50)}
    with FakeMySQL(database(SAYS)) as server:
        ticket_database = MySQLDatabase(url_of(server), 1, 2, SECONDS)
        await ticket_database.probe()
        await ticket_database.advance(floors)
        await ticket_database.supersede_all([(MARK, MARK)] * 200, 1)
        await ticket_database.close()


async def test_the_connection_is_gone_afterwards() -> None:
    with FakeMySQL(database(SAYS, "SELECT 1", huge_packets)) as server:
        connection = MySQLConnection(url_of(server), 2, 1, None)
        await connection.log_in()
        with pytest.raises(TicketDatabaseUnavailable, match="more than was asked for"):
            await connection.execute("SELECT 1")
        assert not connection.usable
