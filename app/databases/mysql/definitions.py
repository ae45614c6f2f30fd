"""What a MySQL or MariaDB ticket database keeps of how sequences were made."""

from typing import Any

from app.common.errors import TicketDatabaseUnavailable
from app.databases.mysql import own_sql
from app.databases.mysql.bounds import MOST_TABLES, listing
from app.databases.mysql.driver import Rows
from app.databases.mysql.pool import MySQLPool
from app.databases.mysql.rows import kind_name, parameters_text, sequence_name
from app.kinds.definition import Definition

UNREADABLE = "unreadable"
"""The kind of a row whose kind is no name."""


class MySQLDefinitions:
    """The part of a MySQL ticket database that knows definitions."""

    _pool: MySQLPool

    async def definitions(self) -> dict[str, Definition]:
        """See TicketDatabase.definitions."""
        async with self._pool.question() as connection:
            return await connection.ask(own_sql.DEFINITIONS, definitions_of, listing(MOST_TABLES))

    async def define(self, definition: Definition) -> Definition:
        """See TicketDatabase.define."""
        name = sequence_name(definition.sequence)
        keep, read = own_sql.define(name, kind_name(definition.kind), parameters_text(definition.text()))
        async with self._pool.question() as connection:
            await connection.execute(keep)
            kept = await connection.ask(read, definitions_of)
        if name not in kept:
            raise TicketDatabaseUnavailable("lost a definition")
        return kept[name]


def definitions_of(rows: Rows) -> dict[str, Definition]:
    """The definitions in these rows, by sequence. Raises ValueError, TypeError."""
    return {found.sequence: found for found in map(_definition_of, rows)}


def _definition_of(row: tuple[Any, ...]) -> Definition:
    sequence, kind, parameters = row
    try:
        kind_name(kind)
    except ValueError:
        kind = UNREADABLE
    return Definition.from_text(sequence_name(sequence), kind, str(parameters))
