"""Logging in to PostgreSQL: TLS as libpq's sslmode asks for it, passwords, poolers, standbys, and servers that lie."""

import asyncio
import contextlib
import select
import shutil
import socket
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import uvloop

from app.databases.postgresql import driver
from app.databases.postgresql.session import connect
from app.databases.postgresql.sql import settings
from app.databases.postgresql.url import parse
from app.errors import DatabaseFailed, DatabaseRefused
from tests.engines.bench import certificate, server_bench
from tests.servers import DatabaseServer
from tests.servers_processes import free_port, wait_until
from tests.servers_programs import as_unprivileged, new_home
from tests.servers_shared import OwnServer, SharedServers

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


@pytest.fixture(scope="module")
def secure() -> Iterator[DatabaseServer]:
    """A server with TLS, and the accounts of `ACCESS`."""
    server = DatabaseServer("postgresql")
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


async def log_in(server: DatabaseServer, user: str, words: str = "", host: str = "127.0.0.1") -> bool:
    """Log in, and return whether the server says that the connection is encrypted."""
    words = words.format(root=server.data_dir / "server.pem")
    url = f"postgresql://{user}:{SECRET}@{host}:{server.port}/postgres?application_name=mine{words}"
    session = await connect(parse(url), None, 10.0)
    try:
        query = "SELECT ssl, application_name FROM pg_stat_ssl JOIN pg_stat_activity USING (pid)"
        ((encrypted, name),) = await session.ask(f"{query} WHERE pid = pg_backend_pid()")
        assert name == "mine"
        return bool(encrypted)
    finally:
        session.abort()


async def test_tls_is_used_as_sslmode_says(secure: DatabaseServer, shared_servers: SharedServers) -> None:
    for words, encrypted in (
        ("&sslmode=disable", False),
        ("&sslmode=allow", False),
        ("", True),
        ("&sslmode=require", True),
        ("&sslmode=require&sslrootcert={root}", True),
        ("&sslmode=verify-full&sslrootcert={root}", True),
    ):
        assert await log_in(secure, "clear", words) is encrypted
    assert await log_in(secure, "hidden", "&sslmode=allow")  # which goes the other way where the first is refused
    with pytest.raises(DatabaseFailed, match="refuses the user, or connections from this host"):
        await log_in(secure, "hidden", "&sslmode=disable")
    without = shared_servers.server("postgresql")
    assert not await log_in(without, "postgres")
    with pytest.raises(DatabaseFailed, match="does not offer TLS"):
        await log_in(without, "postgres", "&sslmode=require")


async def test_a_certificate_that_does_not_verify_is_refused(secure: DatabaseServer, tmp_path: Path) -> None:
    stranger = certificate(tmp_path, "stranger")
    for words, host in (
        (f"&sslmode=require&sslrootcert={stranger}", "127.0.0.1"),
        ("&sslmode=verify-full&sslrootcert={root}", "localhost"),
    ):
        with pytest.raises(DatabaseFailed, match="certificate that cannot be verified"):
            await log_in(secure, "clear", words, host=host)
    assert await log_in(secure, "clear", "&sslmode=verify-ca&sslrootcert={root}", host="localhost")
    with pytest.raises(DatabaseRefused, match="cannot be used: No such file"):
        await log_in(secure, "clear", f"&sslmode=verify-full&sslrootcert={tmp_path / 'none'}")


async def test_the_password_itself_is_sent_only_where_the_certificate_was_verified(secure: DatabaseServer) -> None:
    for words in ("&sslmode=disable", "&sslmode=prefer", "&sslmode=require"):
        with pytest.raises(DatabaseRefused, match="asks for the password in clear text"):
            await log_in(secure, "plain", words)
    assert await log_in(secure, "plain", "&sslmode=verify-full&sslrootcert={root}")
    assert not await log_in(secure, "digest", "&sslmode=disable")


