"""`ticketd doctor` on what surrounds a ticket database: clocks that differ, a server that it replicates from."""

from collections.abc import Callable, Iterator

import pytest

from tests.harness.doctor import doctor, mended, notes, set_global, the_one_line, wrong
from tests.harness.engine import Engine
from tests.harness.mysqld import TicketMySQL
from tests.harness.pair import MySQLPair, Schema
from tests.harness.schema import LEAST_PRIVILEGES, PASSWORD, USER


@pytest.fixture(scope="module")
def pair(engine: Engine) -> Iterator[MySQLPair]:
    """Two databases for this module: with the binary log on, so that one can replicate from the other."""
    with MySQLPair(engine, binary_log=True) as made:
        yield made


@pytest.fixture
def schema(pair: MySQLPair, new_name: Callable[[], str]) -> Schema:
    """A schema of this test's own on both databases."""
    return pair.make_schema(new_name())


# --- clocks --------------------------------------------------------------------------------------------------------


def clock(seconds: float) -> str:
    """An init_connect that sets the clock of each new session, and stops it there."""
    return f"'SET timestamp = UNIX_TIMESTAMP(NOW(6)) + {seconds}'"


@pytest.mark.parametrize("seconds", [0.9, 90, 86_400])
def test_a_clock_ahead_of_this_machines(schema: Schema, seconds: float) -> None:
    even = schema.pair.even
    with set_global(even, "init_connect", clock(seconds)):
        line = the_one_line(schema.urls)
    found, _, unit_and_rest = line.removeprefix(f"{even.name}: has a clock that is ").partition(" s ")
    assert unit_and_rest.startswith("ahead of this machine's. To fix it: run an NTP client")
    assert seconds - 0.4 <= float(found) <= seconds + 0.01


@pytest.mark.parametrize("seconds", [0.6, 90, 86_400])
def test_a_clock_behind_this_machines(schema: Schema, seconds: float) -> None:
    even = schema.pair.even
    with set_global(even, "init_connect", clock(-seconds)):
        line = the_one_line(schema.urls)
    found, _, unit_and_rest = line.removeprefix(f"{even.name}: has a clock that is ").partition(" s ")
    assert unit_and_rest.startswith("behind this machine's")
    assert seconds - 0.01 <= float(found) <= seconds + 5


def test_two_clocks_near_this_machines_and_far_from_each_other(schema: Schema) -> None:
    odd, even = schema.pair.odd, schema.pair.even
    with set_global(odd, "init_connect", clock(-0.3)), set_global(even, "init_connect", clock(0.45)):
        line = the_one_line(schema.urls)
    assert line.startswith(f"{even.name}: has a clock that is 0.7")
    assert f" s ahead of that of {odd.name}. To fix it: " in line


def test_a_clock_that_is_a_little_off_is_right(schema: Schema) -> None:
    with set_global(schema.pair.even, "init_connect", clock(0.3)):
        assert wrong(doctor(schema.urls)) == []


# --- replication ---------------------------------------------------------------------------------------------------


def replicate(database: TicketMySQL, source: TicketMySQL, *, name: str = "") -> None:
    """Make it a replica, under a connection's name or the default one; it need not run to be one."""
    if database.engine.is_mariadb:
        change, prefix, channel = f"CHANGE MASTER {name and repr(name)} TO", "MASTER", ""
    else:
        change, prefix, channel = "CHANGE REPLICATION SOURCE TO", "SOURCE", f"FOR CHANNEL {name!r}" if name else ""
    values = f"{prefix}_HOST='127.0.0.1', {prefix}_PORT={source.port}, {prefix}_USER='{USER}'"
    database.execute(f"{change} {values}, {prefix}_PASSWORD='{PASSWORD}' {channel}", database=None)


def run_all(database: TicketMySQL, statements: str) -> None:
    """What a finding tells to run."""
    for statement in statements.split(", and take it out of", maxsplit=1)[0].split("; "):
        database.execute(statement, database=None)


def of_somebody_who_may_look(schema: Schema) -> str:
    """TICKETS_DATABASES with an account that has the one privilege more."""
    for database in schema.pair:
        privilege = "REPLICA MONITOR" if database.engine.is_mariadb else "REPLICATION CLIENT"
        user = "looker@'127.0.0.1'"
        database.execute(f"CREATE USER IF NOT EXISTS {user} IDENTIFIED BY '{PASSWORD}'", database=None)
        database.execute(f"GRANT {LEAST_PRIVILEGES} ON `{schema.name}`.* TO {user}", database=None)
        database.execute(f"GRANT {privilege} ON *.* TO {user}", database=None)
    return schema.urls.replace(f"//{USER}:", "//looker:")


def test_a_database_that_replicates_from_the_other_one(schema: Schema) -> None:
    odd, even, urls = schema.pair.odd, schema.pair.even, of_somebody_who_may_look(schema)
    ran = doctor(urls)
    assert wrong(ran) == []
    assert not [note for note in notes(ran) if "could not look" in note]
    replicate(even, odd)
    line = the_one_line(urls)
    assert line.startswith(f"{even.name}: replicates from {odd.name}: it gets rows that it has not drawn")
    run_all(even, mended(line))
    assert wrong(doctor(urls)) == []


def test_a_database_that_replicates_under_names(schema: Schema) -> None:
    odd, even, urls = schema.pair.odd, schema.pair.even, of_somebody_who_may_look(schema)
    replicate(odd, even, name="one")
    replicate(odd, odd, name="two")
    lines = wrong(doctor(urls))
    assert [line.partition(": it gets")[0] for line in lines] == [
        f"{odd.name}: replicates from {even.name}",
        f"{odd.name}: replicates from {odd.name}",
    ]
    for line in lines:
        run_all(odd, mended(line))
    assert wrong(doctor(urls)) == []


def test_an_account_that_may_not_look_is_told_so_and_all_else_is_looked_at(schema: Schema) -> None:
    odd, even = schema.pair.odd, schema.pair.even
    replicate(even, odd)
    with set_global(odd, "innodb_flush_log_at_trx_commit", "2"):
        ran = doctor(schema.urls)
    run_all(even, "STOP SLAVE; RESET SLAVE ALL" if even.engine.is_mariadb else "STOP REPLICA; RESET REPLICA ALL")
    assert len(wrong(ran)) == 1
    (note,) = (note for note in notes(ran) if "could not look" in note)
    privilege = "REPLICA MONITOR" if even.engine.is_mariadb else "REPLICATION CLIENT"
    assert note.startswith(
        f"{odd.name}, {even.name}: could not look whether it replicates from another server: "
        f"the user lacks the privilege {privilege}; "
    )
