"""A PostgreSQL ticket database beside sessions that lock it, and under settings that would change how it draws."""

import asyncio
import time
from collections.abc import Callable, Iterator

import pytest

from app.common.errors import (
    NoFurtherConnection,
    RingChanged,
    SequenceUnavailable,
    TicketDatabaseBusy,
    TicketDatabaseError,
    TicketDatabaseHung,
    TicketDatabaseSetWrong,
    TicketDatabaseUnavailable,
)
from app.databases.postgresql.database import PostgreSQLDatabase
from app.databases.postgresql.url import PostgreSQLURL
from app.databases.protocol import Draw, Drawn, Residue, RingRecord, TicketDatabase
from tests.contract.engines.storages import made, take, until
from tests.harness.postgresql import PASSWORD, PostgreSQL
from tests.harness.postgresql_clients import Session

pytestmark = pytest.mark.any_engine

RING = RingRecord(1, 2, 1, (1, 2), own=1)
TIMEOUT = 10.0
Open = Callable[..., TicketDatabase]
Run = Callable[[str], list[list[str]]]


@pytest.fixture
def server(postgresql_pair: list[PostgreSQL]) -> PostgreSQL:
    return postgresql_pair[0]


@pytest.fixture
def user(server: PostgreSQL, request: pytest.FixtureRequest) -> str:
    """A user of this test's own, whose schema has its name."""
    name = f"sessions_{abs(hash(request.node.name))}"
    server.make_user(name)
    return name


@pytest.fixture
def run(server: PostgreSQL, user: str) -> Run:
    """Run a script as the superuser in the user's schema."""
    return lambda script: server.rows(f"SET search_path = {user}; {script}")


@pytest.fixture
def locked(server: PostgreSQL, user: str) -> Iterator[Session]:
    """A session of another program in the user's schema."""
    with Session(server) as session:
        session.ask(f"SET search_path = {user};")
        yield session


@pytest.fixture
async def opened(server: PostgreSQL, user: str) -> "object":
    """Opens clients of the database, and closes them."""
    clients: list[TicketDatabase] = []

    def open_one(*, within: float = TIMEOUT, query: str = "", password: str = PASSWORD) -> TicketDatabase:
        url = PostgreSQLURL.parse(server.url_of(user, query, password=password))
        clients.append(PostgreSQLDatabase(url, 1, 2, within))
        return clients[-1]

    yield open_one
    for client in clients:
        await client.close()


# --- other people's sessions -----------------------------------------------------------------------------------------


async def test_a_row_that_somebody_has_locked_holds_up_its_own_sequence_alone(opened: Open, locked: Session) -> None:
    database = opened(within=1.5)
    await database.probe()
    photos, albums = await made(database, "photos"), await made(database, "albums")
    locked.ask("BEGIN; UPDATE ticket_sequences SET bits = 64 WHERE sequence = 'photos';")
    began = time.monotonic()
    came = await asyncio.gather(take(database, photos, 1, 0), take(database, albums, 1, 0), return_exceptions=True)
    assert time.monotonic() - began < 1.5
    assert isinstance(came[0], SequenceUnavailable)
    assert came[1] == Draw(1, 2, 1)
    locked.ask("ROLLBACK;")
    assert await take(database, photos, 1, 0) == Draw(1, 2, 1)


async def test_a_draw_of_one_locked_row_ends_in_time(opened: Open, locked: Session) -> None:
    database = opened(within=1.0)
    await database.probe()
    photos = await made(database)
    locked.ask("BEGIN; UPDATE ticket_sequences SET bits = 64 WHERE sequence = 'photos';")
    for _ in range(2):
        began = time.monotonic()
        with pytest.raises(SequenceUnavailable):
            await take(database, photos, 1, 0)
        assert time.monotonic() - began < 1.2
    locked.ask("ROLLBACK;")
    assert await take(database, photos, 1, 0) == Draw(1, 2, 1)


