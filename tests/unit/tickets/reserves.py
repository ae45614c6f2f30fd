"""What the tests of reserves do again and again."""

import asyncio
import math
import re
from collections import Counter

from app.common.errors import TicketError
from app.tickets.requests.request import Ids, TicketRequest
from app.tickets.reserve.reserve import Reserve
from tests.fakes.ticket_database import TIMEOUT
from tests.fakes.ticket_server import PROBE_INTERVAL, FakeTicketServer, Site

SECONDS = 5.0
WINDOW = PROBE_INTERVAL + TIMEOUT


def now() -> float:
    return asyncio.get_running_loop().time()


def reserve_of(server: FakeTicketServer, sequence: str = "photos") -> Reserve:
    found = server.catalog.entries[sequence].reserve
    assert found is not None
    return found


async def use(server: FakeTicketServer, rate: int, seconds: float, sequence: str = "photos") -> list[int]:
    """Draw so many tickets a second."""
    given: list[int] = []
    for _ in range(int(rate * seconds)):
        given += await server.desk.take(sequence)
        await asyncio.sleep(1 / rate)
    return given


def empty(server: FakeTicketServer) -> list[int]:
    """Take all that is in reserve."""
    given: list[int] = []
    while (tickets := server.desk.ready("photos")) is not None:
        given += tickets
    return given


def coming(reserve: Reserve) -> int:
    """How many tickets are being drawn for it."""
    found = re.search(r"(\d+) coming", repr(reserve))
    assert found is not None
    return int(found[1])


async def used_up(site: Site, rate: int = 50, **settings: float | bool) -> tuple[FakeTicketServer, Reserve, list[int]]:
    """A server with a rate and nothing in reserve, and what it has given."""
    server = await site.ticket_server(**{"reserve_seconds": SECONDS, **settings})  # type: ignore[arg-type]
    given = await use(server, rate, 6)
    reserve = reserve_of(server)
    for shelf in reserve.shelves:  # so that nobody refills it meanwhile
        shelf.asks_at = math.inf
    given += empty(server)
    await asyncio.sleep(0.1)
    assert reserve.left == coming(reserve) == 0
    for shelf in reserve.shelves:
        shelf.asks_at = -math.inf
    await asyncio.sleep(0.3)
    return server, reserve, given


class Noting(TicketRequest):
    """Notes its tickets at the moment when it is given them."""

    def __init__(self, given: list[int], count: int = 1, *, whole: bool = False) -> None:
        super().__init__("photos", count, whole=whole)
        self._given = given

    def give(self, tickets: Ids) -> None:
        self._given.extend(tickets)

    def refuse(self, error: TicketError) -> None:
        """Nobody minds."""


def gaps(server: FakeTicketServer) -> Counter[str]:
    found: Counter[str] = Counter()
    for (_, cause), count in server.metrics.gaps.items():
        found[cause] += count
    return found


def drawn(site: Site) -> int:
    return sum(draw.size for database in site.servers for _, draw, _ in database.draws)


def assert_in_order(tickets: list[int], increment: int = 2) -> None:
    assert len(tickets) == len(set(tickets))
    for residue in range(increment):
        of_one = [ticket for ticket in tickets if ticket % increment == residue]
        assert of_one == sorted(of_one)
