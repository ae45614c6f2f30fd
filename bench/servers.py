"""HTTP servers that are measured: ticket servers, and the yardsticks beside them."""

import os
import sys
import urllib.request
from collections.abc import Mapping, Sequence
from http.client import HTTPException
from pathlib import Path

from tests.harness.processes import ChildProcess, free_port, wait_until

_ROOT = Path(__file__).parent.parent


class WebServer:
    """A process that serves HTTP on a port of its own."""

    def __init__(self, name: str, directory: Path, arguments: Sequence[str], path: str, env: Mapping[str, str]) -> None:
        """It is ready when `path` is answered 200. `{port}` in the arguments and variables is its port,
        `{redis_port}` in the variables its other one."""
        self.name = name
        self.port = free_port()
        self.redis_port = free_port()
        """Where a ticket server speaks the Redis protocol."""
        directory.mkdir()
        self._log = directory / "log"

        def filled(text: str) -> str:
            return text.replace("{port}", str(self.port)).replace("{redis_port}", str(self.redis_port))

        own = {key: value for key, value in os.environ.items() if not key.startswith("TICKETS_")}
        self.process = ChildProcess(
            [sys.executable, *map(filled, arguments)],
            stdout=self._log,
            stderr=self._log,
            cwd=_ROOT,
            env=own | {key: filled(value) for key, value in env.items()},
        )
        self._url = f"http://127.0.0.1:{self.port}{path}"
        try:
            wait_until(self._ready, 60, f"{name} to start")
        except BaseException:
            self.process.kill()
            raise

    @property
    def resident(self) -> float:
        """Its resident memory now, in MiB."""
        for line in Path(f"/proc/{self.process.pid}/status").read_text(encoding="ascii").splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) / 1024
        raise RuntimeError(f"{self.name} has ended")

    @property
    def pid(self) -> int:
        return self.process.pid

    def last_words(self) -> str:
        """How it ended, and the end of its log; nothing while it runs."""
        if self.process.running:
            return ""
        said = self._log.read_text(encoding="utf-8", errors="replace")[-1500:]
        return f"{self.name} ended with status {self.process.returncode}: {said}"

    def stop(self) -> None:
        """SIGTERM, and wait."""
        self.process.terminate(30)

    def _ready(self) -> bool:
        if words := self.last_words():
            raise RuntimeError(words)
        try:
            with urllib.request.urlopen(self._url, timeout=5) as answer:
                return bool(answer.status == 200)
        except (OSError, HTTPException):
            return False


def ticket_server(name: str, directory: Path, database_urls: Sequence[str], ahead: float = 0) -> WebServer:
    """A ticket server on these databases, or on its embedded pair where there are none. `ahead`: for how many seconds
    it draws tickets ahead."""
    env = {
        "TICKETS_HOST": "127.0.0.1",
        "TICKETS_PORT": "{port}",
        "TICKETS_REDIS_PORT": "{redis_port}",
        "TICKETS_DRAIN_SECONDS": "0",
        "TICKETS_RESERVE_SECONDS": str(ahead),
    }
    if database_urls:
        env["TICKETS_DATABASES"] = " ".join(database_urls)
    else:
        env["TICKETS_DATA_DIR"] = str(directory / "ticket-data")
    return WebServer(name, directory, ["-m", "app", "serve"], "/readyz", env)


def yardstick(which: str, directory: Path) -> WebServer:
    """The constant FastAPI route, or bare ASGI."""
    return WebServer(which, directory, ["-m", "bench.yardstick", which, "{port}"], "/ticket/photos", {})
