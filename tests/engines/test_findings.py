"""`ticketd doctor` on real databases: what each engine finds, and that nothing changes there."""

import asyncio
import re
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from app.databases.address import Address
from app.databases.engines import lock_embedded, open_database, parse_list
from app.databases.postgresql.session import connect
from app.databases.postgresql.url import parse
from app.databases.session import Note, Residue
from app.doctor import run as examine
from app.errors import DatabaseRefused
from app.service import Service
from app.settings import Settings, load
from app.tickets.request import Call
from tests.engines.bench import connector
from tests.servers import DatabaseServer, Engine, engines
from tests.servers_programs import program
from tests.servers_shared import FreshDatabase, OwnServer, SharedServers

DEPLOY = Path(__file__).parents[2] / "deploy"
MYSQL = pytest.mark.parametrize("engine", engines("mariadb", "mysql"))
Doctor = Callable[..., tuple[int, list[str]]]


@pytest.fixture
def doctor(capsys: pytest.CaptureFixture[str]) -> Doctor:
    """Runs the doctor on these URLs, with further settings; returns the exit status and the lines."""

    def run(*urls: str, **settings: str) -> tuple[int, list[str]]:
        capsys.readouterr()
        patient = {"TICKETS_DATABASES": " ".join(urls), "TICKETS_DATABASE_TIMEOUT": "20"}
        status = examine(load(patient | settings, {}))
        return status, capsys.readouterr().out.splitlines()

    return run


def wrong(lines: Sequence[str]) -> list[str]:
    return [line.split(": ", 2)[2] for line in lines if line.startswith("wrong: ")]


async def use(addresses: Sequence[Address]) -> None:
    """Form a ring, make a sequence there, and draw from it, as a ticket server."""
    settings = Settings.model_construct(databases=addresses, database_timeout=20.0)
    service = Service([open_database(each, 20.0) for each in addresses], settings, "test:1")
    service.start()
    async with asyncio.timeout(60):
        while len(service.sight.in_sight) < len(addresses):
            await service.sight.moved()
    await service.catalog.create("photos", None, {})
    for _ in addresses:
        answer = asyncio.get_running_loop().create_future()
        service.desk.take(Call("photos", answer.set_result, answer.set_exception))
        await answer
    await service.stop()


def held(server: DatabaseServer, url: str) -> list[object]:
    """Everything that a database holds."""
    name = url.rpartition("/")[2]
    if server.engine == "redis":
        return [sorted(server.execute("KEYS *", name)[0][0]), server.execute("DEBUG DIGEST", name)]
    schema = "public" if server.engine == "postgresql" else name
    tables = server.execute(f"SELECT table_name FROM information_schema.tables WHERE table_schema = '{schema}'", name)
    return [(table, sorted(map(str, server.execute(f"SELECT * FROM {table}", name)))) for (table,) in sorted(tables)]


def test_a_ring_that_is_well_is_left_as_it_is(
    engine: Engine, fresh_database: FreshDatabase, shared_servers: SharedServers, doctor: Doctor
) -> None:
    ring: list[Engine] = [engine, "mariadb" if engine == "postgresql" else "postgresql"]
    servers = [shared_servers.server(each, offset=offset, increment=2) for offset, each in enumerate(ring, 1)]
    urls = [fresh_database(each, offset=offset, increment=2) for offset, each in enumerate(ring, 1)]
    for is_used in (False, True):
        if is_used:
            asyncio.run(use(parse_list(" ".join(urls), None)))
        before = list(map(held, servers, urls))
        status, lines = doctor(*urls)
        assert (status, wrong(lines)) == (0, []), lines
        assert [line.split(":")[0] for line in lines].count("ok") == 2
        assert any("ring: it is in none yet" in line for line in lines) != is_used
        assert list(map(held, servers, urls)) == before
        assert (("_ticket_ring" in str(before)) or ("{tickets}:ring" in str(before))) == is_used


