"""Reads how far another program has used a column or a sequence, so that a ticket sequence can start above it."""

from dataclasses import dataclass, replace
from urllib.parse import unquote

from app.common.errors import SettingsError, TicketDatabaseError
from app.databases.engine import Source, Used
from app.databases.line import Line
from app.databases.postgresql.connection import PostgreSQLConnection
from app.databases.postgresql.errors import code_of
from app.databases.postgresql.url import SCHEMES, PostgreSQLURL
from app.databases.urls import without_last

PATIENCE_SECONDS = 120.0
"""max() of a column without an index reads the whole table."""


@dataclass(frozen=True, slots=True)
class Counter(Source):
    """A column of a table, or a sequence where `column` is empty; `url` leads to the database. Names are taken as they
    are written."""

    url: PostgreSQLURL
    relation: str
    column: str

    @property
    def name(self) -> str:
        """host:port/database/table.column; never a secret."""
        what = f"{self.relation}.{self.column}" if self.column else self.relation
        return f"{self.url.name}/{self.url.database}/{what}"

    @property
    def server(self) -> str:
        """See Source.server."""
        return self.url.name

    @classmethod
    def parse(cls, text: str, password: str | None = None) -> "Counter":
        """Read postgresql://…/table.column or …/sequence. Raises SettingsError, which never repeats the URL."""
        rest, last = without_last(text, SCHEMES)
        relation, dot, column = last.partition(".")
        if not relation or (dot and not column):
            raise SettingsError("the URL does not end in a database and a table and column, or a sequence")
        url = PostgreSQLURL.parse(rest)
        return cls(url if password is None else replace(url, password=password), unquote(relation), unquote(column))

    async def used(self) -> Used:
        """See Source.used."""
        context = self.url.ssl_context()
        line = Line(lambda: PostgreSQLConnection.open(self.url, context, PATIENCE_SECONDS), PATIENCE_SECONDS)
        relation, column = _quoted(self.relation), _quoted(self.column)
        try:
            if not self.column:
                return Used(0, int(await line.run(lambda c: c.driver.fetchval(_LAST, relation)) or 0))
            largest = await line.run(lambda c: c.driver.fetchval(f"SELECT max({column}) FROM {relation}"))  # noqa: S608
            counted = await line.run(lambda c: c.driver.fetchval(_LAST_OF_COLUMN, relation, self.column))
        except TicketDatabaseError as error:
            raise self._explained(error) from error
        finally:
            await line.leave()
        try:
            return Used(max(0, int(largest or 0)), int(counted or 0))
        except (ValueError, TypeError, OverflowError):
            raise TicketDatabaseError(f"holds no whole numbers in {self.column}") from None

    def _explained(self, error: TicketDatabaseError) -> TicketDatabaseError:
        words = {
            "42P01": f"has no table or sequence {self.relation} in {self.url.database}",
            "42703": f"has no column {self.column} in {self.relation}",
            "42501": f"does not let this user SELECT from {self.relation}",
            "42883": f"holds no whole numbers in {self.column}",
        }
        code = code_of(error.__cause__)
        return TicketDatabaseError(words[code]) if code in words else error


_LAST = "SELECT pg_sequence_last_value($1::text::regclass)"
_LAST_OF_COLUMN = "SELECT pg_sequence_last_value(pg_get_serial_sequence($1, $2)::regclass)"


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
