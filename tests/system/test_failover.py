"""One ticket database fails, in every way there is, and the requests go on; both fail, and it is said at once."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import pytest

from tests.harness.history import Answer
from tests.harness.load import Load, Result, Want
from tests.harness.pair import MySQLPair, Schema
from tests.harness.processes import wait_until
from tests.harness.proxy import FaultyProxy
from tests.harness.ticketd import PATIENT, TicketServer

ATTEMPT, REQUEST = 0.5, 2.0
"""TICKETS_DATABASE_TIMEOUT and TICKETS_REQUEST_TIMEOUT, as they are by default."""
MARGIN = 1.0
"""What a busy machine may add before the client sees the answer."""


@contextmanager
def servers_on(databases: str, number: int = 1, **settings: object) -> Iterator[list[TicketServer]]:
    """So many ticket servers on the same databases, all up with all of them; patient, unless `settings` are given."""
    with ExitStack() as stack:
        servers = [TicketServer(databases, settings=settings or PATIENT) for _ in range(number)]
        for server in servers:
            stack.callback(server.close)
            server.start()
        for server in servers:
            server.wait_alive()
            server.wait_health("pass")
        yield servers


def addresses(servers: list[TicketServer]) -> list[tuple[str, int]]:
    return [server.address for server in servers]


def allowed(result: Result, before: float) -> float:
    """How long a request may take that meets one failing database: a second, and what this machine takes by itself."""
    return 2 * ATTEMPT + 2 * result.between(0, before).slowest()


def drawn_by(result: Result, residue: int, sequence: str = "photos") -> list[Answer]:
    """The answers that carry a ticket of this database (1: odd, 0: even) in this sequence."""
    return [a for a in result.answers if a.ids and a.sequence == sequence and a.ids[0] % 2 == residue]


def until_drawn(load: Load, residue: int, sequence: str = "photos", timeout: float = 10) -> None:
    """Let the load run until it gets tickets of this database again."""
    seen = len(load.result.answers)
    wait_until(
        lambda: drawn_by(Result(load.result.answers[seen:]), residue, sequence),
        timeout,
        f"tickets of the {'odd' if residue else 'even'} database for {sequence}; {load.result!r}",
    )


# -- one database fails


def test_every_request_is_answered_while_each_database_in_turn_is_killed_and_comes_back(fragile: Schema) -> None:
    pair = fragile.pair
    with (
        servers_on(fragile.urls, 2) as servers,
        Load(addresses(servers), clients=32, mix=["photos", "accounts"], pause=0.1) as load,
    ):
        load.run_until_tickets(300)
        for residue, victim in ((1, pair.odd), (0, pair.even)):
            victim.kill()
            load.run_until_tickets(300)
            for server in servers:
                server.wait_database(victim.name, "down")
            victim.restart()
            for server in servers:
                server.wait_database(victim.name, "up")
            until_drawn(load, residue)
        load.run_until_tickets(300)
    assert load.result.failures() == []
    load.result.check()


def test_a_frozen_database_costs_no_request_and_is_forgotten_within_a_second(fragile: Schema) -> None:
    odd = fragile.pair.odd
    with (
        servers_on(fragile.urls, TICKETS_DATABASE_TIMEOUT=ATTEMPT) as servers,
        Load(addresses(servers), clients=16, pause=0.05) as load,
    ):
        load.run_until_tickets(100)
        began = time.monotonic()
        load.run_for(2)
        frozen_at = time.monotonic()
        odd.freeze()
        load.run_for(2.5)
        thawed_at = time.monotonic()
        odd.thaw()
        servers[0].wait_database(odd.name, "up")
        until_drawn(load, 1)
    result = load.result
    assert result.failures() == []
    result.check()
    assert result.slowest() < allowed(result, frozen_at), result
    normal = result.p99(began, frozen_at)
    after = result.p99(frozen_at + 1, thawed_at)
    # whoever still asked the frozen database would wait for TICKETS_DATABASE_TIMEOUT, half a second
    assert after < max(3 * normal, 0.15), f"p99 {normal:.3f} s before, {after:.3f} s a second after the freeze"
    assert not drawn_by(result.between(frozen_at + 1, thawed_at), 1)


def test_a_locked_table_suspends_its_sequence_on_its_database_and_nothing_else(fragile: Schema) -> None:
    odd = fragile.pair.odd
    mix = ["photos", "accounts"]
    with (
        servers_on(fragile.urls, TICKETS_DATABASE_TIMEOUT=ATTEMPT) as servers,
        Load(addresses(servers), clients=16, mix=mix, pause=0.05) as load,
    ):
        until_drawn(load, 1, "photos")
        load.run_for(0.5)
        locked_at = time.monotonic()
        with odd.locked("photos", database=fragile.name):
            warned = servers[0].wait_health("warn", timeout=5)
            wait_until(lambda: suspended(servers[0]) == [("photos", odd.name)], 5, "photos to be suspended")
            wait_until(lambda: servers[0].databases()[0]["status"] == "up", 5, "the database to be up")
            began = time.monotonic()
            load.run_for(1.5)
            assert [each["status"] for each in servers[0].databases()] == ["up", "up"]
            during = load.result.between(began, time.monotonic())
        servers[0].wait_health("pass")
        until_drawn(load, 1, "photos")
    assert warned["status"] == "warn"
    assert load.result.failures() == []
    load.result.check()
    assert load.result.slowest() < allowed(load.result, locked_at), load.result
    assert drawn_by(during, 1, "accounts")
    assert drawn_by(during, 0, "accounts")
    assert drawn_by(during, 0, "photos")
    assert not drawn_by(during, 1, "photos")


def suspended(server: TicketServer) -> list[tuple[str, str]]:
    warnings = server.get("/healthz").json()["warnings"]
    return [(each["sequence"], each["database"]) for each in warnings if "suspended" in each["reason"]]


def test_a_read_only_database_is_down_until_it_can_write_again(fragile: Schema) -> None:
    odd = fragile.pair.odd
    super_too = not odd.engine.is_mariadb
    with servers_on(fragile.urls) as servers, Load(addresses(servers), clients=16, pause=0.08) as load:
        until_drawn(load, 1)
        odd.execute("SET GLOBAL super_read_only = 1" if super_too else "SET GLOBAL read_only = 1", database=None)
        entry = servers[0].wait_database(odd.name, "down")
        assert entry["last_error"] == "is read-only"
        load.run_until_tickets(100)
        if super_too:
            odd.execute("SET GLOBAL super_read_only = 0", database=None)
        odd.execute("SET GLOBAL read_only = 0", database=None)
        servers[0].wait_database(odd.name, "up")
        until_drawn(load, 1)
    assert load.result.failures() == []
    load.result.check()


def test_a_table_that_is_missing_on_one_database_is_made_there_above_what_was_issued(fragile: Schema) -> None:
    with servers_on(fragile.urls, 2) as servers, Load(addresses(servers), clients=16, pause=0.08) as load:
        load.run_until_tickets(200)
        until_drawn(load, 1)
        fragile.execute(0, "DROP TABLE photos")
        wait_until(lambda: fragile.execute(0, "SHOW TABLES LIKE 'photos'"), 15, "the table to be made again")
        until_drawn(load, 1)
        load.run_until_tickets(100)
    assert load.result.failures() == []
    load.result.check()


@contextmanager
def nonsense() -> Iterator[int]:
    """A port where somebody answers, who is no database."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection, suppress(OSError):
                    connection.sendall(b"\x4a\x00\x00\x00\x0aHTTP/1.1 400 Bad Request\r\n\r\nthis is no database" * 3)
                    connection.settimeout(1)
                    connection.recv(100)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield int(listener.getsockname()[1])
        listener.shutdown(socket.SHUT_RDWR)
    thread.join(10)


