"""`ticketd doctor`: one line for each thing that is wrong, on a server prepared to be exactly that wrong."""

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.harness.commands import ticketd
from tests.harness.doctor import doctor, mended, notes, server_over, set_global, the_one_line, wrong
from tests.harness.engine import Engine
from tests.harness.mysqld import TicketMySQL
from tests.harness.pair import MySQLPair, Schema
from tests.harness.processes import free_port, wait_until
from tests.harness.schema import PASSWORD

ALL_PRIVILEGES = ("SELECT", "INSERT", "UPDATE", "DELETE", "CREATE")
OWN_TABLES = (
    "CREATE TABLE _layout (id INT NOT NULL PRIMARY KEY, version INT NOT NULL) ENGINE=InnoDB",
    "CREATE TABLE _high_water (sequence VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL, "
    "offset_of INT NOT NULL, increment_of INT NOT NULL, mark BIGINT NOT NULL, issued BIGINT NOT NULL, "
    "token VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin NOT NULL, "
    "PRIMARY KEY (sequence, offset_of, increment_of)) ENGINE=InnoDB",
)
ANY_KEY = "?get-server-public-key=true"
"""For who logs in here for the first time: there is no TLS."""
DRAW = "REPLACE INTO photos (stub) VALUES ('a')"


@pytest.fixture(scope="module")
def pair(engine: Engine) -> Iterator[MySQLPair]:
    """Two databases for this module: with the binary log on, without TLS, and some of their settings get changed."""
    with MySQLPair(engine, binary_log=True, flags=["--loose-skip-ssl", "--loose-tls-version="]) as made:
        yield made


@pytest.fixture
def schema(pair: MySQLPair, new_name: Callable[[], str]) -> Schema:
    """A schema of this test's own on both databases."""
    return pair.make_schema(new_name())


def log_position(database: TicketMySQL) -> object:
    """Where the binary log ends: it moves with everything that is written."""
    statement = "SHOW MASTER STATUS" if database.engine.is_mariadb else "SHOW BINARY LOG STATUS"
    return database.execute(statement)[0][:2]


# --- nothing wrong -------------------------------------------------------------------------------------------------


def test_a_pair_that_is_right_is_ok_and_is_left_as_it_was(schema: Schema, engine: Engine) -> None:
    with server_over(schema.urls) as server:
        server.wait_ready()
        assert server.get("/ticket/photos?count=10").status == 200
        server.terminate()
    before = [(log_position(each), each.execute("SHOW TABLES", database=schema.name)) for each in schema.pair]
    ran = doctor(schema.urls)
    assert wrong(ran) == []
    product = "MariaDB" if engine.is_mariadb else "MySQL"
    odd, even, *notes = ran.lines
    assert odd.startswith(f"ok: {schema.pair.odd.name}: {product} ")
    assert odd.endswith("offset 1 of 2, 6 sequences")
    assert even.startswith(f"ok: {schema.pair.even.name}: {product} ")
    assert even.endswith("offset 2 of 2, 6 sequences")
    assert [note.partition(": its connection is not encrypted: ")[0] for note in notes[:-1]] == [
        f"note: {each.name}" for each in schema.pair
    ]
    assert before == [(log_position(each), each.execute("SHOW TABLES", database=schema.name)) for each in schema.pair]


def test_databases_that_no_server_has_seen_yet_are_ok(schema: Schema) -> None:
    assert wrong(doctor(schema.urls)) == []
    assert schema.execute(0, "SHOW TABLES LIKE '\\_%'") == []


def test_it_takes_the_flags_of_serve(schema: Schema, tmp_path: Path) -> None:
    file = tmp_path / "databases"
    file.write_text(schema.urls + "\n")
    ran = ticketd("doctor", "--databases-file", file, "--database-timeout", "20")
    assert (ran.status, [line.split(":")[0] for line in ran.lines]) == (0, ["ok", "ok", "note", "note", "note"]), ran


def test_settings_that_cannot_be_used_are_one_line_and_status_2() -> None:
    ran = ticketd("doctor", settings={"TICKETS_DATABASES": "mysql://u:secret@h:port/d"})
    assert (ran.status, ran.output) == (2, "")
    assert ran.errors.startswith("ticketd: TICKETS_DATABASES: ")
    assert ran.errors.count("\n") == 1
    assert "secret" not in ran.errors


