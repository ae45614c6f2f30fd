"""One connection to one MySQL or MariaDB server, prepared for drawing. The only module that imports the driver.

A connection belongs to whoever opened it until it is handed on. Anything that goes wrong on it, a cancellation
included, drops it; only an error that leaves it as it was (see `errors`) does not.
"""

import hashlib
import math
import re
import ssl
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, TypeVar

import aiomysql
import pymysql.err
from pymysql.constants import CLIENT, CR

from app.common.errors import TicketDatabaseError, TicketDatabaseMisconfigured, TicketDatabaseUnavailable
from app.common.patience import patience
from app.databases.mysql import statements as sql
from app.databases.mysql.errors import KEEPS_CONNECTION, translated
from app.databases.mysql.url import DatabaseURL
from app.databases.mysql.wire import Done, Wire, known_query, query
from app.databases.protocol import check_settings

OLDEST_MYSQL = (8, 0)
OLDEST_MARIADB = (10, 6)

FIRST_CLIENT_ERROR, LAST_CLIENT_ERROR = 2000, 2999
"""Codes in this range come from the driver, not from the server."""

_NONSENSE = (
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

_DRIVER_ERRORS = (pymysql.err.MySQLError, OSError, EOFError, ssl.SSLError, *_NONSENSE)

Rows = tuple[tuple[Any, ...], ...]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """What a server says of itself."""

    mariadb: bool
    version: str
    identity: str
    incarnation: str
    increment: int
    offset: int
    autoinc_lock_mode: int
    durability: tuple[str, ...]
    now: float
    tls: bool


def translate(error: BaseException) -> TicketDatabaseError:  # noqa: PLR0911 - one line a kind
    """Our error for what the driver, or the network under it, raised."""
    if isinstance(error, TicketDatabaseError):
        return error
    if isinstance(error, TimeoutError):
        return TicketDatabaseUnavailable("did not answer in time")
    cause = error.__cause__ or error.__context__
    if isinstance(error, ssl.SSLError) or isinstance(cause, ssl.SSLError):
        return TicketDatabaseUnavailable("could not agree on TLS: the certificate or protocol does not fit")
    if isinstance(error, pymysql.err.MySQLError):
        if error.args and isinstance(error.args[0], int):
            return translated(error.args[0])
        return TicketDatabaseUnavailable("broke the connection off")
    if isinstance(error, OSError | EOFError):
        return TicketDatabaseUnavailable("broke the connection off")
    return TicketDatabaseUnavailable("answered nonsense")


def code_of(error: BaseException) -> int | None:
    """The server's or the driver's code behind one of our errors."""
    cause = error.__cause__
    code = cause.args[0] if isinstance(cause, pymysql.err.MySQLError) and cause.args else None
    return code if isinstance(code, int) else None


class NoTLS(TicketDatabaseMisconfigured):
    """The server does not use TLS, which the URL asks for."""

    def __init__(self, url: DatabaseURL) -> None:
        super().__init__(f"does not use TLS, which ssl-mode={url.ssl_mode} asks for")


class _Driver(aiomysql.Connection):  # type: ignore[misc]
    """aiomysql says that it will use TLS and then goes on in plain text where the server has none. MySQL refuses that,
    MariaDB sends and receives passwords and all in plain text."""

    def __init__(self, url: DatabaseURL, context: ssl.SSLContext | None, **options: Any) -> None:
        super().__init__(ssl=context, **options)
        self._context = context
        self._url = url

    async def connect_to(self, addresses: Sequence[str]) -> None:
        """Connect to the first of these that lets itself be connected to, and log in."""
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

    def put_wire(self) -> Wire:
        """A `Wire` between the socket and the driver's stream, from now on."""
        transport = self._writer.transport
        wire = Wire(transport, transport.get_protocol(), self._loop)
        transport.set_protocol(wire)
        return wire

    async def read_answer(self) -> None:
        """Read the answer to a statement that the driver has not sent itself."""
        self._next_seq_id = 1
        await self._read_query_result()


class MySQLConnection:
    """A prepared connection. `run` sends one statement or several and yields what each reported."""

    def __init__(self, url: DatabaseURL, increment: int, offset: int, context: ssl.SSLContext | None) -> None:
        self._url = url
        self._increment = increment
        self._offset = offset
        # Not aiomysql.connect(): when that is cancelled in the handshake nobody is left who could close the socket.
        self._driver = _Driver(
            url,
            context,
            host=url.host,
            port=url.port,
            user=url.user,
            # the driver encodes it as Latin-1; the server compares the bytes of UTF-8
            password=(url.password or "").encode().decode("latin-1"),
            db=url.database,
            charset="utf8mb4",
            autocommit=None,
            program_name="ticketd",
        )
        self._open = False
        self._wire: Wire | None = None
        self.mariadb = False
        self.facts: ServerFacts | None = None
        self.last_used = 0.0

    async def open(self, addresses: Sequence[str] = (), *, anybody: bool = False) -> ServerFacts:
        """Connect, log in, prepare the session and check the server, all within the caller's deadline.

        `addresses`: where the host is, for a caller that has looked its name up. `anybody`: whatever increment and
        offset the server has. Raises TicketDatabaseUnavailable or
        TicketDatabaseMisconfigured.
        """
        facts = await self.open_unchecked(addresses)
        try:
            if anybody:
                self._check_tls(facts)
            else:
                self.check_facts(facts)
        except BaseException:
            self.drop()
            raise
        self.facts = facts
        return facts

    async def open_unchecked(self, addresses: Sequence[str] = ()) -> ServerFacts:
        """Connect, log in and prepare the session; the facts are read and not held against anything.

        Raises TicketDatabaseUnavailable, or TicketDatabaseMisconfigured where the server is too old to be prepared.
        """
        await self.log_in(addresses)
        try:
            _check_version(self._driver.get_server_info(), mariadb=self.mariadb)
            prepare = sql.prepare(self._increment, self._offset, mariadb=self.mariadb)
            await self._driver.query(f"SET SESSION autocommit = 1; {sql.ISOLATION}; {prepare}")
            await self._driver.next_result()
            await self._driver.next_result()
            return await self._read_facts()
        except BaseException as error:
            self._lose(error)

    async def log_in(self, addresses: Sequence[str] = ()) -> None:
        """Connect and log in, and no more: any server will do, of whatever version."""
        try:
            await self._driver.connect_to(addresses or [self._url.host])
            self._wire = self._driver.put_wire()
            self._open = True
            self.mariadb = "mariadb" in self._driver.get_server_info().lower()
        except BaseException as error:
            self._lose(error)

    def _lose(self, error: BaseException) -> NoReturn:
        """Drop the connection, translate and raise."""
        self.drop()
        if isinstance(error, _DRIVER_ERRORS):
            raise translate(error) from error
        raise error

    @property
    def usable(self) -> bool:
        """Whether nothing is known against it; a server that has hung up since its last use is seen here."""
        if not self._open or self._driver.closed:
            return False
        reader = self._driver._reader
        return not (reader is None or reader.at_eof() or reader.exception())

    def drop(self) -> None:
        """Close it without a word."""
        self._open = False
        self._driver.close()

    async def say_goodbye(self) -> None:
        """Close it as the protocol wants, so that the server logs no aborted client."""
        self._open = False
        try:
            await self._driver.ensure_closed()
        except _DRIVER_ERRORS:
            self._driver.close()

    async def start(self, statements: str) -> None:
        """Send the statements and receive the first one's result."""
        try:
            await self._driver.query(statements)
        except BaseException as error:
            self._fail(error)

    def draw(self, statements: str, answers: int, seconds: float, done: Done) -> None:
        """Send statements that draw or answer with no more than OK. `done` gets the id of each, 0 where it drew none.

        Or None, and at the latest after so many seconds: what became of them, `receive` and `next` tell.
        """
        wire = self._wire
        assert wire is not None
        wire.draw(known_query(statements) if answers == 1 else query(statements), answers, seconds, done)

    async def receive(self) -> None:
        """Receive the first result of what `draw` has sent."""
        try:
            await self._driver.read_answer()
        except BaseException as error:
            self._fail(error)

    async def next(self) -> None:
        """Receive the next statement's result."""
        try:
            await self._driver.next_result()
        except BaseException as error:
            self._fail(error)

    @property
    def insert_id(self) -> int:
        """The id in the OK packet of the result received last; 0 where it drew nothing."""
        return int(self._driver.insert_id() or 0)

    @property
    def affected_rows(self) -> int:
        return int(self._driver.affected_rows())

    @property
    def rows(self) -> Rows:
        """The rows of the result received last."""
        result = self._driver._result
        return tuple(result.rows or ()) if result is not None else ()

    async def execute(self, statement: str) -> Rows:
        """One statement; its rows, if any."""
        await self.start(statement)
        return self.rows

    async def ask(self, statement: str, make: Callable[[Rows], T]) -> T:
        """One statement; what `make` makes of its rows."""
        await self.start(statement)
        return self.understand(make)

    def understand(self, make: Callable[[Rows], T]) -> T:
        """What `make` makes of the rows received last.

        Every row that is converted goes through here: one that cannot be (a damaged table, a server that is none of
        ours) is an answer like any other that is not MySQL's, and the connection that it came on is dropped.
        """
        try:
            return make(self.rows)
        except _NONSENSE as error:
            self._lose(error)

    async def attempt(self, statement: str) -> int:
        """One plain statement; 0, or the code of the server's error, after which the connection is as it was before."""
        try:
            await self._driver.query(statement)
        except BaseException as error:
            code = error.args[0] if isinstance(error, pymysql.err.MySQLError) and error.args else None
            if isinstance(code, int) and not FIRST_CLIENT_ERROR <= code <= LAST_CLIENT_ERROR:
                return code
            self._fail(error)
        return 0

    def _fail(self, error: BaseException) -> NoReturn:
        """Translate and raise; a connection whose state is in doubt is dropped."""
        if isinstance(error, pymysql.err.MySQLError) and error.args and error.args[0] in KEEPS_CONNECTION:
            raise translate(error) from error
        self._lose(error)

    @property
    def thread_id(self) -> int:
        """The server's number for this connection."""
        return int(self._driver.thread_id())

    async def check(self) -> ServerFacts:
        """What the server says of itself now. Raises TicketDatabaseUnavailable; NoTLS where the URL asks for TLS."""
        try:
            facts = await self._read_facts()
        except BaseException as error:
            self._fail(error)
        self._check_tls(facts)
        return facts

    async def _read_facts(self) -> ServerFacts:
        clock = sql.clock(mariadb=self.mariadb)
        await self._driver.query(f"{sql.SHOW_VARIABLES}; {sql.SHOW_CIPHER}; {clock}")
        variables = {str(name).lower(): str(value) for name, value in self.rows}
        await self._driver.next_result()
        tls = any(value for _, value in self.rows)
        await self._driver.next_result()
        now, started = self.rows[0]
        if not math.isfinite(now):
            raise ValueError(now)
        identity = "|".join(variables.get(k, "") for k in ("server_uuid", "server_id", "hostname", "port", "datadir"))
        life = f"{identity}|{int(started)}"
        return ServerFacts(
            mariadb=self.mariadb,
            version=variables.get("version", ""),
            identity=life,
            incarnation=hashlib.sha256(f"{life}|{self._url.database}".encode()).hexdigest()[:24],
            increment=int(variables.get("auto_increment_increment", "0")),
            offset=int(variables.get("auto_increment_offset", "0")),
            autoinc_lock_mode=int(variables.get("innodb_autoinc_lock_mode", "1")),
            durability=tuple(_durability(variables)),
            now=float(now),
            tls=tls,
        )

    def check_facts(self, facts: ServerFacts) -> None:
        """Raise TicketDatabaseMisconfigured unless TLS, increment and offset are as expected."""
        self._check_tls(facts)
        check_settings(facts, self._increment, self._offset)

    def _check_tls(self, facts: ServerFacts) -> None:
        if self._url.wants_tls and not facts.tls:
            raise NoTLS(self._url)


def _durability(variables: dict[str, str]) -> list[str]:
    """What could lose a committed ticket in a crash, in words."""
    found = []
    flush = variables.get("innodb_flush_log_at_trx_commit", "1")
    if flush != "1":
        found.append(f"innodb_flush_log_at_trx_commit={flush} loses tickets in a crash, expected 1")
    if variables.get("log_bin", "OFF") == "ON" and variables.get("sync_binlog") != "1":
        found.append(
            f"sync_binlog={variables.get('sync_binlog')} with the binary log on loses tickets in a crash, expected 1"
        )
    return found


def _check_version(version: str, *, mariadb: bool) -> None:
    """Raise TicketDatabaseMisconfigured for a server older than those whose counters survive a crash."""
    # MariaDB may put "5.5.5-" before its version, for old replicas' sake
    found = re.search(r"(\d+)\.(\d+)\.\d+-mariadb" if mariadb else r"^(\d+)\.(\d+)", version.lower())
    number = (int(found[1]), int(found[2])) if found else (0, 0)
    oldest = OLDEST_MARIADB if mariadb else OLDEST_MYSQL
    if number < oldest:
        engine = "MariaDB" if mariadb else "MySQL"
        raise TicketDatabaseMisconfigured(
            f"is {engine} {number[0]}.{number[1]}, expected {oldest[0]}.{oldest[1]} or later: "
            "an older one forgets its counters in a crash"
        )


async def opened(
    url: DatabaseURL,
    increment: int,
    offset: int,
    context: ssl.SSLContext | None,
    seconds: float,
    *,
    addresses: Sequence[str],
    anybody: bool = False,
) -> MySQLConnection:
    """A new prepared connection, within so many seconds from the first packet to the last check."""
    connection = MySQLConnection(url, increment, offset, context)
    try:
        async with patience(seconds):
            await connection.open(addresses, anybody=anybody)
    except TimeoutError as error:
        connection.drop()
        raise TicketDatabaseUnavailable("did not answer a new connection in time") from error
    return connection