def reset(proxy: FaultyProxy) -> None:
    proxy.reset_on_connect()
    proxy.cut()


def stall(proxy: FaultyProxy) -> None:
    proxy.stall_handshake()
    proxy.cut()


FAULTS: dict[str, Callable[[FaultyProxy], None]] = {
    "refuses": FaultyProxy.refuse,
    "resets": reset,
    "stalls the handshake": stall,
    "is cut off": FaultyProxy.freeze,
    "drops its replies": FaultyProxy.drop_replies,
    "never hears": FaultyProxy.drop_requests,
}


@pytest.mark.parametrize(
    "fault",  # test_network has those that are long here
    [pytest.param(fault, marks=pytest.mark.long) if fault in ("resets", "never hears") else fault for fault in FAULTS],
)
def test_a_database_behind_a_bad_network_costs_one_attempt(
    fault: str, proxies: tuple[FaultyProxy, FaultyProxy], mysql_pair: MySQLPair, fresh_schema: Schema
) -> None:
    odd, even = proxies
    urls = " ".join(
        database.url_of(fresh_schema.name, proxy.port) for database, proxy in zip(mysql_pair, proxies, strict=True)
    )
    with (
        servers_on(urls, TICKETS_PROBE_INTERVAL=0.2, TICKETS_DATABASE_TIMEOUT=ATTEMPT) as servers,
        Load(addresses(servers), clients=16, pause=0.08) as load,
    ):
        until_drawn(load, 1)
        load.run_for(0.5)
        failed_at = time.monotonic()
        FAULTS[fault](odd)
        servers[0].wait_database(odd.name, "down", timeout=10)
        assert [(each["name"], each["status"]) for each in servers[0].databases()] == [
            (odd.name, "down"),
            (even.name, "up"),
        ]
        load.run_until_tickets(50)
        odd.restore()
        servers[0].wait_database(odd.name, "up", timeout=10)
        until_drawn(load, 1)
    assert load.result.failures() == []
    load.result.check()
    assert load.result.slowest() < allowed(load.result, failed_at), load.result


