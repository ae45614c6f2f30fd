"""How a session logs in on MySQL and MariaDB: TLS, passwords, privileges, settings that do not fit."""

import asyncio
import contextlib
import shutil
from pathlib import Path

import pytest

from app.databases.mysql import sql
from app.databases.mysql.session import connect
from app.databases.mysql.url import parse
from app.databases.session import Counter, Drawn, Note, Want
from app.errors import DatabaseError, DatabaseFailed, DatabaseRefused, SequenceUnusable
from tests.engines.mysql_bench import EVEN, ODD
from tests.servers import DatabaseServer, Engine, engines
from tests.servers_shared import FreshDatabase, OwnServer, SharedServers

BOTH = pytest.mark.parametrize("engine", engines("mariadb", "mysql"))
MYSQL = pytest.mark.parametrize("engine", engines("mysql"))


async def open_and_close(url: str) -> DatabaseError | None:
    """Connect, and return the error."""
    try:
        session = await connect(parse(url), ODD, 10)
    except DatabaseError as error:
        return error
    session.abort()
    return None


@MYSQL
async def test_a_password_goes_to_nobody_who_is_not_trusted(own_server: OwnServer, engine: Engine) -> None:
    server = own_server(engine)
    database = server.create_database("tickets").rpartition("/")[2]
    server.execute("CREATE USER app@'127.0.0.1' IDENTIFIED BY 'pässword'")
    server.execute(f"GRANT ALL ON {database}.* TO app@'127.0.0.1'")
    url = f"mysql://app:p%C3%A4ssword@127.0.0.1:{server.port}/{database}"
    error = await open_and_close(f"{url}?ssl-mode=DISABLED")
    assert isinstance(error, DatabaseRefused)
    assert "public key" in str(error)
    assert await open_and_close(f"{url}?ssl-mode=DISABLED&get-server-public-key=true") is None
    assert await open_and_close(f"{url}?ssl-mode=DISABLED") is None  # the server knows the hash by now
    server.execute("FLUSH PRIVILEGES")
    assert await open_and_close(url) is None
    error = await open_and_close(url.replace("p%C3%A4ssword", "another"))
    assert isinstance(error, DatabaseFailed)
    assert "user or password" in str(error)
    assert "another" not in str(error)


@MYSQL
async def test_the_files_of_tls_are_read_anew_by_each_connection(
    own_server: OwnServer, engine: Engine, tmp_path: Path
) -> None:
    server = own_server(engine)
    database = server.create_database("tickets").rpartition("/")[2]
    authority = tmp_path / "ca.pem"
    address = parse(f"mysql://root@127.0.0.1:{server.port}/{database}?ssl-ca={authority}")
    for file in (None, server.data_dir / "client-cert.pem"):
        if file is not None:
            shutil.copy(file, authority)
        with pytest.raises(DatabaseFailed, match="TLS"):
            await connect(address, ODD, 10)
    shutil.copy(server.data_dir / "ca.pem", authority)
    (await connect(address, ODD, 10)).abort()


@pytest.mark.parametrize("engine", engines("mariadb"))
async def test_a_server_without_tls_is_refused_if_the_url_asks_for_it(
    fresh_database: FreshDatabase, engine: Engine
) -> None:
    url = fresh_database(engine)
    error = await open_and_close(f"{url}?ssl-mode=REQUIRED")
    assert isinstance(error, DatabaseRefused)
    assert "ssl-mode=REQUIRED" in str(error)
    assert await open_and_close(url) is None


@BOTH
async def test_a_user_who_may_only_draw_needs_tables_that_are_there(
    fresh_database: FreshDatabase, shared_servers: SharedServers, engine: Engine
) -> None:
    url = fresh_database(engine)
    database, server = url.rpartition("/")[2], shared_servers.server(engine)
    user = f"u_{database}"
    server.execute(f"CREATE USER {user}@'127.0.0.1' IDENTIFIED BY 'x'")
    server.execute(f"GRANT SELECT, INSERT, UPDATE, DELETE ON {database}.* TO {user}@'127.0.0.1'")
    own = url.replace("root", f"{user}:x") + "?get-server-public-key=true"
    error = await open_and_close(own)
    assert isinstance(error, DatabaseRefused)
    assert "GRANT" in str(error)
    root = await connect(parse(url), ODD, 10)
    await root.make("photos", 64, 0)
    session = await connect(parse(own), ODD, 10)
    assert isinstance((await session.sequences(["photos"]))["photos"], Counter)
    assert isinstance((await session.draw([Want("photos", 100, 50)]))[0], Drawn)
    with pytest.raises(SequenceUnusable, match="GRANT CREATE"):
        await session.make("groups", 64, 0)
    await session.read_ring()
    for each in (root, session):
        each.abort()


@BOTH
async def test_a_server_with_another_offset_is_refused(fresh_database: FreshDatabase, engine: Engine) -> None:
    url = fresh_database(engine, offset=2, increment=2)
    error = await open_and_close(url)
    assert isinstance(error, DatabaseRefused)
    assert "has auto_increment_offset=2, expected 1" in str(error)
    for residue in (EVEN, None):
        (await connect(parse(url), residue, 10)).abort()


@BOTH
async def test_a_server_is_refused_if_something_before_it_removes_hints(
    fresh_database: FreshDatabase, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sql, "with_steps", lambda verb, rest, *_steps, **_engine: f"{verb} {rest}")
    error = await open_and_close(fresh_database(engine))
    assert isinstance(error, DatabaseRefused)
    assert "removes hints" in str(error)


@BOTH
async def test_a_read_only_server_fails_at_the_look(own_server: OwnServer, engine: Engine) -> None:
    server: DatabaseServer = own_server(engine)
    database = server.create_database("tickets").rpartition("/")[2]
    server.execute("CREATE USER app@'127.0.0.1'")
    server.execute(f"GRANT ALL ON {database}.* TO app@'127.0.0.1'")
    url = f"mysql://app@127.0.0.1:{server.port}/{database}"
    assert await open_and_close(url) is None
    server.execute("SET GLOBAL read_only = 1")
    session = await connect(parse(url), ODD, 10)
    with pytest.raises(DatabaseFailed, match="read-only"):
        await session.look("host:1", Note())


@pytest.mark.parametrize("greeting", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\x05\x00\x00\x00\x0a8.0\x00"])
async def test_a_connection_that_is_given_up_or_answered_with_nonsense_is_closed(greeting: bytes) -> None:
    closed = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(greeting)
        with contextlib.suppress(OSError):
            await reader.read()
        closed.set()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    address = parse(f"mysql://root@127.0.0.1:{port}/tickets")
    with pytest.raises(DatabaseFailed if greeting else TimeoutError):
        async with asyncio.timeout(5 if greeting else 0.3):
            await connect(address, ODD, 1)
    async with asyncio.timeout(5):
        await closed.wait()
    server.close()
