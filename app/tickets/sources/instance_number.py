"""The instance number: the number of this life of the server, for kinds whose ids name their maker.

The number is a ticket of an inner sequence, drawn once at each start. So no other process ever has it: neither a server
that was cloned from the same image, nor this server after a restart.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from app.common.errors import NoTicketDatabase
from app.common.log import event
from app.tickets.sources.rights import WAIT_SECONDS, NotYet

log = logging.getLogger(__name__)

TABLE = "_1"
"""The inner sequence that instance numbers are drawn from."""
FOR_EVER = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Instance:
    """The right to make ids under this number, at any time; see rights.Right."""

    number: int
    after_ms: int = 0
    until_ms: int = FOR_EVER


class InstanceNumber:
    """Draws the number as soon as a sequence needs it, and keeps it as long as the server lives."""

    def __init__(self) -> None:
        self._instance: Instance | None = None
        self._needed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def need(self) -> None:
        """Draw the number, because a sequence makes ids under it."""
        self._needed.set()

    def right(self) -> Instance:
        """The number. Raises NotYet before it is drawn."""
        if self._instance is None:
            raise NotYet(WAIT_SECONDS, NoTicketDatabase("this server has not drawn its instance number yet"))
        return self._instance

    def renews_soon(self) -> bool:
        """See Holder.renews_soon. An instance number never runs out."""
        return False

    @property
    def number(self) -> int | None:
        """The number; None before it is drawn."""
        return None if self._instance is None else self._instance.number

    @property
    def is_missing(self) -> bool:
        """Whether a sequence needs the number and it has not been drawn."""
        return self._needed.is_set() and self._instance is None

    def start(self, draw_one: Callable[[str], Awaitable[int]]) -> None:
        """Draw the number once a sequence needs it. `draw_one`: draws a ticket of an inner sequence, however long that
        takes."""
        self._task = asyncio.get_running_loop().create_task(self._draw(draw_one))

    async def stop(self) -> None:
        """Stop drawing."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _draw(self, draw_one: Callable[[str], Awaitable[int]]) -> None:
        await self._needed.wait()
        self._instance = Instance(await draw_one(TABLE))
        event(log, logging.INFO, "drew the instance number", number=self._instance.number)
