"""PostgreSQL, as the program lists it among its engines."""

from collections.abc import Callable

from app.databases.engine import Engine, Source
from app.databases.inspection import Inspector
from app.databases.postgresql.url import FORM, SCHEMES, PostgreSQLURL, check_driver
from app.databases.protocol import TicketDatabase


class PostgreSQL(Engine[PostgreSQLURL]):
    """A schema of a PostgreSQL server as a ticket database."""

    name = "PostgreSQL"
    scheme = SCHEMES[0]
    aliases = SCHEMES[1:]
    address = PostgreSQLURL
    url_form = FORM
    example_url = "postgresql://tickets@{host}/tickets"
    source_form = "postgresql://user:password@host:port/database/table.column or …/database/sequence"
    example_source = "postgresql://reader@db9/shop/photos.id"
    drivers = ("asyncpg",)

    def read_url(self, text: str) -> PostgreSQLURL:
        """See Engine.read_url."""
        return PostgreSQLURL.parse(text)

    def read_source(self, text: str, password: str | None) -> Source:
        """See Engine.read_source."""
        check_driver()
        from app.databases.postgresql.other_tables import Counter

        return Counter.parse(text, password)

    def make_database(
        self, address: PostgreSQLURL, offset: int, increment: int, timeout: float, on_retry: Callable[[str], None]
    ) -> TicketDatabase:
        """See Engine.make_database. Raises SettingsError where the driver is not installed. Nothing is tried again."""
        check_driver()
        from app.databases.postgresql.database import PostgreSQLDatabase

        return PostgreSQLDatabase(address, offset, increment, timeout)

    def make_inspector(self, address: PostgreSQLURL, offset: int, increment: int, timeout: float) -> Inspector:
        """See Engine.make_inspector. Raises SettingsError where the driver is not installed."""
        check_driver()
        from app.databases.postgresql.inspection import PostgreSQLInspector

        return PostgreSQLInspector(address, offset, increment, timeout)
