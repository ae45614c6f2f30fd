"""One ticket database of each storage engine, as the contract tests handle it: fresh, with as many clients as expected.

A `Storage` is the database. Its clients are the `TicketDatabase`s under test: each is what one ticket server would
have, with connections of its own. What engines may differ in has a name here, and the tests go by that.
"""

import abc
import asyncio
import contextlib
import itertools
import random
import sqlite3
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from functools import wraps
from pathlib import Path
from typing import Any

from app.common.sequences import TICKET_LIMIT, Width, is_name
from app.databases.mysql.database import MySQLDatabase
from app.databases.mysql.line.url import DatabaseURL
from app.databases.note_text import text_of
from app.databases.postgresql.database import PostgreSQLDatabase
from app.databases.postgresql.url import PostgreSQLURL
from app.databases.protocol import OLDER, Draw, Residue, ServerEntry, Table, TicketDatabase
from app.databases.sqlite.database import SQLiteDatabase
from app.kinds.definition import Definition
from tests.fakes.ticket_database import TRUE_TIME, FakeServer, client_of
from tests.fakes.virtual_time import VirtualLoop
from tests.fakes.virtual_time import run as run_in_virtual_time
from tests.harness.pair import MySQLPair
from tests.harness.postgresql import PostgreSQL
from tests.harness.schema import USER

INCREMENT = 2
ROOM = 3
"""With so many times their number left, every engine draws several tickets."""
TIMEOUT = 20.0
"""Of every statement: long enough for a machine that is busy with something else."""


@dataclass(frozen=True, slots=True)
class Column:
    """A kind of id column: `end` is the largest number that it holds."""

    width: Width
    end: int

    @property
    def unsigned(self) -> bool:
        return self.end > 1 << (int(self.width) - 1)


UNSIGNED_INT, SIGNED_INT = Column(Width.INT, 2**32 - 1), Column(Width.INT, 2**31 - 1)
UNSIGNED_BIGINT, SIGNED_BIGINT = Column(Width.BIGINT, 2**64 - 1), Column(Width.BIGINT, 2**63 - 1)


