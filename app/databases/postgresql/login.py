"""The login to PostgreSQL by asyncpg, and a guard between asyncpg and the network.

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
from app.databases.postgresql.errors import CLEAR_TEXT, NoTLS, translated
from app.databases.postgresql.url import PostgreSQLAddress
from app.errors import DatabaseRefused, SettingsError

LONGEST_MESSAGE = 1 << 26
"""Bytes. The heartbeats of a thousand ticket servers are one message of four megabytes."""
_AUTHENTICATION, _CLEAR_TEXT = ord("R"), 3
"""A message of this type says how the login goes on; with this number, that the password is wanted in clear text."""
_ASK_FOR_TLS = (8).to_bytes(4) + (80877103).to_bytes(4)
_OTHER_WAY = (asyncpg.InvalidAuthorizationSpecificationError, ConnectionError, ssl.SSLError)
"""The errors after which sslmode=prefer goes on in clear, and sslmode=allow with TLS, as libpq does."""


async def login(address: PostgreSQLAddress, settings: dict[str, str], seconds: float) -> Any:
    """Log in and return a connection of asyncpg.

    settings: of the session, as its reset values. seconds: how long the caller will wait. Raises DatabaseFailed,
    DatabaseRefused.
    """
    try:
        tls = await asyncio.to_thread(address.tls)  # it reads files
    except SettingsError as error:
        raise DatabaseRefused(str(error)) from error
    failed: Exception
    for way in {"prefer": (tls, None), "allow": (None, tls)}.get(address.sslmode, (tls,)):
        guard = _Guard(seconds, way, takes_clear_text=way is not None and address.verifies)
        try:
            # It is given every parameter, because it would read a missing one from the environment or from a file.
            return await asyncpg.connect(
                loop=guard,
                host=address.host,
                port=address.port,
                user=address.user,
                password=address.password or "",
                database=address.database,
                ssl=False,  # the guard has seen to it
                direct_tls=False,
                timeout=None,  # Database has a deadline
                max_cached_statement_lifetime=0,
                server_settings={"application_name": address.application_name, **settings},
                target_session_attrs="any",
                krbsrvname="postgres",
                gsslib="gssapi",
            )
        except Exception as error:  # a server can make the driver raise anything
            guard.abort()
            if guard.refused:
                raise DatabaseRefused(CLEAR_TEXT) from None
            failed = error
            if isinstance(error, asyncpg.InvalidPasswordError) or not isinstance(error, _OTHER_WAY):
                break
    raise translated(failed) from failed


class _Answer(asyncio.Protocol):
    """Reads what the server says to the question for TLS: `said`, which fails where the connection is lost."""

    def __init__(self) -> None:
        self.said: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    def data_received(self, data: bytes) -> None:
        if not self.said.done():
            self.said.set_result(data)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.said.done():
            self.said.set_exception(exc or ConnectionResetError())


class _Guard(asyncio.Protocol):
    """The event loop as the driver sees it, and the protocol between the network and the driver's.

    It passes on what the server sends, while the lengths of the messages are possible. `refused`: the server wanted the
    password in clear text.
    """

    def __init__(self, seconds: float, tls: ssl.SSLContext | None, *, takes_clear_text: bool) -> None:
        self.refused = False
        self._takes_clear_text = takes_clear_text
        self._loop = asyncio.get_running_loop()
        self._seconds = seconds
        self._tls = tls
        self._driver: Any = None
        self._transport: Any = None
        self._head = b""
        """The first bytes of a message, while they do not say enough yet."""
        self._ahead = 0
        """How many bytes of the present message are still to come."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loop, name)

    async def create_connection(self, make: Callable[[], Any], host: str, port: int) -> tuple[Any, Any]:
        """Connect, with TLS where it is wanted. Raises OSError."""
        connected, tls = await dial(host, port, self._seconds), self._tls
        self._driver = driver = make()
        for name in ("connection_lost", "pause_writing", "resume_writing"):
            setattr(self, name, getattr(driver, name))
        if tls is None:
            await self._loop.create_connection(lambda: self, sock=connected)
            return self._transport, driver
        # A transport, for the loop's sock_recv is left in a state of its own by a server that dies at this moment.
        plain, answer = await self._loop.create_connection(_Answer, sock=connected)
        try:
            plain.write(_ASK_FOR_TLS)
            if await answer.said != b"S":
                raise NoTLS
            encrypted = await self._loop.start_tls(plain, self, tls, server_hostname=host)
        except BaseException:
            plain.abort()
            raise
        self.connection_made(encrypted)
        return self._transport, driver

    def abort(self) -> None:
        """Close the connection of a login that failed. The driver forgets some of them."""
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._driver.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        if self._accepts(data):
            self._driver.data_received(data)
        else:
            self._transport.abort()

    def _accepts(self, data: bytes) -> bool:
        """A message is its type, four bytes of length, which the length counts, and its content."""
        known = self._head + data
        at, end = self._ahead, len(known)
        while at + 5 <= end:
            length = int.from_bytes(known[at + 1 : at + 5], signed=True)
            if not 4 <= length <= LONGEST_MESSAGE:
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
