"""The two ticket databases: servers of our own, durable, on their own data directories."""

import contextlib
import os
import re
import socket
from collections.abc import Iterator, Sequence
from pathlib import Path

import pymysql

from bench.model import Missing
from tests.harness.engine import Engine, NoEngine, find_engine, template
from tests.harness.mysqld import TicketMySQL
from tests.harness.schema import PASSWORD, SCHEMA, USER, flickrs_table, run

SEQUENCES = 1000
DIRECT = "direct"
"""The schema of the tables that only applications use."""
FLICKR_INNODB, FLICKR_MYISAM, STUB_FIRST = (f"{DIRECT}.{name}" for name in ("flickr_innodb", "flickr_myisam", "stub"))

SETTINGS = {
    "mysql": ("--innodb-redo-log-capacity=100M", "--innodb-log-writer-threads=OFF"),
    "mariadb": ("--innodb-log-file-size=96M", "--table-definition-cache=2000", "--table-open-cache=4000"),
}
"""What the harness makes smaller than the server comes with; MySQL's log is written as deploy/mysql has it. For 1,000
tables MariaDB gets the caches that MySQL has from the start: with its own 400 definitions every other draw opens a
table anew, and takes 5 ms."""
_MORE = ("--innodb-buffer-pool-size=128M", "--innodb-use-native-aio=1", "--max-connections=1000")


def description(*, binary_log: bool) -> str:
    """The settings of the databases, in words. `binary_log`: whether they write one."""
    log = "a binary log with sync_binlog=1" if binary_log else "no binary log"
    return (
        f"innodb_flush_log_at_trx_commit=1 (every commit is flushed to the disk), {log}, "
        "auto_increment_increment=2, buffer pool 128 MiB, max_connections=1000, performance_schema=OFF, no TLS on the "
        "loopback, innodb_log_writer_threads=OFF on MySQL as in deploy/mysql; everything else as the server comes"
    )


def engine() -> Engine:
    """TICKETS_BENCH_MYSQLD, else what the tests take: TICKETS_TEST_MYSQLD, mysqld, mariadbd."""
    named = os.environ.get("TICKETS_BENCH_MYSQLD")
    if named:
        os.environ["TICKETS_TEST_MYSQLD"] = named
    try:
        found = find_engine()
        template(found)  # what every data directory is copied from
    except NoEngine as error:
        raise Missing(str(error)) from error
    return found


class Database:
    """One ticket database with every table that is measured."""

    def __init__(
        self,
        program: Engine,
        offset: int,
        count: int,
        directory: Path,
        names: Sequence[str],
        *,
        binary_log: bool = False,
    ) -> None:
        """`names`: the sequences that it has besides those of mysql_init. `binary_log`: whether it writes one."""
        directory.mkdir()
        self.offset = offset
        self._server = TicketMySQL(
            program,
            offset=offset,
            increment=count,
            flags=(*SETTINGS[program.kind], *_MORE),
            directory=directory,
            binary_log=binary_log,
        )
        try:
            self._server.start()
            self._server.wait_ready()
            self._fill(names)
        except BaseException:
            self._server.close()
            raise

    @property
    def pid(self) -> int:
        return self._server.pid

    @property
    def url(self) -> str:
        """For TICKETS_DATABASES."""
        return self._server.url_of(SCHEMA, query="?ssl-mode=DISABLED&get-server-public-key=true")

    def counter(self, table: str) -> int:
        """The table's live AUTO_INCREMENT; `table` may name its schema.

        The row says less: it may hold the lower of two ids that were drawn at once.
        """
        schema, _, name = table.rpartition(".")
        answer = self._server.execute(f"SHOW CREATE TABLE `{name}`", database=schema or SCHEMA)
        found = re.search(r"AUTO_INCREMENT=(\d+)", answer[0][1])
        return int(found[1]) if found else 1

    @property
    def binary_log_bytes(self) -> int:
        """The size of its binary log's files together."""
        files = self._server.data.glob("binlog.*")
        return sum(path.stat().st_size for path in files if path.suffix != ".index")

    @property
    def connections(self) -> int:
        """How many connections ticket servers have open here."""
        return self._server.connections()

    def crash(self) -> None:
        """SIGKILL it, start it again, and wait until clients can log in."""
        self._server.restart(kill=True)

    @contextlib.contextmanager
    def raw_connection(self) -> Iterator[socket.socket]:
        """A socket behind the handshake, to be spoken to in packets."""
        driver = pymysql.connect(
            user=USER,
            password=PASSWORD,
            database=SCHEMA,
            autocommit=True,
            ssl_disabled=True,
            defer_connect=True,
        )
        with (
            socket.create_connection(("127.0.0.1", self._server.port), timeout=10) as raw,
            contextlib.closing(driver),
        ):
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            driver.connect(raw)
            yield raw

    def stop(self) -> None:
        """End it as an operator would, and forget it."""
        self._server.stop()
        self._server.close()

    def _fill(self, names: Sequence[str]) -> None:
        self._server.make_schema(DIRECT)
        with contextlib.closing(self._server.connect(read_timeout=60)) as connection:
            for name in (STUB_FIRST, *names):
                run(connection, f"CREATE TABLE {name} LIKE Tickets64")
            run(connection, f"USE {DIRECT}")
            for table, storage in ((FLICKR_INNODB, "InnoDB"), (FLICKR_MYISAM, "MyISAM")):
                run(connection, flickrs_table(table.rpartition(".")[2], storage))


def sequences() -> list[str]:
    """The thousand sequences that are used at random."""
    return [f"s{number:04}" for number in range(SEQUENCES)]
