"""A sequence made while one database is away begins, on that one too, where it was asked to."""

from collections.abc import Callable

import pytest

from tests.harness.pair import MySQLPair, Schema
from tests.harness.processes import wait_until
from tests.harness.proxy import FaultyProxy
from tests.harness.ticketd import PATIENT, TicketServer

START = 1_000_000


@pytest.fixture
def urls(mysql_pair: MySQLPair, fresh_schema: Schema, proxies: tuple[FaultyProxy, FaultyProxy]) -> str:
    pairs = zip(mysql_pair, proxies, strict=True)
    return " ".join(database.url_of(fresh_schema.name, proxy.port) for database, proxy in pairs)


def make_without(server: TicketServer, proxy: FaultyProxy, name: str) -> None:
    """Make the sequence while the database behind this proxy is away."""
    proxy.refuse()
    server.wait_database(proxy.name, "down")
    reply = server.put(f"/sequence/{name}", json={"bits": 32, "start": START})
    assert reply.status == 201, reply.text


def take_from_both(server: TicketServer, name: str) -> list[int]:
    """Single tickets until both databases have given some."""
    taken: list[int] = []

    def both_have_given() -> bool:
        reply = server.get(f"/ticket/{name}")
        taken.extend([reply.json()["id"]] if reply.status == 200 else [])
        return {ticket % 2 for ticket in taken} == {0, 1}

    wait_until(both_have_given, 20, "tickets of both databases")
    return taken


@pytest.mark.parametrize(
    ("restart", "away"),
    [
        (True, 0),
        (False, 1),
        pytest.param(True, 1, marks=pytest.mark.long),
        pytest.param(False, 0, marks=pytest.mark.long),
    ],
)
def test_a_start_holds_on_the_database_that_was_away(
    urls: str,
    proxies: tuple[FaultyProxy, FaultyProxy],
    new_name: Callable[[], str],
    away: int,
    restart: bool,
) -> None:
    name = new_name()
    with TicketServer(urls, settings=PATIENT | {"TICKETS_PROBE_INTERVAL": 0.2}) as server:
        server.wait_health()
        make_without(server, proxies[away], name)
        if restart:
            server.restart()
        proxies[away].restore()
        server.wait_database(proxies[away].name, "up")
        assert min(take_from_both(server, name)) >= START


def test_a_start_holds_though_the_database_that_has_the_table_goes_before_the_other_comes(
    urls: str, proxies: tuple[FaultyProxy, FaultyProxy], new_name: Callable[[], str]
) -> None:
    name = new_name()
    with TicketServer(urls, settings=PATIENT | {"TICKETS_PROBE_INTERVAL": 0.2}) as server:
        server.wait_health()
        make_without(server, proxies[1], name)
        proxies[0].refuse()
        server.wait_database(proxies[0].name, "down")
        proxies[1].restore()
        server.wait_database(proxies[1].name, "up")
        wait_until(lambda: server.get(f"/ticket/{name}").status == 200, 20, "a ticket of the second database")
        proxies[0].restore()
        server.wait_database(proxies[0].name, "up")
        assert min(take_from_both(server, name)) >= START
