"""A MySQL connection without a server: its driver answers with the rows that a test gives."""

from collections.abc import Iterable

from app.databases.mysql.connection import MySQLConnection
from app.databases.mysql.driver import Rows
from app.databases.mysql.url import DatabaseURL

URL = DatabaseURL.parse("mysql://u@127.0.0.1:1/d")


class Driver:
    """Answers each statement, and each further result, with the next of these rows."""

    def __init__(self, answers: Iterable[Rows]) -> None:
        self.answers = list(answers)
        self.usable = True
        self.rows: Rows = ()

    async def query(self, _: str) -> None:
        await self.next()

    async def next(self) -> None:
        self.rows = self.answers.pop(0)

    def close(self) -> None:
        self.usable = False


def connection_that_answers(*answers: Rows) -> MySQLConnection:
    connection = MySQLConnection(URL, 2, 1, None)
    connection._driver = Driver(answers)  # type: ignore[assignment]
    connection._open = True
    return connection


def facts_that_fit() -> tuple[Rows, ...]:
    """What a database of offset 1 and increment 2 says of itself."""
    return (
        (("auto_increment_increment", "2"), ("auto_increment_offset", "1")),
        (("Ssl_cipher", ""),),
        ((1.7e9, 1_600_000_000),),
    )
