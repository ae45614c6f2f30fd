"""The engines that a ticket database can have. This is the one place that lists them.

A new engine is a folder beside `mysql` and `sqlite`, and one case in each of these functions. An engine's driver is
imported when a database of it is made: a command that makes none does without it.
"""

from collections.abc import Callable
from pathlib import Path

from app.databases.inspection import Inspector
from app.databases.mysql.line.url import FORM, DatabaseURL
from app.databases.protocol import TicketDatabase

URL_FORM = FORM
"""How a URL in TICKETS_DATABASES reads."""
EMBEDDED_FILES = ("odd.sqlite3", "even.sqlite3")
"""The embedded pair, in offset order."""

Address = DatabaseURL | Path
"""Where a ticket database is: a URL, or the file of an embedded one."""


def read_url(text: str) -> DatabaseURL:
    """The address that one URL of TICKETS_DATABASES names. Raises SettingsError, which never repeats the URL."""
    return DatabaseURL.parse(text)


def embedded_pair(folder: Path) -> tuple[Path, ...]:
    """The addresses of the two databases that live in a folder."""
    return tuple(folder / name for name in EMBEDDED_FILES)


def why_unusable(folder: Path) -> str | None:
    """Why this process cannot keep the embedded pair in a folder; None where it can. Changes nothing."""
    from app.databases.sqlite.folder import why_unusable as why

    return why(embedded_pair(folder))


def make_database(
    address: Address, offset: int, increment: int, timeout: float, on_retry: Callable[[str, str], None]
) -> TicketDatabase:
    """The ticket database at an address. It connects when it is probed first.

    `timeout`: seconds for one statement. `on_retry` is told the database's name and why a statement is tried again.
    Raises SettingsError where the installed driver cannot be used.
    """
    if isinstance(address, Path):
        from app.databases.sqlite.database import SQLiteDatabase

        return SQLiteDatabase(address, offset, increment, timeout)
    from app.databases.mysql.database import MySQLDatabase
    from app.databases.mysql.line.driver import check_driver

    check_driver()
    return MySQLDatabase(address, offset, increment, timeout, on_retry=lambda cause: on_retry(address.name, cause))


def make_inspector(address: Address, offset: int, increment: int, timeout: float) -> Inspector:
    """The inspector of the ticket database at an address. `timeout`: seconds for one statement. Raises SettingsError
    where the installed driver cannot be used."""
    if isinstance(address, Path):
        from app.databases.sqlite.inspection import SQLiteInspector

        return SQLiteInspector(address, offset, increment)
    from app.databases.mysql.inspection import MySQLInspector
    from app.databases.mysql.line.driver import check_driver

    check_driver()
    return MySQLInspector(address, offset, increment, timeout)
