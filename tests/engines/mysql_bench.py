"""A database on MySQL or MariaDB for one test: sessions to it, and an operator's statements."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from app.databases.mysql.session import MySQLSession, connect
from app.databases.mysql.url import parse
from app.databases.session import Residue, RingRow, Session
from tests.servers import DatabaseServer, Engine
from tests.servers_shared import FreshDatabase, SharedServers

ODD, EVEN = Residue(1, 2), Residue(2, 2)


class MySQLBench:
    """One database in a server."""

    def __init__(self, server: DatabaseServer, url: str) -> None:
        self.server = server
        self.database = url.rpartition("/")[2]
        self.address = parse(url)
        self.sessions: list[MySQLSession] = []

    async def open(self, residue: Residue | None = ODD, seconds: float = 10.0) -> MySQLSession:
        """Open a session, which is closed at the end of the test."""
        self.sessions.append(await connect(self.address, residue, seconds))
        return self.sessions[-1]

    def run(self, statement: str) -> list[tuple[Any, ...]]:
        """Run a statement as an operator, and return its rows."""
        return self.server.execute(statement, self.database)


@asynccontextmanager
async def mysql_bench(engine: Engine, fresh: FreshDatabase, shared: SharedServers) -> AsyncIterator[MySQLBench]:
    """An empty database; its sessions are closed at the end."""
    bench = MySQLBench(shared.server(engine), fresh(engine))
    yield bench
    for session in bench.sessions:
        session.abort()
    await asyncio.sleep(0)  # lets the transports close


async def record(session: Session, stamp: str) -> RingRow:
    """Write a ring record with this stamp, and return the ring row."""
    old = await session.read_ring()
    new = old._replace(offset=1, stamp=stamp, text="{}")
    assert await session.write_ring(old, new)
    return new
