"""One database of PostgreSQL: sessions of a ticket server to it, and what others do there."""

import asyncio
import contextlib
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from app.databases.postgresql.session import PostgreSQLSession, connect
from app.databases.postgresql.url import PostgreSQLAddress, parse
from app.databases.session import Residue, RingRow
from tests.servers import DatabaseServer

ODD, EVEN = Residue(1, 2), Residue(2, 2)


class PostgreSQLBench:
    """A database in a server. `close` ends all sessions that `open` returned."""

    def __init__(self, server: DatabaseServer, database: str = "postgres") -> None:
        self.server = server
        self.database = database
        self.address: PostgreSQLAddress = parse(server.url(database))
        self._sessions: list[PostgreSQLSession] = []

    async def open(self, residue: Residue | None = ODD, seconds: float = 10.0, **changes: Any) -> PostgreSQLSession:
        """Open a session. `changes` of the address."""
        session = await connect(replace(self.address, **changes), residue, seconds)
        self._sessions.append(session)
        return session

    async def close(self) -> None:
        """End all sessions."""
        while self._sessions:
            self._sessions.pop().abort()
        await asyncio.sleep(0)  # lets the transports close

    def run(self, *statements: str) -> list[tuple[Any, ...]]:
        """Run statements as the superuser, each by itself, and return the rows of the last one."""
        return [self.server.execute(statement, self.database) for statement in statements][-1]

    @contextlib.contextmanager
    def transaction(self, *statements: str) -> Iterator[Any]:
        """A transaction of somebody else, which has run statements. The test commits it, or it is undone at the end."""
        with contextlib.closing(self.server.connect(self.database)) as connection:
            connection.autocommit = False
            for statement in statements:
                connection.execute(statement)
            yield connection

    async def wait_for_locks(self, statements: int = 1) -> None:
        """Return when this number of statements wait for locks."""
        query = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
        async with asyncio.timeout(30):
            while (await asyncio.to_thread(self.run, query))[0][0] < statements:  # noqa: ASYNC110
                await asyncio.sleep(0.01)


async def record(session: PostgreSQLSession, stamp: str) -> RingRow:
    """Write a ring record with this stamp, and return the ring row."""
    old = await session.read_ring()
    new = old._replace(offset=1, stamp=stamp, text="{}")
    assert await session.write_ring(old, new)
    return new
