"""One database of PostgreSQL: sessions of a ticket server to it, and what others do there."""

import asyncio
import contextlib
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from app.databases.session import Residue, Session
from tests.engines.bench import ODD, Bench, server_bench
from tests.servers import DatabaseServer


class PostgreSQLBench(Bench):
    """A database in a server."""

    def __init__(self, server: DatabaseServer, database: str = "postgres") -> None:
        super().__init__(**vars(server_bench(server, database)))
        self.server = server
        self.database = database

    async def open(self, residue: Residue | None = ODD, seconds: float = 10.0, **changes: Any) -> Session:
        """Open a session. `changes` of the address."""
        self.sessions.append(await self.connect(replace(self.address, **changes), residue, seconds))
        return self.sessions[-1]

    def run(self, *statements: str) -> list[tuple[Any, ...]]:
        """Run statements as the superuser, each by itself, and return the rows of the last one."""
        return [self.server.execute(statement, self.database) for statement in statements][-1]

    @contextlib.contextmanager
    def transaction(self, statement: str) -> Iterator[Any]:
        """A transaction of somebody else, which has run a statement. The test commits it; else it is undone."""
        with contextlib.closing(self.server.connect(self.database)) as connection:
            connection.autocommit = False
            connection.execute(statement)
            yield connection

    async def wait_for_locks(self, statements: int = 1) -> None:
        """Return when this number of statements wait for locks."""
        query = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
        async with asyncio.timeout(30):
            while (await asyncio.to_thread(self.run, query))[0][0] < statements:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
