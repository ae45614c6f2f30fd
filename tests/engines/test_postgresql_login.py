"""Logging in to PostgreSQL: TLS as libpq's sslmode asks for it, passwords, poolers, and servers that lie."""

import asyncio
import contextlib
import gc
import random
import shutil
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from app.databases.postgresql.session import PostgreSQLSession, connect
from app.databases.postgresql.sql import settings
from app.databases.postgresql.url import parse
from app.databases.session import Book, Mark, Note, Want, Write
from app.errors import DatabaseError, DatabaseFailed, DatabaseRefused
from tests.engines.postgresql_bench import PostgreSQLBench
from tests.servers import DatabaseServer
from tests.servers_processes import free_port, wait_until
from tests.servers_programs import as_unprivileged, new_home, template
from tests.servers_shared import SharedServers

SECRET = "hunter2"
ACCESS = """
local all postgres trust
host all postgres 127.0.0.1/32 trust
hostnossl all clear 127.0.0.1/32 scram-sha-256
hostssl all plain 127.0.0.1/32 password
host all plain 127.0.0.1/32 password
host all digest 127.0.0.1/32 md5
hostssl all all 127.0.0.1/32 scram-sha-256
"""
"""`clear` may log in without TLS, `hidden` only with TLS; `plain` has to send its password in clear text."""


def certificate(folder: Path, name: str) -> Path:
    """A certificate for 127.0.0.1 that signs itself, in one file with its key."""
    file = folder / f"{name}.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={name}"]
    command += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", f"{file}.key", "-out", str(file)]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    return file


@pytest.fixture(scope="module")
def secure(shared_servers: SharedServers) -> Iterator[DatabaseServer]:
    """A server with TLS, and the accounts of `ACCESS`."""
    server = DatabaseServer("postgresql", template("postgresql", shared_servers.templates))
    try:
        file = certificate(server.data_dir, "server")
        owner = server.data_dir.stat()
        for each in (file, Path(f"{file}.key")):
            shutil.chown(each, owner.st_uid, owner.st_gid)
            each.chmod(0o600)
        server.options = ["-c", "ssl=on", "-c", f"ssl_cert_file={file}", "-c", f"ssl_key_file={file}.key"]
        (server.data_dir / "pg_hba.conf").write_text(ACCESS)
        server.start()
        for user in ("clear", "hidden", "plain"):
            server.execute(f"CREATE ROLE {user} LOGIN SUPERUSER PASSWORD '{SECRET}'")
        with contextlib.closing(server.connect()) as connection:
            connection.execute("SET password_encryption = md5")
            connection.execute(f"CREATE ROLE digest LOGIN SUPERUSER PASSWORD '{SECRET}'")
        yield server
    finally:
        server.close()


async def log_in(server: DatabaseServer, user: str, words: str = "", port: int = 0, host: str = "127.0.0.1") -> bool:
    """Log in, and return whether the server says that the connection is encrypted."""
    words = words.format(root=server.data_dir / "server.pem")
    url = f"postgresql://{user}:{SECRET}@{host}:{port or server.port}/postgres?application_name=mine{words}"
    session = await connect(parse(url), None, 10.0)
    try:
        query = "SELECT s.ssl FROM pg_stat_ssl s JOIN pg_stat_activity a USING (pid) WHERE application_name = 'mine'"
        return bool((await asyncio.to_thread(server.execute, query))[0][0])
    finally:
        session.abort()
        await asyncio.to_thread(wait_until, lambda: not server.execute(query), 30, "the end of the session")


@pytest.mark.parametrize(
    ("words", "encrypted"),
    [
        ("&sslmode=disable", False),
        ("&sslmode=allow", False),
        ("", True),
        ("&sslmode=require", True),
        ("&sslmode=require&sslrootcert={root}", True),
        ("&sslmode=verify-full&sslrootcert={root}", True),
    ],
)
async def test_tls_is_used_as_sslmode_says(secure: DatabaseServer, words: str, encrypted: bool) -> None:
    assert await log_in(secure, "clear", words) is encrypted


