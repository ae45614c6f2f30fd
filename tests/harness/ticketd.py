"""The ticket server as a process: `python -m app serve` on a free port, with the settings a test gives it."""

import asyncio
import json
import os
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

import httpx

from tests.harness.commands import command_line
from tests.harness.processes import ChildProcess, Ticketd, free_port, new_directory, remove_directory, wait_until

REPOSITORY = Path(__file__).resolve().parents[2]

PATIENT = {"TICKETS_DATABASE_TIMEOUT": 5, "TICKETS_REQUEST_TIMEOUT": 15}
"""Settings for tests in which no time is measured: a busy machine is no fault that they look for."""


class Reply(NamedTuple):
    """An answer to one request."""

    status: int
    headers: httpx.Headers
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()

    def json(self) -> Any:
        return json.loads(self.body)


NOT_LOOKED_AT = "not looked at yet"
"""The status of a database in /healthz before the server has probed it."""


class TicketServer:
    """One ticket server in a subprocess. Inside its `with` it is alive (`/livez`); `wait_ready` for tickets."""

    def __init__(
        self,
        databases: str | None = None,
        *,
        settings: Mapping[str, object] | None = None,
        arguments: Sequence[str] = (),
        data_dir: Path | None = None,
        port: int | None = None,
        fresh: bool = False,
        open_files: int | None = None,
    ) -> None:
        """`databases` is the value of TICKETS_DATABASES; None for the embedded pair in `data_dir`.

        `settings` are further environment variables, by their full names; they win over everything here. None of the
        outer environment's TICKETS_ and OTEL_ variables gets in. `arguments` follow `serve` on the command line.

        `fresh`: in an interpreter of its own, as `python -m app serve`, where the start itself is what is tested; else
        in a process forked from one that has imported the program, half a second sooner. `open_files`: the hard limit
        on open files that a fresh one is given.
        """
        self.port = port or free_port()
        self._base = new_directory("tickets-server-")
        self.log = self._base / "stderr"
        self.output = self._base / "stdout"
        self.arguments = tuple(arguments)
        self.fresh = fresh
        self.open_files = open_files
        self.environment = {
            name: value for name, value in os.environ.items() if not name.startswith(("TICKETS_", "OTEL_"))
        }
        self.environment |= {
            "PYTHONUNBUFFERED": "1",
            "TICKETS_HOST": "127.0.0.1",
            "TICKETS_PORT": str(self.port),
            "TICKETS_DATA_DIR": str(data_dir or self._base / "ticket-data"),
            "TICKETS_DRAIN_SECONDS": "0",
        }
        if databases is not None:
            self.environment["TICKETS_DATABASES"] = databases
        self.environment |= {name: str(value) for name, value in (settings or {}).items()}
        self._process: ChildProcess | None = None
        self._client = httpx.Client(
            base_url=self.url,
            timeout=15,
            trust_env=False,
            verify=False,  # nothing here is TLS, and reading all the certificates takes longer than a request
            limits=httpx.Limits(max_keepalive_connections=0),
        )

    def __repr__(self) -> str:
        return f"<TicketServer {self.name}, {'running' if self.running else 'not running'}>"

    def __enter__(self) -> Self:
        try:
            self.start()
            self.wait_alive()
            self.wait_looked()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return await asyncio.to_thread(self.__enter__)

    async def __aexit__(self, *exception: object) -> None:
        await asyncio.to_thread(self.close)

    @property
    def name(self) -> str:
        """host:port."""
        return f"127.0.0.1:{self.port}"

    @property
    def address(self) -> tuple[str, int]:
        return "127.0.0.1", self.port

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    # -- life and death

    @property
    def pid(self) -> int:
        assert self._process is not None, "it was never started"
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.running

    @property
    def returncode(self) -> int | None:
        """None while it runs; minus the signal's number where a signal ended it."""
        assert self._process is not None, "it was never started"
        return self._process.returncode

    def start(self) -> None:
        """Start the process; the same port and settings every time."""
        assert not self.running, f"{self!r} is started twice"
        if self.open_files is not None:
            limited = ["sh", "-c", f'ulimit -n {self.open_files} && exec "$0" "$@"', *command_line("serve")]
            self._process = ChildProcess(
                [*limited, *self.arguments], stdout=self.output, stderr=self.log, cwd=REPOSITORY, env=self.environment
            )
            return
        self._process = Ticketd(
            ["serve", *self.arguments],
            stdout=self.output,
            stderr=self.log,
            cwd=REPOSITORY,
            env=self.environment,
            fresh=self.fresh,
        )

    def wait_alive(self, timeout: float = 60) -> float:
        """Wait until `/livez` answers 200; returns the seconds that took."""
        return self._wait_for("/livez", timeout)

    def wait_looked(self, timeout: float = 60) -> None:
        """Wait until it has looked at every database once: it listens before that."""
        wait_until(
            lambda: all(each["last_error"] != NOT_LOOKED_AT for each in self.databases()),
            timeout,
            f"{self!r} to look at its databases",
        )

    def wait_ready(self, timeout: float = 60) -> float:
        """Wait until `/readyz` answers 200, then until every database has been looked at; the seconds to the first."""
        seconds = self._wait_for("/readyz", timeout)
        self.wait_looked(timeout)
        return seconds

    def wait_health(self, status: str = "pass", timeout: float = 30) -> dict[str, Any]:
        """Wait until `/healthz` has this status; returns the report."""
        report: dict[str, Any] = {}

        def has_status() -> bool:
            report.clear()
            report.update(self.get("/healthz").json())
            return report.get("status") == status

        try:
            wait_until(has_status, timeout, f"{self!r} to report {status}")
        except TimeoutError as error:
            raise TimeoutError(f"{error}; it says {report}\n{self.log_text()[-3000:]}") from error
        return report

    def wait_database(self, name: str, status: str, timeout: float = 30) -> dict[str, Any]:
        """Wait until `/healthz` shows the database `name` (host:port) as up, down or quarantined; returns its entry."""
        found: dict[str, Any] = {}

        def has_status() -> bool:
            found.clear()
            found.update(next((each for each in self.databases() if each["name"] == name), {}))
            return found.get("status") == status

        try:
            wait_until(has_status, timeout, f"{name} to be {status}")
        except TimeoutError as error:
            raise TimeoutError(f"{error}; it is {found}\n{self.log_text()[-3000:]}") from error
        return found

    def freeze(self) -> None:
        """SIGSTOP."""
        assert self._process is not None
        self._process.freeze()

    def thaw(self) -> None:
        """SIGCONT."""
        assert self._process is not None
        self._process.thaw()

    def kill(self) -> None:
        """SIGKILL, and wait for the end."""
        if self._process is not None:
            self._process.kill()

    def signal_terminate(self) -> None:
        """SIGTERM, without waiting: to watch it drain."""
        assert self._process is not None
        os.kill(self._process.pid, 15)

    def terminate(self, timeout: float = 20) -> int:
        """SIGTERM, and wait for the end; returns the exit status."""
        assert self._process is not None
        return self._process.terminate(timeout)

    def wait(self, timeout: float = 20) -> int:
        """Wait for it to end by itself; returns the exit status."""
        assert self._process is not None
        return self._process.wait(timeout)

    def restart(self, *, kill: bool = False) -> None:
        """Terminate (or kill) and start it, and wait until it is alive."""
        if kill:
            self.kill()
        else:
            self.terminate()
        self.start()
        self.wait_alive()
        self.wait_looked()

    def close(self) -> None:
        """Kill it and remove what it has written."""
        self.kill()
        self._client.close()
        remove_directory(self._base)

    # -- HTTP

    def request(self, method: str, path: str, **options: Any) -> Reply:
        """One request on a connection of its own; `options` are httpx's (headers, json, content, params)."""
        answer = self._client.request(method, path, **options)
        return Reply(answer.status_code, answer.headers, answer.content)

    def get(self, path: str, **options: Any) -> Reply:
        return self.request("GET", path, **options)

    def post(self, path: str, **options: Any) -> Reply:
        return self.request("POST", path, **options)

    def put(self, path: str, **options: Any) -> Reply:
        return self.request("PUT", path, **options)

    def ticket(self, sequence: str) -> int:
        """One ticket; anything but a 200 fails."""
        reply = self.get(f"/ticket/{sequence}")
        assert reply.status == 200, (reply.status, reply.text)
        return int(reply.json()["id"])

    def databases(self) -> list[dict[str, Any]]:
        """The databases of `/healthz`."""
        databases: list[dict[str, Any]] = self.get("/healthz").json()["databases"]
        return databases

    def raw(self, data: bytes, timeout: float = 5) -> bytes:
        """Send these bytes on a new connection; what comes back until it is closed or silent for so long."""
        received = b""
        with socket.create_connection(self.address, timeout=timeout) as connection:
            connection.sendall(data)
            try:
                while chunk := connection.recv(65536):
                    received += chunk
            except (TimeoutError, ConnectionResetError):
                pass
        return received

    def log_text(self) -> str:
        """All that the server has written to stderr."""
        return self.log.read_text(encoding="utf-8", errors="replace") if self.log.exists() else ""

    def output_text(self) -> str:
        """All that the server has written to stdout."""
        return self.output.read_text(encoding="utf-8", errors="replace") if self.output.exists() else ""

    def memory(self) -> int:
        """Its resident memory in bytes."""
        status = Path(f"/proc/{self.pid}/status").read_text(encoding="ascii")
        return 1024 * next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS:"))

    def _wait_for(self, path: str, timeout: float) -> float:
        def answers() -> bool:
            if not self.running:
                raise RuntimeError(f"{self!r} ended with {self.returncode}:\n{self.log_text()[-3000:]}")
            try:
                return self.get(path, timeout=2).status == 200
            except httpx.TransportError:
                return False

        try:
            return wait_until(answers, timeout, f"{path} of {self!r}")
        except TimeoutError as error:
            raise TimeoutError(f"{error}\n{self.log_text()[-3000:]}") from error


def begin_ring(urls: str) -> None:
    """Have a server record the ring on new databases, all of which answer: one that is away then has a place in it."""
    with TicketServer(urls, settings=PATIENT) as server:
        server.wait_health()
        server.terminate()
