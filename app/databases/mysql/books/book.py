"""How a MySQL or MariaDB ticket database writes what it keeps beside its sequences."""

import time
from collections.abc import Callable, Sequence
from typing import Any

from app.common.errors import TicketDatabaseBusy
from app.databases.mysql.line.connection import Question
from app.databases.mysql.line.pool import MySQLPool
from app.databases.protocol import TicketDatabase

RETRIES = 5
"""How often a write is tried again after a deadlock."""


class MySQLBook(TicketDatabase):
    """The common part of the classes that know the own tables of a MySQL ticket database."""

    _pool: MySQLPool
    _on_retry: Callable[[str], None]

    async def _write(
        self, statements: Sequence[str], *questions: Question, about_marks: bool = False, anybody: bool = False
    ) -> list[Any]:
        """Run the statements, which change nothing where they are run again, and ask, in one packet. Returns the
        answers. A deadlock is tried again, while the database's timeout is not over. `about_marks`, `anybody`: see
        `MySQLPool.question`."""
        until = time.monotonic() + self._pool.timeout
        for _ in range(RETRIES):
            try:
                async with self._pool.question(about_marks=about_marks, anybody=anybody) as connection:
                    return await connection.run(statements, *questions)
            except TicketDatabaseBusy as error:
                self._on_retry(str(error))
                if time.monotonic() >= until:
                    raise
        raise TicketDatabaseBusy
