"""Requests that a test awaits, and a front desk that takes them."""

import asyncio

from app.common.errors import TicketError
from app.tickets.desk.front_desk import FrontDesk
from app.tickets.requests.request import Ids, TicketRequest


class AwaitedRequest(TicketRequest):
    """A request of a task, which awaits `future`."""

    def __init__(self, sequence: str, count: int, *, whole: bool) -> None:
        super().__init__(sequence, count, whole=whole)
        self.future: asyncio.Future[Ids] = asyncio.get_running_loop().create_future()

    def give(self, tickets: Ids) -> None:
        """See TicketRequest.give."""
        if not self.future.done():
            self.future.set_result(tickets)

    def refuse(self, error: TicketError) -> None:
        """See TicketRequest.refuse."""
        if not self.future.done():
            self.future.set_exception(error)


class AwaitableDesk(FrontDesk):
    """The front desk, with a call that returns the tickets."""

    async def take(self, sequence: str, count: int = 1, *, whole: bool = False) -> Ids:
        """`count` tickets of the sequence, increasing, all from one database; as a range if `whole` or `count` is 1.

        Raises what the request is refused with, a TicketError.
        """
        request = AwaitedRequest(sequence, count, whole=whole)
        self.accept(request)
        try:
            return await request.future
        except asyncio.CancelledError:
            request.abandon()
            raise