def test_a_database_that_answers_nonsense_costs_one_attempt(
    proxies: tuple[FaultyProxy, FaultyProxy], mysql_pair: MySQLPair, fresh_schema: Schema
) -> None:
    odd = proxies[0]
    urls = " ".join(
        database.url_of(fresh_schema.name, proxy.port) for database, proxy in zip(mysql_pair, proxies, strict=True)
    )
    with (
        nonsense() as port,
        servers_on(urls, TICKETS_PROBE_INTERVAL=0.2, TICKETS_REQUEST_TIMEOUT=15) as servers,
        Load(addresses(servers), clients=16, pause=0.08) as load,
    ):
        until_drawn(load, 1)
        database, odd.target = odd.target, port
        odd.cut()
        servers[0].wait_database(odd.name, "down", timeout=10)
        load.run_until_tickets(50)
        odd.target = database
        servers[0].wait_database(odd.name, "up")
        until_drawn(load, 1)
        log = servers[0].log_text()
    assert load.result.failures() == []
    load.result.check()
    assert "Traceback" not in log


def test_a_reply_that_comes_too_late_is_a_gap_and_never_a_ticket(
    proxies: tuple[FaultyProxy, FaultyProxy], mysql_pair: MySQLPair, fresh_schema: Schema
) -> None:
    odd = proxies[0]
    urls = " ".join(
        database.url_of(fresh_schema.name, proxy.port) for database, proxy in zip(mysql_pair, proxies, strict=True)
    )
    settings: dict[str, Any] = {
        "TICKETS_PROBE_INTERVAL": 0.2,
        "TICKETS_DATABASE_TIMEOUT": 0.4,
        "TICKETS_REQUEST_TIMEOUT": 15,
    }
    with servers_on(urls, **settings) as servers, Load(addresses(servers), clients=16, pause=0.08) as load:
        for _ in range(2):
            until_drawn(load, 1)
            odd.delay(0.9)
            servers[0].wait_database(odd.name, "down", timeout=10)
            load.run_for(1)
            odd.restore()
            servers[0].wait_database(odd.name, "up")
        until_drawn(load, 1)
    assert load.result.failures() == []
    load.result.check()


# -- both databases fail


