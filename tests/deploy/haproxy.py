"""A real HAProxy with deploy/haproxy/haproxy.cfg, in front of ticket servers of a test."""

import contextlib
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

import httpx

from tests.deploy.files import DEPLOY
from tests.servers_processes import DEADLINE, Process, free_port, wait_until
from tests.servers_programs import find

UP, DOWN = "UP", "DOWN"


class HAProxy(Process):
    """HAProxy in front of three addresses, `host:port`.

    redis: where the same servers speak the Redis protocol. certificate: a file with a certificate and its key, for TLS.
    plain: `serve`, or `redirect` to TLS.
    """

    def __init__(
        self,
        servers: Sequence[str],
        *,
        redis: Sequence[str] = (),
        certificate: Path | None = None,
        plain: str = "serve",
    ) -> None:
        super().__init__(Path(tempfile.mkdtemp(prefix="haproxy-")))
        self.port, self.tls_port, self.redis_port, self._statistics = (free_port() for _ in range(4))
        self.url = f"http://127.0.0.1:{self.port}"
        self._settings = {"PLAIN": plain, "FRONT": self._at(self.port), "STATISTICS": self._at(self._statistics)}
        self._settings |= {str(number): address for number, address in enumerate(servers, 1)}
        if redis:
            self._settings |= {f"{number}_REDIS": address for number, address in enumerate(redis, 1)}
            self._settings["FRONT_REDIS"] = self._at(self.redis_port)
        if certificate is not None:
            self._settings |= {"CERTIFICATE": str(certificate), "FRONT_TLS": self._at(self.tls_port)}
            self._settings["PUBLIC_TLS_PORT"] = str(self.tls_port)

    def start(self) -> None:
        """Start it, and return when it listens."""
        settings = {f"TICKETS_DEPLOY_{name}": value for name, value in self._settings.items()}
        self.launch([find("haproxy", "haproxy"), "-db", "-f", DEPLOY / "haproxy/haproxy.cfg"], os.environ | settings)
        self.until(self._answers, "to listen")

    def operators_see(self, path: str) -> str:
        """Return a page of the port for operators."""
        return httpx.get(f"http://127.0.0.1:{self._statistics}{path}", timeout=DEADLINE).raise_for_status().text

    def wait_for(self, *states: str, backend: str = "ticket-servers") -> None:
        """Return when HAProxy sees its servers in these states, in their order."""

        def states_now() -> list[str]:
            rows = [line.split(",") for line in self.operators_see("/;csv").splitlines()]
            column = rows[0].index("status")
            return [row[column] for row in rows if row[0] == backend and row[1].startswith("tickets-")]

        wait_until(lambda: states_now() == list(states), DEADLINE, f"HAProxy to see {states} in {backend}")

    def _answers(self) -> bool:
        with contextlib.suppress(httpx.TransportError):
            return bool(self.operators_see("/metrics"))
        return False

    @staticmethod
    def _at(port: int) -> str:
        return f"127.0.0.1:{port}"