async def test_a_table_that_somebody_has_locked_is_waited_for_no_longer_than_the_timeout(
    opened: Open, locked: Session
) -> None:
    database = opened(within=0.6)
    await database.probe()
    photos = await made(database)
    locked.ask("BEGIN; LOCK TABLE ticket_sequences;")
    for _ in range(2):
        began = time.monotonic()
        with pytest.raises(TicketDatabaseError):
            await take(database, photos, 1, 0)
        assert time.monotonic() - began < 1.0
    locked.ask("ROLLBACK;")
    assert await take(database, photos, 1, 0) == Draw(1, 2, 1)


async def test_a_draw_that_waits_while_the_ring_changes_draws_nothing(opened: Open, locked: Session, run: Run) -> None:
    database = opened()
    await database.probe()
    photos = await made(database)
    await database.record_ring(None, RING)
    locked.ask("BEGIN; UPDATE ticket_sequences SET bits = 64 WHERE sequence = 'photos';")
    waiting = asyncio.ensure_future(take(database, photos, 1, 0, ring=1))
    await until(lambda: bool(run("SELECT 1 FROM pg_locks WHERE NOT granted;")))
    other = opened()
    await other.probe()
    changing = asyncio.ensure_future(other.record_ring(RING, RingRecord(2, 3, 2, (1, 2, 3), own=1)))
    await asyncio.sleep(0.1)
    assert not changing.done(), "the change waits for the draw, whose lock on the record it would pass"
    locked.ask("ROLLBACK;")
    drawn = await waiting
    await changing
    assert drawn == Draw(1, 2, 1)
    with pytest.raises(RingChanged):
        await take(database, photos, 1, 0, ring=1)


async def test_a_change_of_the_ring_is_not_held_up_by_draws_that_never_pause(opened: Open) -> None:
    clients = [opened() for _ in range(3)]
    for client in clients:
        await client.probe()
    tables = [await made(client, f"s{number}") for number, client in enumerate(clients)]
    await clients[0].record_ring(None, RING)
    stopped = asyncio.Event()
    drawn = 0

    async def draw(number: int) -> None:
        nonlocal drawn
        while not stopped.is_set():
            await take(clients[number], tables[number], 1, 0, ring=1)
            drawn += 1

    drawing = [asyncio.ensure_future(draw(number)) for number in range(3)]
    await until(lambda: drawn >= 30)
    changer = opened(within=3.0)
    await changer.probe()
    new = RingRecord(2, 2, 1, (1, 2, 3), own=1)
    assert await changer.record_ring(RING, new) == new
    stopped.set()
    came = await asyncio.gather(*drawing, return_exceptions=True)
    assert all(each is None or isinstance(each, RingChanged) for each in came)


# --- settings of the session -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("synchronous_commit", "off"),
        ("default_transaction_isolation", "serializable"),
        ("default_transaction_isolation", "'repeatable read'"),
        ("search_path", '"$user", pg_temp'),
        ("statement_timeout", "1"),
        ("lock_timeout", "1"),
        ("datestyle", "'German'"),
        ("bytea_output", "'escape'"),
        ("plan_cache_mode", "force_custom_plan"),
    ],
)
async def test_what_is_set_for_the_user_does_not_change_how_tickets_are_drawn(
    opened: Open, run: Run, user: str, setting: str, value: str
) -> None:
    run(f"ALTER ROLE {user} SET {setting} = {value};")
    one, other = opened(), opened()
    assert not (await one.probe()).warnings
    await other.probe()
    photos = await made(one)
    came = await asyncio.gather(*(take(client, photos, 1, 0) for client in (one, other) * 10))
    assert sorted(each.first for each in came) == list(range(1, 41, 2))


async def test_commits_are_flushed_whatever_is_set_for_the_user(opened: Open, run: Run, user: str) -> None:
    run(f"ALTER ROLE {user} SET synchronous_commit = off;")
    database = opened()
    assert isinstance(database, PostgreSQLDatabase)
    assert await database.ask(lambda c: c.driver.fetchval("SHOW synchronous_commit")) == "on"


