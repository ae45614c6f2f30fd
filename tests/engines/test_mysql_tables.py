"""Which tables are sequences on MySQL and MariaDB, and their births."""

from collections.abc import AsyncIterator

import pytest

from app.databases.mysql.counters import _give_word
from app.databases.session import Counter, Want
from app.errors import DatabaseRefused, SequenceBusy, SequenceUnusable
from tests.engines.mysql_bench import ODD, MySQLBench, mysql_bench
from tests.servers import engines
from tests.servers_shared import FreshDatabase, SharedServers

ID = "id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT"
STUB = "stub CHAR(1) NOT NULL DEFAULT ''"
NEARLY = {
    "no unique key": f"({ID}, {STUB}, KEY (id), KEY (stub))",
    "SMALLINT": f"(id SMALLINT UNSIGNED NOT NULL AUTO_INCREMENT, {STUB}, PRIMARY KEY (stub), KEY (id))",
    "enum('a')": f"({ID}, stub ENUM('a') NOT NULL, PRIMARY KEY (stub), KEY (id))",
    "GENERATED": f"({ID}, a INT, stub CHAR(1) AS ('a') STORED, UNIQUE KEY (stub), PRIMARY KEY (id))",
    "unique key of its own": f"({ID}, {STUB}, PRIMARY KEY (stub, id), KEY (id))",
    "leads no key": f"({ID}, {STUB}, PRIMARY KEY (stub), KEY (stub, id)) ENGINE=MyISAM",
    "not AUTO_INCREMENT": f"(id BIGINT UNSIGNED NOT NULL, {STUB}, PRIMARY KEY (stub), KEY (id))",
    "owner has no default": f"({ID}, {STUB}, Owner INT NOT NULL, PRIMARY KEY (stub), KEY (id))",
    "lacks the column": f"({ID}, note CHAR(1), PRIMARY KEY (id))",
}
SERVED = {
    "signed": (f"(id INT NOT NULL AUTO_INCREMENT, {STUB}, PRIMARY KEY (stub), KEY (id))", 32, (1 << 31) - 1),
    "upper": (f"(ID BIGINT NOT NULL AUTO_INCREMENT, {STUB.upper()}, UNIQUE (STUB), KEY (ID))", 64, (1 << 63) - 2),
    "more": (f"({ID}, stub VARCHAR(9) NOT NULL, at DATETIME, PRIMARY KEY (stub), KEY (id))", 64, (1 << 63) - 1),
    "small": (f"({ID} COMMENT '53 bits', {STUB}, PRIMARY KEY (stub), KEY (id, stub))", 53, (1 << 53) - 1),
}


@pytest.fixture(params=engines("mariadb", "mysql"))
async def bench(
    request: pytest.FixtureRequest, fresh_database: FreshDatabase, shared_servers: SharedServers
) -> AsyncIterator[MySQLBench]:
    """An empty database on MySQL and on MariaDB."""
    async with mysql_bench(request.param, fresh_database, shared_servers) as made:
        yield made


async def test_what_is_wrong_with_a_table_that_is_nearly_a_sequence_is_said(bench: MySQLBench) -> None:
    for number, columns in enumerate(NEARLY.values()):
        bench.run(f"CREATE TABLE Nearly{number} {columns}")
    session = await bench.open(ODD)
    names = [f"nearly{number}" for number in range(len(NEARLY))]
    found = await session.sequences(names)
    assert set(found) == set(names)
    for words, error in zip(NEARLY, [found[name] for name in names], strict=True):
        assert isinstance(error, SequenceUnusable)
        assert words.lower() in str(error).lower()
    assert set(await session.sequences(None)) == set(names[:-1])


