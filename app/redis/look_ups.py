"""Sequences that EXISTS asks for and the server does not know: all connections' look-ups are done by one task."""

import asyncio
from collections import deque

from app.common.errors import OutOfTime, TicketError
from app.redis import replies
from app.redis.requests import REQUEST_BYTES, Place
from app.tickets.sequences.catalog import Catalog

MOST_NAMES = 256
"""How many sequences EXISTS can be asked for at once, and how many names the databases are asked for at once."""
NAME_BYTES = 256
"""About what a name takes until it has been looked up."""


class LookUp:
    """A reply that is to come: how many of these names are sequences. See requests.Slot."""

    def __init__(self, place: Place, names: list[str]) -> None:
        self.reply: bytes | None = None
        self.owed = REQUEST_BYTES + NAME_BYTES * len(names)
        self.names = names
        self.until = 0.0
        self.is_gone = False
        self._place = place

    def settle(self, reply: bytes) -> None:
        """This is the reply."""
        if self.is_gone:
            return
        self.reply = reply
        self._place.answered(self)

    def fail(self) -> None:
        """Handle an unexpected exception: log it, and cut the connection."""
        if not self.is_gone:
            self._place.fail()

    def drop(self) -> None:
        """See Slot.drop."""
        self.is_gone = True


class LookUps:
    """Does what is added, first come, first served, a few hundred names at a time.

    `timeout`: seconds that a look-up may take.
    """

    def __init__(self, catalog: Catalog, timeout: float) -> None:
        self._catalog = catalog
        self._timeout = timeout
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[LookUp] = deque()
        self._task: asyncio.Task[None] | None = None

    def add(self, look_up: LookUp) -> None:
        """Have it settled."""
        look_up.until = self._loop.time() + self._timeout
        self._waiting.append(look_up)
        if self._task is None:
            self._task = self._loop.create_task(self._work())

    async def _work(self) -> None:
        try:
            while self._waiting:
                await self._do(self._next())
        finally:
            self._task = None

    def _next(self) -> list[LookUp]:
        """The look-ups that have waited longest, up to so many names together."""
        batch: list[LookUp] = []
        names = 0
        waiting = self._waiting
        while waiting and (not batch or names + len(waiting[0].names) <= MOST_NAMES):
            look_up = waiting.popleft()
            if not look_up.is_gone:
                batch.append(look_up)
                names += len(look_up.names)
        return batch

    async def _do(self, batch: list[LookUp]) -> None:
        if not batch:
            return
        try:
            async with asyncio.timeout_at(batch[0].until):
                found = await self._catalog.find_all((name for each in batch for name in each.names), self._timeout)
        except TimeoutError:
            now = self._loop.time()
            self._waiting.extendleft(each for each in reversed(batch) if each.until > now)
            self._settle([each for each in batch if each.until <= now], replies.refusal("", OutOfTime()))
        except TicketError as error:
            self._settle(batch, replies.refusal("", error))
        except Exception:
            for each in batch:
                each.fail()
        else:
            for each in batch:
                each.settle(replies.integer(sum(name in found for name in each.names)))

    @staticmethod
    def _settle(batch: list[LookUp], reply: bytes) -> None:
        for each in batch:
            each.settle(reply)
