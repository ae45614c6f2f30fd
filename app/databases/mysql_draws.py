"""Draws that wait for a connection, as statements: what is sent for each, and what its results mean."""

import asyncio
from dataclasses import dataclass

from app.databases import mysql_statements as sql
from app.databases.mysql_connection import MySQLConnection
from app.databases.protocol import Draw, Table
from app.errors import TicketDatabaseError, TicketDatabaseUnavailable


@dataclass(slots=True, eq=False)
class PendingDraw:
    """`count` tickets that somebody waits for.

    `shared`: other servers draw from the table too, so a block and the id above it seldom meet, and the block is taken
    whole, below an id that is dropped. `alone`: this one met nobody.
    """

    table: Table
    count: int
    after: int
    increment: int
    offset: int
    deadline: float
    future: "asyncio.Future[Draw]"
    shared: bool = False
    ends_only: bool = False
    alone: bool = False

    @property
    def plain(self) -> bool:
        """One ordinary statement, which leaves the connection as it was even when it fails."""
        return self.count <= self.table.rows_per_statement

    @property
    def statement(self) -> str:
        name = self.table.sequence
        if self.plain:
            return sql.draw(name, self.count)
        if self.ends_only:
            return sql.draw_ends(name, self.count, self.after, self.increment, self.offset)
        size = self.count if self.shared else self.count - 1
        return sql.draw_block(name, size, self.after, self.increment, self.offset)

    async def read(self, connection: MySQLConnection) -> Draw | None:
        """Read this draw's results; the first of the packet has been received already when it is ours.

        None: another server drew between a block and the id above it, so that the two are not one block. Both are
        dropped, and the next try takes a whole block below an id that is dropped.
        """
        if self.plain:
            return Draw(connection.insert_id, self.increment, self.count)
        if self.ends_only:
            return await self._read_ends(connection)
        await connection.next()
        await connection.next()
        first = connection.insert_id
        await connection.next()
        await connection.next()
        above = connection.insert_id
        await connection.next()
        last = first + self.increment * (self.count - 1)
        if above > last and self.shared:
            self.alone = above == last + self.increment
            return Draw(first, self.increment, self.count)
        if above == last and not self.shared:
            return Draw(first, self.increment, self.count)
        if above < last:
            raise TicketDatabaseUnavailable(f"gave id {above} after a block that ends at {last}")
        return None

    async def _read_ends(self, connection: MySQLConnection) -> Draw:
        await connection.next()
        first = connection.insert_id
        await connection.next()
        return Draw(first, self.increment, self.count)

    def fail(self, error: TicketDatabaseError) -> None:
        if not self.future.done():
            self.future.set_exception(error)
