"""Ticket servers as processes on real databases that are killed, frozen, emptied, and put back as they were."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from tests.load import Load
from tests.servers import DatabaseServer, Engine
from tests.servers_processes import wait_until
from tests.servers_shared import OwnServer
from tests.ticketd import DEADLINE, TicketServer

QUICK: dict[str, Any] = {"probe_interval": 0.2, "database_timeout": 2, "request_timeout": 40}
"""A database that hangs is given up soon, and no request is on a busy machine."""


def pair_of(own_server: OwnServer, engine: Engine) -> list[DatabaseServer]:
    return [own_server(engine, offset=offset, increment=2) for offset in (1, 2)]


@contextmanager
def serving(databases: Sequence[DatabaseServer], count: int = 1, **settings: Any) -> Iterator[list[TicketServer]]:
    """Start so many ticket servers on these databases, with the sequence photos."""
    urls = [server.create_database("tickets") for server in databases]
    with ExitStack() as stack:
        servers = [stack.enter_context(TicketServer(urls, **(QUICK | settings))) for _ in range(count)]
        servers[0].request("PUT", "/sequence/photos").raise_for_status()
        for server in servers:
            settle(server)
        yield servers


def settle(server: TicketServer, status: str = "pass") -> None:
    """Wait until /healthz has this status."""
    wait_until(lambda: server.health()["status"] == status, DEADLINE, f"{status}: {server.health()}")


def statuses(server: TicketServer) -> list[Any]:
    return [database["status"] for database in server.health()["databases"]]


def sees(server: TicketServer, *wanted: str) -> None:
    """Wait until the databases have these statuses."""
    wait_until(lambda: statuses(server) == list(wanted), DEADLINE, f"{wanted}: {server.health()}")


def test_a_database_that_is_killed_costs_no_request(own_server: OwnServer, engine: Engine) -> None:
    databases = pair_of(own_server, engine)
    with serving(databases, 2) as servers, Load(servers) as load:
        for database, order in zip(databases, (("down", "up"), ("up", "down")), strict=True):
            database.kill()
            for server in servers:
                sees(server, *order)
                assert any("unprotected" in each["reason"] for each in server.health()["warnings"])
            load.wait(50)
            database.start()
            for server in servers:
                settle(server)
            load.wait(50)
    assert load.errors == []
    assert load.repeated == []
    assert {ticket % 2 for ticket in load.ids} == {0, 1}


def test_a_database_that_stands_still_costs_its_requests_one_attempt(own_server: OwnServer, engine: Engine) -> None:
    databases = pair_of(own_server, engine)
    with serving(databases) as servers, Load(servers) as load:
        databases[0].freeze()
        sees(servers[0], "down", "up")
        load.wait(100)
        databases[0].thaw()
        settle(servers[0])
        load.wait(100)
    assert load.errors == []
    assert load.repeated == []


def test_a_database_that_comes_back_older_repeats_nothing(
    own_server: OwnServer, engine: Engine, tmp_path: Path
) -> None:
    databases = pair_of(own_server, engine)
    with serving(databases, 2) as servers, Load(servers) as load:
        load.wait(100)
        databases[0].stop()
        databases[0].copy_data(tmp_path / "copy")
        databases[0].start()
        for server in servers:
            settle(server)
        load.wait(500)
        databases[0].kill()
        databases[0].restore_data(tmp_path / "copy")
        databases[0].start()
        for server in servers:
            settle(server)
        load.wait(500)
    assert load.errors == []
    assert load.repeated == []


def test_an_empty_database_is_taken_in_and_repeats_nothing(own_server: OwnServer, engine: Engine) -> None:
    databases = pair_of(own_server, engine)
    with serving(databases, 2) as servers, Load(servers) as load:
        load.wait(500)
        databases[1].kill()
        databases[1].wipe()
        databases[1].start()
        databases[1].create_database("tickets")
        for server in servers:
            sees(server, "up", "quarantined")
            assert "taken into the ring" in server.health()["databases"][1]["last_error"]
        for server in servers:
            settle(server)
        load.wait(500)
    assert load.errors == []
    assert load.repeated == []
    assert {ticket % 2 for ticket in load.ids[-200:]} == {0, 1}


def test_a_killed_ticket_server_repeats_nothing_and_skips_nothing(own_server: OwnServer, engine: Engine) -> None:
    databases = pair_of(own_server, engine)
    with serving(databases) as servers:
        before = servers[0].take("photos", 100)
        servers[0].kill()
        servers[0].start()
        after = servers[0].take("photos", 100) + servers[0].take("photos", 100)
        assert not set(before) & set(after)
        assert max(after) < 1000


def test_without_any_database_requests_get_503_until_one_is_back(own_server: OwnServer, engine: Engine) -> None:
    databases = pair_of(own_server, engine)
    with serving(databases) as servers:
        (server,) = servers
        first = server.take("photos")
        for database in databases:
            database.kill()
        server.wait_for("/readyz", 503)
        refused = server.get("/ticket/photos")
        assert (refused.status_code, refused.json()["code"]) == (503, "no-database")
        assert int(refused.headers["Retry-After"]) > 0
        assert server.get("/livez").status_code == 200
        databases[1].start()
        server.wait_for("/readyz")
        assert server.take("photos") > first
        assert statuses(server) == ["down", "up"]


def test_a_bump_holds_on_every_server_once_it_is_answered(own_server: OwnServer, engine: Engine) -> None:
    databases = pair_of(own_server, engine)
    with serving(databases, 2, reserve_seconds=5) as servers, Load(servers) as load:
        load.wait(200)
        wait_until(
            lambda: servers[0].request("POST", "/sequence/photos/bump", json={"above": 1_000_000}).status_code == 200,
            DEADLINE,
            "the bump to be confirmed",
        )
        for server in servers:
            for _ in range(20):
                assert min(server.take("photos", 3)) > 1_000_000
    assert load.repeated == []


def test_a_server_that_refuses_unverified_draws_nothing_while_a_database_is_away(
    own_server: OwnServer, engine: Engine
) -> None:
    databases = pair_of(own_server, engine)
    with serving(databases, unverified="refuse") as servers:
        (server,) = servers
        server.take("photos")
        databases[0].kill()
        server.wait_for("/ticket/photos", 503)
        assert server.get("/ticket/photos").json()["code"] in {"unverified", "no-database"}
        databases[0].start()
        server.wait_for("/ticket/photos")
