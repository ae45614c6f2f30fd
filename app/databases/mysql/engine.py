"""MySQL and MariaDB, as the program lists them among its engines."""

from collections.abc import Callable

from app.databases.engine import Engine, Source
from app.databases.inspection import Inspector
from app.databases.mysql.line.url import FORM, DatabaseURL
from app.databases.protocol import TicketDatabase


class MySQL(Engine[DatabaseURL]):
    """A MySQL or MariaDB server as a ticket database."""

    name = "MySQL"
    scheme = "mysql"
    address = DatabaseURL
    url_form = FORM
    example_url = "mysql://tickets@{host}/tickets"
    source_form = "mysql://user:password@host:port/database/table.column"
    example_source = "mysql://reader@db9/shop/photos.id"
    increment_setting = "auto_increment_increment"
    drivers = ("aiomysql", "pymysql")

    def read_url(self, text: str) -> DatabaseURL:
        """See Engine.read_url."""
        return DatabaseURL.parse(text)

    def read_source(self, text: str, password: str | None) -> Source:
        """See Engine.read_source."""
        from app.databases.mysql.other_tables import Column

        return Column.parse(text, password)

    def make_database(
        self, address: DatabaseURL, offset: int, increment: int, timeout: float, on_retry: Callable[[str], None]
    ) -> TicketDatabase:
        """See Engine.make_database. Raises SettingsError where the installed driver cannot be used."""
        from app.databases.mysql.database import MySQLDatabase
        from app.databases.mysql.line.driver import check_driver

        check_driver()
        return MySQLDatabase(address, offset, increment, timeout, on_retry)

    def make_inspector(self, address: DatabaseURL, offset: int, increment: int, timeout: float) -> Inspector:
        """See Engine.make_inspector. Raises SettingsError where the installed driver cannot be used."""
        from app.databases.mysql.inspection import MySQLInspector
        from app.databases.mysql.line.driver import check_driver

        check_driver()
        return MySQLInspector(address, offset, increment, timeout)
