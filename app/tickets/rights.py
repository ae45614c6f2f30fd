"""The right to make ids in memory: a number that no other process may use for the same times.

`snowflake` makes ids under a worker number, which a server leases for a time (see `leases`). `flake` and `objectid`
make ids under an instance number: a ticket that a server draws once after each start. So no other process ever has that
number: no clone of the same image, and not this server after a restart.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from app.errors import NoTicketDatabase, TicketError
from app.tickets.definitions import TICKET
from app.tickets.desk import Desk
from app.tickets.making import Maker
from app.tickets.request import Call

log = logging.getLogger(__name__)

INSTANCES = "ticketd_instances"
"""The sequence of plain tickets that instance numbers are drawn from. It is made like any other sequence."""
FOR_EVER = (1 << 63) - 1
RETRY = 0.5
"""Seconds after which the server tries again to draw its instance number."""


class Right(NamedTuple):
    """The right to make ids under a number, with times above `after_ms` and at most `until_ms` (since 1970)."""

    number: int
    after_ms: int
    until_ms: int


class Holder:
    """Holds the right of this server, for all sequences of a kind, once one needs it.

    trouble: why the server could not get the right, or not renew it; None where nothing is wrong.
    """

    def __init__(self) -> None:
        self._needed = asyncio.Event()
        self.trouble: TicketError | None = None

    def need(self) -> None:
        """Get the right and keep it: a sequence makes ids under it."""
        self._needed.set()

    def right(self) -> Right | None:
        """Return the right as it stands now; None where this server has none now."""
        raise NotImplementedError

    @property
    def is_coming(self) -> bool:
        """Whether the server may get the right, or a longer one, in a moment."""
        raise NotImplementedError


class InstanceNumber(Holder):
    """The number of this start of the server. draw: draws a ticket; it raises a TicketError where none can be had."""

    def __init__(self, draw: Callable[[], Awaitable[int]]) -> None:
        super().__init__()
        self._draw = draw
        self._right: Right | None = None

    def right(self) -> Right | None:
        """See Holder.right."""
        return self._right

    @property
    def is_coming(self) -> bool:
        """See Holder.is_coming. The first attempt may be under way; one that failed comes again too late."""
        return self.trouble is None

    async def run(self) -> None:
        """Draw the number as soon as a sequence needs it. Ends when it is cancelled."""
        await self._needed.wait()
        while self._right is None:
            try:
                self._right, self.trouble = Right(await self._draw(), 0, FOR_EVER), None
            except TicketError as error:
                self.trouble = NoTicketDatabase(f"this server could not draw its instance number: {error}")
                log.warning("%s", self.trouble)
                await asyncio.sleep(RETRY)
        log.info("drew the instance number %d", self._right.number)
        await asyncio.Event().wait()


async def draw_instance(maker: Maker, desk: Desk) -> int:
    """Draw an instance number, and make the sequence of the numbers first if there is none. Raises TicketError."""
    await maker.create(INSTANCES, TICKET, {})
    answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    request = Call(INSTANCES, answer.set_result, answer.set_exception)
    desk.take(request)
    try:
        return await answer
    finally:
        request.abandon()
