"""The number of this life of the server, for kinds whose ids name who made them: a ticket, drawn once at each start.

It comes from an inner sequence of its own, so no other process ever has it: not one that was cloned from the same
image, not this server after a restart.
"""

import asyncio
import logging
from dataclasses import dataclass

from app.common.errors import NoTicketDatabase, TicketError
from app.common.log import event
from app.tickets.catalog import Catalog
from app.tickets.request import Ids, TicketRequest, Tickets
from app.tickets.rights import WAIT_SECONDS, NotYet
from app.tickets.ring import Ring

log = logging.getLogger(__name__)

TABLE = "_1"
"""The inner sequence that instance numbers are drawn from."""
RETRY_SECONDS = 0.25
FOR_EVER = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Instance:
    """The right to make ids under this number, at any time; see rights.Right."""

    number: int
    after_ms: int = 0
    until_ms: int = FOR_EVER


class InstanceNumber:
    """Draws the number as soon as a sequence needs it, and keeps it as long as the server lives."""

    def __init__(self, ring: Ring) -> None:
        self._ring = ring
        self._instance: Instance | None = None
        self._needed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def need(self) -> None:
        """A sequence makes ids under it: draw one."""
        self._needed.set()

    def right(self) -> Instance:
        """The number. Raises NotYet before it is drawn."""
        if self._instance is None:
            raise NotYet(WAIT_SECONDS, NoTicketDatabase("this server has not drawn its instance number yet"))
        return self._instance

    def renews_soon(self) -> bool:
        """It never runs out."""
        return False

    @property
    def number(self) -> int | None:
        """The number; None before it is drawn."""
        return None if self._instance is None else self._instance.number

    @property
    def is_missing(self) -> bool:
        """Whether a sequence needs it and it has not been drawn."""
        return self._needed.is_set() and self._instance is None

    def start(self, catalog: Catalog) -> None:
        """Draw it when it is needed first."""
        self._task = asyncio.get_running_loop().create_task(self._draw(catalog))

    async def stop(self) -> None:
        """Draw none any more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _draw(self, catalog: Catalog) -> None:
        await self._needed.wait()
        while self._instance is None:
            entry = await catalog.inner(TABLE)
            for lane in self._ring.take_turn(entry.rotation):
                if not (lane.can_be_asked and lane.member.up):  # since the turn began
                    continue
                request = _OneTicket(TABLE)
                lane.ask(request)
                number = await request.drawn
                if number is not None:
                    self._instance = Instance(number)
                    event(log, logging.INFO, "drew the instance number", number=number)
                    return
            await self._ring.wait_for_change(RETRY_SECONDS, expected=True)


class _OneTicket(TicketRequest):
    """A request that no client has made. `drawn`: its ticket, None where the lane could not serve it."""

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
        """Never called: the lane's answer is taken as it comes."""

    def refuse(self, error: TicketError) -> None:
        """Never called, like `give`."""