def test_a_misspelt_setting_and_a_single_database_are_notes(engine: Engine) -> None:
    with TicketMySQL(engine, increment=1) as database:
        ran = doctor(database.url, database_urls="x")
    assert ran.status == 0, ran
    single, unverified, _, misspelt = notes(ran)
    assert "only one ticket database" in single
    assert "not encrypted" in unverified or "not verified" in unverified
    assert "TICKETS_DATABASE_URLS" in misspelt


# --- one thing wrong -----------------------------------------------------------------------------------------------


def test_unreachable(schema: Schema) -> None:
    nobody = free_port()
    line = the_one_line(f"{schema.pair.odd.url_of(schema.name)} {schema.pair.even.url_of(schema.name, nobody)}")
    assert line.startswith(f"127.0.0.1:{nobody}: refuses connections. To fix it: start it")


def test_hung(schema: Schema) -> None:
    schema.pair.even.freeze()
    try:
        line = the_one_line(schema.urls, database_timeout=8)
    finally:
        schema.pair.even.thaw()
    assert line.startswith(f"{schema.pair.even.name}: did not answer a new connection in time")


def test_wrong_password(schema: Schema) -> None:
    wrong_one = schema.pair.even.url_of(schema.name, query=ANY_KEY).replace(PASSWORD, "other")
    line = the_one_line(f"{schema.pair.odd.url_of(schema.name)} {wrong_one}")
    assert line.startswith(f"{schema.pair.even.name}: refuses the user or password. To fix it: put the right user")


def test_a_password_of_any_letters_is_right(schema: Schema) -> None:
    odd = schema.pair.odd
    with contextlib.closing(odd.connect(None, charset="utf8mb4")) as root, root.cursor() as cursor:
        cursor.execute("CREATE USER IF NOT EXISTS letters@'127.0.0.1' IDENTIFIED BY 'pä€/ss'")
        cursor.execute(f"GRANT {', '.join(ALL_PRIVILEGES)} ON `{schema.name}`.* TO letters@'127.0.0.1'")
    own = odd.url_of(schema.name, query=ANY_KEY).replace(f"//ticketd:{PASSWORD}@", "//letters:p%C3%A4%E2%82%AC%2Fss@")
    assert wrong(doctor(f"{own} {schema.pair.even.url_of(schema.name)}")) == []


def test_no_such_database(schema: Schema) -> None:
    schema.pair.odd.execute("GRANT SELECT ON nowhere.* TO ticketd@'127.0.0.1'")
    line = the_one_line(f"{schema.pair.odd.url_of('nowhere')} {schema.pair.even.url_of(schema.name)}")
    assert line.startswith(f"{schema.pair.odd.name}: has no such database. To fix it: CREATE DATABASE")


class OlderServer:
    """Passes connections on to a database, and says in its greeting that it is of another version."""

    def __init__(self, target: int, version: bytes) -> None:
        self._target = target
        self._version = version
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._target))
                client.sendall(self._older(server.recv(65536)))
                threading.Thread(target=self._pass_on, args=(client, server), daemon=True).start()
                threading.Thread(target=self._pass_on, args=(server, client), daemon=True).start()

    def _older(self, greeting: bytes) -> bytes:
        """The greeting: three bytes of length, a number, the protocol's version, the server's until a zero byte."""
        body = greeting[4:5] + self._version + greeting[greeting.index(b"\0", 5) :]
        return len(body).to_bytes(3, "little") + greeting[3:4] + body

    def _pass_on(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)


@pytest.mark.parametrize(
    ("version", "named"),
    [
        (b"5.7.44-log", "is MySQL 5.7, expected 8.0 or later"),
        (b"5.5.5-10.5.23-MariaDB-log", "is MariaDB 10.5, expected 10.6 or later"),
    ],
)
def test_version_too_old(schema: Schema, version: bytes, named: str) -> None:
    older = OlderServer(schema.pair.even.port, version)
    try:
        line = the_one_line(f"{schema.pair.odd.url_of(schema.name)} {schema.pair.even.url_of(schema.name, older.port)}")
    finally:
        older.close()
    assert line.startswith(f"127.0.0.1:{older.port}: {named}")
    assert line.endswith("To fix it: upgrade it")


