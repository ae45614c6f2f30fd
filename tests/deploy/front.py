"""Three ticket servers behind a real HAProxy with deploy/haproxy/haproxy.cfg, as processes.

`compose` has them in containers. Both have the same faults, so that one scenario serves both.
"""

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import httpx

from tests.harness.load import Address, Load
from tests.harness.pair import MySQLPair
from tests.harness.processes import ChildProcess, free_port, new_directory, remove_directory, wait_until
from tests.harness.ticketd import TicketServer

REPOSITORY = Path(__file__).resolve().parents[2]
CONFIGURATION = REPOSITORY / "deploy/haproxy/haproxy.cfg"
SERVERS = range(3)


class Front(Protocol):
    """What the scenario does to the servers and databases behind one address."""

    address: Address

    def restart_server(self, number: int) -> None: ...
    def kill_server(self, number: int) -> None: ...
    def start_server(self, number: int) -> None: ...
    def stop_database(self, number: int) -> None: ...
    def start_database(self, number: int) -> None: ...
    def health(self, number: int) -> str:
        """The status of this server's `/healthz`, or nothing where it does not answer."""


def wait_until_all_pass(front: Front, timeout: float = 120) -> None:
    """The next fault comes only when every server is content again."""
    wait_until(lambda: all(front.health(number) == "pass" for number in SERVERS), timeout, "/healthz to pass", 0.2)


def survive_a_bad_day(front: Front) -> None:
    """A rolling restart, a killed server and a stop of each database, at a steady 200 requests a second."""
    with Load([front.address], clients=40, pause=0.2, timeout=20) as load:
        load.run_for(1)
        for number in SERVERS:
            front.restart_server(number)
            wait_until_all_pass(front)
        front.kill_server(1)
        load.run_for(2)
        front.start_server(1)
        wait_until_all_pass(front)
        for number in (0, 1):
            front.stop_database(number)
            load.run_for(2)
            front.start_database(number)
            wait_until_all_pass(front)
        load.run_for(1)
    assert not load.result.failures(), (load.result, load.result.failures()[:5])
    assert not load.result.duplicates()
    assert load.result.tickets() > 1000


class HAProxy:
    """The load balancer alone, in front of these addresses."""

    def __init__(self, servers: Sequence[str], *, certificate: Path | None = None, plain: str = "serve") -> None:
        """`certificate`: PEM with its key, for TLS on `tls_port`. `plain`: serve, or redirect to TLS."""
        self.port, self.tls_port, self.statistics_port = free_port(), free_port(), free_port()
        self._base = new_directory("tickets-haproxy-")
        self.log = self._base / "log"
        self._servers = servers
        self._settings = {"TICKETS_PLAIN": plain}
        self._process: ChildProcess | None = None
        if certificate is not None:
            self._settings |= {
                "TICKETS_CERTIFICATE": str(certificate),
                "TICKETS_FRONT_TLS": f"127.0.0.1:{self.tls_port}",
                "TICKETS_PUBLIC_TLS_PORT": str(self.tls_port),
            }

    def __enter__(self) -> "HAProxy":
        try:
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        self.kill()
        remove_directory(self._base)

    def start(self, servers: Sequence[str] | None = None) -> None:
        """Start it on the same ports, in front of other addresses if they are given, and wait until it listens."""
        program = shutil.which("haproxy")
        assert program, "haproxy is missing: make test installs it, or apt-get install haproxy"
        self._servers = servers or self._servers
        environment = os.environ | {
            "TICKETS_FRONT": f"127.0.0.1:{self.port}",
            "TICKETS_STATISTICS": f"127.0.0.1:{self.statistics_port}",
            **{f"TICKETS_{number}": address for number, address in enumerate(self._servers, 1)},
            **self._settings,
        }
        command = [program, "-db", "-f", str(CONFIGURATION)]
        self._process = ChildProcess(command, stdout=self.log, stderr=self.log, env=environment)
        wait_until(self._answers, 30, "HAProxy to listen")

    def kill(self) -> None:
        """SIGKILL, and wait for the end."""
        if self._process is not None:
            self._process.kill()

    @property
    def address(self) -> Address:
        return "127.0.0.1", self.port

    def get(self, path: str, *, statistics: bool = False) -> httpx.Response:
        port = self.statistics_port if statistics else self.port
        return httpx.get(f"http://127.0.0.1:{port}{path}", timeout=20, trust_env=False, verify=False)

    def states(self) -> list[str]:
        """What the statistics say of each server, in their order: UP, DOWN, or on the way ("UP 1/2")."""
        rows = [line.split(",") for line in self.get("/;csv", statistics=True).text.splitlines()]
        column = rows[0].index("status")
        return [row[column] for row in rows if row[0] == "ticket-servers" and row[1].startswith("tickets-")]

    def wait_states(self, *states: str, timeout: float = 60) -> None:
        wait_until(lambda: self.states() == list(states), timeout, f"HAProxy to see {states}")

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.running, self.log.read_text(encoding="utf-8")
        try:
            return self.get("/metrics", statistics=True).status_code == 200
        except httpx.TransportError:
            return False


class ProcessFront:
    """Three servers and HAProxy as processes, on a pair of databases of the test's own."""

    def __init__(self, pair: MySQLPair) -> None:
        self._pair = pair
        settings = {"TICKETS_DRAIN_SECONDS": 3}
        self._servers = [TicketServer(pair.urls, settings=settings) for _ in SERVERS]
        self._haproxy = HAProxy([server.name for server in self._servers])
        self.address = self._haproxy.address

    def __enter__(self) -> "ProcessFront":
        for server in self._servers:
            server.start()
        self._haproxy.__enter__()
        wait_until_all_pass(self)
        self._haproxy.wait_states("UP", "UP", "UP")
        return self

    def __exit__(self, *exception: object) -> None:
        self._haproxy.__exit__()
        for server in self._servers:
            server.close()

    def restart_server(self, number: int) -> None:
        self._servers[number].restart()

    def kill_server(self, number: int) -> None:
        self._servers[number].kill()

    def start_server(self, number: int) -> None:
        self._servers[number].start()

    def stop_database(self, number: int) -> None:
        self._pair[number].stop()

    def start_database(self, number: int) -> None:
        self._pair[number].start()

    def health(self, number: int) -> str:
        try:
            return str(self._servers[number].get("/healthz", timeout=2).json()["status"])
        except httpx.TransportError:
            return ""
