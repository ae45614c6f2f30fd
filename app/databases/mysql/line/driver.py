"""The adapter of the driver, aiomysql on PyMySQL: the only module that imports either.

This module uses parts of both that they do not document. `check_driver` verifies that all these parts are there.

The driver trusts the server that answers. It sends the password in any form that this server requests, and collects an
answer of any size. `_Connection` does neither.
"""

import asyncio
import errno
import inspect
import logging
import re
import ssl
import struct
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

import aiomysql
import pymysql.err
from pymysql.constants import CLIENT, CR

from app.common.errors import (
    SettingsError,
    TicketDatabaseError,
    TicketDatabaseMisconfigured,
    TicketDatabaseSetWrong,
    TicketDatabaseUnavailable,
)
from app.databases.mysql.line.bounds import HEAD, READ_COST, SMALL, Bound
from app.databases.mysql.line.errors import translated
from app.databases.mysql.line.url import DatabaseURL, SslMode
from app.databases.mysql.line.wire import Wire

Rows = tuple[tuple[Any, ...], ...]

FIRST_CLIENT_ERROR, LAST_CLIENT_ERROR = 2000, 2999
"""Codes in this range come from the driver, not from the server."""

NONSENSE = (
    struct.error,
    LookupError,
    ValueError,
    ArithmeticError,
    AssertionError,
    TypeError,
    AttributeError,
    NameError,
    RuntimeError,
)
"""What the driver raises on an answer that is not MySQL's protocol, and a reader of rows on one that means nothing."""

DRIVER_ERRORS = (pymysql.err.MySQLError, OSError, EOFError, ssl.SSLError, *NONSENSE)
"""All that the driver, and the network under it, can raise."""

_OVERRIDDEN = ("_get_server_information", "_process_auth", "_read_bytes", "close")
_METHODS = (
    "_connect",
    "_read_query_result",
    "close",
    "ensure_closed",
    "get_server_info",
    "insert_id",
    "next_result",
    "query",
    "thread_id",
)
_ATTRIBUTES = (
    "_client_auth_plugin",
    "_host",
    "_loop",
    "_next_seq_id",
    "_reader",
    "_result",
    "_secure",
    "_server_auth_plugin",
    "_ssl_context",
    "_writer",
    "client_flag",
    "salt",
    "server_capabilities",
    "server_public_key",
)
_BEGINS_WITH = ("", "mysql_native_password", "caching_sha2_password")
"""The plugins, of those that a server greets with, that answer its greeting: with a hash that is of no other use."""
_KNOWN_PLUGINS = ("mysql_native_password", "caching_sha2_password", "sha256_password")
_CLEAR_TEXT = "mysql_clear_password"
_OLD_SWITCH = b"\xfe"
"""A whole packet: the request for mysql_old_password, whose hash is as good as the password."""
_END = 0xFE
"""The first of five bytes: here end the columns, or the rows."""
_SALT_BYTES = 20
"""Servers put a zero behind it where they send it anew, and the driver would take that for a part of it."""


def check_driver() -> None:
    """Raise SettingsError where the installed driver lacks a name that this module uses. From now on it logs warnings
    only."""
    logging.getLogger(aiomysql.__name__).setLevel(logging.WARNING)
    used = set[str]()
    for _, method in inspect.getmembers(aiomysql.Connection, inspect.isfunction):
        used.update(method.__code__.co_names)
    missing = [name for name in _OVERRIDDEN + _METHODS if not hasattr(aiomysql.Connection, name)]
    missing += [name for name in _OVERRIDDEN + _ATTRIBUTES if name not in used and name not in missing]
    if missing:
        raise SettingsError(
            f"aiomysql {version('aiomysql')} cannot be used: its Connection has no {', '.join(missing)}. "
            "Install the version that this server requires"
        )


class NoTLS(TicketDatabaseMisconfigured):
    """The server does not use TLS, which the URL asks for."""

    def __init__(self, url: DatabaseURL) -> None:
        asks = "ssl-ca or ssl-mode=VERIFY_CA" if url.ssl_mode is SslMode.VERIFY_CA else f"ssl-mode={url.ssl_mode}"
        super().__init__(f"does not use TLS, which {asks} asks for")


class NoAgreement(TicketDatabaseUnavailable):
    """could not agree on TLS: the certificate or protocol does not fit"""


class PasswordKept(TicketDatabaseSetWrong):
    """The server asks for the password in a way in which it is not given."""


def _without_a_verified_certificate() -> PasswordKept:
    return PasswordKept(
        f"asks for the password in clear text ({_CLEAR_TEXT}), and its certificate was not verified",
        "set ssl-mode=VERIFY_IDENTITY and ssl-ca in its URL, or give its user another authentication plugin",
    )


