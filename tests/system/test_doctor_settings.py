"""What `ticketd doctor` finds in a server's settings, the account, the own tables' engine, and triggers."""

import time
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from tests.harness.doctor import doctor, mended, notes, set_global, the_one_line, wrong
from tests.harness.engine import Engine
from tests.harness.pair import MySQLPair, Schema
from tests.harness.processes import wait_until
from tests.harness.schema import LEAST_PRIVILEGES, PASSWORD, USER
from tests.harness.ticketd import TicketServer

ANY_KEY = "?get-server-public-key=true"
PATIENT: dict[str, object] = {"TICKETS_DATABASE_TIMEOUT": 10, "TICKETS_REQUEST_TIMEOUT": 14}
OWN_TABLES = (
    *("_bodies", "_definitions", "_high_water", "_in_use", "_inner_high_water", "_kinds", "_layout", "_probe"),
    *("_ring", "_ring_more", "_servers"),
)


@pytest.fixture(scope="module")
def pair(engine: Engine) -> Iterator[MySQLPair]:
    """Two databases for this module, whose settings are changed."""
    with MySQLPair(engine, flags=["--loose-skip-ssl", "--loose-tls-version="]) as made:
        for each in made:
            # a lifetime for all passwords is root's, too, and the template's has one of no age
            each.execute("ALTER USER root@localhost PASSWORD EXPIRE NEVER", database=None)
        yield made


@pytest.fixture
def schema(pair: MySQLPair, new_name: Callable[[], str]) -> Schema:
    """A schema of this test's own on both databases."""
    return pair.make_schema(new_name())


@pytest.fixture
def account(schema: Schema) -> Iterator[Callable[..., str]]:
    """Makes an account on the odd database with the privileges of the documentation; its URL, and the even one's."""
    odd, even = schema.pair

    def make(clauses: str = "", privileges: str = LEAST_PRIVILEGES) -> str:
        odd.execute(f"CREATE USER limited@'127.0.0.1' IDENTIFIED BY '{PASSWORD}' {clauses}", database=None)
        odd.execute(f"GRANT {privileges} ON `{schema.name}`.* TO limited@'127.0.0.1'", database=None)
        own = odd.url_of(schema.name, query=ANY_KEY).replace(f"//{USER}:", "//limited:")
        return f"{own} {even.url_of(schema.name, query=ANY_KEY)}"

    yield make
    odd.execute("DROP USER IF EXISTS limited@'127.0.0.1'", database=None)


def serve(schema: Schema) -> TicketServer:
    return TicketServer(schema.urls, settings=PATIENT)


# --- settings ------------------------------------------------------------------------------------------------------


def test_pages_and_logs_that_a_power_cut_may_lose(engine: Engine) -> None:
    off = ["--innodb-flush-method=nosync", "--innodb-doublewrite=OFF"]
    with MySQLPair(engine, flags=off) as pair:
        lines = wrong(doctor(pair.urls))
        assert len(lines) == 4
        for each, (flush, doublewrite) in zip(pair, (lines[:2], lines[2:]), strict=True):
            assert flush.startswith(f"{each.name}: innodb_flush_method=nosync writes nothing through to the disk")
            assert mended(flush) == "set innodb_flush_method = O_DIRECT in its configuration and restart it"
            assert doublewrite.startswith(f"{each.name}: innodb_doublewrite=OFF: a page that a power cut leaves half")
            assert mended(doublewrite) == "set innodb_doublewrite = ON in its configuration and restart it"
        with TicketServer(pair.urls, settings=PATIENT) as server:
            server.wait_health("warn", timeout=30)
            reasons = {each["reason"].partition(":")[0] for each in server.get("/healthz").json()["warnings"]}
            assert any(reason.startswith("innodb_flush_method=nosync") for reason in reasons)
            assert "innodb_doublewrite=OFF" in reasons


