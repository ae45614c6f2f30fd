"""The commands of docs/databases/postgresql.md set up a ticket database that a server can draw from."""

import asyncio
import subprocess

import pytest

from app.databases.postgresql.database import PostgreSQLDatabase
from app.databases.postgresql.url import PostgreSQLURL
from tests.contract.engines.storages import take
from tests.documents import pages
from tests.documents.pages import REPOSITORY
from tests.harness.postgresql import PostgreSQL

pytestmark = pytest.mark.any_engine


async def test_the_set_up_of_postgresql_makes_a_ticket_database() -> None:
    account = pages.block("docs/databases/postgresql.md", "CREATE ROLE ticketd")
    tables = pages.block("docs/databases/postgresql.md", "psql -d tickets")
    sequence = pages.block("docs/databases/postgresql.md", "INSERT INTO ticket_sequences")
    with PostgreSQL(listens=True) as server:
        server.rows(account)
        environment = server.environment() | server.variables | {"PATH": server.program_path}
        await asyncio.to_thread(
            subprocess.run, ["bash", "-ec", tables], cwd=REPOSITORY, env=environment, check=True, timeout=30
        )
        server.rows(f"\\c tickets\n{sequence}")
        url = f"postgresql://ticketd:a%20long%20random%20password@127.0.0.1:{server.port}/tickets"
        database = PostgreSQLDatabase(PostgreSQLURL.parse(url), 1, 2, 20.0)
        try:
            await database.probe()
            found = await database.tables(["photos", "albums"])
            assert [(await take(database, table, 1, 0)).first for table in found.values()] == [1, 1]
        finally:
            await database.close()