class Storage(abc.ABC):
    """The ticket databases of offset 1 and 2, new and without a sequence of the tests'.

    `columns`: the kinds of columns there can be, those that `make` makes first. `has_settings`: whether the server is
    configured with an increment and an offset of its own. `leaves_the_last`: whether
    a column whose end is of another residue may end before the last id below it. `renames_itself`: whether its identity
    is another one after a restart. `sees_open_files`: whether who else has it open is seen at once, so that nobody
    watches for probes. `needs_room`: whether many tickets close to the end are not drawn, though they would fit.
    `fences_draws`: whether a draw itself sees that the ring record has another number.
    """

    columns: tuple[Column, ...] = (UNSIGNED_INT, UNSIGNED_BIGINT, SIGNED_INT, SIGNED_BIGINT)
    has_settings = True
    leaves_the_last = False
    renames_itself = False
    sees_open_files = False
    needs_room = True
    fences_draws = False

    def __init__(self) -> None:
        self._clients: list[TicketDatabase] = []
        self.retried: list[str] = []
        """Why statements were tried again, on engines where that happens."""

    def run(self, scenario: Coroutine[Any, Any, None]) -> None:
        """Run a test on an event loop that this engine works on; close every client that it leaves open."""
        asyncio.run(self._and_close(scenario))

    async def _and_close(self, scenario: Coroutine[Any, Any, None]) -> None:
        try:
            await scenario
        finally:
            await asyncio.gather(*(client.close() for client in self._clients))
            self._clients.clear()

    @property
    def deadlocks(self) -> list[str]:
        """Those that statements were tried again after."""
        return [why for why in self.retried if "deadlock" in why]

    async def client(
        self,
        offset: int = 1,
        *,
        increment: int = INCREMENT,
        probe: bool = True,
        entry: ServerEntry | None = None,
        within: float = TIMEOUT,
    ) -> TicketDatabase:
        """A further client of the database of this offset, that has looked at it unless told not to. `entry`: that of a
        ticket server, which announces itself. `within`: seconds for a statement."""
        client = self._open(offset, increment, within)
        self._clients.append(client)
        if entry is not None:
            client.announce(lambda: entry)
        if probe:
            await client.probe()
        return client

    async def close(self, client: TicketDatabase) -> None:
        """Close a client before the test ends."""
        self._clients.remove(client)
        await client.close()

    def true_time(self) -> float:
        """What the databases' clocks should say, in seconds since 1970."""
        return time.time()

    def monotonic(self) -> float:
        """By which clients tell when they asked."""
        return time.monotonic()

    def stand_still(self, seconds: float) -> None:
        """Have this process do nothing, whatever the databases do meanwhile."""
        time.sleep(seconds)

    @abc.abstractmethod
    def _open(self, offset: int, increment: int, timeout: float) -> TicketDatabase: ...

    @abc.abstractmethod
    async def make_column(self, client: TicketDatabase, sequence: str, column: Column) -> Table:
        """A sequence's table, in the database of offset 1, with such a column."""

    @abc.abstractmethod
    def make_foreign_tables(self) -> Sequence[str]:
        """Make tables in the database of offset 1 that are no sequence's; their names."""

    @abc.abstractmethod
    def seen_by_older_releases(self) -> set[str]:
        """What a release that knows no inner sequences finds in the database of offset 1: the names of its tables and
        those that its marks are of."""

    @abc.abstractmethod
    def probe_as_an_older_release(self) -> None:
        """Do what the probe of a ticket server does that does not announce itself, in the database of offset 1."""

    @abc.abstractmethod
    def probe_as_the_release_before(self, release: str) -> None:
        """Do what the probe of a ticket server does that announces itself but no bodies, in the database of offset
        1."""

    @abc.abstractmethod
    def age_servers(self, days: int) -> None:
        """Have every ticket server of the database of offset 1 been seen so many days earlier."""

    @abc.abstractmethod
    def age_uses(self, seconds: float) -> None:
        """Have every announcement of a body in the database of offset 1 been written so many seconds earlier, as where
        the clock is set forward; below 0: later."""

    @abc.abstractmethod
    def write_definition(self, sequence: str, kind: str, parameters: str) -> None:
        """Write such a row of how a sequence was made into the database of offset 1, as another release might."""

    has_no_earlier_release = False
    """Whether no release before this one ever used such a database."""

    def definitions_of_0_2_0(self) -> list[tuple[str, str, str]]:
        """What servers of release 0.2.0 read of the database of offset 1: sequence, kind and parameters."""
        raise NotImplementedError

    @abc.abstractmethod
    def alter_by_hand(self, sequence: str) -> None:
        """Somebody changes something about a sequence's table in the database of offset 1 that is not its width."""

    @abc.abstractmethod
    def drop(self, sequence: str) -> None:
        """Somebody drops a sequence's table in the database of offset 1."""

    @abc.abstractmethod
    def sessions(self) -> frozenset[object]:
        """What the server of offset 1 calls its connections for these databases; nothing where it has none."""

    @abc.abstractmethod
    async def begin_another_life(self) -> None:
        """Have the database of offset 1 restart, or what else may hide that it has gone back; the data stay."""

    async def crash(self) -> None:
        """Have the server of offset 1 end without a word, as a kill or a power cut ends it, and start again."""
        await self.begin_another_life()

    @abc.abstractmethod
    def configure(self, increment: int) -> None:
        """Have the server of offset 1, where it has such a setting, say that this is its increment."""


def on_each_engine(test: Callable[[Storage], Coroutine[Any, Any, None]]) -> Callable[[Storage], None]:
    """An asynchronous test of a `storage`, on the event loop that its engine works on."""

    @wraps(test)
    def on_its_loop(storage: Storage) -> None:
        storage.run(test(storage))

    return on_its_loop


def rows_of(table: Table) -> int:
    """How many tickets are few to the engine: one more may be drawn in another way."""
    return int(getattr(table, "rows_per_statement", 64))


