"""One connection to one MySQL or MariaDB server, prepared for drawing.

A connection belongs to the caller that opened it until that caller hands it on. Any error drops it, and so does a
cancellation. The exceptions are the errors that leave a connection as it was (see `errors`).
"""

import hashlib
import math
import ssl
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, NoReturn, TypeVar

from app.common.errors import (
    TicketDatabaseError,
    TicketDatabaseSetWrong,
    TicketDatabaseUnavailable,
)
from app.common.patience import patience
from app.databases.mysql.line import session_sql
from app.databases.mysql.line.bounds import SMALL, Bound
from app.databases.mysql.line.driver import DRIVER_ERRORS, NONSENSE, Driver, NoTLS, Rows, server_code, translate
from app.databases.mysql.line.errors import KEEPS_CONNECTION
from app.databases.mysql.line.server_facts import ServerFacts, check_version, numbered_by_group
from app.databases.mysql.line.server_settings import flaws_of
from app.databases.mysql.line.url import DatabaseURL
from app.databases.mysql.line.wire import Done, Wire, known_query, query
from app.databases.protocol import check_settings

READ_BACK_SECONDS = 1.0
"""A draw on a session that was not looked at for so long looks at it first, in its own packet."""

T = TypeVar("T")


class SessionMoved(TicketDatabaseSetWrong):
    """The connection leads to another session than the one that was prepared."""

    def __init__(self) -> None:
        super().__init__(
            "answered in another session than the one that was prepared: a proxy between that multiplexes sessions "
            "(ProxySQL, MaxScale)",
            "name the database itself in TICKETS_DATABASES, or have the proxy keep one session for each connection",
        )


class Question(NamedTuple):
    """A statement that asks; what is made of its rows, and the size of its result at most."""

    statement: str
    make: Callable[[Rows], Any]
    bound: Bound = SMALL


