"""The processes that are measured: ticket servers, and what they are compared with."""

import contextlib
import re
import shlex
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import httpx

from bench import CaseFailed
from bench.load import program
from tests.servers_processes import end_guard, free_port, guard, wait_until
from tests.ticketd import PROGRAM, environment

ROOT = Path(__file__).parent.parent
_START = 60.0
"""Seconds that a process has to start, or to end."""
SETTINGS: dict[str, object] = {"database_timeout": 5, "request_timeout": 10, "drain_seconds": 0}
"""The settings of each ticket server besides its ports, databases and reserve. A stall of the disk refuses nobody."""
_NGINX = """daemon off; worker_processes 1; pid {home}/pid; error_log {home}/error;
events {{ worker_connections 1024; }}
http {{ access_log off; keepalive_requests 1000000000; client_body_temp_path {home}/body; proxy_temp_path {home}/proxy;
fastcgi_temp_path {home}/fastcgi; uwsgi_temp_path {home}/uwsgi; scgi_temp_path {home}/scgi;
server {{ listen 127.0.0.1:{port}; location / {{ default_type application/json;
return 200 '{{"sequence":"photos","id":1234567,"id_str":"1234567"}}'; }} }} }}
"""


@dataclass(frozen=True, slots=True)
class Side:
    """A ticket server's program: how it is started, and in which folder."""

    command: tuple[str, ...]
    folder: Path


def this_side() -> Side:
    """The server of this checkout."""
    return Side((*PROGRAM, "serve"), ROOT)


def other_side(against: str) -> Side:
    """A server of elsewhere: of a folder, which holds a checkout of this project, or a command."""
    folder = Path(against).resolve()
    if not folder.is_dir():
        return Side(tuple(shlex.split(against)), Path.cwd())
    own = folder / ".venv/bin/python"
    return Side((str(own) if own.exists() else sys.executable, "-m", "app", "serve"), folder)


class Process:
    """A process that listens on a port of 127.0.0.1, and ends when this one does."""

    def __init__(
        self, command: Sequence[str], folder: Path, log: Path, settings: Mapping[str, str] | None = None
    ) -> None:
        self._log = log
        with log.open("ab") as file:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=file, stderr=file, cwd=folder, env=settings, process_group=0
            )
        self._guard = guard(self._process.pid, log)

    @property
    def pid(self) -> int:
        """Its number."""
        return self._process.pid

    def wait_for(self, port: int) -> None:
        """Return when something listens on the port. Raises CaseFailed where the process ends before."""

        def listens() -> bool:
            self.check()
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", port), timeout=5).close()
                return True
            return False

        wait_until(listens, _START, f"port {port} to answer")

    def check(self) -> None:
        """Raise CaseFailed, with the last line of its log, where the process has ended."""
        if self._process.poll() is not None:
            said = self._log.read_text(encoding="utf-8", errors="replace").split("\n")
            raise CaseFailed(f"a process ended: {' '.join(said[-3:]).strip()[-500:]}")

    def close(self) -> None:
        """End the process."""
        self._process.terminate()
        try:
            self._process.wait(_START)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        end_guard(self._guard)


class Server:
    """A ticket server, with HTTP and the Redis protocol."""

    def __init__(self, side: Side, databases: Sequence[str], log: Path, reserve: int) -> None:
        self.port, self.redis_port = free_port(), free_port()
        ports = {"port": self.port, "redis_port": self.redis_port}
        own = {"databases": " ".join(databases), "reserve_seconds": reserve}
        self._settings = environment(**SETTINGS, **ports, **own)
        self._side, self._log = side, log
        self._process: Process | None = None
        self._client = httpx.Client(timeout=_START, trust_env=False)

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start it, and make the sequence photos. Raises CaseFailed where it ends, TimeoutError where it refuses."""
        self._process = Process(self._side.command, self._side.folder, self._log, self._settings)
        self._process.wait_for(self.port)
        wait_until(lambda: self._ask("GET", "/readyz") == 200, _START, "the ticket server to be ready")
        # a 503 says that it is under way
        wait_until(lambda: self._ask("PUT", "/sequence/photos") in (200, 201), _START, "the sequence photos")
        self.wait_for_tickets("photos")

    def wait_for_tickets(self, sequence: str) -> None:
        """Return when each database has given a ticket of a sequence; the first one takes longer than later ones.

        Raises TimeoutError where one gives none.
        """
        given = set()

        def came() -> bool:
            answer = self._client.get(f"{self.url}/ticket/{sequence}")
            if answer.is_success:
                given.add(answer.json()["id"] % 2)
            return len(given) == 2

        wait_until(came, _START, f"odd and even tickets of {sequence}")

    @property
    def resident(self) -> float:
        """Its resident memory, in MiB."""
        assert self._process is not None
        self._process.check()
        status = Path(f"/proc/{self._process.pid}/status").read_text(encoding="ascii")
        found = re.search(r"^VmRSS:\s*(\d+) kB", status, re.MULTILINE)
        return int(found[1]) / 1024 if found else 0.0

    def close(self) -> None:
        """End it."""
        self._client.close()
        if self._process is not None:
            self._process.close()

    def _ask(self, method: str, path: str) -> int:
        assert self._process is not None
        self._process.check()
        return self._client.request(method, self.url + path).status_code


class Other(Process):
    """A program that the server is compared with. kind: its name in OTHERS. Raises CaseFailed."""

    def __init__(self, kind: str, home: Path) -> None:
        home.mkdir()
        self.port = free_port()
        super().__init__(OTHERS[kind](home, self.port), ROOT, home / "log")
        self.wait_for(self.port)


def _nginx(home: Path, port: int) -> list[str]:
    (home / "conf").write_text(_NGINX.format(home=home, port=port), encoding="ascii")
    files = ["-p", str(home), "-c", str(home / "conf"), "-e", str(home / "error")]
    return [program("nginx", "nginx-light"), *files]


def _fastapi(_home: Path, port: int) -> list[str]:
    """A route that returns a constant, on the same parser and event loop as the ticket server."""
    how = ["--http=httptools", "--loop=uvloop", "--no-access-log", "--log-level=warning"]
    return [sys.executable, "-m", "uvicorn", "bench.constant:app", "--port", str(port), *how]


def _redis(home: Path, port: int) -> list[str]:
    where = ["--port", str(port), "--bind", "127.0.0.1", "--dir", str(home)]
    return [program("redis-server", "redis-server"), *where, "--save", ""]


OTHERS: dict[str, Callable[[Path, int], list[str]]] = {
    "nginx": _nginx,
    "fastapi": _fastapi,
    "redis": lambda home, port: [*_redis(home, port), "--appendonly", "yes", "--appendfsync", "always"],
    "redis-memory": lambda home, port: [*_redis(home, port), "--appendonly", "no"],
}
"""How each program that the server is compared with is started, by its folder and port."""
