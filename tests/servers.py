"""Real database servers for the tests: MariaDB, MySQL and PostgreSQL, each a process of its own on 127.0.0.1.

A test gets a database in a shared server (`fresh_database`), or a server that the test may kill and freeze
(`own_server`); these fixtures are in `conftest.py`. Every server writes durably: it answers a commit only after the
disk has the commit.
"""

import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psycopg
import pymysql

from tests.servers_processes import end_guard, family, free_port, guard, send, states, wait_until
from tests.servers_programs import SMALL, Engine, as_unprivileged, copy_directory, engines, new_home, program

__all__ = ["DEADLINE", "DatabaseServer", "Engine", "engines"]

DEADLINE = 60.0
"""Seconds that a server has to start or to stop. On a busy machine it takes many of them."""

_MYSQL_OPTIONS = [
    "--bind-address=127.0.0.1",
    "--skip-name-resolve",
    "--innodb-flush-log-at-trx-commit=1",
    "--sync-binlog=1",
    "--innodb-buffer-pool-size=32M",
    "--innodb-use-native-aio=0",  # the kernel would go on writing for a frozen server
    "--performance-schema=OFF",  # this saves a third of a start's time
]
# The tests log in as root@127.0.0.1, a user that new data does not have. These statements stay out of a binary log.
_MYSQL_ROOT = (
    "SET sql_log_bin = 0;\n"
    "CREATE USER IF NOT EXISTS root@'127.0.0.1';\n"
    "GRANT ALL ON *.* TO root@'127.0.0.1' WITH GRANT OPTION;\n"
)