WRONG = {
    "mysql": {
        "SET GLOBAL sync_binlog = 0": "settings: sync_binlog=0",
        "CHANGE {} = 'elsewhere'": "replication: it is a replica of elsewhere:3306",
        "CREATE TABLE old (id BIGINT AUTO_INCREMENT, stub CHAR(1) NOT NULL, PRIMARY KEY (id), UNIQUE KEY (stub)) "
        "ENGINE=MyISAM": "old: its table is on MyISAM",
        "CREATE TABLE odd (id CHAR(9), stub CHAR(1) PRIMARY KEY)": "odd: its column id is not AUTO_INCREMENT",
        "CREATE TABLE ends (id INT UNSIGNED NOT NULL AUTO_INCREMENT, stub CHAR(1) NOT NULL PRIMARY KEY, KEY (id)) "
        "AUTO_INCREMENT = 4000000000": "ends: 93 % of its ids",
        "CREATE TRIGGER sets BEFORE INSERT ON photos FOR EACH ROW SET NEW.id = 7": "photos: it has the trigger sets",
        "SELECT 1": "auto_increment_increment=3, auto_increment_offset=2, and here belong",
    },
    "postgresql": {
        "CREATE RULE renumber AS ON INSERT TO ticket_sequences DO ALSO NOTHING": "it has the trigger or rule renumber",
        "ALTER TABLE ticket_sequences SET UNLOGGED": "tables: ticket_sequences is UNLOGGED",
        "INSERT INTO ticket_sequences (sequence, id, bits) VALUES ('odd', 0, 7)": "odd: its id is 0 and its bits are 7",
        "INSERT INTO ticket_sequences (sequence, id, bits) VALUES ('ends', 4000000000, 32)": "ends: 93 % of its ids",
        "SELECT 1": "settings: fsync is off",
    },
}
NOT_WRONG = ["own tables: _high_water are of releases before 1.0"]


@pytest.mark.parametrize("engine", engines("mariadb", "mysql", "postgresql"))
def test_what_is_wrong_with_a_server(engine: Engine, own_server: OwnServer, doctor: Doctor) -> None:
    if engine == "postgresql":
        notes = [*NOT_WRONG, "synchronous_commit is off for its user"]
        server = own_server(engine, options=["-c", "fsync=off", "-c", "synchronous_commit=off"])
    else:
        notes, server = NOT_WRONG, own_server(engine, offset=2, increment=3, options=["--log-bin=binlog"])
    url = server.create_database("tickets")
    asyncio.run(use(parse_list(url, None)))
    faults = WRONG["postgresql" if engine == "postgresql" else "mysql"]
    source = "MASTER TO MASTER_HOST" if engine == "mariadb" else "REPLICATION SOURCE TO SOURCE_HOST"
    for statement in ("CREATE TABLE _high_water (sequence INT)", *faults):
        server.execute(statement.format(source), "tickets")
    status, lines = doctor(url)
    assert [part for part in (*faults.values(), *notes) if part not in "\n".join(lines)] == []
    assert (status, len(wrong(lines))) == (1, len(faults))


@MYSQL
async def test_a_server_with_another_offset_is_refused_by_a_connection_and_by_a_look(
    engine: Engine, fresh_database: FreshDatabase
) -> None:
    url = fresh_database(engine, offset=1, increment=2)
    (address,) = parse_list(url, None)
    database = open_database(address, 20.0)
    try:
        await database.look("test:1", Note())
        await database.look("test:1", Note(), Residue(1, 2))
        await database.look("test:1", Note(), Residue(1, 3))  # each session sets its own increment
        for refused in (database.look("test:1", Note(), Residue(2, 2)), connector(url)(address, Residue(2, 2), 20.0)):
            with pytest.raises(DatabaseRefused, match="has auto_increment_offset=1, expected 2"):
                await refused
    finally:
        await database.close()


