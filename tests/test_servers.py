"""The servers that the tests stand on do what a test expects of them: live, die, stand still, and keep their data."""

import asyncio
import time
from pathlib import Path
from typing import Any

import asyncpg
import psycopg
import pymysql
import pytest

from tests.servers import DatabaseServer, Engine, engines
from tests.servers_proxy import Proxy
from tests.servers_shared import FreshDatabase, OwnServer, SharedServers

ERRORS = (OSError, psycopg.Error, pymysql.MySQLError)


def kept(server: DatabaseServer) -> list[tuple[Any, ...]]:
    return server.execute("SELECT v FROM kept ORDER BY v", "d")


def with_a_row(server: DatabaseServer) -> DatabaseServer:
    server.create_database("d")
    server.execute("CREATE TABLE kept (v int)", "d")
    server.execute("INSERT INTO kept VALUES (1)", "d")
    return server


def test_each_fresh_database_is_another_one_in_the_same_server(
    engine: Engine, fresh_database: FreshDatabase, shared_servers: SharedServers
) -> None:
    urls = [fresh_database(engine), fresh_database(engine)]
    server = shared_servers.server(engine)
    for url in urls:
        server.execute("CREATE TABLE t (v int)", url.rpartition("/")[2])
    assert len(set(urls)) == 2
    assert all(f":{server.port}/" in url for url in urls)


def test_a_killed_server_keeps_what_it_has_committed(engine: Engine, own_server: OwnServer) -> None:
    server = with_a_row(own_server(engine))
    server.kill()
    assert not server.running
    server.start()
    assert kept(server) == [(1,)]


def test_a_frozen_server_answers_after_it_goes_on(engine: Engine, own_server: OwnServer) -> None:
    server = with_a_row(own_server(engine))
    server.freeze()
    with pytest.raises(ERRORS):
        server.connect(timeout=2)
    server.thaw()
    assert kept(server) == [(1,)]


def test_data_comes_back_from_a_copy(engine: Engine, own_server: OwnServer, tmp_path: Path) -> None:
    server = with_a_row(own_server(engine))
    server.stop()
    server.copy_data(tmp_path / "copy")
    server.start()
    server.execute("INSERT INTO kept VALUES (2)", "d")
    server.kill()
    server.restore_data(tmp_path / "copy")
    server.start()
    assert kept(server) == [(1,)]
    server.stop()
    server.wipe()
    server.start()
    with pytest.raises(ERRORS):
        kept(server)


@pytest.mark.parametrize("engine", engines("mariadb", "mysql"))
def test_a_server_numbers_and_logs_as_it_was_asked_to(engine: Engine, own_server: OwnServer) -> None:
    server = own_server(engine, offset=2, increment=7, binary_log=True)
    values = "SELECT @@auto_increment_offset, @@auto_increment_increment, @@log_bin, @@innodb_flush_log_at_trx_commit"
    assert server.execute(values) == [(2, 7, 1, 1)]


@pytest.mark.parametrize("engine", engines("postgresql"))
async def test_a_proxy_cuts_freezes_and_heals(engine: Engine, shared_servers: SharedServers) -> None:
    server = shared_servers.server(engine)
    async with Proxy(server.port) as proxy:
        url = server.url("postgres", port=proxy.port)
        connection = await asyncpg.connect(url)
        assert await connection.fetchval("SELECT 1") == 1
        proxy.freeze()
        answer = asyncio.create_task(connection.fetchval("SELECT 2"))
        assert await asyncio.wait([answer], timeout=0.2) == (set(), {answer})
        proxy.heal()
        assert await answer == 2
        proxy.cut()
        with pytest.raises((OSError, asyncpg.PostgresError, asyncpg.InterfaceError)):
            await connection.fetchval("SELECT 3")
        with pytest.raises((OSError, asyncpg.PostgresError)):
            await asyncpg.connect(url)
        proxy.heal()
        connection = await asyncpg.connect(url)
        await connection.close()


async def an_hour_passes_at_once() -> None:
    began, then = time.monotonic(), asyncio.get_running_loop().time()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(3600):
            await asyncio.sleep(7200)
    assert asyncio.get_running_loop().time() - then == pytest.approx(3600)
    assert time.monotonic() - began < 60


@pytest.mark.looptime
async def test_a_test_with_the_mark_runs_on_virtual_time() -> None:
    await an_hour_passes_at_once()


@pytest.mark.usefixtures("virtual_time")
async def test_a_test_with_the_fixture_runs_on_virtual_time() -> None:
    await an_hour_passes_at_once()
