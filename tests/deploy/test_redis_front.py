"""Redis clients in front of HAProxy notice nothing of what happens behind it, if they retry a command once."""

import contextlib
import re
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from tests.deploy.front import SERVERS, HAProxy
from tests.harness.processes import free_port, wait_until
from tests.harness.ticketd import TicketServer

CLIENTS = 20
PAUSE = 0.1
"""Together about 200 commands a second."""


class Servers:
    """Three servers on one embedded pair, with HAProxy in front. `all`: by number."""

    def __init__(self, data: Path, certificate: Path) -> None:
        self._ports = [free_port() for _ in SERVERS]
        settings = {"TICKETS_DRAIN_SECONDS": 6}
        self.all = [
            TicketServer(data_dir=data, settings=settings | {"TICKETS_REDIS_PORT": port}) for port in self._ports
        ]
        redis_servers = [f"127.0.0.1:{port}" for port in self._ports]
        names = [server.name for server in self.all]
        self.haproxy = HAProxy(names, certificate=certificate, redis_servers=redis_servers)

    def client(self) -> redis.Redis:
        """Retries once, at once."""
        return redis.Redis(port=self.haproxy.redis_port, retry=Retry(NoBackoff(), 1), socket_timeout=5)


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory, certificates: Path) -> Iterator[Servers]:
    front = Servers(tmp_path_factory.mktemp("ticket-data"), certificates / "front/bundle.pem")
    try:
        for server in front.all:
            server.__enter__()
            server.wait_ready()
        with front.haproxy:
            front.haproxy.wait_states("UP", "UP", "UP")
            front.haproxy.wait_states("UP", "UP", "UP", backend="redis-servers")
            yield front
    finally:
        for server in front.all:
            server.close()


class Clients:
    """Draw one ticket after the other, each on a connection of its own, until the end of the `with`."""

    def __init__(self, servers: Servers) -> None:
        self.tickets: list[int] = []
        self.failures: list[Exception] = []
        self._servers = servers
        self._ended = threading.Event()
        self._threads = [threading.Thread(target=self._draw) for _ in range(CLIENTS)]

    def _draw(self) -> None:
        with self._servers.client() as client:
            while not self._ended.wait(PAUSE):
                try:
                    self.tickets.append(int(client.incr("photos")))
                except redis.RedisError as error:
                    self.failures.append(error)

    def __enter__(self) -> "Clients":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()

    def wait_for(self, count: int, timeout: float = 30) -> None:
        """Until so many further tickets have been drawn."""
        aim, deadline = len(self.tickets) + count, time.monotonic() + timeout
        while len(self.tickets) < aim:
            assert time.monotonic() < deadline, (len(self.tickets), aim, self.failures[:5])
            time.sleep(0.02)


def test_nobody_notices_a_rolling_restart(servers: Servers) -> None:
    with Clients(servers) as clients:
        clients.wait_for(200)
        for number, server in enumerate(servers.all):
            server.signal_terminate()
            states = ["DOWN" if other == number else "UP" for other in SERVERS]
            servers.haproxy.wait_states(*states, timeout=3)
            assert server.running  # it serves still
            assert server.wait() == 0
            server.start()
            servers.haproxy.wait_states("UP", "UP", "UP")
            clients.wait_for(200)
    assert not clients.failures, clients.failures[:5]
    assert len(clients.tickets) == len(set(clients.tickets)) > 800


def test_connections_to_a_server_that_drains_are_closed_while_it_serves(servers: Servers) -> None:
    address = ("127.0.0.1", servers.haproxy.redis_port)
    # so many that each server has some, however many of earlier clients' are still being closed
    connections = [socket.create_connection(address, timeout=5) for _ in range(4 * len(SERVERS))]
    for connection in connections:
        assert _answers(connection)
    servers.all[1].signal_terminate()
    servers.haproxy.wait_states("UP", "DOWN", "UP", timeout=6)
    try:
        # HAProxy says that the server is down a moment before it closes the connections to it
        wait_until(lambda: not all(map(_answers, connections)), 5, "the connections to it to be closed")
        assert servers.all[1].running
        assert any(map(_answers, connections)), "those to the others stay"
    finally:
        for connection in connections:
            connection.close()
        servers.all[1].wait()
        servers.all[1].start()
        servers.haproxy.wait_states("UP", "UP", "UP")


def test_a_server_whose_redis_port_does_not_listen_is_left_out(servers: Servers) -> None:
    """Its HTTP port is ready all the while."""
    without = servers.all[1]
    port = without.environment.pop("TICKETS_REDIS_PORT")
    try:
        without.restart()
        without.wait_ready()
        servers.haproxy.wait_states("UP", "DOWN", "UP", backend="redis-servers")
        servers.haproxy.wait_states("UP", "UP", "UP")
        address = ("127.0.0.1", servers.haproxy.redis_port)
        for _ in range(4 * len(SERVERS)):
            with socket.create_connection(address, timeout=5) as connection:
                assert _answers(connection)
        assert servers.haproxy.states("redis-servers") == ["UP", "DOWN", "UP"]
    finally:
        without.environment["TICKETS_REDIS_PORT"] = port
        without.restart()
        servers.haproxy.wait_states("UP", "UP", "UP", backend="redis-servers")


def test_a_server_whose_connections_are_all_taken_keeps_its_clients(servers: Servers) -> None:
    """HAProxy's check of its Redis port is refused like any other client."""
    full = servers.all[1]
    full.environment["TICKETS_MAX_CONNECTIONS"] = "5"
    port = int(full.environment["TICKETS_REDIS_PORT"])
    try:
        full.restart()
        servers.haproxy.wait_states("UP", "UP", "UP", backend="redis-servers")
        with contextlib.ExitStack() as clients:

            def looked() -> bool:
                assert servers.haproxy.states("redis-servers")[1] != "DOWN"
                return refusals(full) >= before + 4

            for _ in range(20):  # more than there is room for, whatever HAProxy has open at the moment
                client = clients.enter_context(socket.create_connection(("127.0.0.1", port), timeout=5))
                _answers(client)
            before = refusals(full)
            wait_until(looked, 30, "HAProxy to have been refused four times")
    finally:
        del full.environment["TICKETS_MAX_CONNECTIONS"]
        full.restart()
        servers.haproxy.wait_states("UP", "UP", "UP", backend="redis-servers")


def test_the_same_with_tls(servers: Servers, certificates: Path) -> None:
    authority = str(certificates / "ca/ca.pem")
    port = servers.haproxy.redis_tls_port
    with redis.Redis(port=port, ssl=True, ssl_ca_certs=authority, ssl_check_hostname=False) as client:
        assert client.ping()
        assert int(client.incr("photos")) > 0


def refusals(server: TicketServer) -> float:
    """How many clients the server has refused."""
    line = re.search(r"(?m)^tickets_client_connections_refused_total (.+)$", server.get("/metrics").text)
    assert line
    return float(line[1])


def _answers(connection: socket.socket) -> bool:
    try:
        connection.sendall(b"PING\r\n")
        return connection.recv(100) == b"+PONG\r\n"
    except ConnectionError:
        return False