class DatabaseServer:
    """One database server. It keeps its port and its data when a test kills and starts it.

    Args:
        engine: which server this is.
        template: the data of an empty server; this server begins with a copy (`servers_programs.template`).
        offset: auto_increment_offset of MariaDB and MySQL; None leaves the option out.
        increment: auto_increment_increment of MariaDB and MySQL; None leaves the option out.
        binary_log: whether MariaDB or MySQL writes a binary log.
        options: further arguments of the program. A test may change them while the server is stopped.
    """

    def __init__(
        self,
        engine: Engine,
        template: Path,
        *,
        offset: int | None = None,
        increment: int | None = None,
        binary_log: bool = False,
        options: Sequence[str] = (),
    ) -> None:
        self.engine = engine
        self.port = free_port()
        self.offset = offset
        self.increment = increment
        self.binary_log = binary_log
        self.options = list(options)
        self._template = template
        self._home = new_home(engine)
        self.data_dir = self._home / "data"
        self._log = self._home / "log"
        self._process: subprocess.Popen[bytes] | None = None
        self._guard: subprocess.Popen[bytes] | None = None
        copy_directory(template, self.data_dir)

    def __repr__(self) -> str:
        return f"<{self.engine} on port {self.port}, {'running' if self.running else 'not running'}>"

    def url(self, database: str, port: int | None = None) -> str:
        """The URL of a database in this server. `port` is that of a proxy, if the connection goes through one."""
        scheme = "postgresql://postgres" if self.engine == "postgresql" else "mysql://root"
        return f"{scheme}@127.0.0.1:{port or self.port}/{database}"

    # -- life and death

    @property
    def pid(self) -> int:
        """The number of the server's first process."""
        assert self._process is not None, f"{self!r} was never started"
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether the process exists. A frozen server runs, too."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start the server, and return when it lets a client log in. Raises RuntimeError if the server ends first."""
        assert not self.running, f"{self!r} is started twice"
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._home,
                start_new_session=True,
            )
        self._end_guard()  # there still is one if the server ended by itself
        self._guard = guard(self._process.pid, self._home)
        wait_until(self._answers, DEADLINE, f"{self!r} to start")

    def kill(self) -> None:
        """End all processes of the server with SIGKILL at the same moment, as a power cut does. Waits for the end."""
        if self.running:
            self.freeze()  # a frozen server starts no further process
            processes = family(self.pid)
            for pid in reversed(processes):
                send(pid, signal.SIGKILL)
            self._wait()
            wait_until(lambda: not any(states(pid) for pid in processes), DEADLINE, f"the end of {self!r}")
        self._end_guard()

    def stop(self) -> None:
        """Shut the server down cleanly. Raises subprocess.TimeoutExpired if it does not end by the deadline."""
        if self.running:
            self.thaw()
            # SIGINT is PostgreSQL's fast shutdown: it does not wait for the clients to leave.
            send(self.pid, signal.SIGINT if self.engine == "postgresql" else signal.SIGTERM)
            self._wait()
        self._end_guard()

    def freeze(self) -> None:
        """Stop all processes of the server with SIGSTOP. The kernel still accepts connections; nothing answers them."""
        self._freeze([self.pid])  # the first process starts the others, so it stops first
        self._freeze(family(self.pid))

    def thaw(self) -> None:
        """Let a frozen server go on (SIGCONT)."""
        for pid in reversed(family(self.pid)):
            send(pid, signal.SIGCONT)

    def close(self) -> None:
        """Kill the server and remove its files."""
        self.kill()
        shutil.rmtree(self._home, ignore_errors=True)

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
        self.restore_data(self._template)

    # -- databases

    def create_database(self, name: str) -> str:
        """Create a database and return its URL."""
        self.execute(f"CREATE DATABASE {name}" + (" TEMPLATE template0" if self.engine == "postgresql" else ""))
        return self.url(name)

    def drop_database(self, name: str) -> None:
        """Drop a database. PostgreSQL ends the connections to the database first."""
        self.execute(f"DROP DATABASE {name}" + (" WITH (FORCE)" if self.engine == "postgresql" else ""))

    def execute(self, statement: str, database: str = "") -> list[tuple[Any, ...]]:
        """Run one statement as the superuser, on a connection of its own and in autocommit; return its rows."""
        with (
            contextlib.closing(self.connect(database)) as connection,
            contextlib.closing(connection.cursor()) as cursor,
        ):
            cursor.execute(statement)
            return list(cursor.fetchall()) if cursor.description else []

    def connect(self, database: str = "", timeout: float = DEADLINE) -> Any:
        """A connection of psycopg or pymysql as the superuser, in autocommit. It blocks; the caller closes it."""
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
            where = ["-D", str(self.data_dir), "-k", str(self._home), "-h", "127.0.0.1", "-p", str(self.port)]
            return [*as_unprivileged(), program(self.engine), *where, "-c", "shared_buffers=16MB", *self.options]
        statements = self._home / "root.sql"
        statements.write_text(_MYSQL_ROOT, encoding="utf-8")
        return [
            *(program(self.engine), "--no-defaults", *(["--user=root"] if os.geteuid() == 0 else [])),
            *(f"--datadir={self.data_dir}", f"--socket={self._home / 's'}", f"--pid-file={self._home / 'pid'}"),
            *(f"--port={self.port}", f"--tmpdir={self._home}", f"--init-file={statements}"),
            *([] if self.offset is None else [f"--auto-increment-offset={self.offset}"]),
            *([] if self.increment is None else [f"--auto-increment-increment={self.increment}"]),
            *(["--log-bin=binlog", "--server-id=1"] if self.binary_log else ["--skip-log-bin"]),
            *(*_MYSQL_OPTIONS, *SMALL[self.engine], *self.options),
        ]

    def _answers(self) -> bool:
        if not self.running:
            log = self._log.read_text(encoding="utf-8", errors="replace")
            raise RuntimeError(f"{self!r} ended while it started:\n{log[-3000:]}")
        with contextlib.suppress(OSError, psycopg.OperationalError, pymysql.MySQLError):
            self.connect(timeout=5).close()
            return True
        return False

    def _freeze(self, processes: list[int]) -> None:
        for pid in processes:
            send(pid, signal.SIGSTOP)
        # a thread that is writing to the disk stops when it has written
        wait_until(lambda: all(states(pid) <= {"T", "t"} for pid in processes), DEADLINE, f"{self!r} to stand still")

    def _wait(self) -> None:
        assert self._process is not None
        self._process.wait(DEADLINE)

    def _end_guard(self) -> None:
        if self._guard is not None:
            end_guard(self._guard)
            self._guard = None