def test_with_both_databases_dead_it_says_so_in_time_and_recovers_by_itself(fragile: Schema) -> None:
    pair = fragile.pair
    with servers_on(fragile.urls, TICKETS_REQUEST_TIMEOUT=REQUEST) as (server,):
        before = {server.ticket("photos") for _ in range(10)}
        pair.kill()
        wait_until(lambda: server.get("/readyz").status == 503, 5, "the server to be not ready")
        assert server.get("/livez").status == 200
        report = server.get("/healthz")
        assert report.status == 503
        assert report.json()["status"] == "fail"
        assert [each["status"] for each in report.json()["databases"]] == ["down", "down"]
        for path in ("/ticket/photos", "/ticket/accounts?count=10", "/ticket/nobody_knows_this_one"):
            began = time.monotonic()
            reply = server.get(path)
            took = time.monotonic() - began
            assert reply.status == 503, reply.text
            assert int(reply.headers["retry-after"]) >= 1
            assert reply.headers["content-type"] == "application/problem+json"
            assert reply.headers["cache-control"] == "no-store"
            assert took < REQUEST + MARGIN
        pid = server.pid
        pair.start()
        back = time.monotonic()
        wait_until(lambda: server.get("/ticket/photos").status == 200, 10, "a ticket")
        assert time.monotonic() - back < 3
        server.wait_health("pass")
        assert server.pid == pid
        after = {server.ticket("photos") for _ in range(10)}
        assert {ticket % 2 for ticket in after} == {0, 1}
        assert not before & after


def test_with_both_databases_frozen_each_request_is_answered_in_time(fragile: Schema) -> None:
    pair = fragile.pair
    with (
        servers_on(fragile.urls, TICKETS_REQUEST_TIMEOUT=REQUEST) as (server,),
        Load([server.address], clients=16, pause=0.08) as load,
    ):
        load.run_until_tickets(50)
        load.run_for(0.5)
        frozen_at = time.monotonic()
        for database in pair:
            database.freeze()
        wait_until(lambda: load.result.statuses()[503] > 50, 10, "requests to be refused")
        assert server.get("/livez").status == 200
        assert server.get("/readyz").status == 503
        for database in pair:
            database.thaw()
        thawed_at = time.monotonic()
        wait_until(lambda: server.get("/ticket/photos").status == 200, 10, "a ticket")
        assert time.monotonic() - thawed_at < 3
        until_drawn(load, 0)
        until_drawn(load, 1)
    assert set(load.result.statuses()) == {200, 503}
    assert load.result.slowest() < REQUEST + allowed(load.result, frozen_at), load.result
    load.result.check()


# -- the start


def have_the_ring_recorded(schema: Schema) -> None:
    """Serve the databases once: a ring that is recorded nowhere draws nothing until all of them have answered."""
    with TicketServer(schema.urls) as server:
        server.wait_health("pass")


def test_a_new_ring_draws_nothing_while_one_of_its_databases_is_dead(fragile: Schema) -> None:
    odd, _ = fragile.pair
    odd.kill()
    with TicketServer(fragile.urls) as server:
        server.wait_health("fail")
        assert server.get("/ticket/photos").status == 503
        assert server.get("/healthz").json()["databases"][1]["status"] == "quarantined"
        odd.restart()
        server.wait_health("pass")
        assert {server.ticket("photos") % 2 for _ in range(4)} == {0, 1}


def test_it_starts_with_one_database_dead_and_takes_it_in_when_it_comes(fragile: Schema) -> None:
    odd, even = fragile.pair
    have_the_ring_recorded(fragile)
    odd.kill()
    with TicketServer(fragile.urls) as server:
        server.wait_ready()
        assert [server.ticket("photos") % 2 for _ in range(4)] == [0, 0, 0, 0]
        report = server.get("/healthz").json()
        assert report["status"] == "warn"
        assert [(each["name"], each["status"]) for each in report["databases"]] == [
            (odd.name, "down"),
            (even.name, "up"),
        ]
        odd.restart()
        server.wait_health("pass")
        assert {server.ticket("photos") % 2 for _ in range(4)} == {0, 1}


def test_it_starts_with_all_databases_dead_and_takes_them_in_when_they_come(fragile: Schema) -> None:
    pair = fragile.pair
    pair.kill()
    with TicketServer(fragile.urls) as server:
        assert server.get("/readyz").status == 503
        began = time.monotonic()
        reply = server.get("/ticket/photos")
        assert time.monotonic() - began < REQUEST + MARGIN
        assert reply.status == 503
        assert "retry-after" in reply.headers
        pair.start()
        server.wait_health("pass")
        assert {server.ticket("photos") % 2 for _ in range(4)} == {0, 1}


def test_it_starts_beside_a_frozen_database(fragile: Schema) -> None:
    odd, _ = fragile.pair
    have_the_ring_recorded(fragile)
    odd.freeze()
    with TicketServer(fragile.urls) as server:
        server.wait_ready()
        assert server.ticket("photos") % 2 == 0
        odd.thaw()
        server.wait_health("pass")
        assert {server.ticket("photos") % 2 for _ in range(4)} == {0, 1}


