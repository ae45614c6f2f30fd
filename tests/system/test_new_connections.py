"""New connections that cannot be had, and that says nothing about the database: those there are go on working."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.load import Load
from tests.harness.names import NameService, by_name
from tests.harness.pair import Schema
from tests.harness.processes import wait_until
from tests.harness.ticketd import TicketServer

SETTINGS: dict[str, object] = {
    "TICKETS_PROBE_INTERVAL": 0.2,
    "TICKETS_DATABASE_TIMEOUT": 2,
    "TICKETS_REQUEST_TIMEOUT": 10,
}


@pytest.fixture
def names() -> Iterator[NameService]:
    with NameService() as service:
        yield service


def since(server: TicketServer) -> list[object]:
    """Each database's status, and when it last changed."""
    return [(each["status"], each["since"]) for each in server.databases()]


def warned(server: TicketServer, text: str) -> bool:
    return any(text in each["reason"] for each in server.get("/healthz").json()["warnings"])


@pytest.mark.parametrize("how", ["away", "silent"])
def test_the_name_service_is_away(fresh_schema: Schema, names: NameService, how: str) -> None:
    """No database changes its status, neither before anybody asks for tickets nor while many do."""
    outage: Path = getattr(names, how)
    urls = by_name(fresh_schema.urls)
    # a probe wants a new connection every 10 s: the warning shows that one was expected, and could not be had by name
    with TicketServer(urls, settings=SETTINGS | names.settings) as server:
        server.wait_health()
        before = since(server)
        outage.touch()
        wait_until(lambda: warned(server, "its name does not resolve") or since(server) != before, 30, "the warning")
        assert since(server) == before
        with Load([server.address], clients=8, pause=0.05, timeout=30) as load:
            load.run_until_tickets(100)
            load.run_for(2)
        assert since(server) == before
        assert load.result.failures() == []
        outage.unlink()
        server.wait_health()
        assert since(server) == before
        load.result.check()


def test_others_have_taken_every_connection_that_was_left(fragile: Schema) -> None:
    """More clients than connections, all kinds of requests: it serves on those that it has, and never goes down."""
    odd = fragile.pair.odd
    with TicketServer(fragile.urls, settings=SETTINGS) as server:
        server.wait_health()
        before = since(server)
        with odd.crowded(spare_those_open=True):
            reason = "new connections fail: has too many connections"
            wait_until(lambda: warned(server, reason) or since(server) != before, 30, "the warning")
            assert since(server) == before
            with Load([server.address], clients=16, mix=("photos", "accounts", "groups"), timeout=30) as load:
                load.run_until_tickets(100)
                load.run_for(2)
            assert since(server) == before
            assert {id_ % 2 for answer in load.result.answers for id_ in answer.ids} == {0, 1}
        server.wait_health()
        assert since(server) == before
    assert load.result.failures() == []
    load.result.check()
