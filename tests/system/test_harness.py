"""What the other tests stand on does what it says: real servers that die and come back, and a network that fails."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pymysql
import pytest

from tests.harness.engine import Engine
from tests.harness.mysqld import TicketMySQL
from tests.harness.pair import MySQLPair, Schema
from tests.harness.processes import free_port, wait_until
from tests.harness.proxy import FaultyProxy
from tests.harness.schema import PASSWORD, USER, run

REPLACE = "REPLACE INTO photos (stub) VALUES ('a')"


def draw(database: TicketMySQL, schema: str = "tickets") -> int:
    """One ticket, as Flickr drew them."""
    with contextlib.closing(database.connect_as_server(schema)) as connection, connection.cursor() as cursor:
        cursor.execute(REPLACE)
        return int(cursor.lastrowid)


@pytest.fixture
def database(engine: Engine) -> Iterator[TicketMySQL]:
    """The odd database of a pair, for this test alone."""
    with TicketMySQL(engine) as database:
        yield database


# -- ticket databases


def test_the_pair_draws_odd_and_even_tickets_with_the_least_privileges(
    mysql_pair: MySQLPair, fresh_schema: Schema
) -> None:
    name = fresh_schema.name
    assert [draw(mysql_pair.odd, name) for _ in range(3)] == [1, 3, 5]
    assert [draw(mysql_pair.even, name) for _ in range(3)] == [2, 4, 6]
    assert mysql_pair.all_largest_ids("photos", name) == [5, 6]
    with (
        contextlib.closing(mysql_pair.odd.connect_as_server(name)) as connection,
        pytest.raises(pymysql.MySQLError, match="denied"),
    ):
        run(connection, "ALTER TABLE photos AUTO_INCREMENT = 1")


def test_each_schema_is_a_pair_of_its_own(mysql_pair: MySQLPair, new_schema: Callable[[], Schema]) -> None:
    one, other = new_schema(), new_schema()
    assert draw(mysql_pair.odd, one.name) == draw(mysql_pair.odd, other.name) == 1
    assert one.urls != other.urls
    one.make_flickrs_table("Flickrs", engine="MyISAM")
    assert one.execute(1, "SELECT COUNT(*) FROM Flickrs") == [(0,)]


def test_the_two_databases_are_two_servers(mysql_pair: MySQLPair) -> None:
    variable = "port" if mysql_pair.odd.engine.is_mariadb else "server_uuid"
    assert len({database.execute(f"SELECT @@{variable}")[0] for database in mysql_pair}) == 2


def test_a_database_that_is_killed_or_stopped_comes_back_with_its_tickets(database: TicketMySQL) -> None:
    first = draw(database)
    database.kill()
    assert not database.running
    with pytest.raises(pymysql.MySQLError):
        draw(database)
    database.restart()
    assert draw(database) > first
    database.restart(offset_flags=False)
    assert database.execute("SELECT @@global.auto_increment_increment") == [(1,)]
    database.stop()
    database.stop()


def test_a_frozen_database_says_nothing_until_it_is_thawed(own_pair: MySQLPair) -> None:
    odd, even = own_pair
    with contextlib.closing(odd.connect_as_server(timeout=1)) as connection:
        odd.freeze()
        assert odd.running
        began = time.monotonic()
        with pytest.raises(pymysql.MySQLError):
            run(connection, REPLACE)
        assert time.monotonic() - began > 0.9
    assert draw(even) == 2
    odd.thaw()
    assert draw(odd) % 2 == 1
    odd.freeze()
    odd.stop()
    assert not odd.running


def test_a_data_directory_put_back_has_forgotten_what_came_after_and_an_empty_server_everything(
    database: TicketMySQL,
) -> None:
    assert draw(database) == 1
    saved = database.save_data_directory()
    assert [draw(database), draw(database)] == [3, 5]
    database.kill()
    database.restore_data_directory(saved)
    database.restart()
    assert draw(database) == 3
    database.wipe()
    database.restart()
    assert database.execute("SHOW TABLES") == []
    assert database.execute("SELECT @@auto_increment_increment, @@auto_increment_offset") == [(2, 1)]


def test_a_locked_table_holds_up_its_draws_alone(mysql_pair: MySQLPair, fresh_schema: Schema) -> None:
    with (
        contextlib.closing(mysql_pair.odd.connect_as_server(fresh_schema.name)) as connection,
        mysql_pair.odd.locked("photos", database=fresh_schema.name),
    ):
        run(connection, REPLACE.replace("photos", "accounts"))
        run(connection, "SET SESSION lock_wait_timeout = 1")
        with pytest.raises(pymysql.MySQLError, match="1205"):
            run(connection, REPLACE)
    assert draw(mysql_pair.odd, fresh_schema.name) % 2 == 1


def test_a_server_with_wrong_flags_fails_with_its_own_words(engine: Engine) -> None:
    database = TicketMySQL(engine, flags=["--no-such-option"])
    try:
        database.start()
        with pytest.raises(RuntimeError, match="no-such-option"):
            database.wait_ready()
    finally:
        database.close()


def test_the_children_die_with_the_test_run_however_it_ends(tmp_path: Path) -> None:
    program = """
