"""The engines that a ticket database may run on. Each is a package beside this file, imported when an address names it.

An engine's package has `url.parse`, which reads a URL, `session.connect`, which opens a session, and `findings.examine`
for `ticketd doctor`. The class of an address stands in the package of its engine. The embedded pair has no URL:
`lock_embedded` returns its addresses.
"""

import re
from collections.abc import Awaitable, Callable
from contextlib import suppress
from importlib import import_module
from types import ModuleType

from app.databases.address import Address
from app.databases.database import Database
from app.databases.examination import Examination
from app.databases.sqlite.folder import addresses as embedded_files
from app.databases.sqlite.folder import lock_folder as lock_embedded
from app.errors import DatabaseError, SettingsError

__all__ = ["embedded_files", "examine", "lock_embedded", "open_database", "parse_list"]

SCHEMES = {
    **{"mysql": "mysql", "postgresql": "postgresql", "postgres": "postgresql"},
    **{"redis": "redis", "rediss": "redis", "redis+sentinel": "redis"},
}
"""What a URL may begin with, and the package that reads it."""
_DRIVERS = {"aiomysql", "asyncpg", "hiredis"}
_BETWEEN = re.compile(r"\s*,\s*(?=[A-Za-z][A-Za-z0-9+.-]*://)|\s+")


def parse_list(text: str, default_password: str | None) -> list[Address]:
    """Read the URLs of the ticket databases, in the order of their offsets.

    text: URLs, separated by white space, or by a comma that a scheme and `://` follow. default_password: for URLs that
    name no password, None where there is none. Raises SettingsError, which never repeats a URL.
    """
    addresses: list[Address] = []
    for url in filter(None, _BETWEEN.split(text)):
        package = SCHEMES.get(url.partition("://")[0].lower()) if "://" in url else None
        if package is None:
            raise SettingsError(f"a URL has to begin with {':// or '.join(SCHEMES)}://")
        addresses.append(import_module(f"{__package__}.{package}.url").parse(url, default_password))
    if not addresses:
        raise SettingsError("no URL of a ticket database is given")
    return addresses


def open_database(address: Address, timeout: float) -> Database:
    """Return the ticket database at an address, not connected yet.

    timeout: the database timeout, in seconds. Raises SettingsError where the engine's driver is not installed.
    """
    return Database(address, _module(address, "session").connect, timeout)


async def examine(address: Address, seconds: float) -> Examination:
    """Return what the engine finds in the database at an address, for `ticketd doctor`; nothing changes there.

    Of several nodes it examines the first one that can be used, or else the last one. seconds: how long it waits for a
    lock or for one address of a host; the caller has a deadline of its own. Raises DatabaseFailed, DatabaseRefused, and
    SettingsError where the engine's driver is not installed.
    """
    examine_node: Callable[[Address, float], Awaitable[Examination]] = _module(address, "findings").examine
    *others, last = address.nodes
    for node in others:
        with suppress(DatabaseError):
            found = await examine_node(node, seconds)
            if not found.unread:
                return found
    return await examine_node(last, seconds)


def _module(address: Address, name: str) -> ModuleType:
    """Return a module of the engine of an address. Raises SettingsError where the driver is not installed."""
    package = type(address).__module__.rpartition(".")[0]
    try:
        return import_module(f"{package}.{name}")
    except ModuleNotFoundError as error:
        if error.name not in _DRIVERS:
            raise
        engine = package.rpartition(".")[2]
        extra = f"pip install 'ticket-server[{engine}]'"
        raise SettingsError(f"{address.name} needs {error.name}, which is not installed: {extra}") from error
