"""docker-compose.yml with everything it mounts, in a copy of the repository: what operators do to it is done there."""

import functools
import json
import secrets
import shutil
import subprocess
from typing import Any

from tests.deploy.front import wait_until_all_pass
from tests.documents import pages
from tests.harness.checkout import copy_of_the_repository
from tests.harness.load import Address
from tests.harness.processes import free_port, new_directory, remove_directory

IMAGES = ("python:3.13-slim", "mysql:9.7", "haproxy:3.2")


@functools.cache
def possible() -> bool:
    """Is an engine here, with Compose and the images? Nothing is pulled for a test."""
    if not shutil.which("docker"):
        return False
    commands = [["docker", "compose", "version"], *(["docker", "image", "inspect", image] for image in IMAGES)]
    return not any(subprocess.run(each, capture_output=True, check=False, timeout=20).returncode for each in commands)


class ComposeFront:
    """The whole of docker-compose.yml, under another project's name and on another port."""

    def __init__(self) -> None:
        self.address: Address = ("127.0.0.1", free_port())
        self._base = new_directory("tickets-compose-")
        self.folder = self._base / "repository"
        self.folder.mkdir()
        copy_of_the_repository(self.folder, without=("tests/", "bench/"))
        self.tls_port = free_port()
        ports = [f"127.0.0.1:{self.address[1]}:8000", f"127.0.0.1:{self.tls_port}:8443"]
        override = self._base / "ports.yml"
        override.write_text(f"services: {{haproxy: {{ports: !override {json.dumps(ports)}}}}}\n", encoding="utf-8")
        self.environment = {
            "COMPOSE_PROJECT_NAME": f"tickets-test-{secrets.token_hex(4)}",
            "COMPOSE_FILE": f"docker-compose.yml:{override}",
        }

    def __enter__(self) -> "ComposeFront":
        try:
            self.run(
                pages.block("docs/operations/compose.md", "docker compose up --build --wait"),
                {"127.0.0.1:8000": self.name},
            )
            wait_until_all_pass(self)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        self.run("docker compose down --volumes --timeout 2")
        remove_directory(self._base)

    @property
    def name(self) -> str:
        """host:port of HAProxy."""
        return f"{self.address[0]}:{self.address[1]}"

    def run(self, script: str, replacing: dict[str, str] | None = None) -> str:
        """What an operator types in the repository's folder."""
        return pages.run(script, self.folder, replacing=replacing, environment=self.environment, timeout=400)

    def restart_server(self, number: int) -> None:
        self.run(f"docker compose restart tickets-{number + 1}")

    def kill_server(self, number: int) -> None:
        self.run(f"docker compose kill --signal KILL tickets-{number + 1}")

    def start_server(self, number: int) -> None:
        self.run(f"docker compose start tickets-{number + 1}")

    def stop_database(self, number: int) -> None:
        self.run(f"docker compose stop {('mysql-odd', 'mysql-even')[number]}")

    def start_database(self, number: int) -> None:
        self.run(f"docker compose start {('mysql-odd', 'mysql-even')[number]}")

    def health(self, number: int) -> str:
        ask = "import urllib.request as u; print(u.urlopen('http://127.0.0.1:8000/healthz', timeout=2).read().decode())"
        try:
            report: dict[str, Any] = json.loads(
                self.run(f'docker compose exec -T tickets-{number + 1} python -c "{ask}"')
            )
        except (AssertionError, ValueError):
            return ""
        return str(report["status"])
