"""A connection to PostgreSQL, opened when it is needed, with one statement or transaction under way at a time.

The connection is dropped at any doubt: after an error that leaves it in a transaction, at a timeout, where its caller
is cancelled. asyncpg would ask the server to cancel the statement then, on a further connection. Here the server itself
ends it, by `statement_timeout`.
"""

import asyncio
import hashlib
import ssl
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

import asyncpg

from app.common.errors import (
    TicketDatabaseBusy,
    TicketDatabaseError,
    TicketDatabaseHung,
    TicketDatabaseMisconfigured,
    TicketDatabaseSetWrong,
    TicketDatabaseUnavailable,
)
from app.common.patience import patience
from app.databases.postgresql import sql
from app.databases.postgresql.errors import POOLED, translated
from app.databases.postgresql.url import PostgreSQLURL, SslMode

T = TypeVar("T")
Work = Callable[["asyncpg.Connection[asyncpg.Record]"], Awaitable[T]]

OLDEST = 13
SMALL_ANSWER = 256 * 1024
"""Bytes that the answer to one statement may have, unless it is a listing."""
_REFUSED = (asyncpg.InvalidAuthorizationSpecificationError, ConnectionError, ssl.SSLError)


class Bounded(asyncio.Protocol):
    """Passes on what the server sends to the driver, and breaks the connection off where it sends too much."""

    def __init__(self, driver: asyncio.Protocol, transport: asyncio.Transport) -> None:
        self.left = SMALL_ANSWER
        self._driver = driver
        self._transport = transport
        self.pause_writing, self.resume_writing = driver.pause_writing, driver.resume_writing  # type: ignore[method-assign]
        self.connection_lost, self.eof_received = driver.connection_lost, driver.eof_received  # type: ignore[method-assign]

    def data_received(self, data: bytes) -> None:
        self.left -= len(data)
        if self.left < 0:
            self._transport.abort()
        else:
            self._driver.data_received(data)


class Connection:
    """An open connection. `life`: of the server and database that it leads to. `standby`: whether that takes no writes.
    `tls`: whether it is encrypted. `facts`: the row of `sql.FACTS`."""

    def __init__(self, driver: "asyncpg.Connection[asyncpg.Record]", facts: "asyncpg.Record") -> None:
        self.driver = driver
        self.facts = facts
        parts = "/".join(str(facts[each]) for each in ("system", "started", "timeline", "database", "schema"))
        self.life = hashlib.blake2b(parts.encode(), digest_size=10).hexdigest()
        self.identity = f"{facts['system']}-{facts['started']}"
        self.opened = time.monotonic()
        transport = driver._transport
        self.tls = transport.get_extra_info("ssl_object") is not None
        self.bound = Bounded(driver._protocol, transport)
        transport.set_protocol(self.bound)

    @classmethod
    async def open(cls, url: PostgreSQLURL, context: ssl.SSLContext | None, seconds: float) -> "Connection":
        """Log in, prepare the session and see which server it is. `seconds`: for one statement. Raises what the driver
        raises, and TicketDatabaseMisconfigured where tickets cannot be drawn from what is found."""
        driver = await _logged_in(url, context)
        try:
            await driver.execute(sql.prepare(int(seconds * 1000)))
            facts = await driver.fetchrow(sql.FACTS)
            assert facts is not None
            if facts["process"] != driver.get_server_pid():
                raise TicketDatabaseSetWrong(POOLED.wrong, POOLED.fix)
            if facts["version"] < OLDEST * 10_000:
                raise TicketDatabaseMisconfigured(
                    f"is PostgreSQL {facts['version'] // 10_000}, expected {OLDEST} or later"
                )
            if facts["schema"] is None:
                raise TicketDatabaseSetWrong(
                    "has no schema in this user's search path", "create one, or set search_path"
                )
            return cls(driver, facts)
        except BaseException:
            driver.terminate()
            raise


async def _logged_in(url: PostgreSQLURL, context: ssl.SSLContext | None) -> "asyncpg.Connection[asyncpg.Record]":
    """As libpq tries: sslmode=prefer goes on in clear where TLS is refused, sslmode=allow the other way round."""

    async def attempt(tls: ssl.SSLContext | bool) -> "asyncpg.Connection[asyncpg.Record]":
        """Every word is given, since the driver takes what is missing from the environment and from files."""
        return await asyncpg.connect(
            host=url.host,
            port=url.port,
            user=url.user,
            password=url.password or "",
            database=url.database,
            ssl=tls,
            direct_tls=False,
            timeout=3600,  # ours is shorter
            max_cached_statement_lifetime=0,
            server_settings={"application_name": url.application_name},
            target_session_attrs="any",
            krbsrvname="postgres",
            gsslib="gssapi",
        )

    if context is None or url.sslmode not in (SslMode.ALLOW, SslMode.PREFER):
        return await attempt(context or False)
    first, second = (context, False) if url.sslmode is SslMode.PREFER else (False, context)
    try:
        return await attempt(first)
    except asyncpg.InvalidPasswordError:
        raise
    except _REFUSED:
        return await attempt(second)


