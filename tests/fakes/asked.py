"""A request that asks one lane, and notes what that answers."""

import asyncio

from app.tickets.lanes.lane import Lane
from app.tickets.requests.request import TicketRequest, Tickets


class Asked(TicketRequest):
    """`future`: the lane's tickets, or None where it sends the request on. One that is cancelled has gone."""

    def __init__(self, count: int = 1, within: float = 0.5, *, whole: bool = False) -> None:
        super().__init__("photos", count, whole=whole)
        loop = asyncio.get_running_loop()
        self.until = loop.time() + within
        self.future: asyncio.Future[Tickets | None] = loop.create_future()
        self.future.add_done_callback(self._settled)

    def _settled(self, future: "asyncio.Future[Tickets | None]") -> None:
        if future.cancelled():
            self.lane = None

    def answer(self, tickets: Tickets | None) -> None:
        self.lane = None
        self.future.set_result(tickets)


def ask(lane: Lane, count: int = 1, within: float = 0.5, *, whole: bool = False) -> "asyncio.Future[Tickets | None]":
    """Ask this lane, and no other."""
    asked = Asked(count, within, whole=whole)
    lane.ask(asked)
    return asked.future
