"""One connection of the driver, aiomysql on PyMySQL: the only module that imports either.

This module uses parts of both that they do not document. The driver sends the password in whichever form the server
asks for, and goes on in plain text where the server has no TLS. `_Connection` does neither.
"""

import asyncio
import os
import re
import ssl
import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

# The driver asks for the name of its user when it is imported, and a uid in a container may have none.
os.environ.setdefault("LOGNAME", "ticketd")

import aiomysql
import pymysql.err
from aiomysql.connection import _open_connection
from pymysql.constants import CLIENT

from app.databases.dial import dial
from app.databases.mysql.errors import REFUSES_CONNECTIONS, StatementFailed, sequence_error, words
from app.databases.mysql.url import MySQLAddress
from app.errors import DatabaseFailed, DatabaseRefused, SettingsError

Rows = tuple[tuple[Any, ...], ...]

# What the driver raises on an answer that is not MySQL's protocol, or on a connection that was just closed.
_NONSENSE = (struct.error, LookupError, ValueError, ArithmeticError, AssertionError, TypeError, AttributeError)
_FAILURES = (pymysql.err.MySQLError, OSError, EOFError, RuntimeError, *_NONSENSE)
"""All that the driver, and the network under it, can raise."""
_GREETED_BY = ("", "mysql_native_password", "caching_sha2_password")
"""The plugins that answer a server's greeting with a hash that is of no other use."""
_PLUGINS = ("mysql_native_password", "caching_sha2_password", "sha256_password")
_SALT_BYTES = 20
_OLD_SWITCH = b"\xfe"
"""A whole packet: the request for mysql_old_password, whose hash is as good as the password."""


class Result(NamedTuple):
    """The result of one statement.

    rows: what it read. affected: how many rows it made, or found by its conditions; a REPLACE counts a row that was
    there twice. insert_id: the first id that it drew, 0 where it drew none.
    """

    rows: Rows
    affected: int
    insert_id: int


class Line:
    """A connection that has logged in. It sends packets of statements, and reads their results one after the other.

    Its methods raise StatementFailed where the server answers with an error. The server then executes nothing that
    follows in the packet. After any other DatabaseFailed the line is closed, and so it is after a StatementFailed that
    is not about one sequence.

    mariadb: whether the server is MariaDB. version: the server's, as it greets.
    """

    def __init__(self, connection: "_Connection") -> None:
        self._connection = connection
        self.version = str(connection.server_version)
        self.mariadb = "mariadb" in self.version.lower()

    async def step(self, packet: str = "") -> Result:
        """Send a packet, unless it is empty, and return the next result."""
        try:
            await (self._connection.query(packet) if packet else self._connection.next_result())
        except _FAILURES as error:
            failure = _translated(error)
            if not isinstance(failure, StatementFailed) or sequence_error(failure.number) is None:
                self.abort()
            raise failure from error
        except BaseException:
            self.abort()
            raise
        result = self._connection._result
        return Result(tuple(result.rows or ()), int(result.affected_rows or 0), int(result.insert_id or 0))

    async def run(self, statements: Sequence[str]) -> list[Result]:
        """Send statements in one packet, and return their results."""
        packet = ";".join(statements)
        return [await self.step("" if number else packet) for number in range(len(statements))]

    def abort(self) -> None:
        """Close the connection at once."""
        self._connection.close()


async def log_in(address: MySQLAddress, seconds: float) -> Line:
    """Connect and log in. seconds: how long the caller will wait before it cancels this.

    Raises DatabaseFailed, and DatabaseRefused where TLS or the server's way to ask for the password is not acceptable.
    """
    try:
        connection = _Connection(address, await asyncio.to_thread(address.tls))
    except SettingsError as error:
        raise DatabaseFailed(str(error)) from error
    except UnicodeError:
        raise DatabaseRefused("cannot be logged in to, because the password is not UTF-8") from None
    try:
        await connection.open(seconds)
    except _FAILURES as error:
        connection.close()
        raise _translated(error) from error
    except BaseException:
        connection.close()
        raise
    return Line(connection)


