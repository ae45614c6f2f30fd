"""A ticket database of MySQL or MariaDB, as the contract tests handle it."""

import asyncio
import itertools
from collections.abc import Sequence
from typing import Any

from app.common.sequences import is_name
from app.databases.mysql.database import MySQLDatabase
from app.databases.mysql.line.url import DatabaseURL
from app.databases.protocol import Table, TicketDatabase
from tests.contract.engines.storages import Column, Storage, until
from tests.harness.pair import MySQLPair
from tests.harness.schema import USER


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