def test_a_packet_that_is_too_small_for_what_is_sent(schema: Schema) -> None:
    with set_global(schema.pair.even, "max_allowed_packet", "1024"):
        line = the_one_line(schema.urls)
    assert line.startswith(f"{schema.pair.even.name}: max_allowed_packet=1024 is too small: ticket servers send ")
    assert mended(line).startswith("set max_allowed_packet to 262144 or more")


# --- the account ---------------------------------------------------------------------------------------------------


def test_a_password_that_expires(schema: Schema, account: Callable[..., str]) -> None:
    urls = account()
    with set_global(schema.pair.odd, "default_password_lifetime", "90"):
        line = the_one_line(urls)
        assert line.startswith(
            f"{schema.pair.odd.name}: lets the password of the account 'limited'@'127.0.0.1' expire 90 days after it "
            "was last changed (when that was, the account may not read)"
        )
        table = "global_priv" if schema.pair.odd.engine.is_mariadb else "user"
        schema.pair.odd.execute(f"GRANT SELECT ON mysql.{table} TO limited@'127.0.0.1'", database=None)
        line = the_one_line(urls)
        assert "expire at 20" in line
        assert " UTC, 90 days after" in line
        schema.pair.odd.execute(mended(line), database=None)
        assert wrong(doctor(urls)) == []


def test_a_password_with_a_lifetime_of_its_own(schema: Schema, account: Callable[..., str]) -> None:
    line = the_one_line(account("PASSWORD EXPIRE INTERVAL 7 DAY"))
    assert "'limited'@'127.0.0.1' expire 7 days after" in line


@pytest.mark.parametrize("limit", ["MAX_QUERIES_PER_HOUR", "MAX_UPDATES_PER_HOUR", "MAX_CONNECTIONS_PER_HOUR"])
def test_a_limit_for_an_hour(schema: Schema, account: Callable[..., str], limit: str) -> None:
    urls = account(f"WITH {limit} 5000")
    line = the_one_line(urls)
    assert line.startswith(f"{schema.pair.odd.name}: limits the account 'limited'@'127.0.0.1' to {limit} 5000: ")
    schema.pair.odd.execute(mended(line), database=None)
    assert wrong(doctor(urls)) == []


def test_a_limit_of_connections(schema: Schema, account: Callable[..., str]) -> None:
    urls = account("WITH MAX_USER_CONNECTIONS 3")
    line = the_one_line(urls)
    assert line.startswith(
        f"{schema.pair.odd.name}: limits the account 'limited'@'127.0.0.1' to MAX_USER_CONNECTIONS 3, and a ticket "
        "server opens up to 13: "
    )
    schema.pair.odd.execute(mended(line), database=None)
    assert wrong(doctor(urls)) == []
    schema.pair.odd.execute("ALTER USER limited@'127.0.0.1' WITH MAX_USER_CONNECTIONS 100", database=None)
    ran = doctor(urls)
    assert wrong(ran) == []
    assert any("may have 100 connections at once" in note for note in notes(ran))


# --- own tables ----------------------------------------------------------------------------------------------------


def test_own_tables_on_an_engine_that_is_not_crash_safe(schema: Schema) -> None:
    with serve(schema) as server:
        server.wait_ready()
        server.ticket("photos")
        server.terminate()
    for table in OWN_TABLES:
        schema.execute(0, f"ALTER TABLE {table} ENGINE=MyISAM")
    lines = wrong(doctor(schema.urls))
    assert [line.split(": ")[1] for line in sorted(lines)] == list(OWN_TABLES)
    assert all(": its engine MyISAM is not crash-safe: a high-water mark" in line for line in lines)
    with serve(schema) as server:
        server.wait_health("warn", timeout=30)
        reasons = [each["reason"] for each in server.get("/healthz").json()["warnings"]]
        assert sum("is not crash-safe" in reason for reason in reasons) == len(OWN_TABLES)
        assert {server.ticket("photos") % 2 for _ in range(4)} == {0, 1}
        for line in lines:
            schema.execute(0, mended(line))
        server.wait_health("pass", timeout=30)
    assert wrong(doctor(schema.urls)) == []


