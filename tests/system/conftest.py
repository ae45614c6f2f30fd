"""Fixtures for the system tests: databases that may be hurt, and networks that fail before those that may not."""

import itertools
from collections.abc import Callable, Iterator

import pytest

from tests.harness.engine import Engine
from tests.harness.mysqld import TicketMySQL
from tests.harness.pair import MySQLPair, Schema
from tests.harness.proxy import FaultyProxy
from tests.harness.rings import Issued, Rings


@pytest.fixture
def proxies(mysql_pair: MySQLPair) -> Iterator[tuple[FaultyProxy, FaultyProxy]]:
    """A proxy in front of each database of the shared pair, for this test alone."""
    with FaultyProxy(mysql_pair.odd.port) as odd, FaultyProxy(mysql_pair.even.port) as even:
        yield odd, even


@pytest.fixture(scope="session")
def _fragile_pair(engine: Engine) -> Iterator[tuple[MySQLPair, Callable[[], Schema]]]:
    with MySQLPair(engine) as pair:
        number = itertools.count(1)
        yield pair, lambda: pair.make_schema(f"fragile_{next(number)}")


@pytest.fixture
def fragile(_fragile_pair: tuple[MySQLPair, Callable[[], Schema]]) -> Iterator[Schema]:
    """A schema of this test's own on two databases that it may kill, freeze, restart and set wrong.

    The tests that take it use the same two databases one after the other, each finds them running and set right; what
    harms their data takes `own_pair`.
    """
    pair, new_schema = _fragile_pair
    _set_right(pair)
    yield new_schema()
    _set_right(pair)


def _set_right(pair: MySQLPair) -> None:
    for database in pair:
        if database.running:
            database.thaw()
            if not _is_right(database):
                database.kill()
    pair.start()


def _is_right(database: TicketMySQL) -> bool:
    rows = database.execute(
        "SELECT @@global.auto_increment_increment, @@global.auto_increment_offset, @@global.read_only, "
        "@@global.innodb_flush_log_at_trx_commit",
        database=None,
    )
    return rows == [(database.increment, database.offset, 0, 1)]


@pytest.fixture(scope="session")
def _databases_of_rings(engine: Engine) -> Iterator[Callable[[], Rings]]:
    with MySQLPair(engine, n=4) as pair:
        number = itertools.count(1)

        def make() -> Rings:
            schema = pair.make_schema(f"rings_{next(number)}").name
            return Rings(pair, schema)

        yield make


@pytest.fixture
def rings(_databases_of_rings: Callable[[], Rings]) -> Rings:
    """Four databases, set to increment 2 (the first two) and 4 (the others), with a schema of this test's own.

    The tests that take it use the same ones one after the other; none of them kills one.
    """
    made = _databases_of_rings()
    made.configure(2, 1, 2)
    made.configure(4, 3, 4)
    return made


@pytest.fixture
def issued() -> Iterator[Issued]:
    """The tickets that a test gets. No id may be among them twice."""
    made = Issued()
    yield made
    made.check()
