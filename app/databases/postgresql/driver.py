"""asyncpg as this server uses it: the login, a guard between asyncpg and the network, and its errors in our words.

asyncpg sends the password in clear text to any server that asks for it, and a message whose length is negative has it
loop for ever, so that nothing else runs in this process (asyncpg 0.32). It has no setting for either. But it opens its
connections by the event loop that it is given: `_Guard` is that loop, negotiates TLS, and stands before the driver.
"""

import asyncio
import ssl
from collections.abc import Callable
from typing import Any

import asyncpg

from app.databases.dial import dial
from app.databases.postgresql.sql import SET_UP, settings
from app.databases.postgresql.url import PostgreSQLAddress
from app.errors import DatabaseError, DatabaseFailed, DatabaseRefused, SettingsError

POOLED = "is reached through a connection pooler, which loses settings: name PostgreSQL's own host and port in its URL"
CLEAR_TEXT = "asks for the password in clear text: let pg_hba.conf ask for scram-sha-256, or use sslmode=verify-full"
LOCKED = "55P03"


class NoTLS(ConnectionError):
    """The server does not offer TLS."""


class Lost(DatabaseFailed):
    """has lost a table of the ticket server's, or its ring row"""


_REFUSED = {
    **dict.fromkeys(("26000", "42P05"), POOLED),
    "42501": f"does not give this user the privileges that a ticket server needs: {SET_UP}",
    "42703": f"has a table of the ticket server's without a column that it needs: {SET_UP}",
    "3F000": "has no schema in this user's search path: create one, or set search_path",
    "42P10": f"has a table of the ticket server's without its primary key: {SET_UP}",
    "42883": "lacks a function of PostgreSQL 13: use PostgreSQL itself",
}
_FAILED: dict[Any, str] = {
    "08P01": "does not speak PostgreSQL's protocol",
    "25006": "is read-only: name the primary in TICKETS_DATABASES, or see default_transaction_read_only there",
    "28000": "refuses the user, or connections from this host",
    "28P01": "refuses the user or password",
    "55000": "is a standby, which takes no writes",
    "3D000": "has no such database",
    "53100": "has a full disk",
    "53300": "has too many connections",
    LOCKED: "waited too long for a lock: look for an open transaction there (pg_stat_activity)",
    "57014": "ended a statement that took too long",
    "57P01": "is shutting down, or an operator ended the connection",
    "57P03": "is starting up or shutting down",
    ssl.SSLCertVerificationError: "has a TLS certificate that cannot be verified",
    ssl.SSLError: "cannot agree on TLS",
    ConnectionRefusedError: "refuses connections",
    NoTLS: "does not offer TLS",
    **dict.fromkeys(("08003", asyncpg.InterfaceError, ConnectionError), "broke the connection off"),
    OSError: "cannot be reached",
    BaseException: "gave an answer that makes no sense",
}
"""The words for an error, by its SQLSTATE, or by its class if the server did not send it."""


def code_of(error: BaseException | None) -> str:
    """Return PostgreSQL's SQLSTATE; empty where the error did not come from the server."""
    return str(getattr(error, "sqlstate", None) or "")


def translated(error: BaseException) -> DatabaseError:
    """Return the error in our words, which name neither the database nor what the driver says."""
    code = code_of(error)
    if code in _REFUSED or (code == "08P01" and "startup parameter" in str(error)):
        return DatabaseRefused(_REFUSED.get(code, POOLED))
    if code == "42P01":
        return Lost()
    key = code or next(kind for kind in type(error).__mro__ if kind in _FAILED)
    return DatabaseFailed(_FAILED.get(key, f"answered with SQLSTATE {code}"))


_LONGEST_MESSAGE = 1 << 26
"""Bytes. The heartbeats of a thousand ticket servers are one message of four megabytes."""
_AUTHENTICATION, _CLEAR_TEXT = ord("R"), 3
"""A message of this type says how the login goes on; with this number, that the password is wanted in clear text."""
_ASK_FOR_TLS = (8).to_bytes(4) + (80877103).to_bytes(4)
_OTHER_WAY = (asyncpg.InvalidAuthorizationSpecificationError, ConnectionError, ssl.SSLError)
"""The errors after which sslmode=prefer goes on in clear, and sslmode=allow with TLS, as libpq does."""
_ELSE_FROM_ENVIRONMENT = {
    **{"ssl": False, "direct_tls": False},  # the guard sees to TLS
    **{"target_session_attrs": "any", "krbsrvname": "postgres", "gsslib": "gssapi"},
}
"""The driver reads each of its parameters that is missing from the environment or from a file."""


