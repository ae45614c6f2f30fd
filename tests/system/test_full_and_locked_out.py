"""Databases that answer and cannot serve: full, out of connections, read-only, with another password."""

import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from typing import Any

import pymysql
import pytest

from tests.harness.engine import Engine, template
from tests.harness.load import Load, Want
from tests.harness.mysqld import TicketMySQL
from tests.harness.pair import Schema
from tests.harness.processes import new_directory, remove_directory, wait_until
from tests.harness.schema import PASSWORD, USER
from tests.harness.ticketd import TicketServer

SETTINGS = {"TICKETS_PROBE_INTERVAL": 0.2, "TICKETS_DATABASE_TIMEOUT": 1, "TICKETS_REQUEST_TIMEOUT": 10}
MIX = (Want("photos"), Want("accounts", "count", 5), Want("groups", "block", 200))


@pytest.fixture
def server(fragile: Schema) -> Iterator[TicketServer]:
    with TicketServer(fragile.urls, settings=SETTINGS) as server:
        server.wait_health()
        yield server


@contextlib.contextmanager
def steady_load(server: TicketServer) -> Iterator[Load]:
    """Requests all the while; none fails, no ticket comes twice, and both databases serve in the end."""
    with Load([server.address], clients=4, mix=MIX, pause=0.03, timeout=30) as load:
        load.run_until_tickets(30)
        yield load
        load.run_until_tickets(30)
        server.wait_health()
        healthy = time.monotonic()
        load.run_until_tickets(30)
    assert load.result.failures() == []
    load.result.check()
    assert {i % 2 for answer in load.result.between(healthy, time.monotonic()).answers for i in answer.ids} == {0, 1}


def is_down(database: dict[str, Any], reason: str) -> bool:
    return database["status"] == "down" and reason in str(database["last_error"])


def test_connections_used_up(fragile: Schema, server: TicketServer) -> None:
    odd = fragile.pair.odd
    with steady_load(server) as load, odd.crowded():
        # the reason may be older than the last connection that was taken away
        wait_until(lambda: is_down(server.databases()[0], "too many connections"), 30, "the reason")
        load.run_until_tickets(30)


def test_the_password_is_changed_and_changed_back(fragile: Schema, server: TicketServer) -> None:
    even = fragile.pair.even
    with steady_load(server) as load:
        with another_password(even):
            wait_until(lambda: "password" in str(server.databases()[1]["last_error"]), 30, "the reason")
            assert server.databases()[1]["status"] == "down"
            assert PASSWORD not in server.get("/healthz").text
            load.run_until_tickets(30)
        server.wait_database(even.name, "up")
    assert PASSWORD not in server.log_text()


@contextlib.contextmanager
def another_password(database: TicketMySQL) -> Iterator[None]:
    database.execute(f"ALTER USER '{USER}'@'127.0.0.1' IDENTIFIED BY 'another one'", database=None)
    try:
        database.end_connections()
        yield
    finally:
        database.execute(f"ALTER USER '{USER}'@'127.0.0.1' IDENTIFIED BY '{PASSWORD}'", database=None)


def test_a_database_is_restarted_read_only(fragile: Schema, server: TicketServer) -> None:
    odd = fragile.pair.odd
    with steady_load(server) as load:
        odd.kill()
        odd.start(flags=["--read-only"])
        odd.wait_ready()
        load.run_until_tickets(30)
        wait_until(lambda: "read-only" in str(server.databases()[0]["last_error"]), 30, "the reason")
        assert server.databases()[0]["status"] == "down"
        odd.execute("SET GLOBAL read_only = 0", database=None)
        odd.flags = ()
        server.wait_database(odd.name, "up")
        odd.execute("SET GLOBAL read_only = 1", database=None)
        server.wait_database(odd.name, "down")
        load.run_until_tickets(30)
        odd.execute("SET GLOBAL read_only = 0", database=None)


# -- a full disk


class SmallDisk:
    """A file system of the test's own where it may mount one, for a data directory of the engine's and little more.

    Where it may not, the next best: a tablespace that may not grow, in a directory like any other.
    """

    def __init__(self, engine: Engine) -> None:
        self._base = new_directory("tickets-disk-")
        used = sum(each.stat().st_size for each in template(engine).rglob("*"))
        size = f"size={used + 48_000_000}"
        command = ["mount", "-t", "tmpfs", "-o", size, "tickets", str(self._base)]
        self.mounted = shutil.which("mount") is not None and subprocess.run(command, check=False).returncode == 0
        limited = ("--innodb-file-per-table=OFF", "--innodb-data-file-path=ibdata1:12M:autoextend:max:24M")
        self.database = TicketMySQL(
            engine, offset=1, directory=self._base, binary_log=True, flags=() if self.mounted else limited
        )

    def __enter__(self) -> "SmallDisk":
        return self

    def __exit__(self, *exception: object) -> None:
        self.database.close()
        if self.mounted:
            subprocess.run(["umount", str(self._base)], check=True)
        remove_directory(self._base)

    def fill(self) -> None:
        if self.mounted:
            with contextlib.suppress(OSError), (self._base / "filler").open("wb", buffering=0) as file:
                while True:
                    os.write(file.fileno(), bytes(4096))
            return
        self.database.execute("CREATE TABLE _filler (b LONGBLOB)")
        with contextlib.suppress(pymysql.MySQLError):
            while True:
                self.database.execute("INSERT INTO _filler VALUES (REPEAT('x', 500000))")

    def make_room(self) -> None:
        """Room again, and a restart, which an operator who cannot wait for the next attempt does."""
        if self.mounted:
            (self._base / "filler").unlink()
        self.database.restart(kill=True, flags=())


def test_the_disk_is_full(engine: Engine, fragile: Schema) -> None:
    with SmallDisk(engine) as disk, disk.database as small:
        small.make_schema(fragile.name)
        urls = f"{small.url_of(fragile.name)} {fragile.pair.even.url_of(fragile.name)}"
        with TicketServer(urls, settings=SETTINGS) as server:
            server.wait_health()
            with steady_load(server) as load:
                disk.fill()
                if disk.mounted:
                    server.wait_database(small.name, "down")
                load.run_until_tickets(60)
                disk.make_room()
                server.wait_database(small.name, "up")
