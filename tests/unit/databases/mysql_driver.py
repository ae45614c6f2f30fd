"""A MySQL server behind the adapter of the driver: it says what a test has it say, and no socket is opened."""

from typing import cast

import pymysql.err

from app.databases.mysql import account
from app.databases.mysql.books import own_sql
from app.databases.mysql.line import session_sql
from app.databases.mysql.line.bounds import SMALL, Bound
from app.databases.mysql.line.driver import Rows
from app.databases.mysql.line.url import DatabaseURL
from app.databases.mysql.line.wire import Wire

URL = DatabaseURL.parse("mysql://u@127.0.0.1:1/d")
LOST = 2013


class Server:
    """One server for all connections that are opened while it stands for the driver.

    `version`: what it greets with. `refuses`: the code of the error that a new connection gets, 0 where it gets one.
    `says`: the rows that it answers a statement with, or the code of an error; no rows to any other. `next`: the same
    for the next statements, whatever they are, before it goes on by `says`. `packets`: what it was sent. `asked`: the
    addresses that each new connection was to go to. `drivers`: one for each connection that was had. `looked_on`: those
    that a probe wrote on, in order.
    """

    def __init__(self) -> None:
        self.version = "8.4.3"
        self.refuses = 0
        self.says: dict[str, Rows | int] = {
            session_sql.SHOW_VARIABLES: variables(),
            session_sql.SHOW_CIPHER: (("Ssl_cipher", ""),),
            **{session_sql.clock(mariadb=mariadb): ((1.7e9, 1_600_000_000),) for mariadb in (False, True)},
            session_sql.STEPS: (session_sql.SOME_STEPS,),
            session_sql.CLOCK: ((1.7e9,),),
            own_sql.LAYOUT: ((1,),),
            account.CURRENT_USER: (("u@%",),),
            account.DEFINITION: (("CREATE USER `u`@`%`",),),
            account.DEFAULT_LIFETIME: ((0,),),
            account.USER_CONNECTIONS: ((0,),),
        }
        self.next: list[Rows | int] = []
        self.asked: list[list[str]] = []
        self.drivers: list[Driver] = []
        self.looked_on: list[Driver] = []
        self.packets: list[str] = []

    def driver(self, *_: object) -> "Driver":
        """In place of app.databases.mysql.line.driver.Driver."""
        return Driver(self)

    def answer(self, statement: str) -> Rows:
        if statement.startswith(session_sql.CONNECTION_ID):
            return ((1, ""),)
        said = self.next.pop(0) if self.next else self.says.get(statement, ())
        if isinstance(said, int):
            raise pymysql.err.OperationalError(said, "no")
        return said


class Driver:
    """The adapter of one connection to such a server. `usable`: false where the server is seen to have hung up. `cut`:
    the connection is lost, and only who uses it sees that."""

    def __init__(self, server: Server) -> None:
        self.usable = False
        self.cut = False
        self.rows: Rows = ()
        self._server = server
        self._to_come: list[str] = []

    async def connect(self, addresses: list[str]) -> None:
        self._server.asked.append(addresses)
        if self._server.refuses:
            raise pymysql.err.OperationalError(self._server.refuses, "no")
        self.usable = True
        self._server.drivers.append(self)

    def put_wire(self) -> Wire:
        return cast(Wire, None)

    @property
    def version(self) -> str:
        return self._server.version

    async def query(self, statements: str, bound: Bound = SMALL) -> None:
        if self.cut:
            raise pymysql.err.OperationalError(LOST, "no")
        self._server.packets.append(statements)
        self._to_come = statements.split("; ")
        if own_sql.PROBE in self._to_come:
            self._server.looked_on.append(self)
        await self.next()

    async def next(self, bound: Bound = SMALL) -> None:
        self.rows = self._server.answer(self._to_come.pop(0))

    async def say_goodbye(self) -> None:
        self.close()

    def close(self) -> None:
        self.usable = False


def variables(**changed: str) -> Rows:
    """A server's settings as a database of offset 1 and increment 2 has them."""
    fit = {"auto_increment_increment": "2", "auto_increment_offset": "1"}
    return tuple((fit | changed).items())
