"""Tickets of inner sequences, which the server draws for itself. No client can ask for them."""

import asyncio

from app.common.errors import TicketError
from app.tickets.requests.request import Ids, TicketRequest, Tickets
from app.tickets.ring.ring import Ring
from app.tickets.sequences.catalog import Catalog

RETRY_SECONDS = 0.25
"""How many seconds to wait for a database that can draw, before all databases are asked again."""


async def draw_one(ring: Ring, catalog: Catalog, table: str) -> int:
    """Draw one ticket of the inner sequence `table`, as soon as any database of the ring can draw."""
    while True:
        entry = await catalog.maker.inner(table)
        for lane in ring.take_turn(entry.rotation):
            if not (lane.can_be_asked and lane.member.up):  # since the turn began
                continue
            request = _OneTicket(table)
            lane.ask(request)
            number = await request.drawn
            if number is not None:
                return number
        await ring.wait_for_change(RETRY_SECONDS, expected=True)


class _OneTicket(TicketRequest):
    """A request of the server itself. `drawn`: its ticket; None if the lane could not serve it."""

    until = float("inf")

    def __init__(self, sequence: str) -> None:
        super().__init__(sequence)
        self.drawn: asyncio.Future[int | None] = asyncio.get_running_loop().create_future()

    def answer(self, tickets: Tickets | None) -> None:
        """See TicketRequest.answer."""
        self.lane = None
        if not self.drawn.done():
            self.drawn.set_result(None if tickets is None else tickets[0])

    def give(self, tickets: Ids) -> None:
        """Never called: `answer` takes the lane's answer."""

    def refuse(self, error: TicketError) -> None:
        """Never called, like `give`."""
