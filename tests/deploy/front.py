"""Three ticket servers behind a real HAProxy with deploy/haproxy/haproxy.cfg, as processes.

`compose` has them in containers. What happens to the servers is the same for both.
"""

import contextlib
import os
import secrets
import shutil
import ssl
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

import httpx

from tests.harness.load import Address, Load, Want
from tests.harness.pair import MySQLPair
from tests.harness.processes import ChildProcess, free_port, new_directory, remove_directory, wait_until
from tests.harness.ticketd import TicketServer

REPOSITORY = Path(__file__).resolve().parents[2]
CONFIGURATION = REPOSITORY / "deploy/haproxy/haproxy.cfg"
SERVERS = range(3)
CLIENTS = 40


class Front(Protocol):
    """What happens to the servers behind one address."""

    address: Address

    def restart_server(self, number: int) -> None: ...
    def kill_server(self, number: int) -> None: ...
    def start_server(self, number: int) -> None: ...
    def health(self, number: int) -> str:
        """The status of this server's `/healthz`, or nothing where it does not answer."""


def wait_until_all_pass(front: Front, timeout: float = 120) -> None:
    """The next fault comes only when every server is content again."""
    wait_until(lambda: all(front.health(number) == "pass" for number in SERVERS), timeout, "/healthz to pass", 0.2)


def steady(front: Front, *, headers: str = "", tls: ssl.SSLContext | None = None) -> Load:
    """The clients of a bad day: forty, who together make about 200 requests a second."""
    mix = (Want("photos", weight=8), Want("photos", "block", 10), Want("accounts", "count", 3))
    return Load([front.address], clients=CLIENTS, mix=mix, pause=0.2, timeout=20, headers=headers, tls=tls)


@contextlib.contextmanager
def nobody_notices(load: Load) -> Iterator[Load]:
    """Whatever is done within: no request fails, and no ticket comes twice."""
    with load:
        load.run_for(1)
        yield load
        load.run_for(1)
    assert not load.result.failures(), (load.result, load.result.failures()[:5])
    assert not load.result.duplicates()
    assert load.result.tickets() > 1000


def restart_servers(front: Front, numbers: Iterable[int] = SERVERS) -> None:
    """One after the other, as a release is rolled out."""
    for number in numbers:
        front.restart_server(number)
        wait_until_all_pass(front)


def kill_a_server(front: Front, load: Load, seconds: float) -> None:
    """One dies, and is back after so long."""
    front.kill_server(1)
    load.run_for(seconds)
    front.start_server(1)
    wait_until_all_pass(front)


class HAProxy:
    """The load balancer alone, in front of these addresses."""

    def __init__(
        self,
        servers: Sequence[str],
        *,
        certificate: Path | None = None,
        plain: str = "serve",
        redis_servers: Sequence[str] = (),
    ) -> None:
        """`certificate`: PEM with its key, for TLS on `tls_port`. `plain`: serve, or redirect to TLS. `redis_servers`:
        where the same servers speak the Redis protocol, which is then on `redis_port`, with TLS on `redis_tls_port`."""
        self.port, self.tls_port, self.statistics_port = free_port(), free_port(), free_port()
        self.redis_port, self.redis_tls_port = free_port(), free_port()
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
                "TICKETS_FRONT_REDIS_TLS": f"127.0.0.1:{self.redis_tls_port}",
            }
        if redis_servers:
            self._settings |= {
                "TICKETS_FRONT_REDIS": f"127.0.0.1:{self.redis_port}",
                **{f"TICKETS_{number}_REDIS": address for number, address in enumerate(redis_servers, 1)},
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

    def states(self, backend: str = "ticket-servers") -> list[str]:
        """What the statistics say of each server, in their order: UP, DOWN, or on the way ("UP 1/2")."""
        rows = [line.split(",") for line in self.get("/;csv", statistics=True).text.splitlines()]
        column = rows[0].index("status")
        return [row[column] for row in rows if row[0] == backend and row[1].startswith("tickets-")]

    def wait_states(self, *states: str, timeout: float = 60, backend: str = "ticket-servers") -> None:
        wait_until(lambda: self.states(backend) == list(states), timeout, f"HAProxy to see {states}")

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.running, self.log.read_text(encoding="utf-8")
        try:
            return self.get("/metrics", statistics=True).status_code == 200
        except httpx.TransportError:
            return False


def trusting(certificates: Path) -> ssl.SSLContext:
    """As strict as the newest Python is by default, which the image runs on."""
    context = ssl.create_default_context(cafile=str(certificates / "ca/ca.pem"))
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    return context


class ProcessFront:
    """Three servers and HAProxy as processes, on a pair of databases of the test's own.

    Clients speak TLS to HAProxy, whatever they ask for needs a token, and both kinds of tokens are in files.
    """

    def __init__(self, pair: MySQLPair, certificates: Path, folder: Path) -> None:
        """`certificates`: with one for `front`. `folder`: where the files of the tokens are made."""
        self.tokens, self.admin_tokens = folder / "tokens", folder / "admin_tokens"
        for path in (self.tokens, self.admin_tokens):
            path.write_text(f"{secrets.token_hex(16)}\n", encoding="utf-8")
        settings = {
            "TICKETS_DRAIN_SECONDS": 3,
            "TICKETS_TOKENS_FILE": self.tokens,
            "TICKETS_ADMIN_TOKENS_FILE": self.admin_tokens,
        }
        self.servers = [TicketServer(pair.urls, settings=settings) for _ in SERVERS]
        names = [server.name for server in self.servers]
        self._haproxy = HAProxy(names, certificate=certificates / "front/bundle.pem", plain="redirect")
        self.address: Address = ("127.0.0.1", self._haproxy.tls_port)
        self.trust = trusting(certificates)
        self.targets = {
            "tickets": names,
            "tickets-ready": names,
            "haproxy": [f"127.0.0.1:{self._haproxy.statistics_port}"],
        }

    def __enter__(self) -> "ProcessFront":
        try:
            for server in self.servers:
                server.start()
            self._haproxy.__enter__()
            wait_until_all_pass(self)
            self._haproxy.wait_states("UP", "UP", "UP")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        self._haproxy.__exit__()
        for server in self.servers:
            server.close()

    def restart_server(self, number: int) -> None:
        self.servers[number].restart()

    def kill_server(self, number: int) -> None:
        self.servers[number].kill()

    def start_server(self, number: int) -> None:
        self.servers[number].start()

    def health(self, number: int) -> str:
        try:
            return str(self.servers[number].get("/healthz", timeout=2).json()["status"])
        except httpx.TransportError:
            return ""

    def make_sequence(self, name: str, token: str) -> int:
        """Ask for a new sequence as a client does; the answer's status."""
        url = f"https://127.0.0.1:{self._haproxy.tls_port}/sequence/{name}"
        headers = {"Authorization": f"Bearer {token}"}
        return httpx.put(url, headers=headers, verify=self.trust, trust_env=False, timeout=20).status_code
