"""The ticket databases of the contract tests on PostgreSQL: a schema of their own on running servers."""

import asyncio
import itertools
from collections.abc import Sequence

from app.common.sequences import TICKET_LIMIT, Width
from app.databases.note_text import text_of
from app.databases.postgresql.database import PostgreSQLDatabase
from app.databases.postgresql.url import PostgreSQLURL
from app.databases.protocol import OLDER, ServerEntry, Table, TicketDatabase
from tests.contract.engines.storages import UNSIGNED_INT, Column, Storage, made
from tests.harness.postgresql import PostgreSQL


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
