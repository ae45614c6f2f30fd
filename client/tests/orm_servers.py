"""The servers of the integrations' tests: a ticket server, and a MySQL (or MariaDB), a PostgreSQL or an SQLite."""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.harness.engine import find_engine
from tests.harness.mysqld import TicketMySQL
from tests.harness.postgresql import PostgreSQL
from tests.harness.schema import PASSWORD
from tests.harness.ticketd import PATIENT, TicketServer

CLIENT = Path(__file__).resolve().parents[1]
EXAMPLES = CLIENT / "examples"
KINDS = ("sqlite", "mysql", "postgresql")


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
    elif kind == "mysql":
        # numbers that the database gave would be among the tickets
        with TicketMySQL(find_engine(), offset=None, increment=None, tables=False) as mysql:
            mysql.execute("CREATE DATABASE application CHARACTER SET utf8mb4", database=None)
            mysql.execute(f"CREATE USER application@'127.0.0.1' IDENTIFIED BY '{PASSWORD}'", database=None)
            mysql.execute("GRANT ALL ON *.* TO application@'127.0.0.1'", database=None)
            place = f"application:{PASSWORD}@127.0.0.1:{mysql.port}/application"
            yield Database(
                kind,
                f"mysql+pymysql://{place}",
                (f"mysql+asyncmy://{place}", f"mysql+aiomysql://{place}"),
                {
                    "ENGINE": "django.db.backends.mysql",
                    "NAME": "application",
                    "USER": "application",
                    "PASSWORD": PASSWORD,
                    "HOST": "127.0.0.1",
                    "PORT": mysql.port,
                },
            )
    else:
        with PostgreSQL() as postgresql:
            command = postgresql.command()
            host = command[command.index("-h") + 1]
            place = f"tickets@/postgres?host={host}"
            yield Database(
                kind,
                f"postgresql+psycopg://{place}",
                (f"postgresql+asyncpg://{place}", f"postgresql+psycopg://{place}"),
                {"ENGINE": "django.db.backends.postgresql", "NAME": "postgres", "USER": "tickets", "HOST": host},
            )


@contextlib.contextmanager
def ticket_server(folder: Path) -> Iterator[TicketServer]:
    """A ticket server on its embedded pair."""
    with TicketServer(settings=PATIENT, data_dir=folder / "tickets") as server:
        server.wait_ready()
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