class MySQLConnection:
    """A prepared connection: it sends one statement or several, and then holds what the last received one reported.

    `mariadb`: whether the server is MariaDB. `facts`: what it said of itself when it was opened and checked.
    `last_used`: when somebody gave it back, in seconds by `time.monotonic`. `era`: see `MySQLPool.begin_era`.
    """

    def __init__(self, url: DatabaseURL, increment: int, offset: int, context: ssl.SSLContext | None) -> None:
        self._url = url
        self._increment = increment
        self._offset = offset
        self._driver = Driver(url, context)
        self._open = False
        self._wire: Wire | None = None
        self._session = 0
        self._guard = ""
        self._guard_at = 0.0
        self._is_guarded = False
        self.mariadb = False
        self.facts: ServerFacts | None = None
        self.last_used = 0.0
        self.era = 0

    async def open(self, addresses: Sequence[str] = (), *, anybody: bool = False) -> ServerFacts:
        """Connect, log in, prepare the session and check the server, all within the caller's deadline.

        `addresses`: where the host is, for a caller that has looked its name up. `anybody`: whatever increment and
        offset the server has. Raises TicketDatabaseUnavailable or TicketDatabaseMisconfigured.
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
        """Connect, log in and prepare the session; the facts are read and not checked.

        Raises TicketDatabaseUnavailable, or TicketDatabaseMisconfigured where the server is too old to be prepared.
        """
        await self.log_in(addresses)
        try:
            check_version(self._driver.version, mariadb=self.mariadb)
            await self._prepare()
            return await self._read_facts()
        except BaseException as error:
            self._lose(error)

    async def _prepare(self) -> None:
        """Set what the session's statements depend on; `_read_facts` reads it back, in a packet of its own."""
        place = self._increment, self._offset
        statements = session_sql.prepare(*place, self._url.database, mariadb=self.mariadb)
        await self._driver.query("; ".join(statements))
        for _ in statements[1:]:
            await self._driver.next()
        self._session = int(self.rows[0][0])
        self._guard = session_sql.guard(self._session, *place, mariadb=self.mariadb)

    async def log_in(self, addresses: Sequence[str] = ()) -> None:
        """Connect and log in, and no more: any server will do, of whatever version."""
        try:
            await self._driver.connect(addresses or [self._url.host])
            self._wire = self._driver.put_wire()
            self._open = True
            self.mariadb = "mariadb" in self._driver.version.lower()
        except BaseException as error:
            self._lose(error)

    def _lose(self, error: BaseException) -> NoReturn:
        """Drop the connection, translate and raise."""
        self.drop()
        if isinstance(error, DRIVER_ERRORS):
            raise translate(error) from error
        raise error

    @property
    def usable(self) -> bool:
        """Whether nothing is known against it; a server that has hung up since its last use is seen here."""
        return self._open and self._driver.usable

    def drop(self) -> None:
        """Close it without a word."""
        self._open = False
        self._driver.close()

    async def say_goodbye(self) -> None:
        """Close it as the protocol asks, so that the server logs no aborted client."""
        self._open = False
        try:
            await self._driver.say_goodbye()
        except DRIVER_ERRORS:
            self._driver.close()

    async def start(self, statements: str, bound: Bound = SMALL) -> None:
        """Send the statements and receive the first one's result, of this size at most."""
        try:
            await self._driver.query(statements, bound)
        except BaseException as error:
            self._fail(error)

    def draw(self, statements: str, answers: int, seconds: float, done: Done) -> None:
        """Send statements that draw or answer with no more than OK. `done` gets the id of each, 0 where it drew none.

        Or None, and at the latest after so many seconds: what became of them, `receive` and `next` tell.

        Now and then the packet begins with a look at the session: where a proxy has led it elsewhere, nothing is drawn.
        """
        wire = self._wire
        assert wire is not None
        now = time.monotonic()
        self._is_guarded = now >= self._guard_at
        if self._is_guarded:
            self._guard_at = now + READ_BACK_SECONDS
            packet = query(f"{self._guard};{statements}")
            wire.draw(packet, answers + 1, seconds, lambda ids: done(ids if ids is None else ids[1:]))
        else:
            wire.draw(known_query(statements) if answers == 1 else query(statements), answers, seconds, done)

    async def receive(self) -> None:
        """Receive the first result of what `draw` has sent. Raises SessionMoved where it was not executed."""
        try:
            await self._driver.receive()
        except BaseException as error:
            if self._is_guarded and server_code(error) == session_sql.WRONG_VALUE:
                self.drop()
                raise SessionMoved from error
            self._fail(error)
        if self._is_guarded:
            await self.next()

    async def next(self, bound: Bound = SMALL) -> None:
        """Receive the next statement's result, of this size at most."""
        try:
            await self._driver.next(bound)
        except BaseException as error:
            self._fail(error)

    @property
    def insert_id(self) -> int:
        """The id in the OK packet of the result received last; 0 where it drew nothing."""
        return self._driver.insert_id

    @property
    def rows(self) -> Rows:
        """The rows of the result received last."""
        return self._driver.rows

    async def execute(self, statement: str, bound: Bound = SMALL) -> Rows:
        """One statement; its rows, if any."""
        await self.start(statement, bound)
        return self.rows

    async def ask(self, statement: str, make: Callable[[Rows], T], bound: Bound = SMALL) -> T:
        """One statement; what `make` makes of its rows."""
        await self.start(statement, bound)
        return self.understand(make)

    async def run(self, statements: Sequence[str], *questions: Question) -> list[Any]:
        """Run the statements, then ask, all in one packet: a process that stands still between two packets would keep
        what a transaction has locked. Returns the answers.

        Where one fails inside a transaction, or what became of that is unknown, the connection is dropped.
        """
        bounds = [*(SMALL for _ in statements), *(question.bound for question in questions)]
        answers = []
        try:
            await self.start("; ".join((*statements, *(question.statement for question in questions))), bounds[0])
            for number, bound in enumerate(bounds):
                if number:
                    await self.next(bound)
                if number >= len(statements):
                    answers.append(self.understand(questions[number - len(statements)].make))
        except TicketDatabaseError:
            if "BEGIN" in statements:
                self.drop()
            raise
        return answers

    def understand(self, make: Callable[[Rows], T]) -> T:
        """Have `make` read the rows received last.

        Every row that is converted goes through here: one that cannot be (a damaged table, a server that is none of
        ours) is an answer like any other that is not MySQL's, and the connection that it came on is dropped.
        """
        try:
            return make(self.rows)
        except NONSENSE as error:
            self._lose(error)

    async def attempt(self, statement: str) -> int:
        """One plain statement; 0, or the code of the server's error, after which the connection is as it was before."""
        try:
            await self._driver.query(statement)
        except BaseException as error:
            code = server_code(error)
            if code is None:
                self._fail(error)
            return code
        return 0

    def _fail(self, error: BaseException) -> NoReturn:
        """Translate and raise; a connection whose state is in doubt is dropped."""
        if server_code(error) in KEEPS_CONNECTION:
            raise translate(error) from error
        self._lose(error)

    @property
    def thread_id(self) -> int:
        """The server's number for this connection."""
        return self._driver.thread_id

    async def check(self) -> ServerFacts:
        """The server's facts as of now. Raises TicketDatabaseUnavailable; NoTLS if the URL asks for TLS."""
        try:
            facts = await self._read_facts()
        except BaseException as error:
            self._fail(error)
        self._check_tls(facts)
        return facts

    async def _read_facts(self) -> ServerFacts:
        clock = session_sql.clock(mariadb=self.mariadb)
        read_back = session_sql.read_back(self._increment, self._offset, mariadb=self.mariadb)
        questions = session_sql.SHOW_VARIABLES, session_sql.SHOW_CIPHER, clock, session_sql.STEPS, read_back
        await self._driver.query("; ".join(questions))
        variables = {str(name).lower(): str(value) for name, value in self.rows}
        await self._driver.next()
        tls = any(value for _, value in self.rows)
        await self._driver.next()
        now, started = self.rows[0]
        if not math.isfinite(now):
            raise ValueError(now)
        await self._driver.next()
        takes_steps = tuple(self.rows) == (session_sql.SOME_STEPS,)
        await self._driver.next()
        self._check_session(*self.rows[0])
        identity = "|".join(variables.get(k, "") for k in ("server_uuid", "server_id", "hostname", "port", "datadir"))
        server_start = f"{identity}|{int(started)}"
        return ServerFacts(
            mariadb=self.mariadb,
            version=variables.get("version", ""),
            identity=server_start,
            incarnation=hashlib.sha256(f"{server_start}|{self._url.database}".encode()).hexdigest()[:24],
            increment=int(variables.get("auto_increment_increment", "0")),
            offset=int(variables.get("auto_increment_offset", "0")),
            autoinc_lock_mode=int(variables.get("innodb_autoinc_lock_mode", "1")),
            takes_steps=takes_steps,
            flaws=flaws_of(variables),
            now=float(now),
            tls=tls,
            folds_names=variables.get("lower_case_table_names", "0") != "0",
            numbered_by_group=numbered_by_group(variables, self._increment, self._offset),
        )

    def _check_session(self, session: int, differing: str) -> None:
        """Raise TicketDatabaseSetWrong unless this is the session that was prepared, and is still so."""
        if session != self._session:
            raise SessionMoved
        if differing:
            raise TicketDatabaseSetWrong(
                f"has {differing} in a session that was prepared otherwise",
                "take that out of its init_connect; where it stands in none, something between resets sessions",
            )
        self._guard_at = time.monotonic() + READ_BACK_SECONDS

    def check_facts(self, facts: ServerFacts) -> None:
        """Raise TicketDatabaseMisconfigured unless TLS, increment and offset are as expected."""
        self._check_tls(facts)
        if facts.numbered_by_group is not None:
            raise facts.numbered_by_group
        check_settings(facts, self._increment, self._offset)

    def _check_tls(self, facts: ServerFacts) -> None:
        if self._url.wants_tls and not facts.tls:
            raise NoTLS(self._url)


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
