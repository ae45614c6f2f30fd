"""Tickets drawn ahead, on real databases: both of them may be gone for a while, and a bump holds all the same."""

import random
import threading
import time
from functools import partial

from tests.harness.load import Load
from tests.harness.pair import Schema
from tests.harness.processes import wait_until
from tests.harness.ticketd import TicketServer
from tests.system.failover import addresses, servers_on

SECONDS = 10.0
CLIENTS, PAUSE = 16, 0.08
"""Two hundred requests a second at the most."""


def reserved(server: TicketServer) -> float:
    return float(server.get("/sequence/photos").json()["reserve_seconds"] or 0)


def test_while_both_databases_are_dead_tickets_come_from_the_reserve(fragile: Schema) -> None:
    pair = fragile.pair
    with servers_on(fragile.urls, TICKETS_RESERVE_SECONDS=SECONDS) as (server,):
        with Load([server.address], clients=CLIENTS, pause=PAUSE) as load:
            load.run_until_tickets(400)
            wait_until(lambda: reserved(server) >= 0.95 * SECONDS, 20, "the reserve to be full")
            load.run_for(2)
            pair.kill()
            killed_at = time.monotonic()
            load.run_for(8)
            assert load.result.failures() == []
            assert server.get("/readyz").status == 200
            wait_until(load.result.failures, 20, "the reserve to be used up")
            wait_until(lambda: server.get("/readyz").status == 503, 5, "the server to be not ready")
            pair.odd.restart()
            returned_at = time.monotonic()
            wait_until(lambda: load.result.between(returned_at, time.monotonic()).tickets() > 50, 10, "tickets")
            first = min(a.arrived_at for a in load.result.answers if a.ids and a.asked_at > returned_at)
        load.result.check()
    assert first - returned_at < 3
    assert min(a.arrived_at for a in load.result.failures()) - killed_at > 8
    assert {a.status for a in load.result.failures()} == {503}


def bumped(server: TicketServer, above: int) -> bool:
    return server.post("/sequence/photos/bump", json={"above": above}).status == 200


def test_nothing_that_a_bump_has_passed_is_handed_out_after_its_answer(fragile: Schema) -> None:
    """By none of three servers, of which one is stopped at random."""
    chance = random.Random(7)
    with servers_on(fragile.urls, 3, TICKETS_RESERVE_SECONDS=SECONDS) as servers:
        over = threading.Event()

        def stop_some() -> None:
            while not over.wait(chance.uniform(0, 0.4)):
                stalled = chance.choice(servers[1:])
                stalled.freeze()
                over.wait(chance.choice([0.01, 0.2, 1.0, 2.5]))
                stalled.thaw()

        bumps = []
        with Load(addresses(servers), clients=CLIENTS, pause=PAUSE) as load:
            load.run_until_tickets(600)
            stopping = threading.Thread(target=stop_some)
            stopping.start()
            try:
                for number in range(1, 7):
                    above = 1_000_000 * number
                    wait_until(partial(bumped, servers[0], above), 20, "the bump")
                    bumps.append((time.monotonic(), above))
                    load.run_for(1)
            finally:
                over.set()
                stopping.join()
        load.result.check()
    for answered_at, above in bumps:
        later = [a for a in load.result.answers if a.ids and a.asked_at > answered_at]
        assert later
        assert min(a.ids[0] for a in later) > above