class Line:
    """A place for one connection. Statements take turns on it. `life`, where it is given to `run`, is the only one that
    the statement may run in: of another one, TicketDatabaseUnavailable is raised and nothing is sent."""

    def __init__(self, url: PostgreSQLURL, timeout: float) -> None:
        self._url = url
        self._context = url.ssl_context()
        self._timeout = timeout
        self._turn = asyncio.Lock()
        self.connection: Connection | None = None
        self.busy = 0
        self.closed = False

    async def run(self, work: Work[T], life: str | None = None, *, most: int = SMALL_ANSWER, new: bool = False) -> T:
        """What `work` returns. `most`: bytes that the server may answer. `new`: on a new connection, if one can be had.

        Raises TicketDatabaseError alone, within the timeout. Time in which this process stood still does not count.
        """
        self.busy += 1
        try:
            async with patience(self._timeout), self._turn:
                return await self._run(work, life, most=most, new=new)
        except TimeoutError as error:
            raise TicketDatabaseHung("did not answer in time") from error
        finally:
            self.busy -= 1

    async def _run(self, work: Work[T], life: str | None, *, most: int, new: bool) -> T:
        connection = await self._ready(new=new)
        if life is not None and connection.life != life:
            self.drop()
            raise TicketDatabaseUnavailable("was restarted or replaced")
        connection.bound.left = most
        try:
            return await _unless_cancelled(work(connection.driver), self.drop)
        except TicketDatabaseError:
            self._drop_unless_clean()
            raise
        except (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError) as error:
            found = translated(error)
            if not isinstance(found, TicketDatabaseBusy):
                self.drop()
            self._drop_unless_clean()
            raise found from error

    async def _ready(self, *, new: bool) -> Connection:
        if self.closed:
            raise TicketDatabaseUnavailable("is being left")
        old = self.connection
        if old is not None and old.driver.is_closed():
            self.drop()
            old = None
        if old is not None and not new:
            return old
        opening = Connection.open(self._url, self._context, self._timeout)
        try:
            found = await opening
        except TicketDatabaseError:
            raise
        except (
            asyncpg.PostgresError,
            asyncpg.InterfaceError,
            asyncpg.InternalClientError,
            OSError,
            ValueError,
        ) as error:
            refused = _while_connecting(error)
            if old is not None and isinstance(refused, TicketDatabaseBusy):
                return old
            raise refused from error
        self.drop()
        self.connection = found
        return found

    def _drop_unless_clean(self) -> None:
        connection = self.connection
        if connection is not None and (connection.driver.is_closed() or connection.driver.is_in_transaction()):
            self.drop()

    def drop(self) -> None:
        """Break the connection off, if there is one."""
        connection, self.connection = self.connection, None
        if connection is not None and not connection.driver.is_closed():
            connection.driver.terminate()

    async def leave(self) -> None:
        """End the connection in good order, after what is under way; another one is opened when it is needed."""
        try:
            async with patience(self._timeout), self._turn:
                connection, self.connection = self.connection, None
                if connection is not None:
                    await connection.driver.close(timeout=self._timeout)
        except (TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError, OSError):
            self.drop()


async def _unless_cancelled(work: Awaitable[T], drop: Callable[[], None]) -> T:
    """What `work` returns. Where its caller gives up, the connection is dropped, which ends the work."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        drop()
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        raise


def _while_connecting(error: Exception) -> TicketDatabaseError:
    if isinstance(error, asyncpg.PostgresError) and not isinstance(error, asyncpg.ConnectionDoesNotExistError):
        return translated(error)
    if isinstance(error, ssl.SSLCertVerificationError):
        return TicketDatabaseUnavailable("has a TLS certificate that cannot be verified")
    if isinstance(error, ssl.SSLError):
        return TicketDatabaseUnavailable("cannot agree on TLS")
    if isinstance(error, ConnectionRefusedError):
        return TicketDatabaseUnavailable("refuses connections")
    if isinstance(error, ConnectionError) and "SSL" in str(error):
        return TicketDatabaseUnavailable("does not offer TLS")
    return TicketDatabaseUnavailable("cannot be reached")