async def test_a_user_that_may_only_read_is_told_so(opened: Open, run: Run, user: str) -> None:
    run(f"ALTER ROLE {user} SET default_transaction_read_only = on;")
    with pytest.raises(TicketDatabaseUnavailable, match="is read-only"):
        await opened().probe()


async def test_a_wrong_password_is_never_repeated(opened: Open) -> None:
    wrong = "not the pass=word"
    with pytest.raises(TicketDatabaseUnavailable, match="refuses the user or password") as refused:
        await opened(password=wrong).probe()
    assert wrong not in f"{refused.value!r} {refused.value.__cause__!r}"


async def test_no_further_connection_leaves_those_that_are_open(opened: Open, run: Run, user: str) -> None:
    database = opened()
    await database.probe()
    photos = await made(database)
    await take(database, photos, 1, 0)
    run(f"ALTER ROLE {user} CONNECTION LIMIT 1;")
    with pytest.raises(NoFurtherConnection):
        await opened().probe()
    database.forget_connections()
    await database.probe()
    assert (await take(database, photos, 1, 0)).first == 3


# --- tables ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("table", ["ticket_sequences", "_high_water", "_ring"])
async def test_a_table_that_a_crash_empties_is_refused(opened: Open, run: Run, table: str) -> None:
    database = opened()
    await database.probe()
    run(f"ALTER TABLE {table} SET UNLOGGED;")
    with pytest.raises(TicketDatabaseSetWrong, match=f"has {table} UNLOGGED"):
        await opened().probe()
    run(f"ALTER TABLE {table} SET LOGGED;")
    assert (await opened().probe()).incarnation


@pytest.mark.parametrize(
    "change",
    [
        "_servers ALTER seen TYPE text",
        "_high_water ALTER mark TYPE numeric",
        "_kinds ALTER decided TYPE text",
        "_ring DROP record",
    ],
)
async def test_a_table_of_the_servers_own_whose_columns_were_changed_is_named(
    opened: Open, run: Run, change: str
) -> None:
    await opened().probe()
    run(f"ALTER TABLE {change};")
    with pytest.raises(TicketDatabaseSetWrong, match=f"has a table {change.split(maxsplit=1)[0]} without the columns"):
        await opened().probe()


@pytest.mark.parametrize(
    "definition",
    [
        "TABLE ticket_sequences (sequence text, id bigint)",
        "TABLE ticket_sequences (sequence text PRIMARY KEY, id integer, bits smallint, born uuid)",
        "VIEW ticket_sequences AS SELECT 'photos'::text AS sequence, 1::bigint AS id, 64::smallint AS bits",
    ],
)
async def test_a_table_that_is_not_ours_is_refused_and_left_as_it_is(opened: Open, run: Run, definition: str) -> None:
    run(f"CREATE {definition};")
    columns = "SELECT attname, atttypid FROM pg_attribute WHERE attrelid = 'ticket_sequences'::regclass AND attnum > 0;"
    before = run(columns)
    with pytest.raises(TicketDatabaseSetWrong, match="ticket_sequences"):
        await opened().probe()
    assert run(columns) == before
    assert run(
        "SELECT count(*) FROM pg_class WHERE relname = '_ring' AND relnamespace = current_schema()::regnamespace;"
    ) == [["0"]]


async def test_a_dba_makes_a_sequence_by_inserting_a_row(opened: Open, run: Run) -> None:
    database = opened()
    await database.probe()
    run("INSERT INTO ticket_sequences (sequence) VALUES ('photos'), ('albums');")
    run("INSERT INTO ticket_sequences VALUES ('songs', 1000, 32);")
    tables = await database.tables(["photos", "albums", "songs"])
    assert {name: (table.ceiling, len(table.created)) for name, table in tables.items()} == {
        "photos": (2**63 - 1, 12),
        "albums": (2**63 - 1, 12),
        "songs": (2**32 - 1, 12),
    }
    assert tables["photos"].created != tables["albums"].created
    assert (await take(database, tables["photos"], 1, 0)).first == 1
    assert (await take(database, tables["songs"], 1, 0)).first == 1001