def _without_a_known_key() -> PasswordKept:
    return PasswordKept(
        "asks for the password without TLS, encrypted for a public key that anybody could have sent",
        "set ssl-mode=VERIFY_IDENTITY and ssl-ca in its URL, or get-server-public-key=true if the network is trusted",
    )


def _by_another_plugin(name: str) -> PasswordKept:
    shown = name if re.fullmatch(r"[0-9A-Za-z_]{1,64}", name) else "of no proper name"
    return PasswordKept(
        f"asks for the password by the authentication plugin {shown}, which is not supported",
        f"give its user one of {', '.join(_KNOWN_PLUGINS)}",
    )


def translate(error: BaseException) -> TicketDatabaseError:
    """Our error for what the driver, or the network under it, raised."""
    if isinstance(error, TicketDatabaseError):
        return error
    if is_out_of_files(error):
        return TicketDatabaseUnavailable("cannot be connected to: this process may open no further file")
    cause = error.__cause__ or error.__context__
    if isinstance(error, ssl.SSLError) or isinstance(cause, ssl.SSLError):
        return NoAgreement()
    code = _code(error)
    return TicketDatabaseUnavailable(_in_words(error)) if code is None else translated(code)


def _in_words(error: BaseException) -> str:
    """A failure of the connection for which the server reported no error."""
    if isinstance(error, TimeoutError):
        return "did not answer in time"
    if isinstance(error, pymysql.err.MySQLError | OSError | EOFError):
        return "broke the connection off"
    return "answered nonsense"


