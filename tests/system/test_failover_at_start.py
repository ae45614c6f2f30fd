"""A ticket server starts while databases are dead or frozen, and takes them in when they come."""

import time

from tests.harness.pair import Schema
from tests.harness.ticketd import TicketServer
from tests.system.failover import MARGIN, REQUEST


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
