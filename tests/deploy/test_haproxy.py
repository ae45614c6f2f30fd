"""Ticket servers behind a real HAProxy with our configuration: its clients notice nothing of what happens to one."""

import contextlib
import csv
import os
import signal
import ssl
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest
import redis

from tests.contract.http_bench import problem
from tests.deploy.files import DEPLOY
from tests.load import Load
from tests.servers_processes import DEADLINE, Process, free_port, send, wait_until
from tests.servers_programs import find
from tests.servers_shared import SharedServers
from tests.ticketd import TicketServer

UP, DOWN = "UP", "DOWN"


class HAProxy(Process):
    """HAProxy with our configuration, in front of three ports of this machine.

    redis: where the same servers speak the Redis protocol. settings: others, by their names after TICKETS_DEPLOY_.
    """

    def __init__(self, servers: Sequence[int], redis: Sequence[int] = (), **settings: str) -> None:
        super().__init__(Path(tempfile.mkdtemp(prefix="haproxy-")))
        port, self.tls_port, self.redis_port, statistics = (free_port() for _ in range(4))
        self.url, self.for_operators = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{statistics}"
        ports = {"FRONT": port, "FRONT_TLS": self.tls_port, "STATISTICS": statistics}
        ports |= {f"{number}": port for number, port in enumerate(servers, 1)}
        ports |= {f"{number}_REDIS": port for number, port in enumerate(redis, 1)}
        ports |= {"FRONT_REDIS": self.redis_port} if redis else {}
        wanted = {name: f"127.0.0.1:{port}" for name, port in ports.items()} | {"PUBLIC_TLS_PORT": str(self.tls_port)}
        self._settings = {f"TICKETS_DEPLOY_{name}": value for name, value in (wanted | settings).items()}

    def start(self) -> None:
        """Start it, and return when it listens."""
        command = find("haproxy", "haproxy"), "-db", "-f", DEPLOY / "haproxy/haproxy.cfg"
        self.launch(command, os.environ | self._settings)
        self.until(lambda: bool(self.states("ticket-servers")), "to listen")

    def states(self, backend: str) -> list[str]:
        """The states of its servers, in their order; none while it does not listen."""
        with contextlib.suppress(httpx.TransportError):
            page = httpx.get(f"{self.for_operators}/;csv", timeout=DEADLINE).raise_for_status().text
            rows = csv.DictReader(page.removeprefix("# ").splitlines())
            return [row["status"] for row in rows if row["pxname"] == backend and row["svname"][:8] == "tickets-"]
        return []

    def wait_for(self, *states: str, backend: str = "ticket-servers") -> None:
        """Return when HAProxy sees its servers in these states, in their order."""
        wait_until(lambda: self.states(backend) == [*states], DEADLINE, f"HAProxy to see {states} in {backend}")


@pytest.fixture(scope="module")
def servers(shared_servers: SharedServers) -> Iterator[list[TicketServer]]:
    """Three servers on an odd and an even ticket database."""
    databases = [shared_servers.database("mariadb", offset=offset, increment=2) for offset in (1, 2)]
    with ExitStack() as stack:
        # a busy HAProxy takes some seconds to notice that a server drains
        wanted = (TicketServer(databases, speaks_redis=True, drain_seconds=60) for _ in range(3))
        started = [stack.enter_context(server) for server in wanted]
        started[0].request("PUT", "/sequence/photos").raise_for_status()
        for server in started:
            server.take("photos")  # the first ticket of a server takes longer than others
        yield started


@pytest.mark.timeout(300)
def test_no_request_is_lost_while_a_server_is_killed_and_another_drains(servers: list[TicketServer]) -> None:
    """A server that drains is out before it ends. Redis clients draw through HAProxy as well, and it counts."""
    draining, killed, _ = servers
    with HAProxy([each.port for each in servers], [each.redis_port for each in servers]) as haproxy:
        for backend in ("ticket-servers", "redis-servers"):
            haproxy.wait_for(UP, UP, UP, backend=backend)
        with Load(haproxy, callers=6, is_one=False) as load:
            killed.kill()
            load.wait(50)
            haproxy.wait_for(UP, DOWN, UP)
            killed.start()
            haproxy.wait_for(UP, UP, UP)
            load.wait(50)
            send(draining.pid, signal.SIGTERM)
            haproxy.wait_for(DOWN, UP, UP)
            haproxy.wait_for(DOWN, UP, UP, backend="redis-servers")
            assert draining.running
            load.wait(50)
            draining.kill()
            load.wait(50)
        load.check()
        with redis.Redis(port=haproxy.redis_port, socket_timeout=DEADLINE) as client:
            assert client.ping()
            assert client.incr("photos") != client.incr("photos")
        assert "haproxy_" in httpx.get(f"{haproxy.for_operators}/metrics", timeout=DEADLINE).text
        draining.start()


def test_tls_is_verified_and_port_80_leads_there(servers: list[TicketServer], tmp_path: Path) -> None:
    make = [sys.executable, str(DEPLOY / "tls/make_certificates.py"), str(tmp_path), "front,localhost,127.0.0.1"]
    subprocess.run(make, check=True, stdout=subprocess.DEVNULL, timeout=60)
    trusted = ssl.create_default_context(cafile=str(tmp_path / "ca/ca.pem"))
    trusted.verify_flags |= ssl.VERIFY_X509_STRICT  # as Python 3.13 does by default
    certificate = str(tmp_path / "front/bundle.pem")
    with HAProxy([each.port for each in servers], CERTIFICATE=certificate, PLAIN="redirect") as haproxy:
        haproxy.wait_for(UP, UP, UP)
        url = f"https://127.0.0.1:{haproxy.tls_port}/ticket/photos"
        assert httpx.get(url, verify=trusted, timeout=DEADLINE).raise_for_status().json()["id"] > 0
        answer = httpx.get(f"{haproxy.url}/ticket/photos", timeout=DEADLINE)
        assert (answer.status_code, answer.headers["location"]) == (308, url)
        assert httpx.get(f"{haproxy.url}/readyz", timeout=DEADLINE).status_code == 200


def test_without_a_server_it_says_to_come_again() -> None:
    with HAProxy([free_port() for _ in range(3)]) as haproxy:
        haproxy.wait_for(DOWN, DOWN, DOWN)
        answer = httpx.get(f"{haproxy.url}/ticket/photos", timeout=DEADLINE)
    assert problem(answer, 503, "no-database")
    assert int(answer.headers["retry-after"]) >= 1
