"""The ids that an auto-increment table outside the ticket server has used, so that a bump can go above them."""

import asyncio
import re
from dataclasses import dataclass, replace
from urllib.parse import unquote

from app.common.errors import SettingsError, TicketDatabaseError
from app.databases.engine import Source, Used
from app.databases.mysql import sequence_sql
from app.databases.mysql.line import session_sql
from app.databases.mysql.line.bounds import DEFINITION
from app.databases.mysql.line.connection import MySQLConnection
from app.databases.mysql.line.driver import code_of
from app.databases.mysql.line.url import SCHEMES, DatabaseURL
from app.databases.urls import without_last

PATIENCE_SECONDS = 120.0
"""MAX() of a column without an index reads the whole table."""

_NO_TABLE, _NO_COLUMN = 1146, 1054
_DENIED = (1142, 1143)
_COUNTER = re.compile(r"^\)(?: /\*!\d+ TABLESPACE `[^`]*` \*/)? ENGINE=\w+ AUTO_INCREMENT=(\d+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Column(Source):
    """A column of somebody else's table, and how to get there: `url` leads to the database, `table` and `column` are
    the names there."""

    url: DatabaseURL
    table: str
    column: str

    @property
    def name(self) -> str:
        """host:port/database/table.column; never a secret."""
        return f"{self.url.name}/{self.url.database}/{self.table}.{self.column}"

    @property
    def server(self) -> str:
        """See Source.server."""
        return self.url.name

    async def used(self) -> Used:
        """See Source.used."""
        return await used_by(self)

    @classmethod
    def parse(cls, text: str, password: str | None = None) -> "Column":
        """Read mysql://…/table.column. Raises SettingsError, which never repeats the URL."""
        rest, last = without_last(text, SCHEMES)
        table, _, column = last.rpartition(".")
        if not table or not column:
            raise SettingsError("the URL does not end in a database, a table and a column")
        url = DatabaseURL.parse(rest)
        if password is not None:
            url = replace(url, password=password)
        return cls(url, unquote(table), unquote(column))


async def used_by(column: Column) -> Used:
    """The ids that the table has used. Raises TicketDatabaseError, in our words and without the database's name."""
    connection = MySQLConnection(column.url, 1, 1, column.url.ssl_context())
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            await connection.log_in()
            try:
                await connection.execute(session_sql.FOREIGN)
                largest = await connection.ask(
                    sequence_sql.largest(column.table, column.column), lambda rows: rows[0][0]
                )
                ask = sequence_sql.definition(column.table)
                definition = await connection.ask(ask, lambda rows: str(rows[0][1]), DEFINITION)
            except TicketDatabaseError as error:
                raise _explained(error, column) from error
    except TimeoutError as error:
        raise TicketDatabaseError("did not answer in time") from error
    finally:
        connection.drop()
    try:
        used = int(largest or 0)
    except (TypeError, ValueError, OverflowError):
        raise TicketDatabaseError(f"holds no whole numbers in {column.column}") from None
    return Used(max(0, used), _last_counted(definition, column.column))


def _last_counted(definition: str, column: str) -> int:
    """The last id that the table's counter gave, if the column is the one that it counts; else 0."""
    counted = re.search(rf"^\s+{re.escape(session_sql.quoted(column))} .*\bAUTO_INCREMENT\b", definition, re.MULTILINE)
    counter = _COUNTER.search(definition)
    return int(counter[1]) - 1 if counted and counter else 0


def _explained(error: TicketDatabaseError, column: Column) -> TicketDatabaseError:
    code = code_of(error)
    if code == _NO_TABLE:
        return TicketDatabaseError(f"has no table {column.table} in {column.url.database}")
    if code == _NO_COLUMN:
        return TicketDatabaseError(f"has no column {column.column} in {column.table}")
    if code in _DENIED:
        return TicketDatabaseError(f"does not let this user SELECT from {column.table}")
    return error
