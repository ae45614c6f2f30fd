"""Fixtures for every test: the engine, a shared pair of ticket databases, and own pairs for the fault tests."""

import itertools
import os
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.harness.engine import Engine, find_engine
from tests.harness.pair import MySQLPair, Schema
from tests.harness.ticketd import PATIENT, TicketServer


@pytest.fixture(scope="session")
def engine() -> Engine:
    """The mysqld or mariadbd of this run; a failure that says what to install where there is none."""
    return find_engine()


@pytest.fixture(scope="session")
def mysql_pair(engine: Engine) -> Iterator[MySQLPair]:
    """Two ticket databases for all tests that do them no harm; take `fresh_schema` for a place of one's own there."""
    with MySQLPair(engine) as pair:
        yield pair


@pytest.fixture(scope="session")
def new_schema(mysql_pair: MySQLPair) -> Callable[[], Schema]:
    """Makes a new schema on the shared pair at each call: for fixtures of a wider scope than one test."""
    number = itertools.count(1)
    return lambda: mysql_pair.make_schema(f"tickets_{next(number)}")


@pytest.fixture
def fresh_schema(new_schema: Callable[[], Schema]) -> Schema:
    """A schema on the shared pair for this test alone."""
    return new_schema()


@pytest.fixture
def own_pair(engine: Engine) -> Iterator[MySQLPair]:
    """Two ticket databases for this test alone: to kill, freeze, wipe."""
    with MySQLPair(engine) as pair:
        yield pair


@pytest.fixture
def new_name() -> Callable[[], str]:
    """Makes a sequence name that nobody has used, at each call."""
    return lambda: f"s_{secrets.token_hex(6)}"


@pytest.fixture(scope="module", params=["embedded", "mysql"])
def ticket_server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TicketServer]:
    """A running server for the contract tests of a module, on either kind of ticket database.

    Tests share it: each takes sequences of its own (`new_name`). With TICKETS_TEST_DATABASES the MySQL kind is those
    servers, as they run already.
    """
    databases: str | None = None
    if request.param == "mysql":
        databases = os.environ.get("TICKETS_TEST_DATABASES")
        if not databases:
            new: Callable[[], Schema] = request.getfixturevalue("new_schema")
            databases = new().urls
    data: Path = tmp_path_factory.mktemp("ticket-data")
    with TicketServer(databases, settings=PATIENT, data_dir=data) as server:
        server.wait_ready()
        yield server