@MYSQL
def test_a_mysql_account_is_told_each_privilege_that_it_lacks(
    engine: Engine, own_server: OwnServer, doctor: Doctor
) -> None:
    server = own_server(engine, offset=1, increment=1, options=["--log-bin=binlog"])
    url = server.create_database("tickets")
    asyncio.run(use(parse_list(url, None)))
    (granted,) = re.findall(r"GRANT (.*) ON .*MYSQL_DATABASE", (DEPLOY / "mysql/02-application-user.sh").read_text())
    server.execute("CREATE USER app@'127.0.0.1'")
    url = url.replace("root", "app")
    server.execute(f"GRANT {granted} ON tickets.* TO app@'127.0.0.1'")
    status, lines = doctor(url)
    assert (status, wrong(lines)) == (0, [])
    assert sum(line.startswith("unknown: ") for line in lines) == (1 if engine == "mariadb" else 3)
    asyncio.run(use(parse_list(url, None)))
    server.execute("SET GLOBAL read_only = 1")
    (line,) = wrong(doctor(url)[1])
    assert line.startswith("settings: it is read-only: make it writable")
    server.execute("SET GLOBAL read_only = 0")
    for privilege in granted.split(", "):
        server.execute(f"REVOKE {privilege} ON tickets.* FROM app@'127.0.0.1'")
        found = wrong(doctor(url)[1])
        grant = f"GRANT {privilege} ON `tickets`.* TO 'app'@'127.0.0.1'"
        assert f"privileges: its user lacks {privilege}: {grant}" in found
        assert len(found) == (2 if privilege == "SELECT" else 1), found
        server.execute(f"GRANT {privilege} ON tickets.* TO app@'127.0.0.1'")


def test_the_account_of_the_postgresql_script_is_enough(
    shared_servers: SharedServers, fresh_database: FreshDatabase, doctor: Doctor
) -> None:
    server, url = shared_servers.server("postgresql"), fresh_database("postgresql")
    database = url.rpartition("/")[2]
    own = url.replace("postgres@", "clerk@")
    server.execute("CREATE ROLE clerk LOGIN")
    server.execute("REVOKE CREATE ON SCHEMA public FROM PUBLIC", database)
    assert "its user may not make the tables _ticket_notes, _ticket_ring" in "\n".join(doctor(own)[1])
    with pytest.raises(DatabaseRefused, match="privileges that a ticket server needs"):
        asyncio.run(connect(parse(own), None, 20.0))
    options = "--set=ON_ERROR_STOP=1", "--set=account=clerk", f"--file={DEPLOY / 'postgresql/01-tickets.sql'}"
    for _ in range(2):
        subprocess.run([program("postgresql", "psql"), *options, url], check=True, capture_output=True, timeout=60)
    assert wrong(doctor(own)[1]) == []
    asyncio.run(use(parse_list(own, None)))
    status, lines = doctor(own)
    assert (status, wrong(lines)) == (0, [])
    assert [line.endswith("GRANT pg_read_all_stats TO clerk") for line in lines if line.startswith("unknown")] == [True]
    for privilege in ("DELETE", "SELECT"):
        server.execute(f"REVOKE {privilege} ON _ticket_notes FROM clerk", database)
        grant = f"GRANT {privilege} ON _ticket_notes TO clerk"
        assert f"privileges: its user lacks {privilege} on _ticket_notes: {grant}" in wrong(doctor(own)[1])
    with pytest.raises(DatabaseRefused, match="privileges that a ticket server needs"):
        asyncio.run(connect(parse(own), None, 20.0))


def test_the_embedded_pair_is_examined_though_it_is_locked_and_is_never_made(tmp_path: Path, doctor: Doctor) -> None:
    folder = tmp_path / "data"
    status, lines = doctor("embedded", TICKETS_DATA_DIR=str(folder))
    assert status == 0
    assert sum("is not there yet: `ticketd serve` makes it" in line for line in lines) == 2
    assert lines[-1] == f"note: these are the two embedded ticket databases, in the folder {folder}"
    assert not folder.exists()
    locked = lock_embedded(folder)
    asyncio.run(use(locked.addresses))
    status, lines = doctor("embedded", TICKETS_DATA_DIR=str(folder))
    assert (status, wrong(lines)) == (0, [])
    locked.close()
    for file in folder.glob("even.sqlite3*"):
        file.unlink()
    (folder / "even.sqlite3").write_bytes(b"not a database" * 1000)
    (damaged,) = wrong(doctor("embedded", TICKETS_DATA_DIR=str(folder))[1])
    assert "not a database" in damaged
