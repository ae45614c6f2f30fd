"""Which servers a test process runs: shared ones, which no test may harm, and those that belong to a single test."""

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from tests.servers import DatabaseServer, Engine
from tests.servers_programs import template


class FreshDatabase(Protocol):
    """Creates an empty database in a shared server, and returns its URL (fixture `fresh_database`).

    The shared server numbers with `offset` and `increment` if they are given; PostgreSQL knows neither.
    """

    def __call__(self, engine: Engine, *, offset: int | None = None, increment: int | None = None) -> str: ...


class OwnServer(Protocol):
    """Starts a server for one test, which may kill and freeze the server (fixture `own_server`).

    The arguments are those of `DatabaseServer`.
    """

    def __call__(
        self,
        engine: Engine,
        *,
        offset: int | None = None,
        increment: int | None = None,
        binary_log: bool = False,
        options: Sequence[str] = (),
    ) -> DatabaseServer: ...


class SharedServers:
    """The shared servers of one test process, each started when a test asks for it first.

    `templates` is a directory with the data of empty servers; all processes of a test run use the same directory.
    """

    def __init__(self, templates: Path) -> None:
        self.templates = templates
        self._servers: dict[tuple[Engine, int | None, int | None], DatabaseServer] = {}
        self._numbers = itertools.count(1)

    def server(self, engine: Engine, *, offset: int | None = None, increment: int | None = None) -> DatabaseServer:
        """The shared server of an engine that numbers like this."""
        key = (engine, None, None) if engine == "postgresql" else (engine, offset, increment)
        if key not in self._servers:
            server = DatabaseServer(engine, template(engine, self.templates), offset=key[1], increment=key[2])
            self._servers[key] = server
            server.start()
        return self._servers[key]

    def new_name(self) -> str:
        """A name for a database that no other test uses."""
        return f"test_{next(self._numbers)}"

    def close(self) -> None:
        """Kill all servers and remove their files."""
        for server in self._servers.values():
            server.close()
