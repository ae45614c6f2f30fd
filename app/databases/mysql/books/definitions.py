"""The definitions of sequences that a MySQL or MariaDB ticket database keeps."""

from typing import Any

from app.common.errors import SequenceUnavailable, TicketDatabaseUnavailable
from app.databases.mysql.books import own_sql
from app.databases.mysql.books.book import MySQLBook
from app.databases.mysql.books.rows import claimant, kind_name, parameters_text, sequence_name
from app.databases.mysql.line.bounds import MOST_TABLES, listing
from app.databases.mysql.line.connection import Question
from app.databases.mysql.line.driver import Rows
from app.kinds.definition import Definition

UNREADABLE = "unreadable"
"""The kind of a row whose kind is no name."""


class MySQLDefinitions(MySQLBook):
    """The part of a MySQL ticket database that knows definitions."""

    async def definitions(self) -> dict[str, Definition]:
        """See TicketDatabase.definitions."""
        try:
            return await self._all_defined(own_sql.DEFINITIONS)
        except SequenceUnavailable:
            if not self._pool.anybody:
                raise
            return await self._all_defined(own_sql.KINDS)  # all that an earlier layout has

    async def _all_defined(self, ask: str) -> dict[str, Definition]:
        async with self._pool.question() as connection:
            return await connection.ask(ask, definitions_of, listing(MOST_TABLES))

    async def define(self, definition: Definition, old: Definition | None = None) -> Definition:
        """See TicketDatabase.define."""
        *writes, read = own_sql.define(_row_of(definition), None if old is None else _row_of(old))
        async with self._pool.question() as connection:
            (kept,) = await connection.run(writes, Question(read, definitions_of))
        if definition.key not in kept:
            raise TicketDatabaseUnavailable("lost a definition")
        found: Definition = kept[definition.key]
        return found

    async def forget_definition(self, definition: Definition) -> None:
        """See TicketDatabase.forget_definition."""
        async with self._pool.question() as connection:
            await connection.execute(own_sql.forget_definition(_row_of(definition)))


def _row_of(definition: Definition) -> own_sql.DefinitionRow:
    """The row of a definition. Raises ValueError where a value cannot be put into SQL."""
    name, kind = sequence_name(definition.sequence), kind_name(definition.kind)
    text = parameters_text(definition.text())
    return name.lower(), name, kind, text, int(definition.decided), claimant(definition.by)


def definitions_of(rows: Rows) -> dict[str, Definition]:
    """The definitions in these rows, by name in lower case. Raises ValueError, TypeError."""
    return {found.key: found for found in map(_definition_of, rows)}


def _definition_of(row: tuple[Any, ...]) -> Definition:
    sequence, kind, parameters, decided, by = row
    try:
        kind_name(kind)
    except ValueError:
        kind = UNREADABLE
    name = sequence_name(sequence)
    return Definition.from_text(name, kind, str(parameters), decided=int(decided) != 0, by=claimant(by))
