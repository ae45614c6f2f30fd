"""Logging in to PostgreSQL: TLS as libpq's sslmode asks for it, accounts with few privileges, and a server of another
kind."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from app.common.errors import TicketDatabaseSetWrong, TicketDatabaseUnavailable
from app.databases.postgresql.database import PostgreSQLDatabase
from app.databases.postgresql.url import PostgreSQLURL
from app.databases.protocol import Mark, RingRecord, ServerEntry
from app.kinds.definition import Definition
from tests.contract.engines.storages import made, take
from tests.fakes.certificates import Authority
from tests.harness.postgresql import PASSWORD, PostgreSQL
from tests.harness.postgresql_clients import PgBouncer

pytestmark = pytest.mark.any_engine

SETUP = Path(__file__).resolve().parents[3] / "deploy/postgresql/01-tickets.sql"
TIMEOUT = 10.0
Open = Callable[[str], PostgreSQLDatabase]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("certificates")


@pytest.fixture(scope="module")
def authority(folder: Path) -> Authority:
    return Authority(folder, "trusted")


@pytest.fixture(scope="module")
def secure(authority: Authority) -> Iterator[PostgreSQL]:
    """A server with a certificate for 127.0.0.1; `clear` may log in without TLS, `hidden` only with it."""
    with PostgreSQL(listens=True, tls=authority.certificate("127.0.0.1")) as server:
        for user in ("clear", "hidden"):
            server.make_user(user)
        server.allow("hostnossl all clear 127.0.0.1/32 scram-sha-256\nhostssl all all 127.0.0.1/32 scram-sha-256\n")
        yield server


@pytest.fixture
async def opened() -> AsyncIterator[Open]:
    clients: list[PostgreSQLDatabase] = []

    def open_one(url: str) -> PostgreSQLDatabase:
        clients.append(PostgreSQLDatabase(PostgreSQLURL.parse(url), 1, 2, TIMEOUT))
        return clients[-1]

    yield open_one
    for client in clients:
        await client.close()


Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@contextlib.asynccontextmanager
async def stranger(serve: Serve) -> AsyncIterator[int]:
    """The port of a server that does this for each connection, until the client has gone away."""
    serving: set[asyncio.Task[None]] = set()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            await serve(reader, writer)
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()

    def begin(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        serving.add(asyncio.ensure_future(handle(reader, writer)))

    async with await asyncio.start_server(begin, "127.0.0.1", 0) as listener:
        yield listener.sockets[0].getsockname()[1]
        await asyncio.gather(*serving)


async def encrypted(database: PostgreSQLDatabase) -> bool:
    """Whether the server says that the connection is."""
    await database.probe()
    query = "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()"
    says = bool(await database.ask(lambda c: c.driver.fetchval(query)))
    assert all(each.tls == says for each in database.open_connections)
    return says


# --- TLS -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "tls"),
    [
        ("?sslmode=disable", False),
        ("?sslmode=allow", False),
        ("", True),
        ("?sslmode=require", True),
        ("?sslmode=require&sslrootcert={ca}", True),
        ("?sslmode=verify-ca&sslrootcert={ca}", True),
        ("?sslmode=verify-full&sslrootcert={ca}", True),
    ],
)
async def test_tls_is_used_as_sslmode_says(
    opened: Open, secure: PostgreSQL, authority: Authority, words: str, tls: bool
) -> None:
    assert await encrypted(opened(secure.url_of("clear", words.format(ca=authority.file)))) is tls


async def test_allow_goes_on_with_tls_where_the_server_wants_it(opened: Open, secure: PostgreSQL) -> None:
    assert await encrypted(opened(secure.url_of("hidden", "?sslmode=allow")))
    with pytest.raises(TicketDatabaseUnavailable, match="refuses the user, or connections from this host"):
        await opened(secure.url_of("hidden", "?sslmode=disable")).probe()


async def test_prefer_goes_on_in_clear_where_the_server_has_no_tls(
    opened: Open, postgresql_pair: list[PostgreSQL]
) -> None:
    postgresql_pair[0].make_user("prefers")
    assert not await encrypted(opened(postgresql_pair[0].url_of("prefers")))
    with pytest.raises(TicketDatabaseUnavailable, match="does not offer TLS"):
        await opened(postgresql_pair[0].url_of("prefers", "?sslmode=require")).probe()


@pytest.mark.parametrize("mode", ["require", "verify-ca", "verify-full"])
async def test_a_certificate_of_a_stranger_is_refused_before_the_password_is_sent(
    opened: Open, secure: PostgreSQL, folder: Path, mode: str
) -> None:
    stranger = Authority(folder, "stranger")
    with pytest.raises(TicketDatabaseUnavailable, match="has a TLS certificate that cannot be verified"):
        await opened(secure.url_of("clear", f"?sslmode={mode}&sslrootcert={stranger.file}")).probe()


async def test_a_certificate_for_another_host_is_refused_by_verify_full_alone(
    opened: Open, secure: PostgreSQL, authority: Authority
) -> None:
    elsewhere = secure.url_of("clear", f"?sslmode=verify-full&sslrootcert={authority.file}").replace(
        "@127.0.0.1:", "@localhost:"
    )
    with pytest.raises(TicketDatabaseUnavailable, match="cannot be verified"):
        await opened(elsewhere).probe()
    assert await encrypted(opened(elsewhere.replace("verify-full", "verify-ca")))


async def test_the_password_is_sent_in_clear_only_where_the_certificate_was_verified(
    opened: Open, secure: PostgreSQL, authority: Authority
) -> None:
    secure.make_user("plain")
    secure.allow("host all plain 127.0.0.1/32 password\nhost all all 127.0.0.1/32 scram-sha-256\n")
    for words in ("sslmode=disable", "sslmode=prefer", "sslmode=require"):
        with pytest.raises(TicketDatabaseSetWrong, match="asks for the password in clear text"):
            await opened(secure.url_of("plain", f"?{words}")).probe()
    assert await encrypted(opened(secure.url_of("plain", f"?sslmode=verify-full&sslrootcert={authority.file}")))


async def test_a_stranger_that_asks_for_the_password_does_not_get_it(opened: Open) -> None:
    """The server sees the request even after a notice, and in small pieces."""
    heard = bytearray()

    async def ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1000)
        for piece in (b"N\0\0\0\x05\0R\0\0", b"\0\x08\0\0", b"\0\x03"):
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0.02)
        heard.extend(await reader.read())

    async with stranger(ask) as port:
        with pytest.raises(TicketDatabaseSetWrong, match="in clear text"):
            await opened(f"postgresql://u:open-sesame@127.0.0.1:{port}/d?sslmode=disable").probe()
    assert b"open-sesame" not in heard


async def test_a_stranger_that_sends_without_end_is_cut_off(opened: Open) -> None:
    sent = 0

    async def pour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        await reader.read(1000)
        writer.write(b"N\x7f\xff\xff\xff")
        while True:
            writer.write(bytes(65_536))
            await writer.drain()
            sent += 65_536

    async with stranger(pour) as port:
        with pytest.raises(TicketDatabaseUnavailable):
            await opened(f"postgresql://u:p@127.0.0.1:{port}/d?sslmode=disable").probe()
    assert sent < 64 * 1024 * 1024


async def test_neither_variables_nor_password_files_are_read(
    opened: Open, secure: PostgreSQL, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "pgpass"
    file.write_text("*:*:*:*:" + PASSWORD.replace(":", r"\:") + "\n")
    file.chmod(0o600)
    words = {
        "PGPASSWORD": PASSWORD,
        "PGPASSFILE": str(file),
        "PGSSLMODE": "verify-full",
        "PGSSLROOTCERT": "/nowhere",
        "PGSSLNEGOTIATION": "direct",
        "PGTARGETSESSIONATTRS": "read-only",
        "PGHOST": "nowhere.invalid",
        "PGOPTIONS": "-c synchronous_commit=off",
    }
    for name, value in words.items():
        monkeypatch.setenv(name, value)
    assert await encrypted(opened(secure.url_of("clear", "?sslmode=disable"))) is False
    without = f"postgresql://clear@127.0.0.1:{secure.port}/postgres"
    with pytest.raises(TicketDatabaseUnavailable, match="refuses the user or password"):
        await opened(without).probe()


# --- accounts --------------------------------------------------------------------------------------------------------


async def test_an_account_that_owns_nothing_can_do_all_that_a_server_does(
    opened: Open, postgresql_pair: list[PostgreSQL]
) -> None:
    server = postgresql_pair[0]
    server.rows(f"CREATE SCHEMA of_the_dba; CREATE ROLE least LOGIN PASSWORD '{PASSWORD}';")
    server.rows("ALTER ROLE least SET search_path = of_the_dba;")
    script = f"SET search_path = of_the_dba;\n\\set account least\n{SETUP.read_text()}"
    for _ in range(2):  # it may be run again
        ran = server.psql(script)
        assert ran.status == 0, ran.errors
    database = opened(server.url_of("least"))
    database.announce(lambda: ServerEntry("ab", "1.0", ("ticket",), 1.0))
    await database.probe()
    tables = await database.tables(await database.names())
    assert {name: int(table.width) for name, table in tables.items()} == {
        **dict.fromkeys(("Tickets64", "photos", "accounts", "groups", "offline_tasks"), 64),
        "Tickets32": 32,
    }
    ring = RingRecord(1, 2, 1, (1, 2), own=1)
    await database.record_ring(None, ring)
    await database.advance({"photos": 100})
    assert (await take(database, tables["photos"], 3, 0, ring=1)).first == 101
    await made(database, "albums")
    mark = Mark("photos", 2, 2, 10, 7, "life.t:a")
    await database.keep([mark], 1)
    await database.supersede(mark, Mark("photos", 2, 2, 20, 7, "life.t:b"), 1)
    claim = Definition("likes", "uuid4", {}, decided=False, by="ab")
    await database.define(claim)
    await database.forget_definition(claim)
    assert await database.in_use(0.0) == []
    for forbidden in (
        "UPDATE ticket_sequences SET sequence = 'x'",
        "DELETE FROM ticket_sequences",
        "TRUNCATE ticket_sequences",
        "DROP TABLE _high_water",
        "CREATE TABLE of_the_dba.more (id int)",
    ):
        ran = server.psql(f"SET search_path = of_the_dba; SET ROLE least; {forbidden};")
        assert "permission denied" in ran.errors or "must be owner" in ran.errors


async def test_the_script_and_the_server_make_the_same_tables(opened: Open, postgresql_pair: list[PostgreSQL]) -> None:
    server = postgresql_pair[0]
    server.make_user("makes")
    server.rows("CREATE SCHEMA scripted;")
    await opened(server.url_of("makes")).probe()
    assert server.psql(f"SET search_path = scripted;\n\\set account makes\n{SETUP.read_text()}").status == 0
    shape = (
        "SELECT c.relname, c.reloptions, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull, "
        "pg_get_expr(d.adbin, d.adrelid) FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 "
        "LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum "
        "WHERE c.relnamespace = '{}'::regnamespace ORDER BY 1, 3;"
    )
    assert server.rows(shape.format("scripted")) == server.rows(shape.format("makes")) != []


async def test_an_account_without_privileges_is_told_what_to_run(
    opened: Open, postgresql_pair: list[PostgreSQL]
) -> None:
    server = postgresql_pair[0]
    server.rows(
        f"CREATE ROLE poor LOGIN PASSWORD '{PASSWORD}'; CREATE SCHEMA bare; GRANT USAGE ON SCHEMA bare TO poor;"
    )
    server.rows("ALTER ROLE poor SET search_path = bare;")
    with pytest.raises(TicketDatabaseSetWrong, match=r"deploy/postgresql/01-tickets\.sql"):
        await opened(server.url_of("poor")).probe()
    server.rows("ALTER ROLE poor SET search_path = nowhere;")
    with pytest.raises(TicketDatabaseSetWrong, match="no schema"):
        await opened(server.url_of("poor")).probe()


# --- what else may stand at the address ------------------------------------------------------------------------------


async def test_what_is_no_postgresql_is_unavailable_in_time(opened: Open) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    async with stranger(answer) as port:
        for mode in ("disable", "prefer", "require"):
            with pytest.raises(TicketDatabaseUnavailable):
                await opened(f"postgresql://u:p@127.0.0.1:{port}/d?sslmode={mode}").probe()


async def test_a_port_at_which_nobody_listens_refuses_connections(opened: Open) -> None:
    with pytest.raises(TicketDatabaseUnavailable, match="refuses connections"):
        await opened("postgresql://u:p@127.0.0.1:9/d").probe()


@pytest.mark.parametrize("mode", ["transaction", "session"])
async def test_pgbouncer_is_refused_by_name(opened: Open, postgresql_pair: list[PostgreSQL], mode: str) -> None:
    """In session mode too: a pooled session keeps the settings that another program made."""
    user = f"pooled_{mode}"
    postgresql_pair[0].make_user(user)
    with PgBouncer(postgresql_pair[0], user, mode) as pooler:
        for _ in range(2):
            with pytest.raises(TicketDatabaseSetWrong, match=r"connection pooler.*pgbouncer"):
                await opened(f"postgresql://{user}@127.0.0.1:{pooler.port}/postgres").probe()