def test_engine_that_is_not_crash_safe(schema: Schema) -> None:
    schema.execute(0, "ALTER TABLE photos ENGINE=MyISAM")
    schema.execute(0, DRAW)
    line = the_one_line(schema.urls)
    assert line.startswith(f"{schema.pair.odd.name}: photos: its engine MyISAM is not crash-safe")
    schema.execute(0, mended(line))
    assert wrong(doctor(schema.urls)) == []
    schema.execute(0, DRAW)
    assert schema.pair.odd.largest_id("photos", schema.name) == 3


def test_keys_that_deadlock(schema: Schema) -> None:
    for each in (0, 1):
        schema.execute(each, "DROP TABLE photos")
    schema.make_flickrs_table("photos")
    for _ in range(3):
        schema.execute(0, DRAW)
    first, second = wrong(doctor(schema.urls))
    assert first.startswith(f"{schema.pair.odd.name}: photos: its keys deadlock")
    assert second.startswith(f"{schema.pair.even.name}: photos: its keys deadlock")
    for index, line in enumerate((first, second)):
        schema.execute(index, mended(line))
    assert wrong(doctor(schema.urls)) == []
    schema.execute(0, DRAW)
    assert schema.pair.odd.largest_id("photos", schema.name) == 7


def test_keys_with_names_of_their_own_are_mended_too(schema: Schema) -> None:
    for each in (0, 1):
        schema.execute(each, "ALTER TABLE photos DROP PRIMARY KEY, ADD UNIQUE KEY `an``odd one` (stub)")
    lines = wrong(doctor(schema.urls))
    assert len(lines) == 2
    for index, line in enumerate(lines):
        schema.execute(index, mended(line))
    assert wrong(doctor(schema.urls)) == []


def test_durability_off(schema: Schema) -> None:
    with set_global(schema.pair.odd, "innodb_flush_log_at_trx_commit", "2"):
        line = the_one_line(schema.urls)
    assert line.startswith(f"{schema.pair.odd.name}: innodb_flush_log_at_trx_commit=2 loses tickets in a crash")
    with set_global(schema.pair.even, "sync_binlog", "0"):
        line = the_one_line(schema.urls)
    assert line.startswith(f"{schema.pair.even.name}: sync_binlog=0 with the binary log on loses tickets")


def test_wrong_increment(schema: Schema) -> None:
    with set_global(schema.pair.even, "auto_increment_increment", "3"):
        line = the_one_line(schema.urls)
    assert line.startswith(f"{schema.pair.even.name}: has auto_increment_increment=3, expected 2. To fix it: set auto_")


def test_offset_shared_by_two(schema: Schema) -> None:
    with set_global(schema.pair.even, "auto_increment_offset", "1"):
        line = the_one_line(schema.urls)
    assert line.startswith(
        f"{schema.pair.even.name}: has auto_increment_offset=1, expected 2, which {schema.pair.odd.name} has too"
    )


def test_urls_in_the_wrong_order(schema: Schema) -> None:
    lines = wrong(doctor(" ".join(reversed(schema.urls.split()))))
    assert lines[0].startswith(f"{schema.pair.even.name}: has auto_increment_offset=2, expected 1. To fix it: ")
    assert lines[0].endswith("or put the URLs into offset order")
    assert lines[1].startswith(f"{schema.pair.odd.name}: has auto_increment_offset=1, expected 2. To fix it: ")
    assert len(lines) == 2


def test_two_urls_that_are_one_server(schema: Schema) -> None:
    url = schema.pair.odd.url_of(schema.name)
    lines = wrong(doctor(f"{url} {url}"))
    assert lines[0].startswith(f"{schema.pair.odd.name}: is the same server as {schema.pair.odd.name}")
    assert "expected 2" in lines[1]


def test_read_only(schema: Schema) -> None:
    with set_global(schema.pair.even, "read_only", "1"):
        line = the_one_line(schema.urls)
    assert line.startswith(f"{schema.pair.even.name}: is read-only: it runs with read_only")


