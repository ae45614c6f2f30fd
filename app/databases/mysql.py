"""A ticket database on MySQL or MariaDB: its probe here, its draws, tables and ledger in the modules beside it."""

import asyncio
import time
from collections.abc import Callable

from app.databases import mysql_statements as sql
from app.databases.mysql_connection import MySQLConnection
from app.databases.mysql_draws import DrawQueue
from app.databases.mysql_ledger import MySQLLedger
from app.databases.mysql_pool import MySQLPool
from app.databases.mysql_rows import layout_of
from app.databases.mysql_tables import MySQLTables
from app.databases.protocol import Draw, Drawn, Look, Table
from app.databases.url import DatabaseURL
from app.errors import SequenceMissing, TicketDatabaseError, TicketDatabaseUnavailable

PROBE_CONNECTION_SECONDS = 10.0
"""A probe's connection is not used longer: an old one may lead to a server that new ones no longer reach."""


class MySQLDatabase(MySQLTables, MySQLLedger):
    """One MySQL or MariaDB server as a ticket database; owns all its connections."""

    def __init__(
        self,
        url: DatabaseURL,
        offset: int,
        increment: int,
        timeout: float,
        on_retry: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.name = url.name
        self.offset = offset
        self.increment = increment
        self.largest_block = sql.LARGEST_INCREMENT // increment
        self._timeout = timeout
        self._on_retry = on_retry
        self._pool = MySQLPool(url, offset, increment, timeout)
        self._draws = DrawQueue(self._pool, offset, increment, on_retry)
        self._probe: MySQLConnection | None = None
        self._looking = asyncio.Lock()
        self._layout_warnings: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"<MySQLDatabase {self.name} offset {self.offset}, {self.connections} connections>"

    @property
    def connections(self) -> int:
        """How many connections are open."""
        return self._pool.open

    async def draw(self, table: Table, count: int, after: int) -> Draw:
        """See TicketDatabase.draw."""
        return await self._draws.draw(table, count, after)

    def draw_at_once(self, table: Table, count: int, after: int, done: Callable[[Drawn], None]) -> bool:
        """See TicketDatabase.draw_at_once."""
        return self._draws.draw_at_once(table, count, after, done)

    async def look(self) -> Look:
        """See TicketDatabase.look."""
        try:
            # one at a time: the probe loop of another database may look at this one too, on the same connection
            async with asyncio.timeout(self._timeout), self._looking:
                return await self._look()
        except TimeoutError as error:
            self._drop_probe()
            raise TicketDatabaseUnavailable("did not answer in time") from error
        except TicketDatabaseError:
            # a fresh connection next time: what is wrong may have been put right for new ones only
            self._drop_probe()
            raise

    async def _look(self) -> Look:
        probe = self._probe
        if probe is None or not probe.usable or time.monotonic() > probe.last_used + PROBE_CONNECTION_SECONDS:
            self._drop_probe()
            probe = self._probe = await self._pool.connect(anybody=True)
            probe.last_used = time.monotonic()
            facts = probe.facts
            assert facts is not None
            await self._prepare_own_tables(probe)
        else:
            facts = await probe.check()
        began = time.monotonic()
        await probe.execute(sql.PROBE)
        self._pool.last_answer = time.monotonic()
        self._draws.ends_only = facts.autoinc_lock_mode == 0
        await self._pool.close_unused()
        if self._pool.incarnation != facts.incarnation:  # at the very end: nobody draws before the caller knows it
            self._pool.incarnation = facts.incarnation
            self._pool.drop_idle()
        return Look(
            incarnation=facts.incarnation,
            identity=facts.identity,
            version=facts.version,
            now=facts.now,
            latency=self._pool.last_answer - began,
            warnings=facts.durability + self._layout_warnings,
        )

    async def _prepare_own_tables(self, probe: MySQLConnection) -> None:
        """Make the server's own tables where they are missing; needs no privilege where they are there."""
        try:
            version = await probe.ask(sql.LAYOUT, layout_of)
            await probe.execute(sql.OWN_TABLES_ARE_THERE)
        except SequenceMissing:
            version = 0
        if not version:
            for statement in sql.OWN_TABLES:
                await probe.execute(statement)
            version = sql.LAYOUT_VERSION
        self._layout_warnings = ()
        if version > sql.LAYOUT_VERSION:
            known = sql.LAYOUT_VERSION
            self._layout_warnings = (f"its own tables have version {version}, newer than this server's {known}",)

    def _drop_probe(self) -> None:
        if self._probe is not None:
            self._pool.discard(self._probe)
            self._probe = None

    def forget_connections(self) -> None:
        """See TicketDatabase.forget_connections."""
        self._drop_probe()
        self._pool.drop_idle()

    async def close(self) -> None:
        """See TicketDatabase.close."""
        await self._draws.close()
        if self._probe is not None:
            probe, self._probe = self._probe, None
            self._pool.give_back(probe)
        await self._pool.close()