@pytest.mark.parametrize(
    "script",
    [
        "TRUNCATE ticket_sequences; INSERT INTO ticket_sequences (sequence) VALUES ('photos');",
        "CREATE TABLE copy AS SELECT * FROM ticket_sequences; DROP TABLE ticket_sequences; "
        "CREATE TABLE ticket_sequences (sequence text PRIMARY KEY, id bigint NOT NULL DEFAULT 0, "
        "bits smallint NOT NULL DEFAULT 64, born uuid NOT NULL DEFAULT gen_random_uuid()); "
        "INSERT INTO ticket_sequences SELECT * FROM copy; GRANT ALL ON ticket_sequences TO PUBLIC;",
    ],
    ids=["truncated", "made-anew"],
)
async def test_a_table_that_was_emptied_or_put_back_is_another_life(opened: Open, run: Run, script: str) -> None:
    """A dump that is restored keeps the rows' birth marks; the table's file is another one."""
    database = opened()
    before = await database.probe()
    photos = await made(database)
    assert (await take(database, photos, 1, 0)).first == 1
    run(script)
    with pytest.raises(TicketDatabaseUnavailable, match="made anew"):
        await take(database, photos, 1, 0)
    after = await database.probe()
    assert after.incarnation != before.incarnation
    assert after.identity == before.identity
    (anew,) = (await database.tables(["photos"])).values()
    assert isinstance(await take(database, anew, 1, 0), Draw)


async def test_a_ring_record_that_somebody_deleted_stops_every_draw_until_a_look(opened: Open, run: Run) -> None:
    database = opened()
    await database.probe()
    photos = await made(database)
    run("DELETE FROM _ring;")
    with pytest.raises(TicketDatabaseUnavailable, match="lost its ring record"):
        await take(database, photos, 1, 0)
    database.forget_connections()
    assert (await database.probe()).record is None
    assert (await take(database, photos, 1, 0)).first == 1


# --- answers ---------------------------------------------------------------------------------------------------------


async def test_an_answer_that_is_larger_than_any_of_ours_ends_the_connection(opened: Open) -> None:
    database = opened()
    assert isinstance(database, PostgreSQLDatabase)
    await database.probe()
    with pytest.raises(TicketDatabaseUnavailable):
        await database.ask(lambda c: c.driver.fetchval("SELECT repeat('x', 2000000)"), most=1_000_000)
    assert await database.ask(lambda c: c.driver.fetchval("SELECT 1")) == 1


async def test_a_statement_that_hangs_is_given_up_and_the_next_one_has_a_new_connection(opened: Open) -> None:
    database = opened(within=1.5)
    assert isinstance(database, PostgreSQLDatabase)
    await database.probe()
    began = time.monotonic()
    with pytest.raises((TicketDatabaseHung, TicketDatabaseBusy)):
        await database.ask(lambda c: c.driver.fetchval("SELECT pg_sleep(20)"))
    assert time.monotonic() - began < 3.0
    assert await database.ask(lambda c: c.driver.fetchval("SELECT 1")) == 1


async def test_draws_that_are_abandoned_leave_no_task_behind(opened: Open, locked: Session) -> None:
    database = opened(within=0.5)
    await database.probe()
    photos = await made(database)
    locked.ask("BEGIN; LOCK TABLE ticket_sequences;")
    came: list[Drawn] = []
    for _ in range(5):
        database.start_draw(Residue(1, 2), photos, 1, 0, came.append)
    await until(lambda: len(came) == 5)
    assert all(isinstance(each, TicketDatabaseError) for each in came)
    locked.ask("ROLLBACK;")
    assert isinstance(await take(database, photos, 1, 0), Draw)
