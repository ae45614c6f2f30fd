"""The servers of a run: each starts when a case first asks for it, and ends with the run."""

import contextlib
import functools
import shutil
import tempfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Self

from bench.processes import Other, Server, Side
from tests.servers import DatabaseServer, Engine

SEQUENCES = [f"s{number:03}" for number in range(1_000)]
"""The sequences that are used at random; load.lua has the same names."""
RESERVE = 2
"""TICKETS_RESERVE_SECONDS of the servers with a reserve."""
DATABASE_OPTIONS: dict[Engine, tuple[str, ...]] = {
    "mysql": ("--innodb-redo-log-capacity=100M", "--innodb-log-writer-threads=OFF"),
    "mariadb": ("--innodb-log-file-size=96M",),
}
"""MySQL's log is written as deploy/mysql has it."""
_COMMON_OPTIONS = (
    *("--innodb-buffer-pool-size=256M", "--innodb-use-native-aio=1", "--max-connections=1000"),
    *("--table-definition-cache=8000", "--table-open-cache=16000"),
)
"""There are twice as many tables as `SEQUENCES`, and the caches hold them."""
DATABASES_IN_WORDS = (
    "innodb_flush_log_at_trx_commit=1, no binary log, buffer pool 256 MiB, performance_schema=OFF, no TLS on loopback, "
    "on MySQL innodb_log_writer_threads=OFF"
)
FLICKR = "flickr"
"""The table that has the keys which Flickr published."""
_TABLE = (
    "CREATE TABLE IF NOT EXISTS {} (id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT, stub CHAR(1) NOT NULL DEFAULT '', {}) "
    "ENGINE=InnoDB"
)
_KEYS, _FLICKR_KEYS = "PRIMARY KEY (stub), KEY id (id)", "PRIMARY KEY (id), UNIQUE KEY stub (stub)"
"""Those of the server's own tables, and Flickr's."""


class Stage:
    """Two durable database servers, the ticket servers on them, and what they are compared with.

    Each ticket server has a database of its own on both, so that none disturbs another. sides: the programs that are
    measured, by name. Use it as a context manager.
    """

    def __init__(self, sides: Mapping[str, Side], engine: Engine) -> None:
        self.sides = sides
        self.engine = engine
        self._kept = ExitStack()
        self.home = Path(tempfile.mkdtemp(prefix="bench-"))
        self._kept.callback(shutil.rmtree, self.home, ignore_errors=True)
        self._databases: list[DatabaseServer] = []
        self._servers: dict[tuple[str, int], Server] = {}
        self._others: dict[str, Other] = {}
        self._with_sequences: set[Server] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._kept.close()

    @property
    def databases(self) -> list[DatabaseServer]:
        """The two database servers, which number odd and even."""
        if not self._databases:
            options = (*DATABASE_OPTIONS[self.engine], *_COMMON_OPTIONS)
            for offset in (1, 2):
                database = DatabaseServer(self.engine, offset=offset, increment=2, options=options)
                self._kept.callback(database.close)
                database.start()
                self._databases.append(database)
        return self._databases

    @property
    def facts(self) -> dict[str, str]:
        """What its servers are."""
        ((version,),) = self.databases[0].execute("SELECT VERSION()")
        return {"databases": f"two {self.engine} {version}", "with": DATABASES_IN_WORDS, "reserve": f"{RESERVE} s"}

    def server(self, side: str, reserve: int = 0) -> Server:
        """The ticket server of a side, with so many seconds' tickets in reserve."""
        if (side, reserve) not in self._servers:
            server = self.new_server(side, f"{side}_{reserve}", reserve)
            self._kept.callback(server.close)
            server.start()
            self._servers[side, reserve] = server
        return self._servers[side, reserve]

    def new_server(self, side: str, schema: str, reserve: int = 0) -> Server:
        """A ticket server that is not started yet; the caller closes it."""
        urls = []
        for database in self.databases:
            database.execute(f"CREATE DATABASE IF NOT EXISTS {schema}")
            urls.append(f"{database.url(schema)}?ssl-mode=DISABLED")
        return Server(self.sides[side], urls, self.home / f"{schema}.log", reserve)

    def server_of_many(self, side: str, reserve: int = 0) -> Server:
        """The same server, which has `SEQUENCES` as well, each of them used."""
        server = self.server(side, reserve)
        if server not in self._with_sequences:
            self._make_tables(f"{side}_{reserve}")
            with ThreadPoolExecutor(16) as pool:
                list(pool.map(server.wait_for_tickets, SEQUENCES))
            self._with_sequences.add(server)
        return server

    @functools.cached_property
    def direct(self) -> list[tuple[int, str]]:
        """Port and schema of each database, with `FLICKR` and `SEQUENCES` as tables that only applications use."""
        for database in self.databases:
            database.execute("CREATE DATABASE direct")
            database.execute(_TABLE.format(FLICKR, _FLICKR_KEYS), "direct")
        self._make_tables("direct")
        return [(database.port, "direct") for database in self.databases]

    def _make_tables(self, schema: str) -> None:
        """Make the tables of `SEQUENCES`, in less time than as many PUTs take. A server may make some as well."""

        def make(database: DatabaseServer) -> None:
            with contextlib.closing(database.connect(schema)) as connection, connection.cursor() as cursor:
                for name in SEQUENCES:
                    cursor.execute(_TABLE.format(name, _KEYS))

        with ThreadPoolExecutor(len(self.databases)) as pool:
            list(pool.map(make, self.databases))

    def other(self, kind: str) -> int:
        """The port of a program of OTHERS. Raises CaseFailed."""
        if kind not in self._others:
            self._others[kind] = Other(kind, self.home / kind)
            self._kept.callback(self._others[kind].close)
        return self._others[kind].port

    @functools.cached_property
    def postgresql(self) -> str:
        """The URL of a durable PostgreSQL with the sequence photos."""
        database = DatabaseServer("postgresql", options=("-c", "shared_buffers=256MB"))
        self._kept.callback(database.close)
        database.start()
        database.execute("CREATE SEQUENCE photos INCREMENT 2")
        return database.url("postgres")
