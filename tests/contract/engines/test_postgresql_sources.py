"""`ticketd bump --from` reads the counters of another program's database, and `doctor` inspects a ticket database."""

from collections.abc import Awaitable, Callable

import pytest

from app.common.errors import SettingsError, TicketDatabaseError
from app.databases.engine import Used
from app.databases.engines import read_source
from app.databases.inspection import Inspection
from app.databases.postgresql.database import PostgreSQLDatabase
from app.databases.postgresql.inspection import PostgreSQLInspector
from app.databases.postgresql.url import PostgreSQLURL
from tests.contract.engines.storages import made
from tests.harness.postgresql import PostgreSQL
from tests.harness.postgresql_clients import Session

Look = Callable[..., Awaitable[Inspection]]

pytestmark = pytest.mark.any_engine

SHOP = """
CREATE TABLE "Photos" (id bigserial PRIMARY KEY, note text, price numeric);
INSERT INTO "Photos" (note) SELECT 'x' FROM generate_series(1, 77);
DELETE FROM "Photos" WHERE id > 70;
CREATE TABLE empty (id int);
CREATE SEQUENCE fresh;
CREATE SEQUENCE used INCREMENT 5;
SELECT nextval('used'), nextval('used');
CREATE TABLE secret (id int);
REVOKE ALL ON secret FROM PUBLIC;
"""


@pytest.fixture(scope="module")
def shop(postgresql_pair: list[PostgreSQL]) -> str:
    """The URL of a database from which another program draws ids."""
    server = postgresql_pair[0]
    server.make_user("shop")
    server.rows(f"SET search_path = shop; {SHOP} GRANT SELECT ON ALL TABLES IN SCHEMA shop TO shop;")
    server.rows("GRANT SELECT ON ALL SEQUENCES IN SCHEMA shop TO shop; REVOKE ALL ON shop.secret FROM shop;")
    return server.url_of("shop")


@pytest.mark.parametrize(
    ("what", "used"),
    [
        ("Photos.id", Used(70, 77)),
        ("empty.id", Used(0, 0)),
        ("used", Used(0, 6)),
        ("fresh", Used(0, 0)),
    ],
)
async def test_what_a_column_or_a_sequence_has_used(shop: str, what: str, used: Used) -> None:
    assert await read_source(f"{shop}/{what}", None).used() == used


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("photos.id", "has no table or sequence photos in postgres"),
        ("nothing", "has no table or sequence nothing in postgres"),
        ("Photos.Id", "has no column Id in Photos"),
        ("Photos.note", "holds no whole numbers in note"),
        ("secret.id", "does not let this user SELECT from secret"),
    ],
)
async def test_what_cannot_be_read_is_said(shop: str, what: str, words: str) -> None:
    with pytest.raises(TicketDatabaseError, match=words):
        await read_source(f"{shop}/{what}", None).used()


@pytest.mark.parametrize("what", ["", "/", "/.id", "/photos."])
def test_what_is_no_counter_says_what_is_wanted_and_not_the_password(shop: str, what: str) -> None:
    with pytest.raises(SettingsError) as wrong:
        read_source(f"{shop}{what}", None)
    assert "postgresql://user:password@host:port/database/table.column" in str(wrong.value)
    assert "p%40ss" not in str(wrong.value)


def test_a_counter_is_named_without_its_password(shop: str) -> None:
    source = read_source(f"{shop}/Photos.id", None)
    assert source.name == f"{source.server}/postgres/Photos.id"
    assert "@" not in source.name
    assert read_source(f"{shop}/used", "another").name.endswith("/postgres/used")


# --- doctor ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def look(postgresql_pair: list[PostgreSQL], request: pytest.FixtureRequest) -> Look:
    """Makes a ticket database, and inspects it as `doctor` does."""
    server = postgresql_pair[0]
    user = f"doctor_{abs(hash(request.node.name))}"
    server.make_user(user)
    url = PostgreSQLURL.parse(server.url_of(user))

    async def inspected(script: str = "", *, tables: bool = True) -> Inspection:
        if tables:
            database = PostgreSQLDatabase(url, 1, 2, 10.0)
            await database.probe()
            await made(database)
            await database.close()
        if script:
            server.rows(script.format(user=user))
        inspector = PostgreSQLInspector(url, 1, 2, 10.0)
        await inspector.inspect()
        await inspector.read_positions()
        await inspector.close()
        return inspector.inspection

    return inspected


async def test_a_database_that_is_well_has_no_flaw(look: Look) -> None:
    found = await look()
    assert (found.trouble, found.flaws, found.remarks, found.unread) == (None, [], [], {})
    assert found.product.startswith("PostgreSQL 1")
    assert found.identity
    assert (found.set_offset, found.set_increment) == (1, 2)
    assert list(found.tables) == list(found.positions) == ["photos"]
    assert found.columns == {"photos": "64 bits"}
    assert abs(found.clock_ahead) <= found.clock_doubt + 0.05
    assert "not encrypted" in found.unverified


async def test_a_schema_without_tables_is_well_where_the_server_may_make_them(look: Look) -> None:
    assert (await look(tables=False)).flaws == []
    taken_away = "ALTER SCHEMA {user} OWNER TO tickets; GRANT USAGE ON SCHEMA {user} TO {user};"
    (flaw,) = (await look(taken_away, tables=False)).flaws
    assert "has no _high_water, _kinds, _probe, _ring, _servers, ticket_sequences" in flaw.wrong
    assert "01-tickets.sql" in flaw.fix


async def test_it_finds_tables_that_lose_tickets(look: Look) -> None:
    (flaw,) = (await look("ALTER TABLE {user}.ticket_sequences SET UNLOGGED;")).flaws
    assert flaw.wrong == "has ticket_sequences UNLOGGED: a crash empties it"


async def test_it_mentions_a_setting_that_the_server_overrides(look: Look) -> None:
    found = await look("ALTER ROLE {user} SET synchronous_commit = off;")
    assert found.flaws == []
    assert "synchronous_commit is off for its user" in found.remarks[0]


async def test_it_finds_a_transaction_that_stays_open(
    look: Look, postgresql_pair: list[PostgreSQL], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.databases.postgresql.inspection.LONG_SECONDS", 0)
    with Session(postgresql_pair[0]) as open_one:
        open_one.ask("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1;")
        blind = await look()
        (flaw,) = (await look("GRANT pg_read_all_stats TO {user};", tables=False)).flaws
    assert (blind.flaws, blind.not_looked_at[0].privilege) == ([], "pg_read_all_stats")
    assert "has had a transaction open for" in flaw.wrong


async def test_what_keeps_it_from_looking_has_an_advice(look: Look) -> None:
    found = await look("ALTER ROLE {user} NOLOGIN;")
    assert found.trouble == "refuses the user, or connections from this host"
    assert "pg_hba.conf" in found.advice
