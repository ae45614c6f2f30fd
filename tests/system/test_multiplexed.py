"""A proxy that multiplexes sessions before a ticket database: what one session was set to, the other was not."""

import time

from tests.harness.doctor import doctor, wrong
from tests.harness.multiplexer import Multiplexer
from tests.harness.notebook import Notebook
from tests.harness.pair import Schema
from tests.harness.ticketd import PATIENT, TicketServer, begin_ring

MOVED = "answered in another session than the one that was prepared: a proxy between that multiplexes sessions"


def test_one_that_swaps_sessions_between_packets_is_refused_by_name(fresh_schema: Schema) -> None:
    odd, even = fresh_schema.pair
    begin_ring(fresh_schema.urls)
    with Multiplexer(odd, fresh_schema.name) as proxy:
        proxy.swaps_each = True
        urls = f"{proxy.url} {even.url_of(fresh_schema.name)}"
        with TicketServer(urls, settings=PATIENT) as server:
            found = server.wait_database(proxy.name, "quarantined")
            assert found["last_error"].startswith(MOVED)
            assert server.ticket("photos") % 2 == 0
        (line,) = wrong(doctor(urls))
        assert line.startswith(f"{proxy.name}: {MOVED}")
        assert "To fix it: name the database itself in TICKETS_DATABASES" in line


def test_a_draw_in_another_session_draws_nothing_and_says_so(fresh_schema: Schema) -> None:
    """No probe sees it: it would come after the draws."""
    odd, even = fresh_schema.pair
    with Multiplexer(odd, fresh_schema.name) as proxy:
        urls = f"{proxy.url} {even.url_of(fresh_schema.name)}"
        with TicketServer(urls, settings=PATIENT | {"TICKETS_PROBE_INTERVAL": 20}) as server:
            server.wait_health()
            notebook = Notebook()
            notebook.take_all_kinds(server)
            time.sleep(1.1)  # a session is looked at again when it was not for a second
            before = odd.largest_id("photos", fresh_schema.name)
            proxy.swap()
            for _ in range(4):
                notebook.take(server)
            assert odd.largest_id("photos", fresh_schema.name) == before
            found = server.wait_database(proxy.name, "quarantined")
            assert found["last_error"].startswith(MOVED)
            notebook.check()
