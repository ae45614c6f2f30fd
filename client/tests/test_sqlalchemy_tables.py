"""TicketDefault in tables that are copied, pickled and migrated, and the example application."""

from __future__ import annotations

import copy
import os
import pickle
import subprocess
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import alembic.op
import pytest
import sqlalchemy
from alembic.autogenerate import compare_metadata, produce_migrations, render_python_code
from alembic.migration import MigrationContext
from alembic.operations import Operations
from sqlalchemy import BigInteger, Column, ColumnDefault, Integer, MetaData, Table, create_engine, insert, inspect
from sqlalchemy.exc import StatementError
from tests.servers_processes import free_port

from orm_models import make_models
from orm_servers import EXAMPLES, KINDS, PYTHON, Database, database, environment, ticket_server
from ticketd_client import Tickets, TicketsUnavailable
from ticketd_client.sqlalchemy import TicketDefault

TOKEN = "a-token-that-is-nobodys-business"


@pytest.fixture(scope="module", params=KINDS)
def application(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    with database(request.param, tmp_path_factory.mktemp("application")) as found:
        yield found


def nowhere() -> Tickets:
    """Tickets of no server: whoever takes one gets an exception."""
    return Tickets([f"http://127.0.0.1:{free_port()}"], token=TOKEN, timeout=0.2)


class Counted(Tickets):
    """Tickets without a server, 1, 2, 3, …"""

    def __init__(self) -> None:
        super().__init__(["http://127.0.0.1:9"], token=TOKEN)
        self.taken = 0

    def take_many(self, sequence: str, n: int, key: Any = None) -> list[Any]:
        self.taken += n
        return list(range(self.taken - n + 1, self.taken + 1))


COUNTED = Counted()


def counted() -> Tickets:
    """What a pickle can name."""
    return COUNTED


def photos(tickets: Any) -> Table:
    return Table(
        "photos", MetaData(), Column("id", Integer, default=TicketDefault(tickets, "photos"), primary_key=True)
    )


def inserted(table: Table) -> list[int]:
    """The keys that three rows of the table get."""
    engine = create_engine("sqlite://")
    with engine.begin() as connection:
        table.metadata.create_all(connection)
        connection.execute(insert(table), [{}, {}, {}])
        found = list(connection.scalars(table.select()))
    engine.dispose()
    return found


def test_copies_share_the_tickets() -> None:
    tickets = Counted()
    table = photos(tickets)
    for copied in (table.to_metadata(MetaData()), table.to_metadata(MetaData(), name="others"), copy.deepcopy(table)):
        assert copied.c.id.default is not None
        last = tickets.taken
        assert inserted(copied) == [last + 1, last + 2, last + 3]
        assert inserted(table) == [last + 4, last + 5, last + 6]


def test_default_may_stand_beside_the_type() -> None:
    tickets = Counted()
    column = Column("id", Integer, ColumnDefault(TicketDefault(tickets, "photos")), primary_key=True)
    assert inserted(Table("photos", MetaData(), column)) == [1, 2, 3]


def test_pickled_metadata_keeps_the_tickets_of_its_process_and_no_secret() -> None:
    tickets = Counted()
    written = pickle.dumps(photos(tickets).metadata)
    assert TOKEN.encode() not in written
    read = pickle.loads(written)
    assert inserted(read.tables["photos"]) == [1, 2, 3]


_READ = """
import pickle, sys
from sqlalchemy import create_engine, insert
table = pickle.load(sys.stdin.buffer).tables["photos"]
connection = create_engine("sqlite://").connect()
table.metadata.create_all(connection)
connection.execute(insert(table), [{}, {}])
print(*connection.scalars(table.select()))
"""


def test_pickle_of_another_process() -> None:
    """A function's name finds its Tickets there; Tickets themselves are not found, which is said."""

    def read(written: bytes) -> subprocess.CompletedProcess[bytes]:
        path = os.pathsep.join([str(Path(__file__).parent), str(Path.cwd())])
        env = environment(PYTHONPATH=os.pathsep.join([environment()["PYTHONPATH"], path]))
        return subprocess.run(
            [PYTHON, "-c", _READ], input=written, capture_output=True, env=env, timeout=60, check=False
        )

    assert read(pickle.dumps(photos(counted).metadata)).stdout == b"1 2\n"
    refused = read(pickle.dumps(photos(Counted()).metadata))
    assert refused.returncode == 1
    assert b"comes from another process's pickle, without its Tickets" in refused.stderr


def test_exception_can_be_pickled() -> None:
    engine = create_engine("sqlite://")
    table = photos(nowhere())
    with engine.begin() as connection:
        table.metadata.create_all(connection)
        with pytest.raises(TicketsUnavailable) as raised:
            connection.execute(insert(table), [{}, {}])
    again = pickle.loads(pickle.dumps(raised.value))
    assert type(again) is TicketsUnavailable
    assert str(again) == str(raised.value)
    assert not isinstance(raised.value, StatementError)


def test_alembic_writes_the_tables_and_then_finds_nothing(application: Database) -> None:
    """It asks no server, and no database is told to number the rows."""
    metadata = make_models(nowhere()).Base.metadata
    engine = create_engine(application.url)
    with engine.begin() as connection:
        context = MigrationContext.configure(connection)
        script = produce_migrations(context, metadata)
        assert script.upgrade_ops is not None
        code = render_python_code(script.upgrade_ops)
        assert "TicketDefault" not in code
        assert "sa.Column('id', sa.BigInteger(), autoincrement=False, nullable=False)" in code
        with Operations.context(context):
            exec(textwrap.dedent(f"    {code}"), {"sa": sqlalchemy, "op": alembic.op})
        assert compare_metadata(context, metadata) == []
        key = next(column for column in inspect(connection).get_columns("photos") if column["name"] == "id")
        assert not key.get("autoincrement")
        assert key["default"] is None
        metadata.drop_all(connection)
    engine.dispose()


def test_a_column_that_the_database_numbers_as_well_stays_one() -> None:
    column = Column("id", BigInteger, default=TicketDefault(nowhere(), "p"), primary_key=True, autoincrement=True)
    Table("photos", MetaData(), column)
    assert column.autoincrement is True


@pytest.mark.parametrize(
    "application",
    KINDS,
    indirect=True,
)
def test_example(application: Database, tmp_path: Path) -> None:
    """As its README has it, on each database."""
    folder = EXAMPLES / "sqlalchemy_photos"
    with ticket_server(tmp_path) as server:
        env = environment(TICKETD_URLS=server.url, DATABASE_URL=application.url)

        def run(*command: str) -> str:
            done = subprocess.run(
                command, cwd=folder, env=env, capture_output=True, text=True, timeout=100, check=False
            )
            assert done.returncode == 0, done.stdout + done.stderr
            return done.stdout

        run(PYTHON, "-m", "alembic", "upgrade", "head")
        assert "No new upgrade operations" in run(PYTHON, "-m", "alembic", "check")
        first, last = run(PYTHON, "photobook.py").splitlines()
        assert first.startswith("album ")
        assert last == "2000 photos in the database"
        run(PYTHON, "-m", "alembic", "downgrade", "base")