async def test_a_login_that_is_refused_says_why_and_reads_no_environment(
    secure: DatabaseServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("PGHOST", "PGPORT", "PGUSER", "PGPASSWORD", "PGDATABASE", "PGSSLMODE", "PGTARGETSESSIONATTRS"):
        monkeypatch.setenv(name, "wrong")
    here = f"127.0.0.1:{secure.port}"
    (await connect(parse(f"postgresql://postgres@{here}/postgres"), None, 10.0)).abort()
    for url, why in (
        (f"clear:{SECRET}x@{here}/postgres", "refuses the user or password"),
        (f"postgres@{here}/nowhere", "has no such database"),
        (f"postgres@127.0.0.1:{free_port()}/postgres", "refuses connections"),
    ):
        with pytest.raises(DatabaseFailed, match=why) as refused:
            await connect(parse(f"postgresql://{url}"), None, 5.0)
        assert SECRET not in repr(refused.value)


@contextlib.contextmanager
def pooler(server: DatabaseServer, settings: str) -> Iterator[int]:
    """The port of a pgbouncer before the server, with some further settings."""
    program = shutil.which("pgbouncer", path="/usr/sbin:/usr/bin:/usr/local/bin")
    assert program, "no pgbouncer on this machine: apt-get install pgbouncer"
    home, port = new_home("postgresql"), free_port()
    ini, log = home / "ini", home / "log"
    ini.write_text(
        f"[databases]\n* = host=127.0.0.1 port={server.port} user=postgres\n"
        f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\n"
        f"auth_type = any\n{settings}\n"
    )
    with log.open("w") as file:
        started = subprocess.Popen([*as_unprivileged(), program, ini], cwd=home, stdout=file, stderr=file)
    try:
        wait_until(lambda: "process up" in log.read_text(), 30, "pgbouncer to listen")
        yield port
    finally:
        started.kill()
        started.wait()
        shutil.rmtree(home)


async def test_a_pooler_is_refused_by_name(shared_servers: SharedServers) -> None:
    """pgbouncer refuses settings that it does not know, unless it is told to pass them over."""
    ignored = ", ".join(settings(1.0))
    for words in ("pool_mode = transaction", f"pool_mode = session\nignore_startup_parameters = {ignored}"):
        refused = pytest.raises(DatabaseRefused, match="connection pooler")
        with pooler(shared_servers.server("postgresql"), words) as port, refused:
            await connect(parse(f"postgresql://postgres@127.0.0.1:{port}/postgres"), None, 5.0)


async def test_a_standby_is_refused_and_a_promoted_one_is_another_machine(own_server: OwnServer) -> None:
    server = own_server("postgresql")
    lonely = server_bench(server, "postgres")
    facts = (await lonely.open()).facts
    server.stop()
    (server.data_dir / "standby.signal").touch()
    server.start()
    with pytest.raises(DatabaseFailed, match="is a standby"):
        await lonely.open()
    lonely.run("SELECT pg_promote()")
    promoted = (await lonely.open()).facts
    assert promoted.machine != facts.machine
    assert promoted.births == facts.births
    await lonely.close()


@pytest.mark.parametrize("mode", ["disable", "prefer", "require"])
def test_a_server_that_dies_leaves_no_socket_that_would_close_another_ones_descriptor(
    mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    dialled: list[socket.socket] = []

    async def dial(*_: object) -> socket.socket:
        """Connect to a server that has reset the connection since."""
        with socket.create_server(("127.0.0.1", 0)) as listener:
            dialled.append(socket.create_connection(listener.getsockname()))
            accepted = listener.accept()[0]
        accepted.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        accepted.close()
        select.select(dialled[-1:], [], [], 30)
        return dialled[-1]

    async def log_in() -> None:
        with pytest.raises(DatabaseFailed):
            await driver.login(parse(f"postgresql://u@127.0.0.1/d?sslmode={mode}"), 5.0)
        await asyncio.sleep(0)  # lets the transports close

    monkeypatch.setattr(driver, "dial", dial)
    uvloop.run(asyncio.wait_for(log_in(), 30))
    assert [each.fileno() for each in dialled] == [-1] * (2 if mode == "prefer" else 1)
