"""What a server says of itself, checked against what is expected."""

from typing import Any

import pytest

from app.common.errors import TicketDatabaseMisconfigured
from app.databases.mysql import sequence_sql
from app.databases.mysql.database import MySQLDatabase
from app.databases.mysql.inspection import MySQLInspector
from app.databases.mysql.line import session_sql
from app.databases.mysql.line.connection import MySQLConnection
from app.databases.mysql.line.server_facts import ServerFacts
from app.databases.mysql.line.url import DatabaseURL
from app.databases.mysql.other_tables import Column, used_by
from app.doctor.case import Case
from app.doctor.findings import flaws, wrong_increment, wrong_offset
from tests.unit.databases.mysql_driver import URL, Server, variables


async def opened() -> ServerFacts:
    """What a new connection finds."""
    return await MySQLConnection(URL, 2, 1, None).open()


@pytest.mark.parametrize("version", ["8.0.11", "8.4.3-log", "9.7.4", "9.7.4-2", "10.0.1"])
async def test_mysql_that_is_new_enough(server: Server, version: str) -> None:
    server.version = version
    assert not (await opened()).mariadb


@pytest.mark.parametrize(
    "version",
    ["10.6.0-MariaDB", "10.11.19-MariaDB-0+deb12u1", "5.5.5-10.6.12-MariaDB-log", "11.4.2-MariaDB", "12.0.1-MariaDB"],
)
async def test_mariadb_that_is_new_enough(server: Server, version: str) -> None:
    server.version = version
    assert (await opened()).mariadb


@pytest.mark.parametrize(
    ("version", "says"),
    [
        ("5.7.44-log", "is MySQL 5.7, expected 8.0 or later"),
        ("5.1.73", "is MySQL 5.1, expected 8.0"),
        ("10.5.23-MariaDB", "is MariaDB 10.5, expected 10.6 or later"),
        ("5.5.5-10.2.44-MariaDB", "is MariaDB 10.2, expected 10.6"),
        ("nonsense", "is MySQL 0.0, expected 8.0"),
    ],
)
async def test_an_old_one_is_refused_with_a_line_that_says_why(server: Server, version: str, says: str) -> None:
    server.version = version
    with pytest.raises(TicketDatabaseMisconfigured) as caught:
        await opened()
    assert str(caught.value).startswith(says)
    assert "forgets its counters in a crash" in str(caught.value)
    assert not server.drivers[-1].usable


@pytest.mark.parametrize(
    ("flush", "log", "sync", "wrong"),
    [
        ("1", "OFF", "0", []),
        ("1", "ON", "1", []),
        ("2", "ON", "0", ["innodb_flush_log_at_trx_commit=2", "sync_binlog=0"]),
    ],
)
async def test_durability_settings(server: Server, flush: str, log: str, sync: str, wrong: list[str]) -> None:
    server.says[session_sql.SHOW_VARIABLES] = variables(
        innodb_flush_log_at_trx_commit=flush, log_bin=log, sync_binlog=sync
    )
    assert [flaw.wrong.split()[0] for flaw in (await opened()).flaws] == wrong


@pytest.mark.parametrize(("rows", "takes"), [((session_sql.SOME_STEPS,), True), (((2, 1),), False), ((), False)])
async def test_whether_a_statement_has_the_steps_that_its_comment_says(
    server: Server, rows: tuple[tuple[int, ...], ...], takes: bool
) -> None:
    server.says[session_sql.STEPS] = rows
    assert (await opened()).takes_steps is takes


def facts(**changed: Any) -> ServerFacts:
    given: dict[str, Any] = {
        "mariadb": False,
        "version": "9.7.4",
        "identity": "me",
        "incarnation": "1",
        "increment": 2,
        "offset": 1,
        "autoinc_lock_mode": 2,
        "takes_steps": True,
        "flaws": (),
        "now": 0.0,
        "tls": False,
    }
    return ServerFacts(**given | changed)


@pytest.mark.parametrize(
    ("query", "changed", "says"),
    [
        ("", {"increment": 1}, "has auto_increment_increment=1, expected 2"),
        ("", {"offset": 2}, "has auto_increment_offset=2, expected 1"),
        ("?ssl-mode=REQUIRED", {}, "does not use TLS, which ssl-mode=REQUIRED asks for"),
    ],
)
async def test_a_server_that_is_not_what_it_should_be(query: str, changed: dict[str, Any], says: str) -> None:
    connection = MySQLConnection(DatabaseURL.parse(f"mysql://u@h/d{query}"), 2, 1, None)
    with pytest.raises(TicketDatabaseMisconfigured, match=says):
        connection.check_facts(facts(**changed))


GALERA = {"wsrep_on": "ON", "wsrep_auto_increment_control": "ON"}
GROUP = {"group_replication_group_name": "x", "group_replication_auto_increment_increment": "7"}

SEVEN = {"auto_increment_increment": "7"}


