"""Fixtures of the contract tests."""

from collections.abc import Callable

import pytest

from tests.harness.ticketd import TicketServer

NewName = Callable[[], str]


@pytest.fixture
def sequence(ticket_server: TicketServer, new_name: NewName) -> str:
    """A 64-bit sequence of this test's own."""
    name = new_name()
    reply = ticket_server.put(f"/sequence/{name}")
    assert reply.status == 201, reply.text
    return name
