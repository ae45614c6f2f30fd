"""A connection to PostgreSQL by asyncpg.

asyncpg would ask the server to cancel a statement that is given up, on a further connection. Here the connection is
broken off, and the server itself ends the statement, by `statement_timeout`.
"""

import asyncio
import hashlib
import ssl
import time
from contextlib import suppress
from typing import Any

import asyncpg

from app.common.errors import (
    TicketDatabaseError,
    TicketDatabaseMisconfigured,
    TicketDatabaseSetWrong,
    TicketDatabaseUnavailable,
)
from app.databases.line import SMALL_ANSWER
from app.databases.postgresql import sql
from app.databases.postgresql.errors import POOLED, translated
from app.databases.postgresql.url import PostgreSQLURL, SslMode

OLDEST = 13
_DRIVERS = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError)
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


class PostgreSQLConnection:
    """See Connection. `driver`: what statements are sent with. `facts`: the row of `sql.FACTS`. `tls`: whether it is
    encrypted."""

    def __init__(self, driver: Any, facts: Any) -> None:
        self.driver = driver
        self.facts = facts
        parts = "/".join(str(facts[each]) for each in ("system", "started", "timeline", "database", "schema"))
        self.life = hashlib.blake2b(parts.encode(), digest_size=10).hexdigest()
        self.identity = f"{facts['system']}-{facts['started']}"
        self.opened = time.monotonic()
        transport = driver._transport
        self.tls = transport.get_extra_info("ssl_object") is not None
        self._bound = Bounded(driver._protocol, transport)
        transport.set_protocol(self._bound)

    @classmethod
    async def open(cls, url: PostgreSQLURL, context: ssl.SSLContext | None, seconds: float) -> "PostgreSQLConnection":
        """Log in, prepare the session and see which server it is. `seconds`: for one statement. Raises
        TicketDatabaseError."""
        try:
            driver = await _logged_in(url, context)
        except (*_DRIVERS, ValueError) as error:
            raise _unreached(error) from error
        try:
            await driver.execute(sql.prepare(int(seconds * 1000)))
            facts = await driver.fetchrow(sql.FACTS)
            _check(facts, driver.get_server_pid())
            return cls(driver, facts)
        except _DRIVERS as error:
            driver.terminate()
            raise translated(error) from error
        except BaseException:
            driver.terminate()
            raise

    @property
    def usable(self) -> bool:
        """See Connection.usable."""
        return not self.driver.is_closed() and not self.driver.is_in_transaction()

    def expect(self, most: int) -> None:
        """See Connection.expect."""
        self._bound.left = most

    def translated(self, error: Exception) -> TicketDatabaseError | None:
        """See Connection.translated."""
        return translated(error) if isinstance(error, _DRIVERS) else None

    def drop(self) -> None:
        """See Connection.drop."""
        if not self.driver.is_closed():
            self.driver.terminate()

    async def leave(self) -> None:
        """See Connection.leave."""
        with suppress(*_DRIVERS):
            await self.driver.close()


def _check(facts: Any, process: int) -> None:
    """Raise TicketDatabaseMisconfigured where tickets cannot be drawn from what was found. `process`: the number that
    was said at the login."""
    if facts["process"] != process:
        raise TicketDatabaseSetWrong(POOLED.wrong, POOLED.fix)
    if facts["version"] < OLDEST * 10_000:
        raise TicketDatabaseMisconfigured(f"is PostgreSQL {facts['version'] // 10_000}, expected {OLDEST} or later")
    if facts["schema"] is None:
        raise TicketDatabaseSetWrong("has no schema in this user's search path", "create one, or set search_path")


async def _logged_in(url: PostgreSQLURL, context: ssl.SSLContext | None) -> Any:
    """As libpq tries: sslmode=prefer goes on in clear where TLS is refused, sslmode=allow the other way round."""

    async def attempt(tls: ssl.SSLContext | bool) -> Any:
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


def _unreached(error: Exception) -> TicketDatabaseError:
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
