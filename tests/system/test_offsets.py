"""Offsets are proved, not assumed: a database that is not what it should be gives no ticket, and says why."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.harness.load import Load
from tests.harness.mysqld import TicketMySQL
from tests.harness.pair import MySQLPair, Schema
from tests.harness.processes import wait_until
from tests.harness.ticketd import PATIENT, TicketServer, begin_ring

WATCHFUL = {**PATIENT, "TICKETS_PROBE_INTERVAL": 0.2}


@contextmanager
def set_global(database: TicketMySQL, **variables: int) -> Iterator[None]:
    """Change server variables as somebody at the database's prompt does, and back again."""
    before = {name: database.execute(f"SELECT @@global.{name}", database=None)[0][0] for name in variables}
    for name, value in variables.items():
        database.execute(f"SET GLOBAL {name} = {value}", database=None)
    try:
        yield
    finally:
        for name, value in before.items():
            database.execute(f"SET GLOBAL {name} = {value}", database=None)


def odd_tickets(load: Load, begin: float, end: float = float("inf")) -> list[int]:
    """The odd ids in the answers to what was asked in this stretch of time."""
    return [i for answer in load.result.between(begin, end).answers for i in answer.ids if i % 2]


def reasons(server: TicketServer, database: TicketMySQL, sequence: str | None = None) -> list[str]:
    """The reasons of the warnings in /healthz about this database, and this sequence."""
    return [
        each["reason"]
        for each in server.get("/healthz").json()["warnings"]
        if each["database"] == database.name and each["sequence"] == sequence
    ]


def test_a_database_restarted_without_its_offset_flags_is_quarantined_until_it_is_right(fragile: Schema) -> None:
    odd = fragile.pair.odd
    with TicketServer(fragile.urls, settings=PATIENT) as server:
        server.wait_health("pass")
        with Load([server.address], clients=16, pause=0.08) as load:
            load.run_until_tickets(100)
            odd.restart(kill=True, offset_flags=False)
            entry = server.wait_database(odd.name, "quarantined")
            assert entry["last_error"] == "has auto_increment_increment=1, expected 2"
            report = server.get("/healthz")
            assert report.status == 200
            assert report.json()["status"] == "warn"
            assert server.get("/readyz").status == 200
            quarantined_at = time.monotonic()
            load.run_until_tickets(200)
            right_again_at = time.monotonic()
            odd.restart(kill=True)
            server.wait_health("pass")
            up_at = time.monotonic()
            wait_until(lambda: odd_tickets(load, up_at), 10, "tickets of the odd database")
        log = server.log_text()
    assert load.result.failures() == []
    load.result.check()
    assert odd_tickets(load, quarantined_at, right_again_at) == []
    assert "has auto_increment_increment=1, expected 2" in log


def test_offsets_changed_under_a_running_server_are_noticed_and_harm_nothing(fragile: Schema) -> None:
    odd, even = fragile.pair
    with TicketServer(fragile.urls, settings=WATCHFUL) as server:
        server.wait_health("pass")
        with Load([server.address], clients=16, pause=0.08) as load:
            load.run_until_tickets(100)
            with set_global(odd, auto_increment_offset=2):
                entry = server.wait_database(odd.name, "quarantined", timeout=15)
                assert entry["last_error"] == "has auto_increment_offset=2, expected 1"
                load.run_until_tickets(100)
            server.wait_health("pass")
            with set_global(even, auto_increment_increment=4):
                entry = server.wait_database(even.name, "quarantined", timeout=15)
                assert entry["last_error"] == "has auto_increment_increment=4, expected 2"
                load.run_until_tickets(100)
            server.wait_health("pass")
            up_at = time.monotonic()
            wait_until(lambda: odd_tickets(load, up_at), 10, "tickets of the odd database")
    assert load.result.failures() == []
    load.result.check()


def test_databases_in_the_wrong_order_give_no_ticket(mysql_pair: MySQLPair, fresh_schema: Schema) -> None:
    urls = " ".join(database.url_of(fresh_schema.name) for database in reversed(mysql_pair.databases))
    with TicketServer(urls, settings=PATIENT) as server:
        assert server.get("/readyz").status == 503
        assert {each["status"] for each in server.databases()} == {"quarantined"}
        reply = server.get("/ticket/photos")
        assert reply.status == 503
        assert "retry-after" in reply.headers
    assert mysql_pair.all_largest_ids("photos", fresh_schema.name) == [0, 0]


