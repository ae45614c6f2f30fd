"""Fixtures: servers that answer as a test wants it, and clients of both kinds."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.servers import engines
from tests.servers_shared import SharedServers

from lying_server import DEADLINE, Client, LyingServer, Serve
from tests.conftest import shared_servers  # noqa: F401 - a fixture
from ticketd_client import AsyncTickets, Tickets


class Awaited:
    """AsyncTickets with the methods of Tickets: each call runs an event loop until it is done."""

    def __init__(self, *given: Any, **options: Any) -> None:
        self._tickets = AsyncTickets(*given, **options)
        self._loop = asyncio.new_event_loop()

    def __repr__(self) -> str:
        return repr(self._tickets)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return lambda *given, **more: self._loop.run_until_complete(getattr(self._tickets, name)(*given, **more))

    def __enter__(self) -> Awaited:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()


def clients(kind: Any) -> Iterator[Client]:
    """A call has so much time that no busy machine uses it up, unless a test gives less."""
    with contextlib.ExitStack() as stack:
        yield lambda *urls, **options: stack.enter_context(kind(urls, **{"timeout": DEADLINE, **options}))


@pytest.fixture(params=[Tickets, Awaited], ids=["sync", "async"])
def either(request: pytest.FixtureRequest) -> Iterator[Client]:
    """Makes clients of one kind."""
    yield from clients(request.param)


@pytest.fixture
def client() -> Iterator[Client]:
    """Makes clients without an event loop. In an AsyncTickets the same code asks the servers, on threads."""
    yield from clients(Tickets)


@pytest.fixture
def asks_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call asks each URL once and then raises, where it would ask them again until its time is over."""
    monkeypatch.setattr("ticketd_client.failover.PAUSE", 1e9)


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Starts a server that answers so; it ends with the test."""
    with contextlib.ExitStack() as stack:
        yield lambda *given: stack.enter_context(LyingServer(*given))


@pytest.fixture(scope="session")
def empty_database(shared_servers: SharedServers) -> Callable[[str, Path], str]:  # noqa: F811 - the fixture
    """Makes an application's database, `sqlite` in this folder or on a server, and returns the URL after its `://`."""

    def make(kind: str, folder: Path) -> str:
        if kind == "sqlite":
            return f"/{folder / 'application.sqlite3'}"
        # without offset and increment: what such a server numbers itself would be among the tickets
        engine = "postgresql" if kind == "postgresql" else engines("mariadb", "mysql")[0]
        return shared_servers.database(engine).partition("://")[2]

    return make


@pytest.fixture
def nobody() -> Iterator[str]:
    """An address where nobody listens, and nobody will."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{taken.getsockname()[1]}"
