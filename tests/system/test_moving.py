"""The runbook that moves a ring to other engines, one database after the other, while tickets are drawn."""

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.load import Load
from tests.servers import DatabaseServer, Engine
from tests.servers_processes import DEADLINE, wait_until
from tests.servers_programs import template
from tests.servers_shared import SharedServers
from tests.ticketd import TicketServer

RING: tuple[Engine, Engine] = ("mariadb", "mariadb")
MOVES: tuple[tuple[int, Engine], ...] = ((2, "postgresql"), (1, "redis"), (2, "mariadb"))
"""The offsets that get an empty database, one after the other, and its engine."""


@pytest.fixture(scope="module")
def urls(shared_servers: SharedServers) -> Iterator[list[str]]:
    """An empty database for each place of the ring, and then for each move, in servers of their own."""
    places = [*enumerate(RING, 1), *MOVES]
    with ExitStack() as stack:
        servers = [
            DatabaseServer(engine, template(engine, shared_servers.templates), offset=offset, increment=2)
            for offset, engine in places
        ]
        yield [stack.enter_context(server).create_database("tickets") for server in servers]


def test_a_ring_moves_to_other_engines_while_tickets_are_drawn(urls: list[str]) -> None:
    listed, following = urls[:2], urls[2:]
    settings: dict[str, Any] = {"probe_interval": 0.2, "drain_seconds": 0.5, "database_timeout": 5}
    with TicketServer(listed, **settings) as first, TicketServer(listed, **settings) as second:
        first.request("PUT", "/sequence/photos").raise_for_status()
        with Load(first, second) as load:
            for (offset, _), url in zip(MOVES, following, strict=True):
                listed = [url if place == offset else each for place, each in enumerate(listed, 1)]
                settled(first, second)
                for server in (first, second):
                    server.settings["databases"] = " ".join(listed)
                    server.stop()
                    server.start()
                    if server is first:
                        assert server.health()["databases"][offset - 1]["status"] != "up"  # the other one uses the old
                settled(first, second)
                load.wait_for_each()
        load.check(errors=True)
        assert [each for each in load.errors if "status" in each and "draining" not in each] == []


def settled(*servers: TicketServer) -> None:
    for server in servers:
        wait_until(lambda server=server: server.health()["status"] == "pass", DEADLINE, "/healthz to pass")  # type: ignore[misc]