async def test_the_environment_is_not_read(secure: DatabaseServer, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PGHOST", "PGPORT", "PGUSER", "PGPASSWORD", "PGDATABASE", "PGSSLMODE", "PGTARGETSESSIONATTRS"):
        monkeypatch.setenv(name, "wrong")
    (await connect(parse(f"postgresql://postgres@127.0.0.1:{secure.port}/postgres"), None, 10.0)).abort()
    await asyncio.sleep(0)


async def test_prefer_and_allow_go_the_other_way_where_the_first_is_refused(
    secure: DatabaseServer, shared_servers: SharedServers
) -> None:
    assert await log_in(secure, "hidden", "&sslmode=allow")
    with pytest.raises(DatabaseFailed, match="refuses the user, or connections from this host"):
        await log_in(secure, "hidden", "&sslmode=disable")
    without = shared_servers.server("postgresql")
    assert not await log_in(without, "postgres")
    with pytest.raises(DatabaseFailed, match="does not offer TLS"):
        await log_in(without, "postgres", "&sslmode=require")


async def test_a_certificate_that_does_not_verify_is_refused(secure: DatabaseServer, tmp_path: Path) -> None:
    stranger = certificate(tmp_path, "stranger")
    for words in (f"&sslmode=require&sslrootcert={stranger}", f"&sslmode=verify-full&sslrootcert={stranger}"):
        with pytest.raises(DatabaseFailed, match="certificate that cannot be verified"):
            await log_in(secure, "clear", words)
    with pytest.raises(DatabaseFailed, match="certificate that cannot be verified"):
        await log_in(secure, "clear", "&sslmode=verify-full&sslrootcert={root}", host="localhost")
    assert await log_in(secure, "clear", "&sslmode=verify-ca&sslrootcert={root}", host="localhost")
    with pytest.raises(DatabaseRefused, match="cannot be used: No such file"):
        await log_in(secure, "clear", f"&sslmode=verify-full&sslrootcert={tmp_path / 'none'}")


async def test_the_password_itself_is_sent_only_where_the_certificate_was_verified(secure: DatabaseServer) -> None:
    for words in ("&sslmode=disable", "&sslmode=prefer", "&sslmode=require"):
        with pytest.raises(DatabaseRefused, match="asks for the password in clear text"):
            await log_in(secure, "plain", words)
    assert await log_in(secure, "plain", "&sslmode=verify-full&sslrootcert={root}")
    assert not await log_in(secure, "digest", "&sslmode=disable")


async def test_a_login_that_is_refused_says_why_and_holds_no_secret(secure: DatabaseServer) -> None:
    address = parse(f"postgresql://clear:{SECRET}x@127.0.0.1:{secure.port}/postgres")
    with pytest.raises(DatabaseFailed, match="refuses the user or password") as refused:
        await connect(address, None, 5.0)
    assert SECRET not in f"{refused.value!r} {address!r}"
    with pytest.raises(DatabaseFailed, match="has no such database"):
        await connect(parse(f"postgresql://postgres@127.0.0.1:{secure.port}/nowhere"), None, 5.0)
    with pytest.raises(DatabaseFailed, match="refuses connections"):
        await connect(parse(f"postgresql://postgres@127.0.0.1:{free_port()}/postgres"), None, 5.0)


@pytest.fixture
def pooler(shared_servers: SharedServers) -> Iterator[Callable[[str], int]]:
    """Start pgbouncer with some further settings before the shared server; returns its port."""
    home = new_home("postgresql")
    started: list[subprocess.Popen[bytes]] = []

    def start(settings: str) -> int:
        port, ini = free_port(), home / f"{len(started)}.ini"
        ini.write_text(
            f"[databases]\n* = host=127.0.0.1 port={shared_servers.server('postgresql').port} user=postgres\n"
            f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\n"
            f"auth_type = any\n{settings}\n"
        )
        program = shutil.which("pgbouncer", path="/usr/sbin:/usr/bin:/usr/local/bin")
        assert program, "no pgbouncer on this machine: apt-get install pgbouncer"
        log = ini.with_suffix(".log")
        with log.open("w") as file:
            started.append(subprocess.Popen([*as_unprivileged(), program, ini], cwd=home, stdout=file, stderr=file))
        wait_until(lambda: "process up" in log.read_text(), 30, "pgbouncer to listen")
        return port

    yield start
    for each in started:
        each.kill()
        each.wait()
    shutil.rmtree(home)


async def test_a_pooler_is_refused_by_name(pooler: Callable[[str], int]) -> None:
    """pgbouncer refuses settings that it does not know, unless it is told to pass them over."""
    ignored = ", ".join(settings(1.0))
    for words in ("pool_mode = transaction", f"pool_mode = session\nignore_startup_parameters = {ignored}"):
        port = await asyncio.to_thread(pooler, words)
        with pytest.raises(DatabaseRefused, match="connection pooler"):
            await connect(parse(f"postgresql://postgres@127.0.0.1:{port}/postgres"), None, 5.0)


# --- servers that lie ------------------------------------------------------------------------------------------------

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[Any]]


