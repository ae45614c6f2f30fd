"""The server's own tables on MySQL and MariaDB: made where they are missing, brought up to date, left alone."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from app.common.errors import TicketDatabaseError
from app.databases.mysql.books import own_sql
from app.databases.mysql.database import MySQLDatabase
from app.databases.mysql.inspection import MySQLInspector
from app.databases.mysql.line.url import DatabaseURL
from app.databases.protocol import Body, Mark, RingRecord
from tests.harness.mysqld import TicketMySQL
from tests.harness.pair import MySQLPair
from tests.harness.schema import PASSWORD, USER

RING = RingRecord(1, 2, 1, (1, 2), own=1)
BEFORE = Mark("photos", 2, 2, 6000, 4100, "0123456789abcdef01234567.1763791380:89abcdef")
INNER = Mark("_1", 2, 2, 10, 5, "life-1.t1:a")
LAYOUT_2 = (
    "CREATE TABLE _probe (id INT NOT NULL PRIMARY KEY, at DATETIME(6) NOT NULL) ENGINE=InnoDB",
    "CREATE TABLE _layout (id INT NOT NULL PRIMARY KEY, version INT NOT NULL) ENGINE=InnoDB",
    "CREATE TABLE _high_water ("
    "sequence VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL, "
    "offset_of INT NOT NULL, increment_of INT NOT NULL, mark BIGINT NOT NULL, issued BIGINT NOT NULL, "
    "token VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin NOT NULL, "
    "changed TIMESTAMP(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6) ON UPDATE CURRENT_TIMESTAMP(6), "
    "PRIMARY KEY (sequence, offset_of, increment_of), KEY changed (changed)) ENGINE=InnoDB",
    "CREATE TABLE _ring (id INT NOT NULL PRIMARY KEY, number BIGINT NOT NULL, increment_of INT NOT NULL, "
    "since BIGINT NOT NULL, offsets VARCHAR(8000) CHARACTER SET ascii COLLATE ascii_bin NOT NULL, "
    "own_offset INT NOT NULL, state VARCHAR(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL) ENGINE=InnoDB",
    "INSERT INTO _layout VALUES (1, 2)",
    "INSERT INTO _ring VALUES (1, 1, 2, 1, '1,2', 1, 'drawn')",
    f"INSERT INTO _high_water VALUES ('photos', 2, 2, 6000, 4100, '{BEFORE.token}', NOW(6))",
)
"""What the release before left, with a ring and a mark."""
LAYOUT_3 = (
    *LAYOUT_2[:-3],
    LAYOUT_2[2].replace("_high_water", "_inner_high_water"),
    "CREATE TABLE _servers (instance VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL PRIMARY KEY, "
    "of_release VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL, "
    "kinds VARCHAR(2000) CHARACTER SET ascii COLLATE ascii_bin NOT NULL, "
    "probe_interval DOUBLE NOT NULL, reserve_window DOUBLE NOT NULL DEFAULT 0, at DATETIME(6) NOT NULL) ENGINE=InnoDB",
    "CREATE TABLE _kinds (sequence VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL PRIMARY KEY, "
    "kind VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL, "
    "parameters VARCHAR(2000) CHARACTER SET ascii COLLATE ascii_bin NOT NULL) ENGINE=InnoDB",
    "INSERT INTO _layout VALUES (1, 3)",
    *LAYOUT_2[-2:],
)
"""What 0.2.0 left, with a ring and a mark."""
EARLIER_SERVERS = (
    "SELECT 1 FROM _high_water, _probe, _ring, _inner_high_water, _servers, _kinds WHERE FALSE",
    "INSERT INTO _layout (id, version) VALUES (1, 3) ON DUPLICATE KEY UPDATE version = GREATEST(version, "
    "VALUES(version))",
    "REPLACE INTO _servers (instance, of_release, kinds, probe_interval, reserve_window, at) "
    "VALUES ('ab', '0.2.0', 'ticket', 1.0, 0.0, UTC_TIMESTAMP(6))",
    "INSERT IGNORE INTO _ring (id, number, increment_of, since, offsets, own_offset, state) "
    "VALUES (1, 1, 2, 1, '1', 1, 'drawn')",
    "INSERT INTO _high_water (sequence, offset_of, increment_of, mark, issued, token) "
    "SELECT v.s, v.o, v.i, v.h, v.d, v.t FROM _ring, (SELECT 'likes' AS s, 2 AS o, 2 AS i, 9 AS h, 8 AS d, 't' AS t) "
    "AS v WHERE _ring.id = 1 AND _ring.number = 2 ON DUPLICATE KEY UPDATE "
    "mark = IF(token = VALUES(token), GREATEST(mark, VALUES(mark)), mark), "
    "issued = IF(token = VALUES(token), GREATEST(issued, VALUES(issued)), issued)",
    "UPDATE _ring SET number = 3, increment_of = 2, since = 1, offsets = '1,2', own_offset = 1, state = 'drawn' "
    "WHERE id = 1 AND number = 2 AND increment_of = 2 AND since = 1 AND offsets = '1,2' AND own_offset = 1 "
    "AND state = 'drawn'",
)
"""Statements of 0.2.0, in the order in which a server sends them."""
_numbers = itertools.count(1)


class Place:
    """A schema of its own on the server of offset 1, and an account that may do there what a test says."""

    def __init__(self, server: TicketMySQL) -> None:
        self.schema = f"own_tables_{next(_numbers)}"
        self._server = server
        server.make_schema(self.schema, tables=False)

    def execute(self, statement: str) -> list[tuple[object, ...]]:
        return self._server.execute(statement, database=self.schema)

    def url(self, user: str = USER) -> DatabaseURL:
        query = "?ssl-mode=DISABLED&get-server-public-key=true"
        return DatabaseURL.parse(self._server.url_of(self.schema, query=query).replace(f"//{USER}:", f"//{user}:"))

    @contextmanager
    def account(self, privileges: str) -> Iterator[str]:
        self.execute(f"CREATE USER poor@'127.0.0.1' IDENTIFIED BY '{PASSWORD}'")
        self.execute(f"GRANT {privileges} ON `{self.schema}`.* TO poor@'127.0.0.1'")
        yield "poor"
        self.execute("DROP USER poor@'127.0.0.1'")

    def run(self, scenario: Callable[[MySQLDatabase], Awaitable[None]], user: str = USER) -> None:
        async def on_a_new_database() -> None:
            database = MySQLDatabase(self.url(user), 1, 2, 20.0)
            try:
                await database.probe()
                await scenario(database)
            finally:
                await database.close()

        asyncio.run(on_a_new_database())


@pytest.fixture
def place(mysql_pair: MySQLPair) -> Place:
    return Place(mysql_pair.odd)


async def keeps_an_inner_mark(database: MySQLDatabase) -> None:
    assert await database.keep([INNER], 1) == {("_1", 2): INNER}
    assert set(await database.marks()) == {BEFORE, INNER}


def test_what_the_release_before_left_is_brought_up_to_date_and_kept(place: Place) -> None:
    for statement in LAYOUT_2:
        place.execute(statement)
    place.run(keeps_an_inner_mark)
    assert place.execute("SELECT version FROM _layout") == [(own_sql.LAYOUT_VERSION,)]
    assert place.execute("SELECT sequence FROM _high_water") == [("photos",)]


def test_servers_of_the_release_before_go_on_beside_this_one(place: Place) -> None:
    """They move the number of the ring on, and what they do not know stays."""
    for statement in LAYOUT_3:
        place.execute(statement)
    body = Body(2, "abcd", "127.0.0.1:3306")
    new = replace(RING, number=2, bodies=((1, body),), body="abcd", life="now")

    async def beside(database: MySQLDatabase) -> None:
        assert (await database.probe()).record == RING
        assert await database.record_ring(RING, new) == new
        for statement in EARLIER_SERVERS:
            place.execute(statement)
        found = await database.probe()
        assert found.record == replace(new, number=3)
        assert await database.record_ring(found.record, replace(new, number=4)) == replace(new, number=4)
        assert {entry.release for entry in await database.servers(60)} == {"0.2.0"}
        assert {mark.sequence for mark in await database.marks()} == {"photos", "likes"}

    place.run(beside)
    assert place.execute("SELECT version FROM _layout") == [(own_sql.LAYOUT_VERSION,)]


def test_the_ring_of_the_release_before_is_read_where_nothing_can_be_written(place: Place) -> None:
    for statement in LAYOUT_3:
        place.execute(statement)

    async def read(user: str) -> None:
        database = MySQLDatabase(place.url(user), 1, 2, 20.0)
        with pytest.raises(TicketDatabaseError):
            await database.probe()
        assert await database.recorded_ring() == RING
        await database.close()

    with place.account("SELECT") as user:
        asyncio.run(read(user))


def test_where_all_tables_are_there_no_privilege_is_needed_to_make_any(place: Place) -> None:
    """And the version is recorded, whoever has made them."""
    for statement in (*LAYOUT_2, *own_sql.OWN_TABLES):
        place.execute(statement)
    with place.account("SELECT, INSERT, UPDATE, DELETE") as user:
        place.run(keeps_an_inner_mark, user)
    assert place.execute("SELECT version FROM _layout") == [(own_sql.LAYOUT_VERSION,)]


def test_who_may_make_none_is_told_so_where_one_is_missing(place: Place) -> None:
    for statement in LAYOUT_2:
        place.execute(statement)
    with place.account("SELECT, INSERT, UPDATE, DELETE") as user, pytest.raises(TicketDatabaseError):
        place.run(keeps_an_inner_mark, user)


def test_a_newer_version_is_left_as_it_is(place: Place) -> None:
    for statement in (*LAYOUT_2, "UPDATE _layout SET version = 99"):
        place.execute(statement)
    place.run(keeps_an_inner_mark)
    assert place.execute("SELECT version FROM _layout") == [(99,)]


@pytest.mark.parametrize("upgraded", [False, True])
def test_the_doctor_reads_the_marks_of_either_version(place: Place, upgraded: bool) -> None:
    for statement in LAYOUT_2:
        place.execute(statement)
    if upgraded:
        place.run(keeps_an_inner_mark)

    async def look() -> None:
        inspector = MySQLInspector(place.url(), 1, 2, 20.0)
        await inspector.inspect()
        await inspector.close()
        found = inspector.inspection
        assert found.trouble is None
        assert found.record == RING
        assert set(found.marks) == ({BEFORE, INNER} if upgraded else {BEFORE})

    asyncio.run(look())