@pytest.mark.parametrize(
    ("changed", "wrong"),
    [
        (GALERA, "has wsrep_auto_increment_control=ON: its Galera cluster sets"),
        (
            GALERA | {"auto_increment_increment": "3", "auto_increment_offset": "3"},
            "has wsrep_auto_increment_control=ON",
        ),
        (GALERA | {"wsrep_on": "OFF"}, ""),
        (GALERA | {"wsrep_auto_increment_control": "OFF"}, ""),
        (GROUP | SEVEN, "has group_replication_auto_increment_increment=7: Group"),
        (GROUP, ""),
        (
            GROUP | {"group_replication_group_name": "", "auto_increment_increment": "7"},
            "has auto_increment_increment=7",
        ),
    ],
)
async def test_a_cluster_that_sets_increment_and_offset_is_named(
    server: Server, changed: dict[str, str], wrong: str
) -> None:
    """It passes while the number of nodes happens to be the increment, and another advice cannot help."""
    server.says[session_sql.SHOW_VARIABLES] = variables(**changed)
    if not wrong:
        await opened()
        return
    with pytest.raises(TicketDatabaseMisconfigured) as caught:
        await opened()
    assert str(caught.value).startswith(wrong)
    if not wrong.startswith("has auto"):
        assert "auto_increment_increment = 2 and auto_increment_offset = 1 on every node" in str(caught.value)
        with pytest.raises(TicketDatabaseMisconfigured, match=wrong[:30]):
            await MySQLDatabase(URL, 1, 2, 1.0).probe()
        inspector = MySQLInspector(URL, 1, 2, 1.0)
        await inspector.inspect()
        case = Case(inspector.inspection, [inspector.inspection], 1.0)
        found = [*flaws(case), *wrong_increment(case), *wrong_offset(case)]
        assert [each.wrong[:20] for each in found] == [wrong[:20]]


async def test_a_server_that_is_as_it_should_be() -> None:
    MySQLConnection(DatabaseURL.parse("mysql://u@h/d"), 2, 1, None).check_facts(facts())
    MySQLConnection(DatabaseURL.parse("mysql://u@h/d?ssl-mode=REQUIRED"), 2, 1, None).check_facts(facts(tls=True))


@pytest.mark.parametrize(
    ("keys", "statement"),
    [
        ([("PRIMARY", True, ["stub"]), ("id", False, ["id"])], None),
        (
            [("PRIMARY", True, ["id"]), ("stub", True, ["stub"])],
            "ALTER TABLE `t` DROP PRIMARY KEY, DROP KEY `stub`, ADD PRIMARY KEY (stub), ADD KEY id (id)",
        ),
        ([("id", True, ["id"]), ("stub", False, ["stub"])], "ALTER TABLE `t` ADD PRIMARY KEY (stub)"),
        (
            [("x", True, ["id"]), ("a`b", True, ["stub"])],
            "ALTER TABLE `t` DROP KEY `a``b`, ADD PRIMARY KEY (stub)",
        ),
    ],
)
async def test_the_statement_that_fixes_the_keys(
    server: Server, keys: list[tuple[str, bool, list[str]]], statement: str | None
) -> None:
    server.says |= {
        sequence_sql.NAMES: (("t",),),
        sequence_sql.moments(["t"]): (("t", 1),),
        sequence_sql.keys(["t"]): tuple(
            ("t", name, int(not unique), ",".join(columns)) for name, unique, columns in keys
        ),
        sequence_sql.tables(["t"]): (("t", "InnoDB", 1, "bigint", "bigint unsigned", 1, "UNI", ""),),
    }
    inspector = MySQLInspector(URL, 1, 2, 1.0)
    await inspector.inspect()
    found = inspector.inspection.table_flaws.get("t", [])
    assert [flaw.fix for flaw in found] == ([] if statement is None else [statement])


@pytest.mark.parametrize(
    ("definition", "last"),
    [
        ("CREATE TABLE `t` (\n  `id` int NOT NULL AUTO_INCREMENT,\n) ENGINE=InnoDB AUTO_INCREMENT=51 DEFAULT", 50),
        ("CREATE TABLE `t` (\n  `id` int NOT NULL AUTO_INCREMENT,\n) ENGINE=InnoDB DEFAULT CHARSET=latin1", 0),
        ("CREATE TABLE `t` (\n  `id` int,\n  `n` int AUTO_INCREMENT\n) ENGINE=InnoDB AUTO_INCREMENT=51", 0),
        (
            "CREATE TABLE `t` (\n  `id` int AUTO_INCREMENT\n) ENGINE=MyISAM COMMENT='\\n) ENGINE=x AUTO_INCREMENT=9'",
            0,
        ),
    ],
)
async def test_what_a_counter_has_given(server: Server, definition: str, last: int) -> None:
    server.says |= {sequence_sql.largest("t", "id"): ((7,),), sequence_sql.definition("t"): (("t", definition),)}
    assert await used_by(Column(URL, "t", "id")) == (7, last)