@contextlib.asynccontextmanager
async def listening(serve: Serve) -> AsyncIterator[int]:
    """The port of a server that does this for each connection."""
    tasks: set[asyncio.Task[Any]] = set()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.add(asyncio.current_task())  # type: ignore[arg-type]
        with contextlib.suppress(OSError, asyncio.CancelledError):
            await serve(reader, writer)
        writer.transport.abort()

    async with await asyncio.start_server(handle, "127.0.0.1", 0) as listener:
        yield listener.sockets[0].getsockname()[1]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_stranger_that_asks_for_the_password_in_pieces_does_not_get_it() -> None:
    heard = b""

    async def ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal heard
        await reader.read(1000)
        for piece in (b"N\0\0\0\x05\0R\0\0", b"\0\x08\0\0", b"\0\x03"):
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0.01)
        heard = await reader.read(1000)

    async with listening(ask) as port:
        address = parse(f"postgresql://u:{SECRET}@127.0.0.1:{port}/d?sslmode=disable")
        with pytest.raises(DatabaseRefused, match="in clear text"):
            await connect(address, None, 5.0)
    assert heard == b""


@pytest.mark.parametrize(
    "answer",
    [
        b"R\0\0\0\x08\0\0\0\0D\xff\xff\xff\xf0",
        b"R\x80\0\0\0",
        b"E\x7f\xff\xff\xff",
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"",
    ],
)
async def test_an_answer_that_is_none_is_a_failure_at_once(answer: bytes) -> None:
    async def reply(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1000)
        writer.write(answer)
        await writer.drain()
        if answer:
            await reader.read(1000)

    async with listening(reply) as port, asyncio.timeout(30):
        for mode in ("disable", "prefer", "require"):
            with pytest.raises(DatabaseFailed):
                await connect(parse(f"postgresql://u@127.0.0.1:{port}/d?sslmode={mode}"), None, 5.0)


async def use(session: PostgreSQLSession) -> None:
    """Call everything that reads an answer."""
    await session.look("one:8000", Note())
    await session.sequences(None)
    await session.draw([Want("photos", 3), Want("groups", 1)])
    await session.raise_above({"photos": 5})
    ring = await session.read_ring()
    await session.write([Write(Book.MARKS, "a", None, Note(1, tenure="t"))], None)
    await session.mark([Mark("a", "t", 5, 5, True)], ring.stamp)
    await session.read(Book.MARKS, ["a"])
    await session.page(Book.MARKS, "", 10)
    await session.write_ring(ring, ring)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # of asyncpg's half-made connections
async def test_whatever_the_answer_is_the_error_is_one_of_a_ticket_database(shared_servers: SharedServers) -> None:
    """One byte is changed in some pieces of the answers."""
    server = shared_servers.server("postgresql")
    bench = PostgreSQLBench(server)
    await (await bench.open(None)).make("photos", 64, 0)
    chance = random.Random(1)
    begun = 0

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, spoils: float) -> None:
        while piece := bytearray(await reader.read(65_536)):
            if chance.random() < spoils:
                piece[chance.randrange(len(piece))] = chance.randrange(256)
            writer.write(piece)
            await writer.drain()

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal begun
        begun += 1
        back, forth = await asyncio.open_connection("127.0.0.1", server.port)
        both = pump(reader, forth, 0), pump(back, writer, 0.1 if begun % 2 else 0.02)
        tasks = [asyncio.create_task(each) for each in both]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            forth.transport.abort()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def use_one(port: int) -> bool:
        try:
            async with asyncio.timeout(2):  # some answers never come to their end
                await use(await bench.open(port=port))
        except (DatabaseError, TimeoutError):
            return False
        return True

    try:
        async with listening(relay) as port:
            served = [each for _ in range(4) for each in await asyncio.gather(*[use_one(port) for _ in range(25)])]
        assert served.count(False) > 10
    finally:
        await bench.close()
        gc.collect()  # what the driver left half made complains here
