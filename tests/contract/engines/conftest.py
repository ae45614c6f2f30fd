"""The fixtures that give each engine's databases in turn."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.engines.fake_storage import FakeStorage, RowStorage
from tests.contract.engines.mysql_storage import MySQLStorage
from tests.contract.engines.postgresql_storage import PostgreSQLStorage
from tests.contract.engines.sqlite_storage import SQLiteStorage
from tests.contract.engines.storages import INCREMENT, Storage
from tests.harness.engine import Engine
from tests.harness.pair import MySQLPair
from tests.harness.postgresql import PostgreSQL

ONCE = pytest.mark.any_engine
ENGINES = [
    "mysql",
    pytest.param("postgresql", marks=ONCE),
    pytest.param("sqlite", marks=ONCE),
    pytest.param("fake", marks=ONCE),
    pytest.param("rows", marks=ONCE),
]


def _storage(request: pytest.FixtureRequest, folder: Path, pair: str, *, alone: bool) -> Storage:
    """Asks for servers only where this engine has some."""
    if request.param == "mysql":
        return MySQLStorage(request.getfixturevalue(pair), alone=alone)
    if request.param == "postgresql":
        return PostgreSQLStorage(request.getfixturevalue("own_postgresql" if alone else "postgresql_pair"))
    if request.param == "sqlite":
        return SQLiteStorage(folder)
    return RowStorage() if request.param == "rows" else FakeStorage()


@pytest.fixture(params=ENGINES)
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    """Ticket databases of each engine, new for this test."""
    return _storage(request, tmp_path, "mysql_pair", alone=False)


@pytest.fixture(params=ENGINES)
def own_storage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Storage]:
    """An engine's database of offset 1 alone; its server may be restarted and configured."""
    own = _storage(request, tmp_path, "server_of_ones_own", alone=True)
    yield own
    own.configure(INCREMENT)


@pytest.fixture(scope="module")
def server_of_ones_own(engine: Engine) -> Iterator[MySQLPair]:
    """The server of offset 1 alone, for the tests of one module."""
    with MySQLPair(engine, n=1, increment=INCREMENT, tables=False) as pair:
        yield pair


@pytest.fixture(scope="module")
def own_postgresql() -> Iterator[list[PostgreSQL]]:
    """A PostgreSQL server for the tests of one module, which restart it."""
    with PostgreSQL(listens=True) as server:
        yield [server]
