"""PostgreSQL is killed with all its processes: a row gives no ticket again, though a sequence repeats its values."""

import pytest

from app.databases.postgresql.database import PostgreSQLDatabase
from app.databases.postgresql.url import PostgreSQLURL
from tests.contract.engines.storages import made, take
from tests.harness.postgresql import PostgreSQL
from tests.harness.postgresql_clients import Session

pytestmark = pytest.mark.any_engine

USER = "server"


async def test_where_a_crash_makes_a_sequence_repeat_itself_a_row_does_not() -> None:
    """The session that logged the sequence's next 32 values has not committed, so a crash gives these values again."""
    with PostgreSQL(listens=True) as server:
        server.make_user(USER)
        await repeats_a_sequence_alone(server)


async def repeats_a_sequence_alone(server: PostgreSQL) -> None:
    """Draw from a row and from a sequence, crash, and draw again."""
    server.rows("CREATE SEQUENCE bare INCREMENT 2;")
    url = PostgreSQLURL.parse(server.url_of(USER))
    database = PostgreSQLDatabase(url, 1, 2, 20.0)
    await database.probe()
    table = await made(database)
    with Session(server) as open_one:
        drawn = [(await take(database, table, 1, 0)).first for _ in range(20)]  # each flushes what was logged before
        open_one.ask("BEGIN; SELECT nextval('bare');")
        bare = server.numbers("SELECT nextval('bare');\n" * 20)
        server.kill()
    await database.close()
    server.start()
    assert set(bare) & set(server.numbers("SELECT nextval('bare');\n" * 20)), "the harness would not see a repetition"
    database = PostgreSQLDatabase(url, 1, 2, 20.0)
    await database.probe()
    assert (await take(database, table, 1, 0)).first > max(drawn)
    await database.close()