def test_two_urls_that_are_one_server_draw_from_it_once(mysql_pair: MySQLPair, fresh_schema: Schema) -> None:
    odd = mysql_pair.odd
    url = odd.url_of(fresh_schema.name)
    begin_ring(fresh_schema.urls)
    with TicketServer(f"{url} {url.replace('127.0.0.1', 'localhost')}", settings=PATIENT) as server:
        server.wait_ready()
        one, other = server.databases()
        assert (one["name"], one["status"]) == (odd.name, "up")
        assert (other["name"], other["status"]) == (f"localhost:{odd.port}", "quarantined")
        assert other["last_error"]
        tickets = [server.ticket("photos") for _ in range(20)]
    assert len(set(tickets)) == 20
    assert all(ticket % 2 for ticket in tickets)


def test_two_schemas_of_one_server_are_one_server_whatever_it_says_of_its_offset(fragile: Schema) -> None:
    """Somebody sets the variables so that each connection finds what it expects: the identity gives it away."""
    odd = fragile.pair.odd
    url = odd.url_of(fragile.name)
    begin_ring(fragile.urls)
    with TicketServer(f"{url} {url}", settings=WATCHFUL) as server:
        server.wait_ready()
        assert server.databases()[1]["status"] == "quarantined"
        with set_global(odd, auto_increment_offset=2):
            wait_until(
                lambda: server.databases()[1]["last_error"] == "is the same server as " + odd.name,
                15,
                "the second one to be found out",
            )
            wait_until(
                lambda: all(each["status"] == "quarantined" for each in server.databases()), 15, "both in quarantine"
            )


def test_an_engine_that_is_not_crash_safe_and_keys_that_deadlock_are_served_with_a_warning(
    mysql_pair: MySQLPair, fresh_schema: Schema
) -> None:
    fresh_schema.make_flickrs_table("Flickrs")
    fresh_schema.make_flickrs_table("FlickrsOwn", engine="MyISAM")
    with TicketServer(fresh_schema.urls, settings=PATIENT) as server:
        server.wait_ready()
        assert {server.ticket(name) % 2 for name in ("Flickrs", "FlickrsOwn") for _ in range(4)} == {0, 1}
        report = server.get("/healthz")
        assert report.status == 200
        assert report.json()["status"] == "warn"
        for database in mysql_pair:
            assert reasons(server, database, "photos") == []
            (keys,) = reasons(server, database, "Flickrs")
            assert "deadlock" in keys
            engine, keys = sorted(reasons(server, database, "FlickrsOwn"), key=lambda reason: "deadlock" in reason)
            assert "MyISAM is not crash-safe" in engine
            assert "deadlock" in keys


def test_durability_that_is_off_is_served_with_a_warning_until_it_is_on(fragile: Schema) -> None:
    odd, even = fragile.pair
    with TicketServer(fragile.urls, settings=WATCHFUL) as server:
        server.wait_health("pass")
        with set_global(odd, innodb_flush_log_at_trx_commit=2):
            server.wait_health("warn", timeout=15)
            (reason,) = reasons(server, odd)
            assert "innodb_flush_log_at_trx_commit=2" in reason
            assert reasons(server, even) == []
            assert {server.ticket("photos") % 2 for _ in range(4)} == {0, 1}
        server.wait_health("pass")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("ticketd:", "nobody:"), "refuses the user or password"),
        (("only-for-tests", "not-the-password"), "refuses the user or password"),
        (("/tickets_", "/no_such_schema_"), ""),
        (("?", "?ssl-mode=VERIFY_CA"), ""),
    ],
    ids=["user", "password", "schema", "tls"],
)
def test_a_url_that_does_not_fit_leaves_the_other_database_to_serve(
    change: tuple[str, str], words: str, mysql_pair: MySQLPair, fresh_schema: Schema
) -> None:
    begin_ring(fresh_schema.urls)
    odd, even = (database.url_of(fresh_schema.name, query="?") for database in mysql_pair)
    with TicketServer(f"{odd.replace(*change)} {even}", settings=PATIENT) as server:
        server.wait_ready()
        entry = server.databases()[0]
        assert entry["status"] in ("down", "quarantined")
        assert words in entry["last_error"]
        assert {server.ticket("photos") % 2 for _ in range(4)} == {0}
        shown = server.log_text() + server.get("/healthz").text
    assert entry["last_error"]
    assert "only-for-tests" not in shown
    assert "not-the-password" not in shown
