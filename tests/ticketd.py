"""`ticketd serve` as a process of its own on 127.0.0.1, for tests that look at the whole program from outside."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import httpx

from tests.servers_processes import end_guard, free_port, guard, send, states, wait_until

DEADLINE = 60.0
"""Seconds that a server has to start, or to stop. On a busy machine it takes many of them."""
PROGRAM = (sys.executable, "-m", "app")
"""How `ticketd` is started from this checkout."""
PATIENT = {"database_timeout": 20, "request_timeout": 40}
"""Settings with which a busy machine changes no answer."""


def environment(**settings: object) -> dict[str, str]:
    """Return the environment of this process with these settings in place of its own: `port=0` sets TICKETS_PORT."""
    others = {name: value for name, value in os.environ.items() if not name.upper().startswith("TICKET")}
    return others | {f"TICKETS_{name.upper()}": str(value) for name, value in settings.items()}


class TicketServer:
    """One ticket server. It keeps its ports and its folder when a test ends and starts it.

    databases: URLs in the order of their offsets; none for the embedded pair. speaks_redis: whether it listens for the
    Redis protocol as well. settings: others than these, by their names in lower case. Use it as a context manager, or
    call `close`.
    """

    def __init__(self, databases: Sequence[str] = (), *, speaks_redis: bool = False, **settings: Any) -> None:
        self.port = free_port()
        self.redis_port = free_port() if speaks_redis else None
        self._home = Path(tempfile.mkdtemp(prefix="ticketd-"))
        self._log = self._home / "log"
        self.settings: dict[str, object] = {"port": self.port, "data_dir": self._home / "data"} | PATIENT | settings
        """The settings of the next start."""
        if databases:
            self.settings["databases"] = " ".join(databases)
        if self.redis_port:
            self.settings["redis_port"] = self.redis_port
        self._process: subprocess.Popen[bytes] | None = None
        self._guard: subprocess.Popen[bytes] | None = None
        self._client = httpx.Client(timeout=DEADLINE, base_url=self.url)

    def __repr__(self) -> str:
        return f"<ticket server on port {self.port}, {'running' if self.running else 'not running'}>"

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def url(self) -> str:
        """The address over HTTP."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def log(self) -> str:
        """Everything that it has written."""
        return self._log.read_text(encoding="utf-8", errors="replace") if self._log.exists() else ""

    @property
    def pid(self) -> int:
        """The number of the process."""
        assert self._process is not None, f"{self!r} was never started"
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether the process exists. A frozen server runs, too."""
        return self._process is not None and self._process.poll() is None

    # --- life and death ----------------------------------------------------------------------------------------------

    def start(self, wait_for: str | None = "/readyz") -> None:
        """Start the server, and return when this page answers 200; None returns at once.

        Raises AssertionError with the log where the process ends meanwhile.
        """
        assert not self.running, f"{self!r} is started twice"
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [*PROGRAM, "serve"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment(**self.settings),
                start_new_session=True,
            )
        self._end_guard()
        self._guard = guard(self._process.pid, self._home)
        if wait_for is not None:
            self.wait_for(wait_for)

    def wait_for(self, page: str, status: int = 200, seconds: float = DEADLINE) -> None:
        """Return when this page answers with this status."""

        def answers() -> bool:
            assert self.running, f"the server has ended:\n{self.log}"
            with contextlib.suppress(httpx.TransportError):
                return self._client.get(page).status_code == status
            return False

        wait_until(answers, seconds, f"{page} of {self!r} to answer {status}")

    def stop(self) -> int:
        """End the server with SIGTERM, and return the exit status."""
        assert self._process is not None
        send(self._process.pid, signal.SIGTERM)
        return self._process.wait(DEADLINE)

    def kill(self) -> None:
        """End the server with SIGKILL."""
        assert self._process is not None
        self._process.kill()
        self._process.wait(DEADLINE)

    def freeze(self) -> None:
        """Let the process stand still; returns when it does."""
        send(self.pid, signal.SIGSTOP)
        wait_until(lambda: states(self.pid) <= {"T"}, DEADLINE, f"{self!r} to stand still")

    def thaw(self) -> None:
        """Let a frozen process go on."""
        send(self.pid, signal.SIGCONT)

    def close(self) -> None:
        """End the process and remove its files."""
        if self.running:
            self.kill()
        self._end_guard()
        self._client.close()
        shutil.rmtree(self._home, ignore_errors=True)

    def _end_guard(self) -> None:
        if self._guard is not None:
            end_guard(self._guard)
            self._guard = None

    # --- what it answers ---------------------------------------------------------------------------------------------

    def request(self, method: str, path: str, **options: Any) -> httpx.Response:
        """Send a request; `options` are httpx's."""
        return self._client.request(method, path, **options)

    def get(self, path: str, **options: Any) -> httpx.Response:
        """Send a GET."""
        return self.request("GET", path, **options)

    def take(self, sequence: str, count: int = 1) -> list[int]:
        """Take tickets. Raises httpx.HTTPStatusError where they are refused."""
        ids: list[int] = self.get(f"/ticket/{sequence}", params={"count": count}).raise_for_status().json()["ids"]
        return ids

    def health(self) -> dict[str, Any]:
        """Return what /healthz says."""
        found: dict[str, Any] = self.get("/healthz").json()
        return found