# --- triggers ------------------------------------------------------------------------------------------------------

SETS_ID = "CREATE TRIGGER `an``odd one` BEFORE INSERT ON photos FOR EACH ROW SET NEW.id = 1000001"


def test_a_trigger_that_sets_the_id(schema: Schema, account: Callable[..., str]) -> None:
    schema.execute(0, SETS_ID)
    odd = schema.pair.odd
    seen = [the_one_line(account(privileges=f"{LEAST_PRIVILEGES}, TRIGGER"))]
    if odd.engine.is_mariadb:
        seen.append(the_one_line(schema.urls))
    for line in seen:
        assert line.startswith(
            f"{odd.name}: photos: has the trigger `an``odd one` (BEFORE INSERT): it can set the id, and two ticket "
        )
    if not odd.engine.is_mariadb:
        line = the_one_line(schema.urls)
        assert line.startswith(f"{odd.name}: photos: has a trigger, which its user may not see: one that sets the id ")
        assert "SHOW TRIGGERS LIKE 'photos'" in line
    assert schema.execute(0, "SELECT * FROM photos") == []
    schema.execute(0, mended(seen[0]))
    assert wrong(doctor(schema.urls)) == []


def test_other_triggers_slow_draws(schema: Schema, account: Callable[..., str]) -> None:
    schema.execute(0, "CREATE TRIGGER noted AFTER INSERT ON accounts FOR EACH ROW SET @seen = NEW.id")
    line = the_one_line(account(privileges=f"{LEAST_PRIVILEGES}, TRIGGER"))
    assert line.startswith(
        f"{schema.pair.odd.name}: accounts: has the trigger `noted` (AFTER INSERT): it slows every draw"
    )
    assert mended(line) == "DROP TRIGGER `noted`"


OF_THE_CLOCK = "CREATE TRIGGER of_the_clock BEFORE INSERT ON photos FOR EACH ROW SET NEW.id = UNIX_TIMESTAMP() * 2 + "


def _drawn(servers: list[TicketServer], requests: int) -> list[int]:
    """The tickets that the servers give in turn; a refusal gives none."""
    tickets = []
    for _ in range(requests):
        for server in servers:
            answer = server.get("/ticket/photos")
            if answer.status == 200:
                tickets.append(answer.json()["id"])
    return tickets


def _gives(server: TicketServer) -> bool:
    return server.get("/ticket/photos").status == 200


@pytest.mark.parametrize("begun", [False, True], ids=["before the servers start", "while they draw"])
def test_no_ticket_comes_twice_from_a_trigger_that_sets_the_id(schema: Schema, begun: bool) -> None:
    def set_ids() -> None:
        for index, residue in ((0, 1), (1, 0)):
            schema.execute(index, f"{OF_THE_CLOCK}{residue}")

    if not begun:
        set_ids()
    with serve(schema) as one, serve(schema) as two:
        one.wait_ready()
        two.wait_ready()
        tickets = []
        if begun:
            tickets += _drawn([one, two], 5)
            set_ids()
            time.sleep(1.2)  # seconds: longer than a check of a table's ids counts
        tickets += _drawn([one, two], 20)
        assert len(tickets) == len(set(tickets)) == (10 if begun else 0)
        for server in (one, two):
            reasons = {each["reason"] for each in server.get("/healthz").json()["warnings"]}
            assert any(reason.startswith("suspended: has a trigger that sets the ids") for reason in reasons), reasons
        for index in (0, 1):
            schema.execute(index, "DROP TRIGGER of_the_clock")
        for server in (one, two):
            wait_until(partial(_gives, server), 30, "tickets again")
        tickets += _drawn([one, two], 20)
        assert len(tickets) == len(set(tickets))
