"""One real ticket database: a mysqld or mariadbd on a port of its own that can be killed, frozen, wiped, put back."""

import contextlib
import shutil
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pymysql
from pymysql.constants import ER

from tests.harness.engine import FOLDS_NAMES, Engine, template
from tests.harness.processes import ChildProcess, free_port, new_directory, remove_directory, wait_until
from tests.harness.schema import (
    LEAST_PRIVILEGES,
    MYSQL_INIT,
    PASSWORD,
    SCHEMA,
    USER,
    first_statements,
    flickrs_table,
    run,
)
from tests.harness.variables import AS_EVER

_START_TIMEOUT = 60.0
_CROWD = 15
"""Connections: so many are all that a crowded server has."""


class TicketMySQL:
    """One ticket database as a process. Its port and its settings stay the same until `start` is given others.

    Made, it does not run yet: `start()`, `wait_ready()`. A data directory is a copy of the engine's template with the
    schema, the server's user and (unless `tables` is false) the tables of `mysql_init/`.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        offset: int | None = 1,
        increment: int | None = 2,
        flags: Sequence[str] = (),
        binary_log: bool = False,
        tables: bool = True,
        directory: Path | None = None,
        folds_names: bool = False,
        variables: Mapping[str, str] | None = None,
    ) -> None:
        """`directory`: where the data directory is made, for instance a small tmpfs; otherwise a temporary one.

        `offset` and `increment` of None: the server runs without these flags. `folds_names`: with
        `lower_case_table_names=1`. `variables`: global ones, with their values in SQL, that are set after each start.
        """
        self.engine = engine
        self.offset = offset
        self.increment = increment
        self.flags = tuple(flags)
        self.folds_names = folds_names
        self.variables = dict(variables or {})
        self.binary_log = binary_log
        self.port = free_port()
        self._base = new_directory("tickets-mysql-")
        self.data = (directory or self._base) / "data"
        self.socket = self._base / "s"
        self.log = self._base / "log"
        self._saved = 0
        self._process: ChildProcess | None = None
        self._with_tables = tables
        self._fresh = True
        shutil.copytree(template(engine, folds_names=folds_names), self.data)

    def __repr__(self) -> str:
        state = "running" if self.running else "not running"
        return f"<TicketMySQL {self.engine.kind} {self.engine.version} offset {self.offset} at {self.name}, {state}>"

    def __enter__(self) -> "TicketMySQL":
        self.start()
        self.wait_ready()
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    # -- what it is called

    @property
    def name(self) -> str:
        """host:port, as the ticket server names it."""
        return f"127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        return self.url_of(SCHEMA)

    def url_of(self, schema: str, port: int | None = None, query: str = "") -> str:
        """The URL for TICKETS_DATABASES; `port` is a proxy's, to go through it."""
        return f"mysql://{USER}:{PASSWORD}@127.0.0.1:{port or self.port}/{schema}{query}"

    # -- life and death

    @property
    def pid(self) -> int:
        assert self._process is not None, "it was never started"
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.running

    def start(self, *, offset_flags: bool = True, flags: Sequence[str] | None = None) -> None:
        """Start the process; it is ready when `wait_ready` returns.

        `offset_flags=False` leaves out increment and offset, as after a careless restart. `flags` replaces the extra
        flags from now on.
        """
        assert not self.running, f"{self!r} is started twice"
        if flags is not None:
            self.flags = tuple(flags)
        options = [
            f"--datadir={self.data}",
            f"--port={self.port}",
            f"--socket={self.socket}",
            f"--pid-file={self._base / 'pid'}",
            f"--tmpdir={self._base}",  # a MariaDB that starts removes every server's temporary tables in a shared one
            "--bind-address=127.0.0.1",
            "--skip-name-resolve",
            "--loose-mysqlx=OFF",
            "--innodb-buffer-pool-size=32M",
            # the kernel would go on writing for a server that is frozen, and a copy of its files would be torn
            "--innodb-use-native-aio=0",
            "--performance-schema=OFF",  # a third of a start's time; its global_status answers all the same
            "--innodb-log-buffer-size=4M",
            "--innodb-flush-log-at-trx-commit=1",
        ]
        if offset_flags and self.increment is not None:
            options.append(f"--auto-increment-increment={self.increment}")
        if offset_flags and self.offset is not None:
            options.append(f"--auto-increment-offset={self.offset}")
        if self.folds_names:
            options.append(FOLDS_NAMES)
        if self.binary_log:
            options += ["--log-bin=binlog", "--server-id=1", "--sync-binlog=1"]
        else:
            options.append("--skip-log-bin")
        if self._fresh:
            options.append(f"--init-file={self._first_statements()}")
        self._process = ChildProcess(self.engine.command(*options, *self.flags), stdout=self.log, stderr=self.log)

    def wait_ready(self, timeout: float = _START_TIMEOUT) -> None:
        """Wait until the ticket server's user can log in over TCP; the first time, make the tables."""
        deadline = time.monotonic() + timeout
        while True:
            if not self.running:
                raise RuntimeError(f"{self!r} ended while it started:\n{self.log_text()[-3000:]}")
            try:
                # a bare connection first: until the server listens, the driver's would only be dearer
                socket.create_connection(("127.0.0.1", self.port), timeout=2).close()
                self.connect_as_server(timeout=2).close()
                break
            except (OSError, pymysql.MySQLError) as error:
                if time.monotonic() > deadline:
                    log = self.log_text()[-3000:]
                    raise TimeoutError(f"{self!r} was not ready within {timeout} s: {error}\n{log}") from error
            time.sleep(0.03)
        if self._fresh:
            self._fresh = False
            if self._with_tables:
                self.make_tables()
        for name, value in self.variables.items():
            self.execute(f"SET GLOBAL {name} = {value}", database=None)

    def kill(self) -> None:
        """SIGKILL, and wait for the end."""
        if self._process is not None:
            self._process.kill()

    def freeze(self) -> None:
        """SIGSTOP: the kernel goes on accepting connections for it, it says nothing."""
        assert self._process is not None
        self._process.freeze()

    def thaw(self) -> None:
        """SIGCONT."""
        assert self._process is not None
        self._process.thaw()

    def stop(self) -> None:
        """A clean shutdown by SIGTERM."""
        if self.running:
            assert self._process is not None
            self._process.terminate(60)

    def restart(self, *, kill: bool = False, offset_flags: bool = True, flags: Sequence[str] | None = None) -> None:
        """Stop (or kill) it where it runs, start it, wait until it is ready."""
        if kill:
            self.kill()
        else:
            self.stop()
        self.start(offset_flags=offset_flags, flags=flags)
        self.wait_ready()

    def close(self) -> None:
        """Kill it and remove its directories."""
        self.kill()
        if self.data.parent != self._base:
            shutil.rmtree(self.data, ignore_errors=True)
        remove_directory(self._base)

    # -- the data directory

    def save_data_directory(self) -> Path:
        """Copy the data directory aside. Of a running server it is what a kill at this moment would leave."""
        self._saved += 1
        saved = self._base / f"saved-{self._saved}"
        running = self.running
        if running:
            self.freeze()
        try:
            shutil.copytree(self.data, saved)
        finally:
            if running:
                self.thaw()
        return saved

    def restore_data_directory(self, saved: Path) -> None:
        """Put a saved data directory back; the server must not run. It can be put back again later."""
        assert not self.running, f"{self!r} runs on its data directory"
        shutil.rmtree(self.data)
        shutil.copytree(saved, self.data)

    def remove_saved(self, saved: Path) -> None:
        """Give back the space of a saved data directory."""
        shutil.rmtree(saved)

    def wipe(self, *, tables: bool = False) -> None:
        """Kill it where it runs, and put an empty server in its place: another identity, the user and the schema."""
        self.kill()
        self.restore_data_directory(template(self.engine, folds_names=self.folds_names))
        self._fresh = True
        self._with_tables = tables

    # -- eyes and hands

    def connect(self, database: str | None = SCHEMA, **options: Any) -> Any:
        """A pymysql connection as root, over the socket: it passes by proxies, and in autocommit."""
        options |= {"unix_socket": str(self.socket), "user": "root", "database": database, "autocommit": True}
        if self.variables:
            options |= {"init_command": AS_EVER}
        return pymysql.connect(**options, ssl_disabled=True)

    def connect_as_server(self, database: str = SCHEMA, *, timeout: float = 5) -> Any:
        """A pymysql connection over TCP as the ticket server's user, with its least privileges, in autocommit."""
        return pymysql.connect(
            host="127.0.0.1",
            port=self.port,
            user=USER,
            password=PASSWORD,
            database=database,
            autocommit=True,
            connect_timeout=timeout,
            read_timeout=timeout,
            write_timeout=timeout,
            ssl_disabled=True,  # reading all the certificates takes ten times as long as all the rest
        )

    def execute(self, sql: str, arguments: object = None, *, database: str | None = SCHEMA) -> list[tuple[Any, ...]]:
        """Run one statement as root on a connection of its own; its rows."""
        with contextlib.closing(self.connect(database, read_timeout=30, write_timeout=30)) as connection:
            return run(connection, sql, arguments)

    def make_tables(self, database: str = SCHEMA) -> None:
        """Run mysql_init/*.sql, in the order of their names, with `database` as the current one."""
        options = {"client_flag": pymysql.constants.CLIENT.MULTI_STATEMENTS, "read_timeout": 30}
        with contextlib.closing(self.connect(database, **options)) as connection, connection.cursor() as cursor:
            for script in sorted(MYSQL_INIT.glob("*.sql")):
                more = cursor.execute(script.read_text(encoding="utf-8"))
                while more is not None:
                    more = cursor.nextset()

    def make_flickrs_table(self, name: str, *, engine: str = "InnoDB", database: str = SCHEMA) -> None:
        """A ticket table as Flickr published it; there on MyISAM."""
        self.execute(flickrs_table(name, engine), database=database)

    def make_schema(self, schema: str, *, tables: bool = True) -> None:
        """Another schema, with the same privileges for the ticket server's user, and the tables of mysql_init/."""
        self.execute(f"CREATE DATABASE `{schema}`", database=None)
        self.execute(f"GRANT {LEAST_PRIVILEGES} ON `{schema}`.* TO '{USER}'@'127.0.0.1'", database=None)
        if tables:
            self.make_tables(schema)

    @contextlib.contextmanager
    def locked(self, *tables: str, database: str = SCHEMA) -> Iterator[None]:
        """Hold LOCK TABLES … WRITE, as a dump does."""
        with contextlib.closing(self.connect(database, read_timeout=30)) as connection:
            run(connection, "LOCK TABLES " + ", ".join(f"`{table}` WRITE" for table in tables))
            yield

    def largest_id(self, table: str, database: str = SCHEMA) -> int:
        """MAX(id), 0 for an empty table."""
        return int(self.execute(f"SELECT COALESCE(MAX(id), 0) FROM `{table}`", database=database)[0][0])

    def end_connections(self) -> None:
        """KILL every connection of the ticket servers' user."""
        with contextlib.closing(self.connect(None, read_timeout=30)) as root:
            self._kill_connections(root)

    def _kill_connections(self, root: Any) -> int:
        # who is logging in has no name yet, and may be a ticket server in the place of a connection that was killed
        found = run(
            root, "SELECT id FROM information_schema.processlist WHERE user IN (%s, 'unauthenticated user')", [USER]
        )
        for (number,) in found:
            with contextlib.suppress(pymysql.MySQLError):  # it has gone by itself
                run(root, f"KILL {number}")
        return len(found)

    @contextlib.contextmanager
    def crowded(self, *, spare_those_open: bool = False) -> Iterator[None]:
        """Somebody else has taken every connection, those of the ticket servers too, unless they are spared."""
        with contextlib.ExitStack() as stack:
            root = stack.enter_context(contextlib.closing(self.connect(None, read_timeout=30)))
            ((usually,),) = run(root, "SELECT @@global.max_connections")
            run(root, f"CREATE USER IF NOT EXISTS 'crowd'@'127.0.0.1' IDENTIFIED BY '{PASSWORD}'")
            stack.callback(run, root, f"SET GLOBAL max_connections = {usually}")
            run(root, f"SET GLOBAL max_connections = {_CROWD}")

            def has_all() -> bool:
                # a connection that was killed is gone from the list before its place is free again: hence both counts
                self._take_what_is_left(stack)
                return spare_those_open or (not self._kill_connections(root) and self._of_others(root) >= _CROWD)

            wait_until(has_all, 30, "the crowd to have every connection")
            yield

    def _of_others(self, root: Any) -> int:
        """How many of the connections that count are not of ticket servers, nor of anybody who is logging in."""
        not_others = USER, "unauthenticated user", "system user", "event_scheduler"
        sql = "SELECT COUNT(*) FROM information_schema.processlist WHERE user NOT IN (%s, %s, %s, %s)"
        return int(run(root, sql, not_others)[0][0])

    def _take_what_is_left(self, stack: contextlib.ExitStack) -> None:
        """Open connections until the server has no further one to give."""
        while True:
            try:
                crowd = pymysql.connect(
                    host="127.0.0.1", port=self.port, user="crowd", password=PASSWORD, ssl_disabled=True
                )
            except pymysql.MySQLError as error:
                if error.args[0] != ER.CON_COUNT_ERROR:
                    raise
                return
            stack.callback(crowd.close)

    def connections(self) -> int:
        """How many connections the ticket server's user has open here."""
        sql = "SELECT COUNT(*) FROM information_schema.processlist WHERE user = %s"
        return int(self.execute(sql, [USER], database=None)[0][0])

    def log_text(self) -> str:
        """The error log of the server."""
        return self.log.read_text(encoding="utf-8", errors="replace") if self.log.exists() else ""

    def _first_statements(self) -> Path:
        """The init file of a first start; mysqld wants each statement on one line."""
        script = self._base / "first.sql"
        script.write_text("".join(f"{statement};\n" for statement in first_statements()), encoding="utf-8")
        return script