def _translated(error: Exception) -> DatabaseFailed:
    """Return our error for one of the driver's, or of the network under it."""
    if isinstance(error, ssl.SSLError) or isinstance(error.__cause__ or error.__context__, ssl.SSLError):
        return DatabaseFailed("could not agree on TLS: the certificate or the protocol does not fit")
    code = error.args[0] if isinstance(error, pymysql.err.MySQLError) and error.args else None
    if isinstance(code, int):
        return DatabaseFailed(words(code)) if 2000 <= code <= 2999 else StatementFailed(words(code), code)
    return DatabaseFailed("answered nonsense" if isinstance(error, _NONSENSE) else "broke the connection off")


class _Connection(aiomysql.Connection):  # type: ignore[misc]
    """Logs in as MySQL's own client does. After the login it is the driver's connection, but for `close`."""

    _ssl_context: ssl.SSLContext | None

    def __init__(self, address: MySQLAddress, context: ssl.SSLContext | None) -> None:
        super().__init__(
            host=address.host,
            port=address.port,
            user=address.user,
            # The driver encodes it as Latin-1, and the server compares the bytes of UTF-8.
            password=(address.password or "").encode().decode("latin-1"),
            db=address.database,
            charset="utf8mb4",
            autocommit=None,
            client_flag=CLIENT.FOUND_ROWS,
            program_name="ticketd",
            ssl=context,
        )
        self._address = address

    async def open(self, seconds: float) -> None:
        """Connect and log in; the driver's `_connect` with another way to find an address."""
        try:
            opened = await dial(self._address.host, self._address.port, seconds)
        except OSError as error:
            raise DatabaseFailed(words(REFUSES_CONNECTIONS)) from error
        self._reader, self._writer = await _open_connection(sock=opened)
        self._set_keep_alive()
        self._set_nodelay(True)
        self._next_seq_id = 0
        self._read_packet = self._read_login_packet
        await self._get_server_information()
        await self._request_authentication()
        del self._read_packet

    async def _read_login_packet(self, *kind: Any) -> Any:
        packet = await super()._read_packet(*kind)
        if packet.get_all_data() == _OLD_SWITCH:
            raise _unsupported("mysql_old_password")
        return packet

    async def _get_server_information(self) -> None:
        await super()._get_server_information()
        if self._ssl_context is not None and not self.server_capabilities & CLIENT.SSL:
            if self._address.wants_tls:
                raise DatabaseRefused(
                    f"does not use TLS, which its URL asks for (ssl-mode={self._address.ssl_mode}): give it a "
                    "certificate, or change its URL"
                )
            self._ssl_context = None
            self.client_flag &= ~CLIENT.SSL
        if self._server_auth_plugin not in _GREETED_BY:
            # Other plugins would send the password at once. The server asks for its own one in `_process_auth`.
            self._client_auth_plugin = "caching_sha2_password"

    async def _process_auth(self, plugin_name: bytes, auth_packet: Any) -> Any:
        """Log in by the plugin that the server asks for instead of the first one."""
        name = plugin_name.decode("latin-1")
        if name not in _PLUGINS:
            raise _unsupported(name)
        if name == "sha256_password":
            self._check_key()
        # Behind the salt servers put a zero, which the driver would take for a part of it.
        auth_packet._data = auth_packet._data[: auth_packet._position + _SALT_BYTES]
        return await super()._process_auth(plugin_name, auth_packet)

    def write_packet(self, payload: bytes) -> None:
        """Send a packet of the login."""
        if payload == b"\x02":  # caching_sha2_password's request for a public key
            self._check_key()
        super().write_packet(payload)

    def _check_key(self) -> None:
        """Raise DatabaseRefused where the password would be encrypted for whichever key the server sends."""
        if self._password and not self._secure and not self._address.get_server_public_key:
            raise DatabaseRefused(
                "asks for the password without TLS, encrypted for a public key that anybody could have sent: set "
                "ssl-mode=VERIFY_IDENTITY and ssl-ca in its URL, or get-server-public-key=true on a network you trust"
            )

    def close(self) -> None:
        """Close the socket now: TLS would wait half a minute for the goodbye of a server that stands still."""
        if self._writer is not None:
            self._writer.transport.abort()
        super().close()


def _unsupported(plugin: str) -> DatabaseRefused:
    shown = plugin if re.fullmatch(r"[0-9A-Za-z_]{1,64}", plugin) else "of no proper name"
    return DatabaseRefused(
        f"asks for the password by the authentication plugin {shown}: give its user one of {', '.join(_PLUGINS)}"
    )