def is_out_of_files(error: BaseException | None) -> bool:
    """Whether the operating system let this process open no further file, or connection, somewhere behind an error."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
            return True
        error = error.__cause__ or error.__context__
    return False


def code_of(error: BaseException) -> int | None:
    """The server's or the driver's code behind one of our errors."""
    return _code(error.__cause__)


def server_code(error: BaseException) -> int | None:
    """The code of an error that the server reported; None for any other."""
    code = _code(error)
    return code if code is not None and not FIRST_CLIENT_ERROR <= code <= LAST_CLIENT_ERROR else None


def _code(error: BaseException | None) -> int | None:
    code = error.args[0] if isinstance(error, pymysql.err.MySQLError) and error.args else None
    return code if isinstance(code, int) else None


class _Connection(aiomysql.Connection):  # type: ignore[misc]
    """Logs in as MySQL's own client does, and reads no more than it has asked for.

    aiomysql says that it will use TLS and then goes on in plain text where the server has none. MySQL refuses that,
    MariaDB sends and receives passwords and all in plain text.
    """

    def __init__(self, url: DatabaseURL, context: ssl.SSLContext | None) -> None:
        self._salt: bytes | None = None
        self._public_key: bytes | None = None
        self._says_goodbye = False
        self.expect(SMALL)
        super().__init__(
            host=url.host,
            port=url.port,
            user=url.user,
            # the driver encodes it as Latin-1; the server compares the bytes of UTF-8
            password=(url.password or "").encode().decode("latin-1"),
            db=url.database,
            charset="utf8mb4",
            autocommit=None,
            program_name="ticketd",
            ssl=context,
        )
        self._context = context
        self._url = url

    async def connect_to(self, addresses: Sequence[str]) -> None:
        for number, self._host in enumerate(addresses, 1):
            self.expect(SMALL)
            self._secure = False
            try:
                await self._connect()
            except pymysql.err.OperationalError as error:
                if number == len(addresses) or error.args[0] != CR.CR_CONN_HOST_ERROR:
                    raise
            else:
                return

    async def _get_server_information(self) -> None:
        self._host = self._url.host  # from here on it is whom the certificate has to name
        await super()._get_server_information()
        if self._context is not None and not self.server_capabilities & CLIENT.SSL:
            if self._url.wants_tls:
                raise NoTLS(self._url)
            self._ssl_context = self._context = None
            self.client_flag &= ~CLIENT.SSL
        if self._server_auth_plugin not in _BEGINS_WITH:
            # the others would send the password at once; who has one of them is asked for it by `_process_auth`
            self._client_auth_plugin = "caching_sha2_password"

    async def _process_auth(self, plugin_name: bytes, auth_packet: Any) -> Any:
        """Log in by the plugin that the server asks for instead of the first one."""
        name = plugin_name.decode("latin-1")
        if name == _CLEAR_TEXT:
            if not self._verified:
                raise _without_a_verified_certificate()
        elif name not in _KNOWN_PLUGINS:
            raise _by_another_plugin(name)
        return await super()._process_auth(plugin_name, auth_packet)

    @property
    def _verified(self) -> bool:
        """Whether this goes through TLS, to somebody whose certificate was verified."""
        return self._secure and self._context is not None and self._context.verify_mode is ssl.CERT_REQUIRED

    @property
    def server_public_key(self) -> bytes | None:
        """The key for which the driver encrypts the password where there is no TLS. Both plugins that do that look here
        first whether they have one, and would then ask for it."""
        if self._url.password and not self._url.get_server_public_key:
            raise _without_a_known_key()
        return self._public_key

    @server_public_key.setter
    def server_public_key(self, key: bytes | None) -> None:
        self._public_key = key

    @property
    def salt(self) -> bytes | None:
        """The bytes that the server wants hashed with the password."""
        return self._salt

    @salt.setter
    def salt(self, salt: bytes | None) -> None:
        self._salt = None if salt is None else salt[:_SALT_BYTES]

    def close(self) -> None:
        """Close the socket now: TLS would wait half a minute for the goodbye of a server that is frozen."""
        if self._writer is not None and not self._says_goodbye:
            self._writer.transport.abort()
        super().close()

    async def ensure_closed(self) -> None:
        """Ask the server to close it; that has to be sent first."""
        self._says_goodbye = True
        await super().ensure_closed()

    def expect(self, bound: Bound) -> None:
        """Expect an answer of this size at most."""
        self._bound, self._left, self._before_rows = bound, HEAD, True

    async def _read_bytes(self, num_bytes: int) -> bytes:
        """The head of a packet, or a body whose size the head has said; nothing is collected beyond the bound."""
        self._left -= num_bytes + READ_COST
        if num_bytes > self._bound.packet or self._left < 0:
            self.close()
            raise TicketDatabaseUnavailable("answered nonsense: more than was asked for")
        data: bytes = await super()._read_bytes(num_bytes)
        if data == _OLD_SWITCH:
            raise _by_another_plugin("mysql_old_password")
        if self._before_rows and num_bytes == 5 and data[0] == _END:
            self._left, self._before_rows = self._bound.rows, False
        return data


class Driver:
    """One connection of the driver's. Its methods raise what the driver raises: DRIVER_ERRORS."""

    def __init__(self, url: DatabaseURL, context: ssl.SSLContext | None) -> None:
        # Not aiomysql.connect(): when that is cancelled in the handshake, no code is left that could close the socket.
        self._connection = _Connection(url, context)

    async def connect(self, addresses: Sequence[str]) -> None:
        """Connect to the first of these that lets itself be connected to, and log in."""
        await self._connection.connect_to(addresses)

    def put_wire(self) -> Wire:
        """A `Wire` between the socket and the driver's stream, from now on."""
        transport = self._connection._writer.transport
        wire = Wire(transport, transport.get_protocol(), self._connection._loop)
        transport.set_protocol(wire)
        return wire

    @property
    def version(self) -> str:
        """The server's, as it says itself."""
        return str(self._connection.get_server_info())

    @property
    def thread_id(self) -> int:
        """The server's number for this connection."""
        return int(self._connection.thread_id())

    @property
    def usable(self) -> bool:
        """Whether nothing is known against it; a server that has hung up since its last use is seen here."""
        reader: asyncio.StreamReader | None = self._connection._reader
        return not (reader is None or reader.at_eof() or reader.exception())

    async def query(self, statements: str, bound: Bound = SMALL) -> None:
        """Send statements and receive the first one's result, of this size at most."""
        self._connection.expect(bound)
        await self._connection.query(statements)

    async def receive(self) -> None:
        """Receive the first result of statements that the driver has not sent itself."""
        self._connection.expect(SMALL)
        self._connection._next_seq_id = 1
        await self._connection._read_query_result()

    async def next(self, bound: Bound = SMALL) -> None:
        """Receive the next statement's result, of this size at most."""
        self._connection.expect(bound)
        await self._connection.next_result()

    @property
    def insert_id(self) -> int:
        """The id in the OK packet of the result received last; 0 where it drew nothing."""
        return int(self._connection.insert_id() or 0)

    @property
    def rows(self) -> Rows:
        """The rows of the result received last."""
        result = self._connection._result
        return tuple(result.rows or ()) if result is not None else ()

    async def say_goodbye(self) -> None:
        """Close it as the protocol asks, so that the server logs no aborted client."""
        await self._connection.ensure_closed()

    def close(self) -> None:
        """Close it without a word."""
        self._connection.close()
