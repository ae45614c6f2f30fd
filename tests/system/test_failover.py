"""One ticket database fails, and the requests go on. Both fail, and the server says so in time."""

import threading
import time

from tests.harness.load import Load
from tests.harness.pair import Schema
from tests.harness.processes import wait_until
from tests.harness.ticketd import TicketServer
from tests.system.failover import ATTEMPT, MARGIN, REQUEST, addresses, allowed, drawn_by, servers_on, until_drawn

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


# -- many connections on one sequence


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