async def login(address: PostgreSQLAddress, seconds: float) -> Any:
    """Return a connection of asyncpg. seconds: the database timeout. Raises DatabaseFailed, DatabaseRefused."""
    try:
        tls = await asyncio.to_thread(address.tls_context)  # it reads files
    except SettingsError as error:
        raise DatabaseRefused(str(error)) from error
    failed: Exception
    for way in {"prefer": (tls, None), "allow": (None, tls)}.get(address.sslmode, (tls,)):
        guard = _Guard(seconds, way)
        try:
            return await asyncpg.connect(
                loop=guard,
                host=address.host,
                port=address.port,
                user=address.user,
                password=address.password or "",
                database=address.database,
                timeout=None,  # Database has a deadline
                max_cached_statement_lifetime=0,
                server_settings={"application_name": address.application_name, **settings(seconds)},
                **_ELSE_FROM_ENVIRONMENT,
            )
        except BaseException as error:  # a server can make the driver raise anything
            guard.abort()
            if not isinstance(error, Exception):
                raise
            failed = error
        if guard.refused:
            raise DatabaseRefused(CLEAR_TEXT)
        if isinstance(failed, asyncpg.InvalidPasswordError) or not isinstance(failed, _OTHER_WAY):
            break
    raise translated(failed) from failed


class _Guard(asyncio.Protocol):
    """The event loop as the driver sees it, and the protocol between the network and the driver's.

    It passes on what the server sends, while the lengths of the messages are possible. `refused`: the server wanted the
    password in clear text.
    """

    def __init__(self, seconds: float, tls: ssl.SSLContext | None) -> None:
        self.refused = False
        self._takes_clear_text = tls is not None and tls.verify_mode is ssl.CERT_REQUIRED
        self._loop = asyncio.get_running_loop()
        self._seconds, self._tls = seconds, tls
        self._answer: asyncio.Future[bytes] = self._loop.create_future()
        """What the server says before the driver begins: to the question for TLS, empty where the connection ends."""
        self._driver: Any = None
        self._transport: Any = None
        self._head, self._ahead = b"", 0
        """The first bytes of a message, while they do not say enough yet; how many bytes of it are still to come."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loop, name)

    async def create_connection(self, make: Callable[[], Any], host: str, port: int) -> tuple[Any, Any]:
        """Connect, with TLS where it is wanted. Raises OSError."""
        # The driver begins last, because it writes at once. If such a write fails inside the loop's create_connection,
        # uvloop closes the descriptor before it keeps the socket; the socket closes the same number again later, when
        # another connection may have it.
        connected = await dial(host, port, self._seconds)
        self._transport, _ = await self._loop.create_connection(lambda: self, sock=connected)
        if self._tls is not None:
            self._transport.write(_ASK_FOR_TLS)
            if (said := await self._answer) != b"S":
                raise NoTLS if said else ConnectionResetError
            self._transport = await self._loop.start_tls(self._transport, self, self._tls, server_hostname=host)
        elif self._answer.done() or self._transport.is_closing():
            raise ConnectionResetError
        self._driver = driver = make()
        for name in ("connection_lost", "pause_writing", "resume_writing"):
            setattr(self, name, getattr(driver, name))
        driver.connection_made(self._transport)
        return self._transport, driver

    def abort(self) -> None:
        """Close the connection of a login that failed. The driver forgets some of them."""
        if self._transport is not None:
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self.data_received(b"")

    def data_received(self, data: bytes) -> None:
        if self._driver is None:
            if not self._answer.done():
                self._answer.set_result(data)
        elif self._accepts(data):
            self._driver.data_received(data)
        else:
            self._transport.abort()

    def _accepts(self, data: bytes) -> bool:
        """A message is its type, four bytes of length, which the length counts, and its content."""
        known = self._head + data
        at, end = self._ahead, len(known)
        while at + 5 <= end:
            length = int.from_bytes(known[at + 1 : at + 5], signed=True)
            if not 4 <= length <= _LONGEST_MESSAGE:
                return False
            if known[at] == _AUTHENTICATION and length >= 8:
                if at + 9 > end:
                    break
                if int.from_bytes(known[at + 5 : at + 9]) == _CLEAR_TEXT and not self._takes_clear_text:
                    self.refused = True
                    return False
            at += 1 + length
        self._head, self._ahead = (known[at:], 0) if at < end else (b"", at - end)
        return True
