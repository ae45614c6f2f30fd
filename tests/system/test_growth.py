"""`ticketd grow` beside ticket servers that draw: databases join and leave, and nothing comes twice."""

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.load import Load
from tests.servers import DatabaseServer, Engine, engines
from tests.servers_processes import DEADLINE, wait_until
from tests.servers_programs import template
from tests.servers_shared import SharedServers
from tests.ticketd import PROGRAM, TicketServer, environment

QUICK: dict[str, Any] = {"probe_interval": 0.2, "database_timeout": 5, "request_timeout": 40}
ENGINES: list[Engine] = ["mariadb", "postgresql", "redis", *engines("mysql")]


@pytest.fixture(scope="module")
def urls(shared_servers: SharedServers) -> Iterator[list[str]]:
    """An empty database on each engine, in servers of their own."""
    with ExitStack() as stack:
        servers = [DatabaseServer(engine, template(engine, shared_servers.templates)) for engine in ENGINES]
        yield [stack.enter_context(server).create_database("tickets") for server in servers]


def grow(urls: list[str], *arguments: str) -> tuple[int, str]:
    """Run `ticketd grow`, and return its exit status and what it printed."""
    done = subprocess.run(
        [*PROGRAM, "grow", *arguments],
        env=environment(databases=" ".join(urls), probe_interval=0.2, database_timeout=5),
        capture_output=True,
        text=True,
        timeout=2 * DEADLINE,
        check=False,
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, done.stdout


def settled(*servers: TicketServer) -> None:
    for server in servers:
        wait_until(lambda server=server: server.health()["status"] == "pass", DEADLINE, "/healthz to pass")  # type: ignore[misc]


def test_databases_join_and_leave_while_tickets_are_drawn(urls: list[str]) -> None:
    with TicketServer(urls[:2], **QUICK) as first:
        first.request("PUT", "/sequence/photos").raise_for_status()
        for number in range(20):
            first.request("PUT", f"/sequence/s{number}", json={"bits": 32}).raise_for_status()
        first.request("PUT", "/sequence/flakes", json={"kind": "snowflake"}).raise_for_status()
        settled(first)
        with TicketServer(urls, **QUICK) as second, Load(first, second, is_one=False) as load:
            load.wait(100)
            flakes = [second.take("flakes", 50)]
            assert "run `ticketd grow`" in second.health()["databases"][2]["last_error"]
            assert grow(urls, "--status") == (0, "")
            for increment in (3, len(urls), 3):
                assert grow(urls, "--increment", str(increment)) == (0, "")
                wait_until(lambda n=increment: len(up(second)) == n, DEADLINE, "every database to serve")  # type: ignore[misc]
                load.wait(500)
                load.wait_for_each(increment)
                flakes.append(second.take("flakes", 50))
        load.check()
        assert len({each for ids in flakes for each in ids}) == 200


def up(server: TicketServer) -> list[str]:
    return [each["name"] for each in server.health()["databases"] if each["status"] == "up"]


def test_a_server_with_another_increment_is_named_and_nothing_is_changed(urls: list[str]) -> None:
    with TicketServer(urls[:3], increment=3, **QUICK) as server:
        settled(server)
        status, said = grow(urls, "--increment", "5")
        assert (status, "has TICKETS_INCREMENT set" in said) == (1, True)
        assert server.take("photos")


def test_a_database_that_does_not_belong_to_the_ring_is_named_and_left_as_it_is(urls: list[str]) -> None:
    status, said = grow([*urls[:3], urls[1]], "--increment", "4")
    assert (status, "is the same data as" in said) == (1, True)
    foreign = [urls[2].rpartition("/")[0] + f"/{number}" for number in (1, 2)]
    with TicketServer(foreign, **QUICK) as stranger:
        settled(stranger)
        status, said = grow([*urls[:3], foreign[1]], "--increment", "4")
        assert (status, "belongs to another ring" in said) == (1, True)
        settled(stranger)


def test_its_arguments_are_checked(urls: list[str]) -> None:
    assert grow(urls)[0] == grow(urls, "--increment", "3", "--status")[0] == grow(urls, "--increment", "0")[0] == 2
