"""The connections of one MySQL or MariaDB ticket database: opened outside any lock, dropped at any doubt.

A caller that finds no idle connection opens one, so callers do not wait for each other. The callers bound the number of
connections: draws (`draws`), questions (`question`), and the probe.

If the name service is away, new connections go to the addresses that it gave last. If the server has no further
connection to give, three rules protect the open ones. A caller waits until another caller gives a connection back. The
pool never closes its last idle connection. It drops a connection only after another one has taken its place.
"""

import asyncio
import socket
import time
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from app.common.addresses import is_ip_address
from app.common.errors import (
    NoFurtherConnection,
    SequenceUnavailable,
    TicketDatabaseBusy,
    TicketDatabaseError,
    TicketDatabaseHung,
    TicketDatabaseUnavailable,
)
from app.common.patience import patience
from app.databases.mysql.line.connection import MySQLConnection, opened
from app.databases.mysql.line.driver import code_of, is_out_of_files
from app.databases.mysql.line.errors import NO_FURTHER_CONNECTION
from app.databases.mysql.line.server_facts import ServerFacts
from app.databases.mysql.line.url import DatabaseURL

QUESTIONS_AT_ONCE = 4
"""The most connections for questions at a time: about tables, which may be locked, and as many for the ledger."""
IDLE_SECONDS = 30.0
"""A connection that nothing needed for so long is closed at the next probe; one stays."""
REFUSED_SECONDS = 3.0
"""For so long after the server had no further connection to give, no other is asked for while there is one."""
NAME_PATIENCE = 0.25
"""Which part of the timeout a new connection waits for the name service, once it has answered."""


