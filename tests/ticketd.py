"""`ticketd serve` as a process of its own on 127.0.0.1, for tests that look at the whole program from outside."""

import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx

from tests.servers_processes import DEADLINE, Process, free_port, running, wait_until

__all__ = ["DEADLINE", "OF_NODES", "PROGRAM", "QUICK", "TicketServer", "environment", "pair", "settled"]

PROGRAM = (sys.executable, "-m", "app")
"""How `ticketd` is started from this checkout."""
PATIENT = {"database_timeout": 20, "request_timeout": 40}
"""Settings with which a busy machine changes no answer."""
QUICK: dict[str, Any] = {"probe_interval": 0.2, "database_timeout": 5, "request_timeout": 40, "drain_seconds": 1}
"""A database that fails is noticed soon, and on a busy machine none is given up that does not hang."""
OF_NODES = QUICK | {"database_timeout": 2}
"""The same for a database of several nodes: a look waits so long for each node that hangs."""


def environment(**settings: object) -> dict[str, str]:
    """Return the environment of this process with these settings in place of its own: `port=0` sets TICKETS_PORT."""
    others = {name: value for name, value in os.environ.items() if not name.upper().startswith("TICKET")}
    return others | {f"TICKETS_{name.upper()}": str(value) for name, value in settings.items()}


class TicketServer(Process):
    """One ticket server. It keeps its ports and its folder when a test ends and starts it.

    databases: URLs in the order of their offsets; none for the embedded pair. speaks_redis: whether it listens for the
    Redis protocol as well. settings: others than these, by their names in lower case.
    """

    command: Sequence[str | Path] = (*PROGRAM, "serve")
    """How it is started."""
    imports_from = str(Path(__file__).parents[1])
    """Where Python looks for the program first; empty for an installed one."""

    def __init__(self, databases: Sequence[str] | str = (), *, speaks_redis: bool = False, **settings: Any) -> None:
        super().__init__(Path(tempfile.mkdtemp(prefix="ticketd-")))
        self.port, self.redis_port = free_port(), free_port()
        self.settings: dict[str, object] = {"port": self.port, "data_dir": self.home / "data"} | PATIENT | settings
        """The settings of the next start."""
        if databases:
            self.settings["databases"] = databases if isinstance(databases, str) else " ".join(databases)
        if speaks_redis:
            self.settings["redis_port"] = self.redis_port
        self.url = f"http://127.0.0.1:{self.port}"
        """The address over HTTP."""
        self._client = httpx.Client(timeout=DEADLINE, base_url=self.url)

    def start(self, wait_for: str | None = "/readyz") -> None:
        """Start the server, and return when this page answers 200; None returns at once.

        Raises RuntimeError with the log where the process ends meanwhile.
        """
        self.launch(self.command, environment(**self.settings) | {"PYTHONPATH": self.imports_from})
        if wait_for is not None:
            self.wait_for(wait_for)

    def wait_for(self, page: str, status: int = 200, **options: Any) -> None:
        """Return when this page answers with this status; `options` are httpx's."""

        def answers() -> bool:
            with suppress(httpx.TransportError):
                return self.get(page, **options).status_code == status
            return False

        self.until(answers, f"to answer {page} with {status}")

    def wait_for_line(self, words: str) -> str:
        """Return the first line of the log with these words, as soon as there is one."""
        wait_until(lambda: words in self.log, DEADLINE, f"{self!r} to write {words!r}")
        return next(line for line in self.log.splitlines() if words in line)

    def close(self) -> None:
        """End the process and remove its files."""
        super().close()
        self._client.close()

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


@contextmanager
def pair(databases: Sequence[str], **settings: Any) -> Iterator[tuple[TicketServer, TicketServer]]:
    """Run two ticket servers with OF_NODES on the same databases. They have the sequence `photos`, and all is well."""
    settings = OF_NODES | settings
    one, other = (TicketServer(databases, **settings) for _ in range(2))
    with running(one, other):
        one.request("PUT", "/sequence/photos").raise_for_status()
        settled(one, other)
        yield one, other


def settled(*servers: TicketServer) -> None:
    """Return when /healthz of each server passes: the next database may be harmed then. Raises TimeoutError."""
    wait_until(lambda: {each.health()["status"] for each in servers} == {"pass"}, DEADLINE, f"{servers} to be well")
