"""The adapter of the driver, aiomysql on PyMySQL: the only module that imports either.

What is used of them that they do not document is used here and nowhere else, and `check_driver` looks whether all of it
is there.
"""

import asyncio
import errno
import inspect
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
    TicketDatabaseUnavailable,
)
from app.databases.mysql.errors import translated
from app.databases.mysql.url import DatabaseURL
from app.databases.mysql.wire import Wire

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
    RuntimeError,
)
"""What the driver raises on an answer that is not MySQL's protocol, and a reader of rows on one that means nothing."""

DRIVER_ERRORS = (pymysql.err.MySQLError, OSError, EOFError, ssl.SSLError, *NONSENSE)
"""All that the driver, and the network under it, can raise."""

_METHODS = (
    "_connect",
    "_get_server_information",
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
    "_host",
    "_loop",
    "_next_seq_id",
    "_reader",
    "_result",
    "_ssl_context",
    "_writer",
    "client_flag",
    "server_capabilities",
)


def check_driver() -> None:
    """Raise SettingsError where the installed driver lacks a name that this module uses."""
    used = set[str]()
    for _, method in inspect.getmembers(aiomysql.Connection, inspect.isfunction):
        used.update(method.__code__.co_names)
    missing = [name for name in _METHODS if not hasattr(aiomysql.Connection, name)]
    missing += [name for name in _ATTRIBUTES if name not in used]
    if missing:
        raise SettingsError(
            f"aiomysql {version('aiomysql')} cannot be used: its Connection has no {', '.join(missing)}. "
            "Install the version that this server requires"
        )


class NoTLS(TicketDatabaseMisconfigured):
    """The server does not use TLS, which the URL asks for."""

    def __init__(self, url: DatabaseURL) -> None:
        super().__init__(f"does not use TLS, which ssl-mode={url.ssl_mode} asks for")


def translate(error: BaseException) -> TicketDatabaseError:
    """Our error for what the driver, or the network under it, raised."""
    if isinstance(error, TicketDatabaseError):
        return error
    code = _code(error)
    if code is not None and not is_out_of_files(error) and not _is_tls(error):
        return translated(code)
    return TicketDatabaseUnavailable(_in_words(error))


def _in_words(error: BaseException) -> str:
    """What happened on the connection, where the server reported no error."""
    if isinstance(error, TimeoutError):
        return "did not answer in time"
    if is_out_of_files(error):
        return "cannot be connected to: this process may open no further file"
    if _is_tls(error):
        return "could not agree on TLS: the certificate or protocol does not fit"
    if isinstance(error, pymysql.err.MySQLError | OSError | EOFError):
        return "broke the connection off"
    return "answered nonsense"


def _is_tls(error: BaseException) -> bool:
    return isinstance(error, ssl.SSLError) or isinstance(error.__cause__ or error.__context__, ssl.SSLError)


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
    """aiomysql says that it will use TLS and then goes on in plain text where the server has none. MySQL refuses that,
    MariaDB sends and receives passwords and all in plain text."""

    def __init__(self, url: DatabaseURL, context: ssl.SSLContext | None) -> None:
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


class Driver:
    """One connection of the driver's. Its methods raise what the driver raises: DRIVER_ERRORS."""

    def __init__(self, url: DatabaseURL, context: ssl.SSLContext | None) -> None:
        # Not aiomysql.connect(): when that is cancelled in the handshake nobody is left who could close the socket.
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

    async def query(self, statements: str) -> None:
        """Send statements and receive the first one's result."""
        await self._connection.query(statements)

    async def receive(self) -> None:
        """Receive the first result of statements that the driver has not sent itself."""
        self._connection._next_seq_id = 1
        await self._connection._read_query_result()

    async def next(self) -> None:
        """Receive the next statement's result."""
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
