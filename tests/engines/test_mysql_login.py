"""How a session logs in on MySQL and MariaDB: TLS, passwords, privileges, settings that do not fit."""

import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from app.databases.mysql.login import Line
from app.databases.mysql.session import connect
from app.databases.mysql.url import parse
from app.databases.session import Drawn, Want
from app.errors import DatabaseError, DatabaseFailed, DatabaseRefused, SequenceUnusable
from tests.engines.bench import BOTH, ODD, Bench, counter
from tests.servers import Engine, engines
from tests.servers_shared import FreshDatabase, SharedServers

MYSQL = pytest.mark.parametrize("engine", engines("mysql"))


async def error_of(url: str) -> str:
    """Connect, and return the error and its kind, or nothing."""
    try:
        (await connect(parse(url), ODD, 10)).abort()
    except DatabaseError as error:
        return f"{type(error).__name__}: {error}"
    return ""


@MYSQL
async def test_a_password_goes_to_nobody_who_is_not_trusted(
    shared_servers: SharedServers, fresh_database: FreshDatabase, engine: Engine
) -> None:
    server = shared_servers.server(engine)
    database = fresh_database(engine).rpartition("/")[2]
    server.execute("CREATE USER app@'127.0.0.1' IDENTIFIED BY 'pässword'")
    server.execute(f"GRANT ALL ON {database}.* TO app@'127.0.0.1'")
    url = f"mysql://app:p%C3%A4ssword@127.0.0.1:{server.port}/{database}"
    assert re.match("DatabaseRefused: .*public key", await error_of(f"{url}?ssl-mode=DISABLED"))
    assert not await error_of(f"{url}?ssl-mode=DISABLED&get-server-public-key=true")
    assert not await error_of(f"{url}?ssl-mode=DISABLED")  # the server knows the hash by now
    server.execute("FLUSH PRIVILEGES")
    assert not await error_of(url)
    assert await error_of(url.replace("p%C3%A4ssword", "another")) == "StatementFailed: refuses the user or password"


@MYSQL
async def test_the_files_of_tls_are_read_anew_by_each_connection(
    shared_servers: SharedServers, fresh_database: FreshDatabase, engine: Engine, tmp_path: Path
) -> None:
    server, authority = shared_servers.server(engine), tmp_path / "ca.pem"
    url = f"{fresh_database(engine)}?ssl-ca={authority}"
    for file in (None, "client-cert.pem", "ca.pem"):
        if file is not None:
            shutil.copy(server.data_dir / file, authority)
        assert ("TLS" in await error_of(url)) == (file != "ca.pem")
    assert not await error_of(url)


@pytest.mark.parametrize("engine", engines("mariadb"))
async def test_a_server_without_tls_is_refused_if_the_url_asks_for_it(
    fresh_database: FreshDatabase, engine: Engine
) -> None:
    url = fresh_database(engine)
    assert re.match("DatabaseRefused: .*ssl-mode=REQUIRED", await error_of(f"{url}?ssl-mode=REQUIRED"))
    assert not await error_of(url)


@BOTH
async def test_a_user_who_may_only_draw_needs_tables_that_are_there(bench: Bench) -> None:
    root, user = bench.address, f"u_{bench.address.database}"
    bench.run(f"CREATE USER {user}@'127.0.0.1'")
    bench.run(f"GRANT SELECT, INSERT, UPDATE, DELETE ON {root.database}.* TO {user}@'127.0.0.1'")
    bench.address = replace(root, user=user)
    with pytest.raises(DatabaseFailed, match="lacks a privilege: GRANT"):
        await bench.open()
    bench.address = root
    await bench.with_photos()
    bench.address = replace(root, user=user)
    session = await bench.open()
    await counter(session)
    assert isinstance((await session.draw([Want("photos", 100, 50)]))[0], Drawn)
    with pytest.raises(SequenceUnusable, match="GRANT CREATE"):
        await session.make("groups", 64, 0)


@BOTH
async def test_a_server_is_refused_if_something_before_it_removes_hints(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Line, "with_settings", lambda _self, verb, rest, **_settings: f"{verb} {rest}")
    with pytest.raises(DatabaseRefused, match="removes hints"):
        await bench.open()
