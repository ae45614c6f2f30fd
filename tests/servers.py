"""Real database servers for the tests: MariaDB, MySQL, PostgreSQL and Redis, each a process of its own on 127.0.0.1.

A test gets a database in a shared server (`fresh_database`), or a server that the test may kill and freeze
(`own_server`); these fixtures are in `conftest.py`. Every server writes durably: it answers a commit only after the
disk has the commit.
"""

import contextlib
import os
import re
import shlex
import shutil
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psycopg
import pymysql
import redis

from tests.servers_processes import DEADLINE, Process, free_port
from tests.servers_programs import SMALL, Engine, as_unprivileged, copy_directory, engines, new_home, program, template

__all__ = ["DEADLINE", "DatabaseServer", "Engine", "engines"]

_MYSQL_OPTIONS = [
    *("--bind-address=127.0.0.1", "--skip-name-resolve", "--skip-log-bin", "--innodb-buffer-pool-size=32M"),
    *("--innodb-flush-log-at-trx-commit=1", "--sync-binlog=1"),
    "--innodb-use-native-aio=0",  # the kernel would go on writing for a frozen server
    "--performance-schema=OFF",  # this saves a third of a start's time
]
# A killed server leaves its shared memory behind; with mmap that lies among its files.
_POSTGRESQL_OPTIONS = ["-c", "shared_buffers=16MB", "-c", "dynamic_shared_memory_type=mmap"]
_REDIS_OPTIONS = [
    *("--bind", "127.0.0.1", "--databases", "10000", "--save", "", "--appendonly", "yes", "--appendfsync", "always"),
    *("--no-appendfsync-on-rewrite", "no", "--maxmemory-policy", "noeviction", "--enable-debug-command", "yes"),
]
# The tests log in as root@127.0.0.1, a user that new data does not have. These statements stay out of a binary log.
_MYSQL_ROOT = (
    "SET sql_log_bin = 0;\n"
    "CREATE USER IF NOT EXISTS root@'127.0.0.1';\n"
    "GRANT ALL ON *.* TO root@'127.0.0.1' WITH GRANT OPTION;\n"
)


class DatabaseServer(Process):
    """One database server, empty at first. It keeps its port and its data when a test kills and starts it.

    Args:
        engine: which server this is.
        offset: auto_increment_offset of MariaDB and MySQL; None leaves the option out.
        increment: auto_increment_increment of MariaDB and MySQL; None leaves the option out.
        options: further arguments of the program. A test may change them while the server is stopped.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        offset: int | None = None,
        increment: int | None = None,
        options: Sequence[str] = (),
    ) -> None:
        super().__init__(new_home(engine))
        self.engine = engine
        self.port = free_port()
        numbers = {"offset": offset, "increment": increment}
        self._numbers = [f"--auto-increment-{name}={value}" for name, value in numbers.items() if value is not None]
        self.options = list(options)
        self.data_dir = self.home / "data"
        if engine == "postgresql":
            self.ending = signal.SIGINT  # its fast shutdown: it does not wait for the clients to leave
        copy_directory(template(engine), self.data_dir)

    def url(self, database: str, port: int | None = None) -> str:
        """The URL of a database in this server. `port` is that of a proxy, if the connection goes through one."""
        database = _number(database) if self.engine == "redis" else database
        scheme = {"postgresql": "postgresql://postgres@", "redis": "redis://"}.get(self.engine, "mysql://root@")
        return f"{scheme}127.0.0.1:{port or self.port}/{database}"

    def start(self) -> None:
        """Start the server, and return when it lets a client log in. Raises RuntimeError if the server ends first."""
        self.launch(self._command())
        self.until(self._answers, "to start")

    # -- its data

    def copy_data(self, to: Path) -> None:
        """Copy the data of the stopped server to a directory, which must not exist yet."""
        assert not self.running, f"{self!r} is running"
        copy_directory(self.data_dir, to)

    def restore_data(self, source: Path) -> None:
        """Replace the data of the stopped server by a copy of this directory."""
        assert not self.running, f"{self!r} is running"
        shutil.rmtree(self.data_dir)
        copy_directory(source, self.data_dir)

    def wipe(self) -> None:
        """Replace the data of the stopped server by that of an empty server, which has another identity."""
        self.restore_data(template(self.engine))

    # -- databases

    def create_database(self, name: str) -> str:
        """Create a database and return its URL. Those of Redis have numbers: the digits of the name, or 0."""
        if self.engine != "redis":
            self.execute(f"CREATE DATABASE {name}" + (" TEMPLATE template0" if self.engine == "postgresql" else ""))
        return self.url(name)

    def execute(self, statement: str, database: str = "") -> list[tuple[Any, ...]]:
        """Run one statement as the superuser, on a connection of its own and in autocommit; return its rows.

        A statement of Redis is a command, and its reply is the only row.
        """
        if self.engine == "redis":
            with self.connect(database) as client:
                return [(client.execute_command(*shlex.split(statement)),)]
        with (
            contextlib.closing(self.connect(database)) as connection,
            contextlib.closing(connection.cursor()) as cursor,
        ):
            cursor.execute(statement)
            return list(cursor.fetchall()) if cursor.description else []

    def connect(self, database: str = "", timeout: float = DEADLINE) -> Any:
        """A connection of psycopg, pymysql or redis-py as the superuser. It blocks; the caller closes it."""
        if self.engine == "redis":
            return redis.Redis(port=self.port, db=int(_number(database)), socket_timeout=timeout, decode_responses=True)
        if self.engine == "postgresql":
            # psycopg counts whole seconds, 2 at least
            return psycopg.connect(self.url(database or "postgres"), autocommit=True, connect_timeout=int(timeout))
        return pymysql.connect(
            host="127.0.0.1",
            port=self.port,
            user="root",
            database=database or None,
            autocommit=True,
            connect_timeout=timeout,
            read_timeout=timeout,
            write_timeout=timeout,
            ssl_disabled=True,  # reading the machine's certificates takes longer than everything else here
        )

    # -- inside

    def _command(self) -> list[str]:
        if self.engine == "postgresql":
            where = ["-D", str(self.data_dir), "-k", str(self.home), "-h", "127.0.0.1", "-p", str(self.port)]
            return [*as_unprivileged(), program(self.engine), *where, *_POSTGRESQL_OPTIONS, *self.options]
        if self.engine == "redis":
            where = ["--port", str(self.port), "--dir", str(self.data_dir)]
            return [program(self.engine), *where, *_REDIS_OPTIONS, *self.options]
        statements = self.home / "root.sql"
        statements.write_text(_MYSQL_ROOT, encoding="utf-8")
        return [
            *(program(self.engine), "--no-defaults", *(["--user=root"] if os.geteuid() == 0 else [])),
            *(f"--datadir={self.data_dir}", f"--socket={self.home / 's'}", f"--pid-file={self.home / 'pid'}"),
            *(f"--port={self.port}", f"--tmpdir={self.home}", f"--init-file={statements}"),
            *(*_MYSQL_OPTIONS, *SMALL[self.engine], *self._numbers, *self.options),
        ]

    def _answers(self) -> bool:
        with contextlib.suppress(OSError, psycopg.OperationalError, pymysql.MySQLError, redis.RedisError):
            if self.engine == "redis":
                return bool(self.connect(timeout=5).ping())
            self.connect(timeout=5).close()
            return True
        return False


def _number(database: str) -> str:
    """Return the number of a database of Redis: the digits of its name, or 0."""
    return re.sub(r"\D", "", database) or "0"
