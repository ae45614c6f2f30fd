"""The fixture of the contract tests: a database on each engine in turn."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.engines.bench import Bench, fake_bench, server_bench, sqlite_bench
from tests.servers import engines
from tests.servers_shared import FreshDatabase, SharedServers


@pytest.fixture(params=["fake", "sqlite", *engines()])
async def bench(
    request: pytest.FixtureRequest, tmp_path: Path, fresh_database: FreshDatabase, shared_servers: SharedServers
) -> AsyncIterator[Bench]:
    """An empty database on each engine."""
    if request.param == "fake":
        bench = fake_bench()
    elif request.param == "sqlite":
        bench = await sqlite_bench(tmp_path)
    else:
        database = fresh_database(request.param).rpartition("/")[2]
        bench = server_bench(shared_servers.server(request.param), database)
    yield bench
    await bench.close()
