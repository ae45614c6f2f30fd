"""A connection to PostgreSQL by asyncpg.

asyncpg would ask the server to cancel a statement that is given up, on a further connection. Here the connection is
broken off, and the server itself ends the statement, by `statement_timeout`.
"""

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
from app.databases.postgresql import sql
from app.databases.postgresql.errors import CLEAR_TEXT, POOLED, translated
from app.databases.postgresql.guard import Guard, GuardedLoop
from app.databases.postgresql.url import PostgreSQLURL, SslMode

OLDEST = 13
_DRIVERS = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError)
_REFUSED = (asyncpg.InvalidAuthorizationSpecificationError, ConnectionError, ssl.SSLError)


class PostgreSQLConnection:
    """See Connection. `driver`: what statements are sent with. `facts`: the row of `sql.FACTS`. `tls`: whether it is
    encrypted."""

    def __init__(self, driver: Any, guard: Guard, facts: Any) -> None:
        self.driver = driver
        self._guard = guard
        self.facts = facts
        parts = "/".join(str(facts[each]) for each in ("system", "started", "timeline", "database", "schema"))
        self.life = hashlib.blake2b(parts.encode(), digest_size=10).hexdigest()
        self.identity = f"{facts['system']}-{facts['started']}"
        self.opened = time.monotonic()
        self.tls = driver._transport.get_extra_info("ssl_object") is not None

    @classmethod
    async def open(cls, url: PostgreSQLURL, context: ssl.SSLContext | None, seconds: float) -> "PostgreSQLConnection":
        """Log in, prepare the session and see which server it is. `seconds`: for one statement. Raises
        TicketDatabaseError."""
        try:
            driver, guard = await _logged_in(url, context)
        except TicketDatabaseError:
            raise
        except Exception as error:
            raise _unreached(error) from error
        try:
            await driver.execute(sql.prepare(int(seconds * 1000)))
            facts = await driver.fetchrow(sql.FACTS)
            _check(facts, driver.get_server_pid())
            return cls(driver, guard, facts)
        except BaseException as error:
            driver.terminate()
            if isinstance(error, TicketDatabaseError) or not isinstance(error, Exception):
                raise
            raise _unreached(error) from error

    @property
    def usable(self) -> bool:
        """See Connection.usable."""
        return not self.driver.is_closed() and not self.driver.is_in_transaction()

    def expect(self, most: int) -> None:
        """See Connection.expect."""
        self._guard.left = most

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
    """Raise TicketDatabaseMisconfigured if tickets cannot be drawn from this server. `process`: the process number that
    the server named at the login."""
    if facts["process"] != process:
        raise TicketDatabaseSetWrong(*POOLED)
    if facts["version"] < OLDEST * 10_000:
        raise TicketDatabaseMisconfigured(f"is PostgreSQL {facts['version'] // 10_000}, expected {OLDEST} or later")
    if facts["schema"] is None:
        raise TicketDatabaseSetWrong("has no schema in this user's search path", "create one, or set search_path")


async def _logged_in(url: PostgreSQLURL, context: ssl.SSLContext | None) -> tuple[Any, Guard]:
    """As libpq tries: sslmode=prefer goes on in clear where TLS is refused, sslmode=allow the other way round."""

    async def attempt(tls: ssl.SSLContext | bool) -> tuple[Any, Guard]:
        loop = GuardedLoop(takes_clear_text=url.verifies)
        try:
            driver = await _connect(url, tls, loop)
        except Exception:
            if loop.guard is not None and loop.guard.refused:
                raise TicketDatabaseSetWrong(*CLEAR_TEXT) from None
            raise
        assert loop.guard is not None
        driver._loop = loop.loop  # it asks for the task that runs there
        return driver, loop.guard

    if context is None or url.sslmode not in (SslMode.ALLOW, SslMode.PREFER):
        return await attempt(context or False)
    first, second = (context, False) if url.sslmode is SslMode.PREFER else (False, context)
    try:
        return await attempt(first)
    except asyncpg.InvalidPasswordError:
        raise
    except _REFUSED:
        return await attempt(second)


async def _connect(url: PostgreSQLURL, tls: ssl.SSLContext | bool, loop: GuardedLoop) -> Any:
    """Give the driver every parameter: it would read a missing one from the environment or from a file."""
    return await asyncpg.connect(
        loop=loop,
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


def _unreached(error: Exception) -> TicketDatabaseError:
    """The error of a login, which may be any: a server of another kind can make the driver raise whatever it likes."""
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