class MySQLPool:
    """All connections to one database. `incarnation`: of the last probe; connections to another one are not used.
    `anybody`: they are, to whatever server answers, however it is configured: for a look that changes nothing."""

    def __init__(self, url: DatabaseURL, offset: int, increment: int, timeout: float, *, anybody: bool = False) -> None:
        self.timeout = timeout
        self.anybody = anybody
        self.incarnation: str | None = None
        self.last_answer = 0.0
        """When the database last answered anything, on any connection (time.monotonic)."""
        self._connections: set[MySQLConnection] = set()
        self._opening = 0
        self._era = self._oldest_era = 0
        self._url = url
        self._offset = offset
        self._increment = increment
        self._context = url.ssl_context()
        self._idle: list[MySQLConnection] = []
        self._about_tables = asyncio.Semaphore(QUESTIONS_AT_ONCE)
        self._about_marks = asyncio.Semaphore(QUESTIONS_AT_ONCE)
        self._look_up: asyncio.Future[list[Any]] | None = None
        self._addresses: list[str] = []
        self._name_away = False
        self._refused: str | None = None
        self._refused_until = 0.0
        self._waiting: deque[asyncio.Future[MySQLConnection]] = deque()
        self._closed = False

    @property
    def open(self) -> int:
        """How many connections are open, or about to be."""
        return len(self._connections) + self._opening

    async def connect(self, *, anybody: bool = False) -> MySQLConnection:
        """A new connection to the incarnation of the last probe; `anybody`: to whatever server answers, however it is
        configured.

        Raises TicketDatabaseError, NoFurtherConnection where that says nothing about the connections there are.
        """
        if self._closed:
            raise TicketDatabaseUnavailable("is being left")
        anybody = anybody or self.anybody
        era = self._era
        addresses = await self._look_name_up()
        self._opening += 1
        try:
            connection = await opened(
                self._url,
                self._increment,
                self._offset,
                self._context,
                self.timeout,
                addresses=addresses,
                anybody=anybody,
            )
        except TicketDatabaseError as error:
            if code_of(error) in NO_FURTHER_CONNECTION or is_out_of_files(error):
                self._refused = str(error)
                self._refused_until = time.monotonic() + REFUSED_SECONDS
                raise NoFurtherConnection(str(error)) from error
            raise
        finally:
            self._opening -= 1
        connection.era = era
        self._connections.add(connection)
        self._refused = None
        if not anybody and not self._fits(connection.facts):
            self.discard(connection)
            raise TicketDatabaseUnavailable("was restarted or replaced")
        return connection

    async def connection(self, *, anybody: bool = False) -> MySQLConnection:
        """An idle connection, or a new one, or the next that a caller gives back. Raises TicketDatabaseError."""
        connection = self.take_idle()
        if connection is not None:
            return connection
        if self._refused is not None and self.open and time.monotonic() < self._refused_until:
            return await self.given_back(NoFurtherConnection(self._refused))
        try:
            return await self.connect(anybody=anybody)
        except NoFurtherConnection as error:
            return await self.given_back(error)

    async def given_back(self, error: NoFurtherConnection) -> MySQLConnection:
        """The next connection that is idle; raises `error` where none can be waited for any longer."""
        connection = self.take_idle()
        if connection is not None:
            return connection
        if not self.open:
            raise error
        given: asyncio.Future[MySQLConnection] = asyncio.get_running_loop().create_future()
        self._waiting.append(given)
        try:
            async with asyncio.timeout(self.timeout / 2):
                return await given
        except BaseException as reason:
            if given in self._waiting:
                self._waiting.remove(given)
            elif given.done() and not given.cancelled():
                self.give_back(given.result())
            if isinstance(reason, TimeoutError):
                raise error from reason
            raise

    @property
    def warnings(self) -> tuple[str, ...]:
        """Faults of new connections, while the open ones go on working."""
        found = []
        if self._refused is not None:
            found.append(f"new connections fail: {self._refused}")
        if self._name_away:
            found.append("new connections go to the addresses known last: its name does not resolve")
        return tuple(found)

    @property
    def last_of_all(self) -> bool:
        """Whether no connection is open but one, and no further one can be had."""
        return self._refused is not None and self.open == 1

    async def _look_name_up(self) -> list[str]:
        """The host's addresses: as the name service gives them now or, where it does not answer soon, gave them last.

        The driver gets these instead of the name, which it would look up again, without an end. A name service that is
        away says nothing about the server; and who answers at an old address is checked against the last probe's
        incarnation, like any other. Look-ups run in a few threads that all databases share: those of a name that does
        not resolve must not take them all, so there is one at a time.
        """
        if is_ip_address(self._url.host):
            return [self._url.host]
        if self._look_up is None or self._look_up.done():
            look_up = asyncio.get_running_loop().getaddrinfo(self._url.host, self._url.port, type=socket.SOCK_STREAM)
            self._look_up = asyncio.ensure_future(look_up)
            self._look_up.add_done_callback(self._looked_up)
        try:
            async with asyncio.timeout(self.timeout * (NAME_PATIENCE if self._addresses else 1)):
                await asyncio.shield(self._look_up)
        except OSError as error:  # a timeout is one, too
            if not self._addresses:
                raise TicketDatabaseUnavailable("has a name that does not resolve") from error
            self._name_away = True
        return self._addresses

    def _looked_up(self, look_up: "asyncio.Future[list[Any]]") -> None:
        if not look_up.cancelled() and look_up.exception() is None:
            self._addresses = list(dict.fromkeys(str(found[4][0]) for found in look_up.result()))
            self._name_away = False

    def _fits(self, facts: ServerFacts | None) -> bool:
        if self.anybody:
            return True
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
        is_kept = connection.era >= self._oldest_era and self._fits(connection.facts)
        if connection.usable and not self._closed and is_kept:
            connection.last_used = time.monotonic()
            while self._waiting:
                given = self._waiting.popleft()
                if not given.done():
                    given.set_result(connection)
                    return
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

    def begin_era(self) -> None:
        """Something was wrong on the connections there are, and on those that are being opened now: they are used until
        `drop_older`, and not kept then."""
        self._era += 1

    def drop_older(self) -> None:
        """There is a connection of the present era: drop the idle ones of any before, and keep no other one of them."""
        self._oldest_era = self._era
        older = [connection for connection in self._idle if connection.era < self._era]
        self._idle = [connection for connection in self._idle if connection.era >= self._era]
        for connection in older:
            self.discard(connection)

    async def close_unused(self) -> None:
        """End the connections that have been idle for a while."""
        horizon = time.monotonic() - IDLE_SECONDS
        unused = [connection for connection in self._idle[:-1] if connection.last_used < horizon]
        self._idle = [connection for connection in self._idle if connection not in unused]
        for connection in unused:
            self._connections.discard(connection)
            await connection.say_goodbye()

    @asynccontextmanager
    async def question(
        self, *, times: float = 1.0, about_marks: bool = False, anybody: bool = False
    ) -> AsyncIterator[MySQLConnection]:
        """A connection for one question, within `times` times the timeout; raises TicketDatabaseError only.

        Waiting for one's turn is no sign of the database's health, so it has a time of its own.
        """
        limit = self.timeout * times
        turn = self._about_marks if about_marks else self._about_tables
        try:
            async with asyncio.timeout(limit):
                await turn.acquire()
        except TimeoutError as error:
            raise TicketDatabaseBusy("had no connection free in time") from error
        began = time.monotonic()
        try:
            async with patience(limit):
                connection = await self.connection(anybody=anybody)
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
        """The error of a statement without an answer: one table's fault if the database has answered anything since."""
        if self.last_answer <= since:
            return TicketDatabaseHung("did not answer in time")
        if running:
            return SequenceUnavailable("did not answer for this sequence in time: its table may be locked")
        return TicketDatabaseBusy("had no connection free in time")

    async def close(self) -> None:
        """End every idle connection in good order, and open none any more."""
        self._closed = True
        connections, self._idle = self._idle, []
        for connection in connections:
            self._connections.discard(connection)
            try:
                async with asyncio.timeout(self.timeout):
                    await connection.say_goodbye()
            except TimeoutError:
                connection.drop()
