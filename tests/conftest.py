"""Fixtures for every test: the engine, a shared pair of ticket databases, and own pairs for the fault tests.

Each process of a run in several has its own of all of them.
"""

import gc
import itertools
import os
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

from tests.harness.engine import Engine, find_engine
from tests.harness.pair import MySQLPair, Schema
from tests.harness.postgresql import PostgreSQL
from tests.harness.ticketd import PATIENT, TicketServer
from tests.order import DURATIONS, Durations, measured, turn
from tests.variants import leave_out

if TYPE_CHECKING:
    from tests.harness.containers import ContainerPair

# How long an example takes says nothing on a machine that does other things as well. Every test has its own deadline.
settings.register_profile("ours", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("ours")

NO_CONTAINERS = pytest.StashKey[str]()
"""Why the tests in containers do not run."""
TESTS = Path(__file__).resolve().parent


def pytest_configure(config: pytest.Config) -> None:
    """Measure how long each file takes, where `make durations` asks for it."""
    if os.environ.get("TICKETS_TEST_DURATIONS") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Durations(DURATIONS))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect what no engine is there for; put the files in their order."""
    of_containers = [item for item in items if item.get_closest_marker("containers")]
    if of_containers:
        from tests.harness.containers import why_none

        if why := why_none():
            config.stash[NO_CONTAINERS] = f"{len(of_containers)} tests in containers deselected: {why}"
            config.hook.pytest_deselected(items=of_containers)
            items[:] = [item for item in items if not item.get_closest_marker("containers")]
    leave_out(config, items)
    seconds = measured()
    items.sort(key=lambda item: turn(item.path.relative_to(TESTS.parent), seconds))


def pytest_collection_finish() -> None:
    """The tests and all that they import stay to the end, a million objects: no collection of garbage looks at them."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    from tests.spread import ByFile

    return ByFile(config, log)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A process of several has no terminal: it sends what is to be said there."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["no containers"] = session.config.stash.get(NO_CONTAINERS, "")


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    if why := getattr(node, "workeroutput", {}).get("no containers"):
        node.config.stash[NO_CONTAINERS] = why


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if why := config.stash.get(NO_CONTAINERS, ""):
        terminalreporter.write_line(why, yellow=True)


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


@pytest.fixture(scope="session")
def postgresql_pair() -> Iterator[list[PostgreSQL]]:
    """Two PostgreSQL servers for all tests that do them no harm; each test makes users of its own there."""
    with PostgreSQL(listens=True) as odd, PostgreSQL(listens=True) as even:
        yield [odd, even]


@pytest.fixture(scope="session")
def container_pair() -> "Iterator[ContainerPair]":
    """Two ticket databases in containers, for the tests that are marked so."""
    from tests.harness.containers import ContainerPair

    with ContainerPair() as pair:
        yield pair


@pytest.fixture
def new_name() -> Callable[[], str]:
    """Makes a sequence name that nobody has used, at each call."""
    return lambda: f"s_{secrets.token_hex(6)}"


@pytest.fixture(scope="module", params=["embedded", "mysql", pytest.param("containers", marks=pytest.mark.containers)])
def ticket_server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TicketServer]:
    """A running server for the contract tests of a module, on each kind of ticket database.

    Tests share it: each takes sequences of its own (`new_name`). With TICKETS_TEST_DATABASES the MySQL kind is those
    servers, as they run already.
    """
    databases: str | None = None
    if request.param == "mysql":
        databases = os.environ.get("TICKETS_TEST_DATABASES")
        if not databases:
            new: Callable[[], Schema] = request.getfixturevalue("new_schema")
            databases = new().urls
    elif request.param == "containers":
        pair: ContainerPair = request.getfixturevalue("container_pair")
        databases = pair.urls
    data: Path = tmp_path_factory.mktemp("ticket-data")
    with TicketServer(databases, settings=PATIENT, data_dir=data) as server:
        server.wait_ready()
        yield server
