"""A Django project for this process: its settings, its databases, and a ticket server. Django takes settings once."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path

import django
import pymysql
from django.conf import settings
from django.db import connections
from tests.ticketd import TicketServer

from orm_servers import KINDS, database, ticket_server

MIGRATIONS = "pictures_migrations_of_this_test"


def as_mysqlclient() -> None:
    """Let Django take PyMySQL for mysqlclient. PyMySQL's own way to do that names the package alone: its modules would
    be imported once more, with exceptions that nobody in this process catches."""
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == pymysql.__name__:
            sys.modules[name.replace("pymysql", "MySQLdb", 1)] = module


@contextlib.contextmanager
def project(folder: Path) -> Iterator[TicketServer]:
    """Set Django up with every kind of database, below this folder. Yields the ticket server of settings.TICKETD."""
    as_mysqlclient()
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(ticket_server(folder))
        databases = {kind: dict(stack.enter_context(database(kind, folder)).django) for kind in KINDS}
        (folder / MIGRATIONS).mkdir()
        (folder / MIGRATIONS / "__init__.py").touch()
        sys.path.insert(0, str(folder))
        settings.configure(
            TICKETD={"urls": [server.url], "timeout": 30, "prefetch": 0},
            DATABASES={"default": databases["sqlite"], **databases},
            INSTALLED_APPS=[
                "django.contrib.admin",
                "django.contrib.auth",
                "django.contrib.contenttypes",
                "django.contrib.messages",
                "django.contrib.sessions",
                "django_pictures",
            ],
            MIGRATION_MODULES={"django_pictures": MIGRATIONS},
            SECRET_KEY="only-for-tests",
            USE_TZ=True,
            ROOT_URLCONF="django_pictures.urls",
            STATIC_URL="static/",
            ALLOWED_HOSTS=["testserver"],
            MIDDLEWARE=[
                "django.contrib.sessions.middleware.SessionMiddleware",
                "django.contrib.auth.middleware.AuthenticationMiddleware",
                "django.contrib.messages.middleware.MessageMiddleware",
            ],
            TEMPLATES=[
                {
                    "BACKEND": "django.template.backends.django.DjangoTemplates",
                    "APP_DIRS": True,
                    "OPTIONS": {
                        "context_processors": [
                            "django.template.context_processors.request",
                            "django.contrib.auth.context_processors.auth",
                            "django.contrib.messages.context_processors.messages",
                        ]
                    },
                }
            ],
            DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
        )
        django.setup()
        yield server
        connections.close_all()
        sys.path.remove(str(folder))
