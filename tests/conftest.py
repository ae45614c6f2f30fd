"""Fixtures for every test: the engines of this run, databases in shared servers, and servers of a test's own.

A test with the argument `engine` runs once on each engine. MySQL takes part if TICKETS_TEST_MYSQLD names its mysqld;
otherwise its tests do not exist, and the end of the run says so.
"""

import asyncio
import contextlib
import functools
import subprocess
from collections.abc import AsyncIterator, Iterator
from typing import Any

import looptime
import pytest
from hypothesis import HealthCheck, settings

from tests.servers import DatabaseServer, Engine, engines
from tests.servers_programs import MYSQLD, templates, use_memory
from tests.servers_shared import FreshDatabase, OwnServer, SharedServers

# How long an example takes depends on what else the machine does. Each test has a deadline of its own.
settings.register_profile("tickets", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("tickets")
IMAGES = "python:3.13-slim", "mysql:9.7", "haproxy:3.2"
"""What docker-compose.yml and the Dockerfile begin with. Nothing is pulled for a test."""


def pytest_configure() -> None:
    """Keep the data of database servers in memory. All processes of this run begin with the same templates."""
    use_memory()
    templates()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say which engine is missing, and why tests in containers did not run."""
    if "mysql" not in engines():
        terminalreporter.write_line(f"tests ran on {' and '.join(engines())}, not on MySQL: {MYSQLD} names none")
    if failed := what_fails():
        terminalreporter.write_line(f"tests ran without those in containers: `docker {failed}` fails")


@functools.cache
def what_fails() -> str:
    """Return the command of Docker that fails, of those that the tests in containers need; empty where none does."""
    for command in ("compose version", "info", *(f"image inspect {image}" for image in IMAGES)):
        try:
            subprocess.run(["docker", *command.split()], capture_output=True, check=True, timeout=30)
        except (OSError, subprocess.SubprocessError):
            return command
    return ""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the tests in containers where they cannot run."""
    found = [item for item in items if item.get_closest_marker("containers")]
    if found and what_fails():
        config.hook.pytest_deselected(items=found)
        items[:] = [item for item in items if item not in found]


def pytest_itemcollected(item: pytest.Item) -> None:
    """Give a test with the mark `looptime` the fixture `virtual_time`."""
    if isinstance(item, pytest.Function) and item.get_closest_marker("looptime"):
        item.fixturenames.append("virtual_time")


@pytest.fixture
async def virtual_time() -> AsyncIterator[looptime.LoopTimeProxy]:
    """Time that passes at once wherever the test only waits: an hour of sleep takes no time.

    The clock of the loop begins at 0. A test that waits for a real server must not use virtual time, because the
    deadlines would pass before the server answers.
    """
    loop = asyncio.get_running_loop()
    assert isinstance(loop, asyncio.BaseEventLoop), f"virtual time needs a loop of asyncio, not {loop!r}"
    with looptime.patch_event_loop(loop, _enabled=False).looptime_enabled():
        yield looptime.LoopTimeProxy()


@pytest.fixture(params=engines())
def engine(request: pytest.FixtureRequest) -> Engine:
    """Each engine of this run in turn. `pytest.mark.parametrize("engine", engines("mariadb", "mysql"))` takes fewer."""
    chosen: Engine = request.param
    return chosen


@pytest.fixture(scope="session")
def shared_servers() -> Iterator[SharedServers]:
    """The shared servers of this process."""
    with contextlib.closing(SharedServers()) as shared:
        yield shared


@pytest.fixture
def fresh_database(shared_servers: SharedServers) -> Iterator[FreshDatabase]:
    """Creates databases for this test only, in servers that no test may harm: `fresh_database(engine)` is a URL."""
    made: list[str] = []

    def create(engine: Engine, **numbers: int) -> str:
        made.append(shared_servers.database(engine, **numbers))
        return made[-1]

    yield create
    for url in made:
        # An empty database of PostgreSQL takes 7 MB of the disk, and one of another engine takes nothing.
        if url.startswith("postgresql:"):
            shared_servers.server("postgresql").execute(f"DROP DATABASE {url.rpartition('/')[2]} WITH (FORCE)")


@pytest.fixture
def own_server() -> Iterator[OwnServer]:
    """Starts servers for this test only, which it may kill and freeze: `own_server(engine, offset=1, increment=2)`."""
    with contextlib.ExitStack() as stack:

        def start(engine: Engine, **how: Any) -> DatabaseServer:
            return stack.enter_context(DatabaseServer(engine, **how))

        yield start
