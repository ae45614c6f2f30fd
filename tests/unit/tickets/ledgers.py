"""What the tests of the ledger do again and again."""

import asyncio

from app.databases.protocol import Mark
from tests.fakes.ticket_server import FakeTicketServer, Site


async def take(server: FakeTicketServer, times: int = 1, sequence: str = "photos") -> list[int]:
    return [(await server.desk.take(sequence, 1))[0] for _ in range(times)]


async def take_all(server: FakeTicketServer, sequence: str, given: list[int]) -> None:
    while True:
        given += await take(server, 1, sequence)


def of(offset: int, tickets: list[int], increment: int = 2) -> list[int]:
    """The tickets that the database of this offset gave."""
    return [ticket for ticket in tickets if ticket % increment == offset % increment]


def mark_about(site: Site, offset: int, *, on: int, sequence: str = "photos") -> Mark:
    found = site.servers[on - 1].mark(sequence, offset)
    assert found is not None
    return found


async def probed() -> None:
    await asyncio.sleep(2.2)
