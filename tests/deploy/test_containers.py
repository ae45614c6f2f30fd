"""docker-compose.yml from the first start to the end, with this checkout's image."""

import json
import re
import secrets
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from testcontainers.compose import DockerCompose

from app.version import VERSION
from tests.documents.pages import ROOT
from tests.load import Load
from tests.servers_processes import free_port, wait_until

pytestmark = [pytest.mark.containers, pytest.mark.timeout(600)]
START = 300
"""Seconds that the containers have until all of them are well."""
COPIED = "app", "deploy", "mysql_init", "Dockerfile", ".dockerignore", "docker-compose.yml", "pyproject.toml"
MORE = "README.md", "requirements-image.txt"


class Front(DockerCompose):
    """The containers of a copy of this checkout, as a project of their own and on another port."""

    def __init__(self, folder: Path) -> None:
        for name in (*COPIED, *MORE):
            copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
            copy(ROOT / name, folder / name)
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        (folder / "port.yml").write_text(f'services: {{haproxy: {{ports: !override ["127.0.0.1:{port}:8000"]}}}}\n')
        (folder / ".env").write_text(f"COMPOSE_PROJECT_NAME=tickets-{secrets.token_hex(4)}\n")
        files = ["docker-compose.yml", "port.yml"]
        super().__init__(folder, files, build=True, wait=True, env_file=".env", docker_command_path="docker")

    def run(self, *arguments: str) -> str:
        """Run `docker compose` with these arguments, and return what it prints."""
        command = [*self.compose_command_property, *arguments]
        done = subprocess.run(command, cwd=self.context, capture_output=True, text=True, check=False, timeout=START)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def health(self, server: str) -> str:
        """Return the status of a server's /healthz."""
        ask = "import urllib.request as u; print(u.urlopen('http://127.0.0.1:8000/healthz').read().decode())"
        return str(json.loads(self.run("exec", "-T", server, "python", "-c", ask))["status"])


@pytest.fixture(scope="module")
def front(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Front]:
    """All containers of docker-compose.yml, and each of them well."""
    made = Front(tmp_path_factory.mktemp("compose"))
    try:
        with made:
            yield made
    finally:
        made.run("down", "--volumes", "--timeout", "2")


def test_nobody_notices_a_bad_day(front: Front) -> None:
    """A server is killed and another one restarted, then a database after the other is stopped."""
    with Load(front, callers=6, is_one=False) as load:
        front.run("kill", "--signal", "KILL", "tickets-2")
        load.wait(50)
        front.run("up", "--detach", "--no-deps", "--wait", "tickets-2")
        front.run("restart", "tickets-1")
        for database in ("mysql-odd", "mysql-even"):
            front.run("stop", database)
            load.wait(50)
            front.run("up", "--detach", "--no-deps", "--wait", database)
            wait_until(lambda: front.health("tickets-3") == "pass", START, "/healthz to pass")
    load.check()


def test_no_container_is_more_than_it_has_to_be(front: Front) -> None:
    for name in ("mysql-odd", "mysql-even", "tickets-1", "haproxy"):
        status = front.run("exec", "-T", name, "cat", "/proc/1/status")
        assert re.findall("^(?:CapBnd|NoNewPrivs):\t0*(.*)$", status, re.MULTILINE) == ["", "1"], name


def test_the_image_runs_under_any_uid_and_says_what_it_holds(front: Front) -> None:
    once = ["run", "--rm", "--no-deps", "-T"]
    assert front.run(*once, "--user", "12345", "tickets-1", "ticketd", "--version") == f"ticketd {VERSION}\n"
    front.run(*once, "--user", "12345", "tickets-1", "python", "-c", "import app.databases.mysql.login")
    find = ["find", "/opt", "/usr", "-name", "pip", "-o", "-name", "pip-*", "-o", "-name", "ensurepip"]
    assert front.run(*once, "tickets-1", *find) == ""
    bill = json.loads(front.run("exec", "-T", "tickets-1", "cat", "/opt/ticketd/sbom.cdx.json"))
    assert bill["metadata"]["component"]["version"] == VERSION
    held = {each["name"] for each in bill["components"]}
    assert {"fastapi", "uvicorn", "asyncpg", "opentelemetry-sdk", "python"} <= held
    assert not {"pip", "setuptools", "pytest"} & held
