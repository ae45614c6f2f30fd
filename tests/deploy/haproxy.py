"""A real HAProxy with deploy/haproxy/haproxy.cfg, in front of ticket servers of a test."""

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Self

import httpx

from tests.deploy.files import DEPLOY
from tests.servers_processes import end_guard, free_port, guard, wait_until
from tests.ticketd import DEADLINE

UP, DOWN = "UP", "DOWN"


class HAProxy:
    """HAProxy in front of three addresses, `host:port`. Use it as a context manager.

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
        self.port, self.tls_port, self.redis_port, self._statistics = (free_port() for _ in range(4))
        self.url = f"http://127.0.0.1:{self.port}"
        self._home = Path(tempfile.mkdtemp(prefix="haproxy-"))
        self._settings = {"PLAIN": plain, "FRONT": self._at(self.port), "STATISTICS": self._at(self._statistics)}
        self._settings |= {str(number): address for number, address in enumerate(servers, 1)}
        if redis:
            self._settings |= {f"{number}_REDIS": address for number, address in enumerate(redis, 1)}
            self._settings["FRONT_REDIS"] = self._at(self.redis_port)
        if certificate is not None:
            self._settings |= {"CERTIFICATE": str(certificate), "FRONT_TLS": self._at(self.tls_port)}
            self._settings["PUBLIC_TLS_PORT"] = str(self.tls_port)

    def __enter__(self) -> Self:
        path = os.pathsep.join([os.environ["PATH"], "/usr/sbin"])
        program = shutil.which("haproxy", path=path)
        assert program, "haproxy is missing: `make tools`, or apt-get install haproxy"
        with (self._home / "log").open("wb") as log:
            self._process = subprocess.Popen(
                [program, "-db", "-f", str(DEPLOY / "haproxy/haproxy.cfg")],
                env=os.environ | {f"TICKETS_DEPLOY_{name}": value for name, value in self._settings.items()},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        self._guard = guard(self._process.pid, self._home)
        try:
            wait_until(self._answers, DEADLINE, "HAProxy to listen")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait(DEADLINE)
        end_guard(self._guard)
        shutil.rmtree(self._home, ignore_errors=True)

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
        assert self._process.poll() is None, (self._home / "log").read_text(encoding="utf-8")
        with contextlib.suppress(httpx.TransportError):
            return bool(self.operators_see("/metrics"))
        return False

    @staticmethod
    def _at(port: int) -> str:
        return f"127.0.0.1:{port}"