@pytest.mark.parametrize("privilege", ALL_PRIVILEGES)
def test_missing_privilege(schema: Schema, privilege: str) -> None:
    odd, user = schema.pair.odd, f"no_{privilege.lower()}"
    others = ", ".join(each for each in ALL_PRIVILEGES if each != privilege)
    odd.execute(f"CREATE USER IF NOT EXISTS {user}@'127.0.0.1' IDENTIFIED BY '{PASSWORD}'")
    odd.execute(f"GRANT {others} ON `{schema.name}`.* TO {user}@'127.0.0.1'")
    own = odd.url_of(schema.name, query=ANY_KEY).replace("//ticketd:", f"//{user}:")
    line = the_one_line(f"{own} {schema.pair.even.url_of(schema.name)}")
    assert line.startswith(f"{odd.name}: does not grant its user the privilege {privilege}")
    assert line.endswith(f"GRANT {privilege} on the whole database to that user")


def test_sequence_missing_on_one_database(schema: Schema) -> None:
    schema.execute(1, "DROP TABLE accounts")
    line = the_one_line(schema.urls)
    assert line.startswith(
        f"{schema.pair.even.name}: accounts: has no table for it, but {schema.pair.odd.name} has one. To fix it: start"
    )


def test_columns_that_differ(schema: Schema) -> None:
    schema.execute(1, "ALTER TABLE photos MODIFY id INT UNSIGNED NOT NULL AUTO_INCREMENT")
    line = the_one_line(schema.urls)
    assert line.startswith(f"{schema.pair.even.name}: photos: its id is int")
    schema.execute(1, mended(line))
    assert wrong(doctor(schema.urls)) == []


def test_below_its_high_water_mark(schema: Schema) -> None:
    for statement in OWN_TABLES:
        schema.execute(1, statement)
    schema.execute(1, "INSERT INTO _high_water VALUES ('photos', 1, 2, 5000, 4001, 'life:nonce')")
    line = the_one_line(schema.urls)
    assert line.startswith(
        f"{schema.pair.odd.name}: photos: is below its high-water mark: the next id would be 1, "
        f"but {schema.pair.even.name} records that 4001 has been issued"
    )
    with server_over(schema.urls) as server:
        server.wait_ready()
        wait_until(lambda: server.ticket("photos") % 2 == 1, 15, "a ticket of the odd database")
    assert wrong(doctor(schema.urls)) == []


def test_more_than_90_percent_used(schema: Schema) -> None:
    for index in (0, 1):
        schema.execute(index, "ALTER TABLE Tickets32 AUTO_INCREMENT = 3900000000")
    odd, even = wrong(doctor(schema.urls))
    assert odd.startswith(f"{schema.pair.odd.name}: Tickets32: 90 % of its ids are used up, 38999")
    assert mended(odd).startswith("ALTER TABLE `Tickets32` MODIFY id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT")
    assert even.startswith(f"{schema.pair.even.name}: Tickets32: 90 % of its ids")


def test_tls_asked_for_and_not_in_use(schema: Schema) -> None:
    urls = f"{schema.pair.odd.url_of(schema.name)} {schema.pair.even.url_of(schema.name, query='?ssl-mode=REQUIRED')}"
    line = the_one_line(urls)
    assert line.startswith(f"{schema.pair.even.name}: does not use TLS, which ssl-mode=REQUIRED asks for")


def test_own_tables_of_a_newer_version(schema: Schema) -> None:
    for statement in OWN_TABLES:
        schema.execute(0, statement)
    schema.execute(0, "INSERT INTO _layout VALUES (1, 99)")
    line = the_one_line(schema.urls)
    assert line.startswith(
        f"{schema.pair.odd.name}: has own tables of version 99, but this version of ticketd supports "
    )


def test_a_locked_table(schema: Schema) -> None:
    with schema.pair.odd.locked("photos", database=schema.name):
        line = the_one_line(schema.urls)
    assert line.startswith(f"{schema.pair.odd.name}: photos: waited too long for a lock")


def test_slow_to_connect(schema: Schema) -> None:
    lines = wrong(doctor(schema.urls, database_timeout=0.0001))
    assert len(lines) == 2
    assert "s to connect, and the server gives up after 0.0001 s" in lines[0]