# -- many connections on one sequence


@pytest.fixture(scope="module")
def four_servers(new_schema: Callable[[], Schema]) -> Iterator[tuple[Schema, list[TicketServer]]]:
    schema = new_schema()
    schema.make_flickrs_table("Flickrs")
    schema.make_flickrs_table("FlickrsOwn", engine="MyISAM")
    with ExitStack() as stack:
        servers = [TicketServer(schema.urls, settings=PATIENT) for _ in range(4)]
        for server in servers:
            stack.callback(server.close)
            server.start()
        for server in servers:
            server.wait_ready()
        yield schema, servers


@pytest.mark.parametrize("sequence", ["photos", "Flickrs", "FlickrsOwn"])
def test_64_connections_through_four_servers_meet_no_error_and_no_ticket_twice(
    sequence: str, four_servers: tuple[Schema, list[TicketServer]]
) -> None:
    """New tables; Flickr's keys, which deadlock on InnoDB; and Flickr's own, on MyISAM."""
    schema, servers = four_servers
    with Load(addresses(servers), clients=64, mix=[sequence]) as load:
        load.run_until_tickets(1_000)
    assert load.result.failures() == []
    load.result.check()
    assert drawn_by(load.result, 0, sequence)
    assert drawn_by(load.result, 1, sequence)
    # not MAX(id): of two ids drawn at once the lower may be the one that stays in the row
    tables = [str(schema.execute(index, f"SHOW CREATE TABLE `{sequence}`")[0][1]) for index in (0, 1)]
    counters = [int(table.partition("AUTO_INCREMENT=")[2].split()[0]) for table in tables]
    assert max(a.ids[0] for a in load.result.answers) < max(counters)


def test_blocks_from_a_table_that_is_not_innodbs(four_servers: tuple[Schema, list[TicketServer]]) -> None:
    """Its counter stands behind its largest row, and so a block has to have its last id in one."""
    _, servers = four_servers
    mix = [Want("FlickrsOwn"), Want("FlickrsOwn", "count", 100), Want("FlickrsOwn", "block", 1_000)]
    with Load(addresses(servers), clients=16, mix=mix) as load:
        load.run_until_tickets(4_000)
    assert load.result.failures() == []
    load.result.check()
    for server in servers:
        assert {each["status"] for each in server.wait_health("warn")["databases"]} == {"up"}


def test_two_servers_with_hung_and_killed_databases_at_once_never_draw_twice(fragile: Schema) -> None:
    """The faults overlap: one server frozen, one database killed; whoever thaws late hands out nothing old."""
    odd = fragile.pair.odd
    with (
        servers_on(fragile.urls, 2) as servers,
        Load(addresses(servers), clients=16, pause=0.08, timeout=20) as load,
    ):
        load.run_until_tickets(100)
        servers[0].freeze()
        restarter = threading.Thread(target=lambda: odd.restart(kill=True))
        restarter.start()
        load.run_for(1)
        servers[0].thaw()
        restarter.join(60)
        for server in servers:
            server.wait_database(odd.name, "up")
        until_drawn(load, 1)
    load.result.check()


def test_a_short_lock_on_the_only_database_left_costs_nobody_a_ticket(fragile: Schema) -> None:
    """The sequence is suspended there and tried again at once; whoever waits meanwhile is served when it succeeds."""
    odd, even = fragile.pair
    attempt = 0.5  # the statement is given up before the database gives up the lock, which it does after a second
    with (
        servers_on(fragile.urls, TICKETS_DATABASE_TIMEOUT=attempt, TICKETS_REQUEST_TIMEOUT=20) as (server,),
        Load([server.address], clients=8, pause=0.01, timeout=30) as load,
    ):
        odd.kill()
        server.wait_database(odd.name, "down")
        load.run_until_tickets(50)
        locks = 0
        while locks < 3 or ("suspended" not in server.log_text() and locks < 20):  # late where starved
            with even.locked("photos", database=fragile.name):
                load.run_for(1.7 * attempt)
            until_drawn(load, 0)
            locks += 1
        assert "suspended" in server.log_text()
    assert load.result.failures() == []
    load.result.check()
