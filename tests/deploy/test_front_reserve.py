"""Three ticket servers that draw ahead, behind a real HAProxy: it goes on sending requests to those that live on their
reserves."""

import contextlib
import time

from tests.deploy.front import SERVERS, HAProxy
from tests.harness.load import Load
from tests.harness.pair import MySQLPair
from tests.harness.processes import wait_until
from tests.harness.ticketd import TicketServer

SECONDS = 10.0
CLIENTS, PAUSE = 32, 0.016
"""Two thousand requests a second at the most."""


def is_full(server: TicketServer) -> bool:
    return float(server.get("/sequence/photos").json()["reserve_seconds"] or 0) >= 0.9 * SECONDS


def test_behind_haproxy_nobody_notices_for_a_while_that_both_databases_are_dead(own_pair: MySQLPair) -> None:
    with contextlib.ExitStack() as stack:
        settings = {"TICKETS_RESERVE_SECONDS": SECONDS}
        servers = [stack.enter_context(TicketServer(own_pair.urls, settings=settings)) for _ in SERVERS]
        for server in servers:
            server.wait_health("pass")
        haproxy = stack.enter_context(HAProxy([server.name for server in servers]))
        haproxy.wait_states("UP", "UP", "UP")
        with Load([haproxy.address], clients=CLIENTS, pause=PAUSE) as load:
            load.run_until_tickets(2_000)
            wait_until(lambda: all(map(is_full, servers)), 30, "the reserves to be full")
            load.run_for(2)
            own_pair.kill()
            killed_at = time.monotonic()
            load.run_for(4)
            assert haproxy.states() == ["UP", "UP", "UP"]
            wait_until(load.result.failures, 30, "the reserves to be used up")
            own_pair.odd.restart()
            returned_at = time.monotonic()
            wait_until(lambda: load.result.between(returned_at, time.monotonic()).tickets() > 50, 15, "tickets")
            first = min(a.arrived_at for a in load.result.answers if a.ids and a.asked_at > returned_at)
        assert not load.result.duplicates()
    assert {a.status for a in load.result.failures()} == {503}
    first_failure = min(a.asked_at for a in load.result.failures())
    a_second = load.result.between(killed_at - 2, killed_at).tickets() / 2
    # not in seconds: on a machine that gets idle meanwhile the load asks for more than before
    assert load.result.between(killed_at, first_failure).tickets() > 8 * a_second
    assert first - returned_at < 3
