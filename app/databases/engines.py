"""The engines that a ticket database can have. This is the one place that lists them.

A new engine is a folder beside these, and one line in `LISTED`. An engine's driver is imported when a database of it is
made: a command that makes none does without it.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from app.common.errors import SettingsError
from app.databases.engine import Address, Engine, Source
from app.databases.inspection import Inspector
from app.databases.mysql.engine import MySQL
from app.databases.postgresql.engine import PostgreSQL
from app.databases.protocol import TicketDatabase
from app.databases.sqlite.engine import SQLite

LISTED: tuple[Engine[Any], ...] = (MySQL(), PostgreSQL(), SQLite())
_WITH_URLS = tuple(engine for engine in LISTED if engine.scheme)

URL_FORM = " or ".join(engine.url_form for engine in _WITH_URLS)
"""How a URL in TICKETS_DATABASES reads."""
SOURCE_FORM = " or ".join(engine.source_form for engine in _WITH_URLS)
"""How a URL of `ticketd bump --from` reads."""
EXAMPLE = _WITH_URLS[0]
"""The engine of the examples in help texts."""
INCREMENT_SETTING = EXAMPLE.increment_setting
"""The name of the setting that holds the increment on the example engine."""


def example_urls(count: int) -> str:
    """So many URLs as they stand in TICKETS_DATABASES."""
    return " ".join(EXAMPLE.example_url.format(host=f"db{number}") for number in range(1, count + 1))


def _engine_for(text: str) -> Engine[Any]:
    scheme = text.partition("://")[0].lower()
    for engine in _WITH_URLS:
        if scheme in (engine.scheme, *engine.aliases):
            return engine
    raise SettingsError(f"a URL has to begin with {' or '.join(f'{engine.scheme}://' for engine in _WITH_URLS)}")


def _engine_of(address: Address) -> Engine[Any]:
    return next(engine for engine in LISTED if isinstance(address, engine.address))


def read_url(text: str) -> Address:
    """The address that one URL of TICKETS_DATABASES names. Raises SettingsError, which never repeats the URL."""
    address: Address = _engine_for(text).read_url(text)
    return address


def read_source(text: str, password: str | None) -> Source:
    """The counter that a URL of `ticketd bump --from` names. `password`: in place of the URL's. Raises SettingsError,
    which never repeats the URL."""
    try:
        return _engine_for(text).read_source(text, password)
    except SettingsError as error:
        raise SettingsError(f"{error}; expected {SOURCE_FORM}") from None


def embedded_pair(folder: Path) -> tuple[Address, ...]:
    """The addresses of the two databases that live in a folder, in offset order."""
    return SQLite.pair(folder)


def why_unusable(folder: Path) -> str | None:
    """Why this process cannot keep the embedded pair in a folder; None where it can. Changes nothing."""
    return SQLite.why_unusable(folder)


def make_database(
    address: Address, offset: int, increment: int, timeout: float, on_retry: Callable[[str, str], None]
) -> TicketDatabase:
    """The ticket database at an address. It connects when it is probed first.

    `timeout`: seconds for one statement. `on_retry` is told the database's name and why a statement is tried again.
    Raises SettingsError where the installed driver cannot be used.
    """
    engine = _engine_of(address)
    return engine.make_database(address, offset, increment, timeout, lambda cause: on_retry(address.name, cause))


def make_inspector(address: Address, offset: int, increment: int, timeout: float) -> Inspector:
    """The inspector of the ticket database at an address. `timeout`: seconds for one statement. Raises SettingsError
    where the installed driver cannot be used."""
    return _engine_of(address).make_inspector(address, offset, increment, timeout)
