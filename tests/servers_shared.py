"""Which servers a test process runs: shared ones, which no test may harm, and those that belong to a single test."""

import itertools
from collections.abc import Callable

from tests.servers import DatabaseServer, Engine

FreshDatabase = Callable[..., str]
"""The fixture `fresh_database(engine)`: creates an empty database in a shared server, and returns its URL.

`offset` and `increment` are what the shared server numbers with; PostgreSQL knows neither.
"""
OwnServer = Callable[..., DatabaseServer]
"""The fixture `own_server(engine)`: starts a server for one test, with the further arguments of `DatabaseServer`."""


class SharedServers:
    """The shared servers of one test process, each started when a test asks for it first."""

    def __init__(self) -> None:
        self._servers: dict[tuple[Engine, int | None, int | None], DatabaseServer] = {}
        self._numbers = itertools.count(1)

    def server(self, engine: Engine, *, offset: int | None = None, increment: int | None = None) -> DatabaseServer:
        """The shared server of an engine that numbers like this."""
        key = (engine, None, None) if engine in ("postgresql", "redis") else (engine, offset, increment)
        if key not in self._servers:
            self._servers[key] = DatabaseServer(engine, offset=key[1], increment=key[2])
            self._servers[key].start()
        return self._servers[key]

    def database(self, engine: Engine, **numbers: int) -> str:
        """The URL of a new database in the shared server of an engine that numbers like this."""
        return self.server(engine, **numbers).create_database(self.new_name())

    def new_name(self) -> str:
        """A name for a database that no other test uses."""
        return f"test_{next(self._numbers)}"

    def close(self) -> None:
        """Kill all servers and remove their files."""
        for server in self._servers.values():
            server.close()
