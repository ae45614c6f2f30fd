"""The tests of MySQL and MariaDB share this: their engines, an operator's statements, and a session's connection."""

from typing import Any

import pymysql
import pytest

from app.databases.mysql.login import Line
from app.databases.mysql.session import MySQLSession
from app.databases.session import Session
from tests.engines.bench import Bench
from tests.servers import engines

BOTH = pytest.mark.parametrize("bench", engines("mariadb", "mysql"), indirect=True)


def run(bench: Bench, statement: str) -> tuple[tuple[Any, ...], ...]:
    """Run a statement as an operator, and return its rows."""
    where = bench.address
    with pymysql.connect(host=where.host, port=where.port, user="root", database=where.database) as connection:
        cursor = connection.cursor()
        cursor.execute(statement)
        connection.commit()
        return tuple(cursor.fetchall())


def line_of(session: Session) -> Line:
    """Return the connection of a session."""
    assert isinstance(session, MySQLSession)
    return session._line
