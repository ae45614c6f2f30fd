"""A network that fails between a ticket server and one of its databases: no request fails, no ticket comes twice."""

import time
from collections.abc import Iterator
from itertools import pairwise

import pytest

from tests.harness.load import Load, Want
from tests.harness.notebook import Notebook
from tests.harness.pair import Schema
from tests.harness.proxy import Fault, FaultyProxy
from tests.harness.ticketd import TicketServer

ODD, EVEN = 1, 2
SETTINGS = {"TICKETS_PROBE_INTERVAL": 0.2, "TICKETS_DATABASE_TIMEOUT": 1, "TICKETS_REQUEST_TIMEOUT": 10}
MIX = (Want("photos"), Want("accounts", "count", 5), Want("groups", "block", 200))

Links = tuple[FaultyProxy, FaultyProxy]


def urls_through(links: Links, schema: Schema) -> str:
    return " ".join(database.url_of(schema.name, link.port) for database, link in zip(schema.pair, links, strict=True))


@pytest.fixture
def server(proxies: Links, fresh_schema: Schema) -> Iterator[TicketServer]:
    with TicketServer(urls_through(proxies, fresh_schema), settings=SETTINGS) as server:
        server.wait_health()
        yield server


@pytest.mark.parametrize(
    ("fault", "cut"),
    [
        (Fault.RESET_ON_CONNECT, True),
        (Fault.DROP_REQUESTS, False),
        (Fault.NONE, True),
        # test_failover_network has these
        pytest.param(Fault.DELAY, False, marks=pytest.mark.long),
        pytest.param(Fault.REFUSE, False, marks=pytest.mark.long),
        pytest.param(Fault.STALL_HANDSHAKE, True, marks=pytest.mark.long),
        pytest.param(Fault.FREEZE, False, marks=pytest.mark.long),
        pytest.param(Fault.DROP_REPLIES, False, marks=pytest.mark.long),
    ],
    ids=lambda value: value.name.lower() if isinstance(value, Fault) else "",
)
def test_no_request_fails_and_no_ticket_comes_twice(
    fault: Fault, cut: bool, server: TicketServer, proxies: Links
) -> None:
    """`cut`: established connections are reset too. A delayed reply comes after its deadline, to somebody who may wait
    for another one by then."""
    victim = proxies[0]
    with Load([server.address], clients=6, mix=MIX, pause=0.04, timeout=30) as load:
        load.run_until_tickets(60)
        victim.set_fault(fault, seconds=1.5)
        if cut:
            victim.cut()
        if fault is not Fault.NONE:
            server.wait_database(victim.name, "down")
        load.run_until_tickets(60)
        load.run_for(0.5)
        victim.restore()
        server.wait_database(victim.name, "up")
        restored = time.monotonic()
        load.run_until_tickets(60)
        server.wait_health()
    assert load.result.failures() == []
    load.result.check()
    assert {i % 2 for answer in load.result.between(restored, time.monotonic()).answers for i in answer.ids} == {0, 1}


def test_servers_that_see_one_database_each(fresh_schema: Schema, proxies: Links, own_links: Links) -> None:
    """Each is cut off from the other one's database: they go on, and agree again afterwards."""
    with (
        TicketServer(urls_through(proxies, fresh_schema), settings=SETTINGS) as one,
        TicketServer(urls_through(own_links, fresh_schema), settings=SETTINGS) as other,
    ):
        one.wait_health()
        other.wait_health()
        with Load([one.address, other.address], clients=6, mix=MIX, pause=0.04, timeout=30) as load:
            load.run_until_tickets(60)
            proxies[0].freeze()
            own_links[1].refuse()
            one.wait_database(proxies[0].name, "down")
            other.wait_database(own_links[1].name, "down")
            load.run_until_tickets(60)
            for link in (*proxies, *own_links):
                link.restore()
            one.wait_health()
            other.wait_health()
            load.run_until_tickets(60)
    assert load.result.failures() == []
    load.result.check()


@pytest.fixture
def own_links(fresh_schema: Schema) -> Iterator[Links]:
    """Another server's ways to the same databases."""
    odd, even = fresh_schema.pair
    with FaultyProxy(odd.port) as to_odd, FaultyProxy(even.port) as to_even:
        yield to_odd, to_even


def test_a_reconnect_and_a_restart_skip_no_ticket(server: TicketServer, proxies: Links) -> None:
    """One server alone: the tickets of each database follow one another without a gap, whatever happens between."""
    notebook = Notebook()

    def take_some() -> None:
        for kind, size in (("single", 1), ("count", 5), ("block", 100), ("single", 1)):
            for _ in range(4):
                notebook.take(server, kind, size)  # type: ignore[arg-type]

    take_some()
    for link in proxies:
        link.cut()
    take_some()
    proxies[1].refuse()
    server.wait_database(proxies[1].name, "down")
    take_some()
    proxies[1].restore()
    server.wait_database(proxies[1].name, "up")
    take_some()
    server.restart(kill=True)
    server.wait_health()
    take_some()
    server.restart()
    server.wait_health()
    take_some()
    notebook.check()
    for offset in (ODD, EVEN):
        ids = sorted(i for answer in notebook.answers for i in answer.ids if i % 2 == offset % 2)
        assert ids == list(range(offset, ids[-1] + 1, 2)), _gaps(ids)


def _gaps(ids: list[int]) -> list[tuple[int, int]]:
    return [(a, b) for a, b in pairwise(ids) if b != a + 2]
