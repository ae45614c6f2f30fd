"""The contents of the tests' ticket databases: schema, user, privileges, Flickr's table."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

SCHEMA = "tickets"
USER = "ticketd"
PASSWORD = "only-for-tests"
LEAST_PRIVILEGES = "SELECT, INSERT, DELETE, UPDATE, CREATE"
"""All privileges of the ticket server's user."""

MYSQL_INIT = Path(__file__).resolve().parents[2] / "mysql_init"


def first_statements() -> list[str]:
    """The statements that an administrator runs on an empty server: the schema and the ticket server's user."""
    return [
        f"CREATE DATABASE IF NOT EXISTS `{SCHEMA}`",
        f"CREATE USER IF NOT EXISTS '{USER}'@'127.0.0.1' IDENTIFIED BY '{PASSWORD}'",
        f"GRANT {LEAST_PRIVILEGES} ON `{SCHEMA}`.* TO '{USER}'@'127.0.0.1'",
    ]


def run(connection: Any, sql: str, arguments: object = None) -> list[tuple[Any, ...]]:
    """Run one statement on an open pymysql connection; its rows."""
    with connection.cursor() as cursor:
        cursor.execute(sql, arguments)
        rows: Iterable[tuple[Any, ...]] = cursor.fetchall()
        return list(rows)


def flickrs_table(name: str, engine: str = "InnoDB") -> str:
    """The CREATE TABLE that Flickr published, on this storage engine."""
    return (
        f"CREATE TABLE `{name}` (id bigint(20) unsigned NOT NULL auto_increment, stub char(1) NOT NULL default '', "
        f"PRIMARY KEY (id), UNIQUE KEY stub (stub)) ENGINE={engine}"
    )
