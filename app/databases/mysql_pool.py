"""The connections of one MySQL or MariaDB ticket database: opened outside any lock, dropped at any doubt.

Nobody waits here for anybody: whoever finds no idle connection opens one. How many there are is bounded by those who
ask: draws (`mysql_draws`), questions (`question`), and the probe.
"""

import asyncio
import ipaddress
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from app.databases.mysql_connection import MySQLConnection, ServerFacts, opened
from app.databases.url import DatabaseURL
from app.errors import (
    SequenceUnavailable,
    TicketDatabaseBusy,
    TicketDatabaseError,
    TicketDatabaseHung,
    TicketDatabaseUnavailable,
)

QUESTIONS_AT_ONCE = 4
"""The most connections for questions at a time: about tables, which may be locked, and as many for the ledger."""
IDLE_SECONDS = 30.0
"""A connection that nothing needed for so long is closed at the next probe."""


class MySQLPool:
    """All connections to one database. `incarnation`: of the last probe; connections to another one are not used."""

    def __init__(self, url: DatabaseURL, offset: int, increment: int, timeout: float) -> None:
        self.timeout = timeout
        self.incarnation: str | None = None
        self.last_answer = 0.0
        """When the database last answered anything, on any connection (time.monotonic)."""
        self._connections: set[MySQLConnection] = set()
        self._opening = 0
        self._url = url
        self._offset = offset
        self._increment = increment
        self._context = url.ssl_context()
        self._idle: list[MySQLConnection] = []
        self._about_tables = asyncio.Semaphore(QUESTIONS_AT_ONCE)
        self._about_marks = asyncio.Semaphore(QUESTIONS_AT_ONCE)
        self._look_up: asyncio.Future[list[Any]] | None = None
        self._closed = False

    @property
    def open(self) -> int:
        """How many connections are open, or about to be."""
        return len(self._connections) + self._opening

    async def connect(self, *, anybody: bool = False) -> MySQLConnection:
        """A new connection to the incarnation of the last probe; `anybody`: to whatever server answers, however it is
        configured.

        Raises TicketDatabaseError.
        """
        if self._closed:
            raise TicketDatabaseUnavailable("is being left")
        await self._wait_for_name()
        self._opening += 1
        try:
            connection = await opened(
                self._url, self._increment, self._offset, self._context, self.timeout, anybody=anybody
            )
        finally:
            self._opening -= 1
        self._connections.add(connection)
        if not anybody and not self._fits(connection.facts):
            self.discard(connection)
            raise TicketDatabaseUnavailable("was restarted or replaced")
        return connection

    async def _wait_for_name(self) -> None:
        """Wait until the host's name resolves, before the driver looks it up.

        Look-ups run in a few threads that all databases share: those of a name that does not resolve must not take
        them all, so there is one at a time.
        """
        if _is_address(self._url.host):
            return
        if self._look_up is None or self._look_up.done():
            look_up = asyncio.get_running_loop().getaddrinfo(self._url.host, self._url.port, type=socket.SOCK_STREAM)
            self._look_up = asyncio.ensure_future(look_up)
            self._look_up.add_done_callback(lambda done: done.cancelled() or done.exception())
        try:
            async with asyncio.timeout(self.timeout):
                await asyncio.shield(self._look_up)
        except OSError as error:  # a timeout is one, too
            raise TicketDatabaseUnavailable("has a name that does not resolve") from error

    def _fits(self, facts: ServerFacts | None) -> bool:
        if facts is None or facts.incarnation != self.incarnation:
            return False
        return (facts.increment, facts.offset) == (self._increment, self._offset)

    @property
    def schema(self) -> str:
        """The name of the database on the server."""
        return self._url.database

    def thread_ids(self) -> set[int]:
        """The server's numbers for the connections of this pool."""
        return {connection.thread_id for connection in self._connections}

    def take_idle(self) -> MySQLConnection | None:
        """An idle connection that nothing is known against, or None."""
        while self._idle:
            connection = self._idle.pop()
            if connection.usable:
                return connection
            self.discard(connection)
        return None

    def give_back(self, connection: MySQLConnection) -> None:
        """Keep it for the next use, unless something is known against it."""
        if connection.usable and not self._closed and self._fits(connection.facts):
            connection.last_used = time.monotonic()
            self._idle.append(connection)
        else:
            self.discard(connection)

    def discard(self, connection: MySQLConnection) -> None:
        """Drop a connection that is not idle."""
        self._connections.discard(connection)
        connection.drop()

    def drop_idle(self) -> None:
        """Drop every idle connection: something is wrong with the server they lead to."""
        while self._idle:
            self.discard(self._idle.pop())

    async def close_unused(self) -> None:
        """Say good-bye on connections that nobody has needed for a while."""
        horizon = time.monotonic() - IDLE_SECONDS
        unused = [connection for connection in self._idle if connection.last_used < horizon]
        self._idle = [connection for connection in self._idle if connection.last_used >= horizon]
        for connection in unused:
            self._connections.discard(connection)
            await connection.say_goodbye()

    @asynccontextmanager
    async def question(
        self, *, patience: float = 1.0, about_marks: bool = False, anybody: bool = False
    ) -> AsyncIterator[MySQLConnection]:
        """A connection for one question, within `patience` times the timeout; raises TicketDatabaseError only.

        Waiting for one's turn is no sign of the database's health, so it has a time of its own.
        """
        limit = self.timeout * patience
        turn = self._about_marks if about_marks else self._about_tables
        try:
            async with asyncio.timeout(limit):
                await turn.acquire()
        except TimeoutError as error:
            raise TicketDatabaseBusy("had no connection free in time") from error
        began = time.monotonic()
        try:
            async with asyncio.timeout(limit):
                connection = self.take_idle() or await self.connect(anybody=anybody)
                try:
                    yield connection
                except TicketDatabaseError:
                    raise
                except BaseException:
                    connection.drop()
                    raise
                else:
                    self.last_answer = time.monotonic()
                finally:
                    self.give_back(connection)
        except TimeoutError as error:
            raise self.hung(began, running=True) from error
        finally:
            turn.release()

    def hung(self, since: float, *, running: bool) -> TicketDatabaseError:
        """What a statement without an answer means: one table's trouble if the database has answered anything since."""
        if self.last_answer <= since:
            return TicketDatabaseHung("did not answer in time")
        if running:
            return SequenceUnavailable("did not answer for this sequence in time: its table may be locked")
        return TicketDatabaseBusy("had no connection free in time")

    async def close(self) -> None:
        """Say good-bye on every idle connection, and open none any more."""
        self._closed = True
        connections, self._idle = self._idle, []
        for connection in connections:
            self._connections.discard(connection)
            try:
                async with asyncio.timeout(self.timeout):
                    await connection.say_goodbye()
            except TimeoutError:
                connection.drop()


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
