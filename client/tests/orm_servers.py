"""The databases of an application, for the tests of SQLAlchemy and Django: one of each kind."""

from __future__ import annotations

from pathlib import Path

from tests.servers import engines
from tests.servers_shared import SharedServers

KINDS = ("sqlite", "mysql", "postgresql")


def empty_database(kind: str, servers: SharedServers, folder: Path) -> str:
    """What comes after the `://` of the URL of a new database."""
    if kind == "sqlite":
        return f"/{folder / 'application.sqlite3'}"
    engine = engines("postgresql")[0] if kind == "postgresql" else engines("mariadb", "mysql")[0]
    # a server without offset and increment: what it numbers itself would be among the tickets
    return servers.database(engine).partition("://")[2]