async def test_a_table_that_can_be_drawn_from_is_served(bench: MySQLBench) -> None:
    for name, (columns, _, _) in SERVED.items():
        bench.run(f"CREATE TABLE {name} {columns}")
    for statement in (
        f"CREATE TABLE _mine ({ID}, {STUB}, PRIMARY KEY (stub), KEY (id))",
        "CREATE TABLE people (id INT PRIMARY KEY)",
        "CREATE VIEW seen AS SELECT id, stub FROM small",
        f"CREATE TABLE `of-two` ({ID}, {STUB}, PRIMARY KEY (stub), KEY (id))",
    ):
        bench.run(statement)
    session = await bench.open(ODD)
    found = await session.sequences(None)
    assert found.keys() == SERVED.keys()
    for name, (_, bits, ceiling) in SERVED.items():
        counter = found[name]
        assert isinstance(counter, Counter)
        assert (counter.bits, counter.ceiling, counter.position) == (bits, ceiling, 0)
    await session.draw([Want(name, 20) for name in SERVED])
    again = await session.sequences(list(SERVED))
    assert all(isinstance(counter, Counter) and counter.position >= 39 for counter in again.values())
    assert isinstance((await session.sequences(["seen"]))["seen"], SequenceUnusable)
    assert await session.sequences(["of-two", "_mine"]) == {}


async def test_a_table_whose_position_cannot_be_read_is_nobody_elses_affair(bench: MySQLBench) -> None:
    session = await bench.open(ODD, seconds=1)
    for name in ("photos", "groups"):
        await session.make(name, 64, 0)
    other = bench.server.connect(bench.database)
    other.cursor().execute("LOCK TABLES photos WRITE")
    found = await session.sequences(["photos", "groups"])
    other.close()
    assert isinstance(found["photos"], SequenceBusy)
    assert isinstance(found["groups"], Counter)


async def test_the_birth_changes_with_each_truncate_at_once(bench: MySQLBench) -> None:
    session, other = await bench.open(ODD), await bench.open(None)
    await session.make("photos", 64, 0)
    births = []
    for _ in range(3):
        for asked in (session, other, session):
            found = (await asked.sequences(["photos"]))["photos"]
            assert isinstance(found, Counter)
            assert found.position == 0
            births.append(found.birth)
        await session.draw([Want("photos", 100)])
        bench.run("TRUNCATE TABLE photos")
        found = (await session.sequences(None))["photos"]
        assert isinstance(found, Counter)
        assert found.birth.endswith("none")
    assert births == [birth for birth in births[::3] for _ in range(3)]
    assert len(set(births)) == 3


async def test_a_server_that_stood_still_puts_no_row_back_into_an_emptied_table(bench: MySQLBench) -> None:
    session = await bench.open(ODD)
    await session.make("photos", 64, 0)
    found = (await session.sequences(["photos"]))["photos"]
    assert isinstance(found, Counter)
    bench.run("TRUNCATE TABLE photos")
    assert await _give_word(session._line, "photos", "") == found.birth.partition(".")[2]
    assert bench.run("SELECT * FROM photos") == []


@pytest.mark.parametrize("change", ["COMMENT = 'layout 2'", "ENGINE = MyISAM"])
async def test_own_tables_of_another_layout_or_engine_are_refused(bench: MySQLBench, change: str) -> None:
    await bench.open(ODD)
    bench.run(f"ALTER TABLE _ticket_notes {change}")
    with pytest.raises(DatabaseRefused, match="_ticket_notes"):
        await bench.open(ODD)


@pytest.mark.parametrize(
    "table",
    [
        "_kinds (sequence VARCHAR(64) NOT NULL, kind VARCHAR(32) NOT NULL)",
        "_definitions (sequence VARCHAR(64) NOT NULL, kind VARCHAR(32) NOT NULL, decided INT NOT NULL DEFAULT 1)",
    ],
)
async def test_kinds_of_releases_before_are_never_taken_for_plain_tickets(bench: MySQLBench, table: str) -> None:
    bench.run(f"CREATE TABLE {table}")
    name = table.partition(" ")[0]
    await bench.open(ODD)
    bench.run(f"INSERT INTO {name} (sequence, kind) VALUES ('likes', 'instagram')")
    with pytest.raises(DatabaseRefused, match="make them again"):
        await bench.open(ODD)
    bench.run(f"DROP TABLE {name}")
    await bench.open(ODD)
