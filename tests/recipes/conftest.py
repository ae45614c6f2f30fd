"""The server that all recipes draw from, and fronts before it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.ticketd import PATIENT, TicketServer
from tests.recipes.front import Front

TOKEN = "recipe-token-271828"
LARGE = 2**60
"""Above this only multiples of 256 are floating-point numbers: a recipe that reads ids as such numbers loses digits."""


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TicketServer]:
    """A server on its embedded pair that wants a token; its sequence photos stands above 2^60."""
    settings = PATIENT | {"TICKETS_TOKENS": TOKEN}
    with TicketServer(None, settings=settings, data_dir=tmp_path_factory.mktemp("recipes")) as running:
        running.wait_ready()
        headers = {"Authorization": f"Bearer {TOKEN}"}
        bumped = running.post("/sequence/photos/bump", json={"above": LARGE}, headers=headers)
        assert bumped.status == 200, bumped.text
        yield running


@pytest.fixture
def front(server: TicketServer) -> Iterator[Front]:
    with Front(server) as running:
        yield running


@pytest.fixture
def other_front(server: TicketServer) -> Iterator[Front]:
    with Front(server) as running:
        yield running


@pytest.fixture
def database(tmp_path: Path) -> str:
    """The file of an application's SQLite database, which is not there yet."""
    return str(tmp_path / "application.db")
