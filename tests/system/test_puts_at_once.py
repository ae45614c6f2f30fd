"""PUTs at the same moment at two ticket servers: one wins everywhere, on real databases."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import pytest

from tests.harness.rings import WATCHFUL, Rings
from tests.harness.ticketd import TicketServer

PAIRS = 20
EPOCH = 1_600_000_000_000
CASES: dict[str, tuple[dict[str, Any], dict[str, Any], set[int]]] = {
    "clock": ({"kind": "instagram32"}, {"kind": "instagram32"}, {200}),
    "kinds": ({"kind": "ticket"}, {"kind": "instagram", "epoch": EPOCH}, {409}),
    "start": ({"start": 5}, {"start": 1_000_000}, {200}),
    "bits": ({"bits": 53}, {"bits": 64}, {409}),
}


@pytest.fixture
def two_servers(rings: Rings) -> Iterator[list[TicketServer]]:
    with ExitStack() as stack:
        servers = [stack.enter_context(TicketServer(rings.urls(1, 2), settings=WATCHFUL)) for _ in range(2)]
        for server in servers:
            server.wait_health("pass")
        yield servers


def put(server: TicketServer, name: str, body: dict[str, Any]) -> int:
    return server.put(f"/sequence/{name}", json=body).status


def test_one_of_two_puts_wins_and_its_parameters_hold(two_servers: list[TicketServer]) -> None:
    with ThreadPoolExecutor(2) as threads:
        for case, (one, other, lost) in CASES.items():
            for number in range(PAIRS):
                name = f"{case}{number}"
                answers = list(threads.map(put, two_servers, (name, name), (one, other)))
                assert answers.count(201) == 1, (name, answers)
                assert set(answers) - {201} <= lost, (name, answers)
                won = (one, other)[answers.index(201)]
                said = [server.get(f"/sequence/{name}").json() for server in two_servers]
                assert said[0]["kind"] == said[1]["kind"] == won.get("kind", "ticket")
                if case == "clock":
                    assert said[0]["epoch"] == said[1]["epoch"]
                if case == "bits":
                    assert said[0]["bits"] == said[1]["bits"] == won["bits"]
                for server in two_servers:
                    for _ in range(2):
                        assert server.ticket(name) >= won.get("start", 1)
        for number in range(PAIRS):
            names = f"case{number}", f"Case{number}"
            assert sorted(threads.map(put, two_servers, names, ({}, {}))) == [201, 409]
    for server in two_servers:
        assert server.wait_health("pass")["warnings"] == []
