"""The server that all files here ask. It has to serve on after each test."""

from collections.abc import Iterator

import pytest

from tests.harness.ticketd import PATIENT, TicketServer


@pytest.fixture(scope="module")
def server() -> Iterator[TicketServer]:
    with TicketServer(settings=PATIENT) as server:
        server.wait_ready()
        yield server


@pytest.fixture(autouse=True)
def _serves_afterwards(server: TicketServer) -> Iterator[None]:
    yield
    server.ticket("photos")
    assert "Traceback" not in server.log_text()
