"""The front with real ticket servers: who draws through HAProxy notices none of what happens behind it."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.deploy.front import SERVERS, HAProxy
from tests.harness.load import Load
from tests.harness.processes import free_port
from tests.harness.ticketd import TicketServer


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[TicketServer]]:
    """Three servers on one embedded pair: what HAProxy does is the same, and no MySQL has to start."""
    data: Path = tmp_path_factory.mktemp("ticket-data")
    started: list[TicketServer] = []
    try:
        for _ in SERVERS:
            server = TicketServer(data_dir=data, settings={"TICKETS_DRAIN_SECONDS": 4})
            started.append(server.__enter__())
            server.wait_ready()
        yield started
    finally:
        for server in started:
            server.close()


@pytest.fixture(scope="module")
def shared_haproxy(servers: list[TicketServer]) -> Iterator[HAProxy]:
    with HAProxy([server.name for server in servers]) as haproxy:
        yield haproxy


@pytest.fixture
def haproxy(servers: list[TicketServer], shared_haproxy: HAProxy) -> Iterator[HAProxy]:
    """HAProxy with all three servers up, and whatever a test has done to them undone."""
    shared_haproxy.wait_states("UP", "UP", "UP")
    yield shared_haproxy
    for server in servers:
        if server.running:
            server.thaw()
        else:
            server.start()


def test_a_draining_server_is_out_before_it_stops(servers: list[TicketServer], haproxy: HAProxy) -> None:
    servers[0].signal_terminate()
    haproxy.wait_states("DOWN", "UP", "UP", timeout=3)
    assert servers[0].running
    assert servers[0].wait() == 0


def freeze_without_a_lock(server: TicketServer, other: TicketServer) -> None:
    """Freeze it while it is not writing. One that stands still with the locks of both files in hand keeps all others
    from drawing, and HAProxy then sees none that is up."""
    for _ in range(30):
        server.freeze()
        with contextlib.suppress(httpx.TimeoutException):
            if other.get("/ticket/photos", timeout=1).status == 200:
                return
        server.thaw()
    raise AssertionError("it was writing whenever it was frozen")


def test_a_server_that_hangs_costs_its_requests_one_timeout(servers: list[TicketServer], haproxy: HAProxy) -> None:
    with Load([haproxy.address], clients=12, pause=0.02, timeout=20) as load:
        load.run_for(0.5)
        freeze_without_a_lock(servers[1], servers[0])
        haproxy.wait_states("UP", "DOWN", "UP")
        load.run_for(0.5)
        servers[1].thaw()
        haproxy.wait_states("UP", "UP", "UP")
    assert not load.result.failures(), load.result.failures()[:5]
    assert not load.result.duplicates()
    assert load.result.slowest() < 5


def test_none_left_is_a_problem_to_come_back_from() -> None:
    with HAProxy([f"127.0.0.1:{free_port()}" for _ in SERVERS]) as haproxy:
        haproxy.wait_states("DOWN", "DOWN", "DOWN")
        answer = haproxy.get("/ticket/photos")
    assert answer.status_code == 503
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.headers["cache-control"] == "no-store"
    assert int(answer.headers["retry-after"]) >= 1
    problem = answer.json()
    assert set(problem) == {"type", "title", "status", "detail", "code"}
    assert (problem["status"], problem["code"]) == (503, "no-database")


def test_servers_that_all_hang_are_none_left(servers: list[TicketServer], haproxy: HAProxy) -> None:
    for server in servers:
        server.freeze()
    answer = haproxy.get("/ticket/photos")
    assert answer.status_code == answer.json()["status"] == 503
    assert answer.headers["content-type"] == "application/problem+json"
    assert "retry-after" in answer.headers


def test_the_front_passes_the_servers_own_errors_on(haproxy: HAProxy) -> None:
    answer = haproxy.get("/ticket/nobody_made_this")
    assert answer.status_code == 404
    assert answer.headers["content-type"] == "application/problem+json"
    assert "server" not in answer.headers


def test_statistics_are_for_operators_alone(haproxy: HAProxy) -> None:
    page = haproxy.get("/", statistics=True)
    assert page.status_code == 200
    assert all(f"tickets-{number + 1}" in page.text for number in SERVERS)
    assert "haproxy_server_status" in haproxy.get("/metrics", statistics=True).text
    assert "tickets-1" not in haproxy.get("/").text
