"""The servers of the integrations' tests: a ticket server, and a MySQL (or MariaDB), a PostgreSQL or an SQLite."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.servers import DatabaseServer, engines
from tests.servers_programs import template
from tests.ticketd import TicketServer

CLIENT = Path(__file__).resolve().parents[1]
EXAMPLES = CLIENT / "examples"
KINDS = ("sqlite", "mysql", "postgresql")
DRIVERS = {
    "mysql": ("mysql+pymysql", "mysql+asyncmy", "mysql+aiomysql"),
    "postgresql": ("postgresql+psycopg", "postgresql+asyncpg", "postgresql+psycopg"),
}


@dataclass(frozen=True)
class Database:
    """A database of the application's own, empty, by SQLAlchemy's URLs and in Django's settings."""

    kind: str
    url: str
    async_urls: tuple[str, ...]
    django: Mapping[str, Any]


@contextlib.contextmanager
def database(kind: str, folder: Path) -> Iterator[Database]:
    """One of KINDS, for as long as the `with` lasts."""
    if kind == "sqlite":
        file = folder / "application.sqlite3"
        django = {"ENGINE": "django.db.backends.sqlite3", "NAME": str(file), "OPTIONS": {"timeout": 60}}
        yield Database(kind, f"sqlite:///{file}", (f"sqlite+aiosqlite:///{file}",), django)
    else:
        engine = engines("postgresql")[0] if kind == "postgresql" else engines("mariadb", "mysql")[0]
        # numbers that the database gave would be among the tickets
        with contextlib.closing(
            DatabaseServer(engine, template(engine, Path(tempfile.gettempdir()) / "ticketd-client-tests"))
        ) as server:
            server.start()
            server.create_database("application")
            yield _database(kind, server.port)


def _database(kind: str, port: int) -> Database:
    """The database `application` of the server on this port, as its superuser, who has no password."""
    user = "postgres" if kind == "postgresql" else "root"
    scheme, *others = DRIVERS[kind]
    place = f"{user}@127.0.0.1:{port}/application"
    django = {"ENGINE": f"django.db.backends.{kind}", "NAME": "application", "USER": user, "PASSWORD": ""}
    return Database(
        kind,
        f"{scheme}://{place}",
        tuple(f"{each}://{place}" for each in others),
        {**django, "HOST": "127.0.0.1", "PORT": port},
    )


@contextlib.contextmanager
def ticket_server(folder: Path) -> Iterator[TicketServer]:
    """A ticket server on its embedded pair."""
    with TicketServer(data_dir=folder / "tickets") as server:
        yield server


def requests(server: TicketServer) -> int:
    """How many requests for tickets and blocks it has been sent, whatever it answered."""
    metrics = server.get("/metrics").text
    return sum(int(float(number)) for number in re.findall(r"^tickets_requests_total\{.*\} (\S+)$", metrics, re.M))


def environment(**more: str) -> dict[str, str]:
    """For a program: this process's environment, the client's source first on the path, and more."""
    path = os.pathsep.join([str(CLIENT), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1", "PYTHONUNBUFFERED": "1", **more}


PYTHON = sys.executable