import sys, time
from pathlib import Path
from tests.harness.processes import ChildProcess, new_directory
directory = new_directory("tickets-guard-")
child = ChildProcess(["sleep", "60"], stdout=Path(sys.argv[1]), stderr=Path(sys.argv[1]))
print(child.pid, directory, flush=True)
time.sleep(60)
"""
    root = Path(__file__).resolve().parents[2]
    with subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path / "out")], cwd=root, stdout=subprocess.PIPE, text=True
    ) as test_run:
        assert test_run.stdout is not None
        pid, directory = test_run.stdout.readline().split()
        assert Path(directory).is_dir()
        test_run.send_signal(signal.SIGKILL)
    wait_until(lambda: not Path(directory).exists(), 10, f"{directory} to be removed")
    wait_until(lambda: not _is_running(int(pid)), 10, f"{pid} to be killed")


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0] != "Z"
    except (ProcessLookupError, FileNotFoundError):
        return False


# -- the network


@pytest.fixture
def proxy(mysql_pair: MySQLPair) -> Iterator[FaultyProxy]:
    with FaultyProxy(mysql_pair.odd.port) as proxy:
        yield proxy


def through(proxy: FaultyProxy, schema: Schema, timeout: float = 2) -> Any:
    """A connection to the database behind the proxy."""
    return pymysql.connect(
        host="127.0.0.1",
        port=proxy.port,
        user=USER,
        password=PASSWORD,
        database=schema.name,
        autocommit=True,
        connect_timeout=timeout,
        read_timeout=timeout,
    )


def test_a_proxy_without_a_fault_passes_everything(proxy: FaultyProxy, fresh_schema: Schema) -> None:
    with contextlib.closing(through(proxy, fresh_schema, 10)) as connection:
        run(connection, REPLACE)
        assert run(connection, "SELECT LENGTH(%s)", ["x" * 1_000_000]) == [(1_000_000,)]
        assert run(connection, "SELECT REPEAT('y', 1000000)") == [("y" * 1_000_000,)]
        assert (proxy.connections, proxy.accepted, proxy.lost_bytes) == (1, 1, 0)
    wait_until(lambda: proxy.connections == 0, 5, "the proxy to see the end")


def test_a_proxy_that_refuses_is_refused_and_resets_what_was_open(proxy: FaultyProxy, fresh_schema: Schema) -> None:
    with contextlib.closing(through(proxy, fresh_schema)) as connection:
        proxy.refuse()
        with pytest.raises(pymysql.MySQLError):
            run(connection, "SELECT 1")
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", proxy.port), timeout=5)
    proxy.restore()
    through(proxy, fresh_schema, 10).close()


def test_a_proxy_that_resets_on_connect_lets_established_connections_live(
    proxy: FaultyProxy, fresh_schema: Schema
) -> None:
    with contextlib.closing(through(proxy, fresh_schema)) as connection:
        proxy.reset_on_connect()
        # the reset may overtake the end of connect() itself
        with pytest.raises(ConnectionResetError), socket.create_connection(("127.0.0.1", proxy.port), 5) as stranger:
            stranger.recv(1)
        assert run(connection, "SELECT 1") == [(1,)]


def test_a_cut_resets_established_connections_once(proxy: FaultyProxy, fresh_schema: Schema) -> None:
    with socket.create_connection(("127.0.0.1", proxy.port), timeout=5) as stranger:
        assert stranger.recv(65536)
        assert proxy.cut() == 1
        with pytest.raises(ConnectionResetError):
            stranger.recv(1)
    with contextlib.closing(through(proxy, fresh_schema, 10)) as connection:
        assert run(connection, "SELECT 1") == [(1,)]


def test_a_proxy_that_stalls_the_handshake_accepts_and_says_nothing(proxy: FaultyProxy, fresh_schema: Schema) -> None:
    with contextlib.closing(through(proxy, fresh_schema)) as connection:
        proxy.stall_handshake()
        with socket.create_connection(("127.0.0.1", proxy.port), timeout=5) as stranger:
            stranger.settimeout(0.3)
            with pytest.raises(TimeoutError):
                stranger.recv(1)
            assert run(connection, "SELECT 1") == [(1,)]
            proxy.restore()
            stranger.settimeout(5)
            assert stranger.recv(1)


def test_a_frozen_network_loses_nothing_and_delivers_late(
    proxy: FaultyProxy, mysql_pair: MySQLPair, fresh_schema: Schema
) -> None:
    with contextlib.closing(through(proxy, fresh_schema)) as connection:
        proxy.freeze()
        with pytest.raises(pymysql.MySQLError):
            run(connection, REPLACE)
        assert mysql_pair.odd.largest_id("photos", fresh_schema.name) == 0
        assert proxy.connections == 1
        proxy.restore()
        wait_until(lambda: mysql_pair.odd.largest_id("photos", fresh_schema.name) == 1, 5, "the request to arrive")
    assert proxy.lost_bytes == 0


def test_a_ticket_whose_reply_is_dropped_has_been_drawn(
    proxy: FaultyProxy, mysql_pair: MySQLPair, fresh_schema: Schema
) -> None:
    with contextlib.closing(through(proxy, fresh_schema)) as connection:
        proxy.drop_replies()
        with pytest.raises(pymysql.MySQLError):
            run(connection, REPLACE)
        assert mysql_pair.odd.largest_id("photos", fresh_schema.name) == 1
        assert proxy.lost_bytes > 0
        proxy.restore()
    wait_until(lambda: proxy.connections == 0, 5, "the connection that lost a reply to be reset")


def test_a_request_that_is_dropped_draws_nothing(
    proxy: FaultyProxy, mysql_pair: MySQLPair, fresh_schema: Schema
) -> None:
    with contextlib.closing(through(proxy, fresh_schema)) as connection:
        proxy.drop_requests()
        with pytest.raises(pymysql.MySQLError):
            run(connection, REPLACE)
        assert mysql_pair.odd.largest_id("photos", fresh_schema.name) == 0
        assert proxy.lost_bytes > 0


def test_a_delayed_reply_comes_after_its_delay(proxy: FaultyProxy, fresh_schema: Schema) -> None:
    with contextlib.closing(through(proxy, fresh_schema, 10)) as connection:
        proxy.delay(1)
        began = time.monotonic()
        run(connection, REPLACE)
        assert time.monotonic() - began >= 1
        proxy.restore()
        began = time.monotonic()
        run(connection, REPLACE)
        assert time.monotonic() - began < 1


def test_ports_are_free_and_never_given_twice() -> None:
    ports = {free_port() for _ in range(50)}
    assert len(ports) == 50
    for port in ports:
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), timeout=1)
