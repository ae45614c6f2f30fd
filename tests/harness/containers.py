"""Two ticket databases in containers: the image, the configuration and the first-start scripts that are deployed.

`why_none()` says what this machine lacks for it: an engine that listens on a socket here, and the image on it. Nothing
is pulled for a test.
"""

import contextlib
import functools
import os
import secrets
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import docker
import pymysql
from docker.errors import DockerException, ImageNotFound
from testcontainers.core.config import get_docker_socket, testcontainers_config
from testcontainers.core.container import DockerContainer
from testcontainers.core.waiting_utils import WaitStrategy, WaitStrategyTarget

from tests.harness.processes import free_port, guard_container, wait_until
from tests.harness.ticketd import REPOSITORY

IMAGE = os.environ.get("TICKETS_TEST_MYSQL_IMAGE") or "mysql:9.7"
SCHEMA, USER = "tickets", "tickets"
_SECRETS = REPOSITORY / "deploy/secrets"
_FIRST_START = [*sorted(REPOSITORY.glob("mysql_init/*.sql")), REPOSITORY / "deploy/mysql/02-application-user.sh"]
_START_TIMEOUT = 100

# Its reaper is one more image to pull. Containers are removed by their `with`, or by the guard of the test's processes.
testcontainers_config.ryuk_disabled = True


@functools.cache
def why_none() -> str:
    """The reason why tests in containers cannot run here; empty where they can."""
    where = os.environ.get("DOCKER_HOST") or "unix:///var/run/docker.sock"
    if not where.startswith("unix://"):
        return f"the Docker engine at {where} is not on this machine, and ports are published on 127.0.0.1"
    try:
        # the engine's client leaves its socket open where nobody listens
        with socket.socket(socket.AF_UNIX) as listens:
            listens.connect(where.removeprefix("unix://"))
    except OSError as error:
        return f"no Docker engine listens at {where} ({error.strerror})"
    try:
        with contextlib.closing(docker.from_env(timeout=10)) as client:
            client.images.get(IMAGE)
    except ImageNotFound:
        return f"the Docker engine has no image {IMAGE}, and none is pulled for a test: docker pull {IMAGE}"
    except DockerException as error:
        return f"no Docker engine answers at {where} ({str(error).splitlines()[0][:120]})"
    return ""


class _ServesTickets(WaitStrategy):
    """A login over TCP as the application's user, who reads a ticket table.

    The image's first start runs a server of its own to set things up, which listens on a socket alone; and a ping is
    answered even where access is denied.
    """

    def __init__(self, database: "ContainerMySQL") -> None:
        super().__init__()
        self._database = database

    def wait_until_ready(self, container: WaitStrategyTarget) -> None:
        def serves() -> bool:
            container.reload()
            if container.status == "exited":
                raise RuntimeError(f"{self._database!r} ended while it started:\n{self._database.log_text()[-3000:]}")
            with contextlib.suppress(pymysql.MySQLError):
                return bool(self._database.execute("SELECT COUNT(*) FROM Tickets64"))
            return False

        wait_until(serves, _START_TIMEOUT, f"{self._database!r} to serve tickets", 0.1)


