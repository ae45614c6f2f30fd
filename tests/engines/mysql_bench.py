"""What the tests of MySQL and MariaDB share."""

from typing import Any

import pymysql
import pytest

from app.databases.mysql.login import Line
from app.databases.mysql.session import MySQLSession
from app.databases.session import Counter, Session
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


async def counter(session: Session, name: str = "photos") -> Counter:
    """Return the counter of a sequence."""
    found = (await session.sequences([name]))[name]
    assert isinstance(found, Counter), found
    return found


def line_of(session: Session) -> Line:
    """Return the connection of a session."""
    assert isinstance(session, MySQLSession)
    return session._line
