"""A ticket database of the embedded pair, as the contract tests handle it."""

import contextlib
import sqlite3
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from app.common.sequences import TICKET_LIMIT, Width
from app.databases.protocol import Table, TicketDatabase
from app.databases.sqlite.database import SQLiteDatabase
from tests.contract.engines.storages import UNSIGNED_INT, Column, Storage, made


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