def residue_of(client: TicketDatabase, ring: int = 0) -> Residue:
    """What a client draws."""
    return Residue(client.offset, client.increment, ring)


async def take(client: TicketDatabase, table: Table, count: int, after: int, least: int = 0, *, ring: int = 0) -> Draw:
    """Draw as a lane of this client would that was opened under the ring of this number."""
    return await client.draw(residue_of(client, ring), table, count, after, least)


async def made(client: TicketDatabase, sequence: str = "photos", width: Width = Width.BIGINT, start: int = 1) -> Table:
    """The table of a sequence that is made where it is missing."""
    await client.make(sequence, width, start)
    return (await client.tables([sequence]))[sequence]


async def remade(storage: Storage, client: TicketDatabase, table: Table) -> Table:
    """The table, dropped and made anew; a server that dates its tables to the second has the next second begin."""
    async with asyncio.timeout(20):
        while True:
            storage.drop(table.sequence)
            anew = await made(client, table.sequence, table.width)
            if anew.created != table.created:
                return anew
            await asyncio.sleep(0.1)


async def until(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    """Wait for what a server does by itself a moment later, and tells nobody."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - there is no event
            await asyncio.sleep(0.02)


# --- MySQL and MariaDB ---------------------------------------------------------------------------------------------


class MySQLStorage(Storage):
    """A schema of its own on two running servers, or on one of which `alone` says that no other test has it."""

    renames_itself = True
    _numbers = itertools.count(1)

    def __init__(self, pair: MySQLPair, *, alone: bool = False) -> None:
        super().__init__()
        self.leaves_the_last = not pair.odd.engine.is_mariadb
        self._pair = pair
        self._alone = alone
        self._schema = f"engines_{next(self._numbers)}"
        self._made: set[int] = set()

    def _open(self, offset: int, increment: int, timeout: float) -> TicketDatabase:
        server = self._pair[offset - 1]
        if offset not in self._made:
            self._made.add(offset)
            server.make_schema(self._schema, tables=False)
        url = DatabaseURL.parse(server.url_of(self._schema, query="?ssl-mode=DISABLED&get-server-public-key=true"))
        return MySQLDatabase(url, offset, increment, timeout, on_retry=self.retried.append)

    async def make_column(self, client: TicketDatabase, sequence: str, column: Column) -> Table:
        sign = "UNSIGNED" if column.unsigned else ""
        self._execute(
            f"CREATE TABLE `{sequence}` (id {column.width.name} {sign} NOT NULL AUTO_INCREMENT, "
            "stub CHAR(1) CHARACTER SET ascii COLLATE ascii_bin NOT NULL, PRIMARY KEY (stub), KEY (id))"
        )
        return (await client.tables([sequence]))[sequence]

    def make_foreign_tables(self) -> Sequence[str]:
        self._execute("CREATE TABLE no_id (stub CHAR(1) NOT NULL PRIMARY KEY)")
        self._execute("CREATE TABLE no_stub (id INT NOT NULL AUTO_INCREMENT PRIMARY KEY)")
        self._execute("CREATE TABLE small (id SMALLINT NOT NULL AUTO_INCREMENT UNIQUE, stub CHAR(1) PRIMARY KEY)")
        return ["no_id", "no_stub", "small", "_probe", "_ring", "_high_water"]

    def seen_by_older_releases(self) -> set[str]:
        tables = "SELECT TABLE_NAME FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE()"
        names = {str(name) for (name,) in self._execute(tables)}
        marks = {str(name) for (name,) in self._execute("SELECT sequence FROM _high_water")}
        return {name for name in names if is_name(name)} | marks

    def probe_as_an_older_release(self) -> None:
        self._execute("REPLACE INTO _probe (id, at) VALUES (1, UTC_TIMESTAMP(6))")

    def probe_as_the_release_before(self, release: str) -> None:
        row = f"'0ef', '{release}', 'ticket', 1.0, 0.0, UTC_TIMESTAMP(6)"
        self._execute(f"REPLACE INTO _servers VALUES ({row})")

    def age_servers(self, days: int) -> None:
        self._execute(f"UPDATE _servers SET at = at - INTERVAL {days} DAY")

    def age_uses(self, seconds: float) -> None:
        self._execute(f"UPDATE _in_use SET at = at - INTERVAL {int(seconds * 1e6)} MICROSECOND")

    def write_definition(self, sequence: str, kind: str, parameters: str) -> None:
        self._execute(f"INSERT INTO _kinds VALUES ('{sequence}', '{kind}', '{parameters}')")

    def definitions_of_0_2_0(self) -> list[tuple[str, str, str]]:
        return [tuple(row) for row in self._execute("SELECT sequence, kind, parameters FROM _kinds")]

    def alter_by_hand(self, sequence: str) -> None:
        self._execute(f"ALTER TABLE `{sequence}` DROP PRIMARY KEY, ADD PRIMARY KEY (stub), ADD note INT")
        self._execute(f"ALTER TABLE `{sequence}` ENGINE=MyISAM")
        self._execute(f"ALTER TABLE `{sequence}` ENGINE=InnoDB, AUTO_INCREMENT=1000")

    def drop(self, sequence: str) -> None:
        self._execute(f"DROP TABLE `{sequence}`")

    def sessions(self) -> frozenset[object]:
        sql = "SELECT id FROM information_schema.processlist WHERE user = %s AND db = %s"
        rows = self._pair.odd.execute(sql, [USER, self._schema], database=None)
        return frozenset(number for (number,) in rows)

    async def begin_another_life(self) -> None:
        assert self._alone
        await until(lambda: self._uptime() >= 2)  # a server's lives differ by the second in which they began
        await asyncio.to_thread(self._pair.odd.restart)

    async def crash(self) -> None:
        assert self._alone
        await until(lambda: self._uptime() >= 2)
        await asyncio.to_thread(self._pair.odd.restart, kill=True)

    def _uptime(self) -> int:
        return int(self._pair.odd.execute("SHOW GLOBAL STATUS LIKE 'Uptime'")[0][1])

    def configure(self, increment: int) -> None:
        assert self._alone
        self._execute(f"SET GLOBAL auto_increment_increment = {increment}")
        self._pair.odd.end_connections()

    def _execute(self, sql: str) -> list[tuple[Any, ...]]:
        return self._pair.odd.execute(sql, database=self._schema)


# --- SQLite --------------------------------------------------------------------------------------------------------


class SQLiteStorage(Storage):
    """Two files; every client of one has it open by itself."""

    columns = (UNSIGNED_INT, Column(Width.BIGINT, TICKET_LIMIT))
    has_settings = False
    sees_open_files = True
    needs_room = False
    fences_draws = True

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder

    def _path(self, offset: int) -> Path:
        return self._folder / f"{offset}.sqlite3"

    def _open(self, offset: int, increment: int, timeout: float) -> TicketDatabase:
        return SQLiteDatabase(self._path(offset), offset, increment, timeout)

    async def make_column(self, client: TicketDatabase, sequence: str, column: Column) -> Table:
        return await made(client, sequence, column.width)

    def make_foreign_tables(self) -> Sequence[str]:
        self._execute("CREATE TABLE words (id INTEGER PRIMARY KEY, stub TEXT UNIQUE)")
        return ["words", "_sequences"]

    def seen_by_older_releases(self) -> set[str]:
        rows = self._execute("SELECT name FROM _sequences UNION SELECT sequence FROM _high_water")
        return {str(name) for (name,) in rows}

    def probe_as_an_older_release(self) -> None:
        self._execute(f"UPDATE _database SET probed = {time.time()!r}")

    def probe_as_the_release_before(self, release: str) -> None:
        self._execute(f"REPLACE INTO _servers VALUES ('0ef', '{release}', 'ticket', 1.0, 0.0, {time.time()!r})")

    def age_servers(self, days: int) -> None:
        self._execute(f"UPDATE _servers SET at = at - {days * 86_400}")

    def age_uses(self, seconds: float) -> None:
        self._execute(f"UPDATE _in_use SET at = at - {seconds!r}")

    def write_definition(self, sequence: str, kind: str, parameters: str) -> None:
        self._execute(f"INSERT INTO _kinds VALUES ('{sequence}', '{kind}', '{parameters}')")

    def definitions_of_0_2_0(self) -> list[tuple[str, str, str]]:
        return [tuple(row) for row in self._execute("SELECT sequence, kind, parameters FROM _kinds")]

    def alter_by_hand(self, sequence: str) -> None:
        self._execute(f"UPDATE _sequences SET last = 999 WHERE name = '{sequence}'")

    def drop(self, sequence: str) -> None:
        table = "_inner_sequences" if sequence.startswith("_") else "_sequences"
        self._execute(f"DELETE FROM {table} WHERE name = '{sequence}'")

    def sessions(self) -> frozenset[object]:
        return frozenset()

    async def begin_another_life(self) -> None:
        self._path(1).with_name("1.sqlite3-life").unlink()

    def configure(self, increment: int) -> None:
        """A file has no such setting."""

    def _execute(self, sql: str) -> list[tuple[Any, ...]]:
        with contextlib.closing(sqlite3.connect(self._path(1))) as connection, connection:
            return connection.execute(sql).fetchall()


# --- PostgreSQL ----------------------------------------------------------------------------------------------------


class PostgreSQLStorage(Storage):
    """A schema on each of two running servers, with a user of its own; or on one that no other test has."""

    columns = (UNSIGNED_INT, Column(Width.BIGINT, TICKET_LIMIT))
    has_settings = False
    has_no_earlier_release = True
    renames_itself = True
    needs_room = False
    fences_draws = True
    _numbers = itertools.count(1)

    def __init__(self, servers: Sequence[PostgreSQL]) -> None:
        super().__init__()
        self._servers = servers
        self._server = servers[0]
        self._user = f"engines_{next(self._numbers)}"
        self._made: set[int] = set()

    def _open(self, offset: int, increment: int, timeout: float) -> TicketDatabase:
        server = self._servers[offset - 1]
        if offset not in self._made:
            self._made.add(offset)
            server.make_user(self._user)
        return PostgreSQLDatabase(PostgreSQLURL.parse(server.url_of(self._user)), offset, increment, timeout)

    async def make_column(self, client: TicketDatabase, sequence: str, column: Column) -> Table:
        return await made(client, sequence, column.width)

    def make_foreign_tables(self) -> Sequence[str]:
        self._execute("CREATE TABLE words (id bigint, stub text)")
        self._execute("INSERT INTO ticket_sequences VALUES ('narrow', 0, 16), ('no name', 0, 64), ('_ring', 0, 64)")
        return ["words", "narrow", "no name", "_ring"]

    def seen_by_older_releases(self) -> set[str]:
        return set()  # no release but this one uses it

    def probe_as_an_older_release(self) -> None:
        self._write_server("", ServerEntry("", OLDER, (), 0, uses=None))

    def probe_as_the_release_before(self, release: str) -> None:
        self._write_server("0ef", ServerEntry("0ef", release, ("ticket",), 1.0, uses=None))

    def _write_server(self, instance: str, entry: ServerEntry) -> None:
        self._execute(
            f"INSERT INTO _servers VALUES ('{instance}', '{text_of(entry)}', extract(epoch FROM clock_timestamp())) "
            "ON CONFLICT (instance) DO UPDATE SET seen = excluded.seen"
        )

    def age_servers(self, days: int) -> None:
        self._execute(f"UPDATE _servers SET seen = seen - {days * 86_400}")

    def age_uses(self, seconds: float) -> None:
        self._execute(f"UPDATE _servers SET seen = seen - {seconds!r}")

    def write_definition(self, sequence: str, kind: str, parameters: str) -> None:
        row = f"'{sequence.lower()}', '{sequence}', '{kind}', '{parameters}', true, ''"
        self._execute(f"INSERT INTO _kinds VALUES ({row})")

    def alter_by_hand(self, sequence: str) -> None:
        self._execute(f"UPDATE ticket_sequences SET id = 999 WHERE sequence = '{sequence}'")

    def drop(self, sequence: str) -> None:
        self._execute(f"DELETE FROM ticket_sequences WHERE sequence = '{sequence}'")

    def sessions(self) -> frozenset[object]:
        query = f"SELECT pid FROM pg_stat_activity WHERE usename = '{self._user}'"
        return frozenset(number for (number,) in self._server.rows(query))

    async def begin_another_life(self) -> None:
        await asyncio.to_thread(self._server.restart)

    async def crash(self) -> None:
        await asyncio.to_thread(self._server.restart, kill=True)

    def configure(self, increment: int) -> None:
        """A server has no such setting."""

    def _execute(self, sql: str) -> None:
        self._server.rows(f"SET search_path = {self._user}; {sql}")


# --- the fake ------------------------------------------------------------------------------------------------------


class FakeStorage(Storage):
    """Two servers in memory; every client's statements take other times on their way."""

    has_no_earlier_release = True
    is_rows = False

    def __init__(self) -> None:
        super().__init__()
        self._servers = [FakeServer(offset, INCREMENT, (), _loop_time, is_rows=self.is_rows) for offset in (1, 2)]
        self._latencies = random.Random(1)

    def true_time(self) -> float:
        return TRUE_TIME + _loop_time()

    def monotonic(self) -> float:
        return _loop_time()

    def run(self, scenario: Coroutine[Any, Any, None]) -> None:
        run_in_virtual_time(self._and_close(scenario))

    def _open(self, offset: int, increment: int, timeout: float) -> TicketDatabase:
        server = self._servers[offset - 1]
        return client_of(server, increment=increment, latency=self._latency, timeout=timeout)

    def stand_still(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        loop.clock.now += seconds

    def _latency(self) -> tuple[float, float]:
        return self._latencies.uniform(0, 0.02), self._latencies.uniform(0, 0.02)

    async def make_column(self, client: TicketDatabase, sequence: str, column: Column) -> Table:
        self._servers[0].make(sequence, column.width, 1, unsigned=column.unsigned)
        return (await client.tables([sequence]))[sequence]

    def make_foreign_tables(self) -> Sequence[str]:
        return []

    def seen_by_older_releases(self) -> set[str]:
        return set()  # no release but this one uses it

    def probe_as_an_older_release(self) -> None:
        self._servers[0].older_probe = self._servers[0].time_at(_loop_time())

    def probe_as_the_release_before(self, release: str) -> None:
        self._servers[0].probes(ServerEntry("0ef", release, ("ticket",), 1.0, uses=None), _loop_time())

    def age_servers(self, days: int) -> None:
        servers = self._servers[0].state.servers
        servers.update({key: replace(entry, at=entry.at - days * 86_400) for key, entry in servers.items()})

    def age_uses(self, seconds: float) -> None:
        servers = self._servers[0].state.servers
        servers.update({key: replace(entry, at=entry.at - seconds) for key, entry in servers.items()})

    def write_definition(self, sequence: str, kind: str, parameters: str) -> None:
        self._servers[0].state.kinds[sequence] = Definition.from_text(sequence, kind, parameters)

    def alter_by_hand(self, sequence: str) -> None:
        self._servers[0].table(sequence).advance(999)

    def drop(self, sequence: str) -> None:
        self._servers[0].drop(sequence)

    def sessions(self) -> frozenset[object]:
        return frozenset()

    async def begin_another_life(self) -> None:
        self._servers[0].restart()

    def configure(self, increment: int) -> None:
        self._servers[0].set_global(1, increment)


class RowStorage(FakeStorage):
    """The same with sequences and notes that are rows."""

    columns = (UNSIGNED_INT, Column(Width.BIGINT, TICKET_LIMIT))
    has_settings = False
    needs_room = False
    fences_draws = True
    is_rows = True


def _loop_time() -> float:
    return asyncio.get_running_loop().time()