class ContainerMySQL:
    """One ticket database in a container, on a port of 127.0.0.1 that stays the same until it is closed."""

    def __init__(self, name: str) -> None:
        """`name`: odd or even, after the configuration it takes."""
        self.port = free_port()
        self._configuration = REPOSITORY / f"deploy/mysql/{name}.cnf"
        self._password = (_SECRETS / "tickets_database_password").read_text(encoding="utf-8").strip()
        self._container: DockerContainer | None = None

    def __repr__(self) -> str:
        return f"<ContainerMySQL {self._configuration.stem} {IMAGE} at {self.name}>"

    @property
    def name(self) -> str:
        """host:port, as the ticket server names it."""
        return f"127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        return f"mysql://{USER}:{self._password}@127.0.0.1:{self.port}/{SCHEMA}"

    @property
    def container_name(self) -> str:
        """The name by which the engine knows its container."""
        return str(self._engines.name)

    def create(self) -> None:
        """Make and start a container with an empty database, and wait until it serves."""
        assert self._container is None, f"{self!r} is created twice"
        name = f"tickets-test-{secrets.token_hex(6)}"
        container = (
            DockerContainer(IMAGE)
            .with_name(name)
            .with_envs(MYSQL_DATABASE=SCHEMA, MYSQL_ROOT_HOST="localhost")
            .with_env("MYSQL_ROOT_PASSWORD_FILE", "/run/secrets/mysql_root_password")
            .with_copy_into_container(self._configuration, "/etc/mysql/conf.d/tickets.cnf")
            .waiting_for(_ServesTickets(self))
        )
        for secret in ("mysql_root_password", "tickets_database_password"):
            container.with_copy_into_container(_SECRETS / secret, f"/run/secrets/{secret}")
        for script in _FIRST_START:
            container.with_copy_into_container(script, f"/docker-entrypoint-initdb.d/{script.name}")
        # a port of our own: the engine would choose another one each time the container starts
        container.ports["3306/tcp"] = cast(Any, ("127.0.0.1", self.port))
        guard_container(Path(get_docker_socket()), name)
        self._container = container
        container.start()

    def wait_ready(self) -> None:
        """Wait until a container that was started again serves."""
        _ServesTickets(self).wait_until_ready(self._started)

    def start(self) -> None:
        """Start it again on its data where it does not run, and let it go on where it was frozen."""
        status = self._look()
        if status == "paused":
            self.thaw()
        elif status != "running":
            self._engines.start()

    def stop(self) -> None:
        """A clean shutdown."""
        self._engines.stop(timeout=60)

    def kill(self) -> None:
        """SIGKILL to everything in it."""
        self._engines.kill()

    def freeze(self) -> None:
        """Every process in it stands still; the kernel goes on accepting connections for it."""
        self._engines.pause()

    def thaw(self) -> None:
        self._engines.unpause()

    def remove(self) -> None:
        """Remove the container and its data."""
        container, self._container = self._container, None
        if container is not None:
            container.stop(force=True, delete_volume=True)

    def execute(self, sql: str) -> list[tuple[Any, ...]]:
        """Run one statement over TCP as the ticket servers' user; its rows."""
        options: dict[str, Any] = {"connect_timeout": 2, "read_timeout": 10, "autocommit": True, "ssl_disabled": True}
        connection = pymysql.connect(
            host="127.0.0.1", port=self.port, user=USER, password=self._password, database=SCHEMA, **options
        )
        with contextlib.closing(connection), connection.cursor() as cursor:
            cursor.execute(sql)
            return list(cursor.fetchall())

    def log_text(self) -> str:
        return b"".join(self._started.get_logs()).decode(errors="replace")

    @property
    def _started(self) -> DockerContainer:
        assert self._container is not None, f"{self!r} was not created"
        return self._container

    @property
    def _engines(self) -> Any:
        """The engine's own handle of it."""
        return self._started.get_wrapped_container()

    def _look(self) -> str:
        self._started.reload()
        return self._started.status


class ContainerPair:
    """The odd and the even one, made side by side and removed with the `with`."""

    def __init__(self) -> None:
        self.odd, self.even = ContainerMySQL("odd"), ContainerMySQL("even")

    def __iter__(self) -> Iterator[ContainerMySQL]:
        return iter((self.odd, self.even))

    def __enter__(self) -> "ContainerPair":
        try:
            with ThreadPoolExecutor() as workers:
                list(workers.map(ContainerMySQL.create, self))
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        for database in self:
            database.remove()

    @property
    def urls(self) -> str:
        """The value of TICKETS_DATABASES."""
        return " ".join(database.url for database in self)

    def start(self) -> None:
        """Start what does not run, and wait for both."""
        for database in self:
            database.start()
        for database in self:
            database.wait_ready()
