"""The chores for a ticket database that is up. They run beside its probe loop, since many sequences take their time.

The server lists the database's tables, tries its suspended lanes again, opens lanes that may have gone back before a
client asks for them, and writes its live counters to its witnesses.
"""

import asyncio
import logging
from collections.abc import Callable

from app.common.errors import TicketDatabaseError
from app.common.log import event
from app.common.slices import sliced
from app.common.tasks import Tasks
from app.tickets.lanes.lane import Lane
from app.tickets.lanes.state import LaneState
from app.tickets.marks.ledger import Ledger
from app.tickets.ring.ring import Member, Ring
from app.tickets.sequences.catalog import Catalog

log = logging.getLogger(__name__)

LISTING_SECONDS = 5.0
"""How often the server lists a database's tables."""
RECOVERIES = 8
"""How many suspended lanes of one database the server tries at a time."""
LANES_AT_ONCE = 500
"""How many closed lanes of one database the server opens in one round of chores."""
COUNTERS_AT_ONCE = 50
"""How many live counters go to the witnesses in one write."""


class Chores:
    """The chores of all databases. Each database has at most one task, which its probe loop starts."""

    def __init__(self, ring: Ring, ledger: Ledger, catalog: Catalog, clock: Callable[[], float]) -> None:
        self._ring = ring
        self._ledger = ledger
        self._catalog = catalog
        self._clock = clock
        self._tasks = Tasks()
        self._busy: set[Member] = set()
        self._due: set[Member] = set()
        self._listed: dict[Member, float] = {}
        self._returned: set[Member] = set()
        """The databases that have come up and may still have lanes to advance."""

    def came_up(self, member: Member) -> None:
        """Have the next chores list its tables, and open its lanes that may have gone back."""
        self._listed.pop(member, None)
        self._returned.add(member)

    def do(self, member: Member) -> None:
        """Do the chores of a database that is up, once more if they are under way already."""
        self._due.add(member)
        if member not in self._busy:
            self._busy.add(member)
            self._tasks.spawn(self._do_chores(member))

    async def done(self) -> None:
        """Wait for the chores that are under way."""
        await self._tasks.wait()

    async def stop(self) -> None:
        """End the chores that are under way."""
        await self._tasks.cancel()

    async def _do_chores(self, member: Member) -> None:
        try:
            while member.up and member in self._due:  # a probe that ended meanwhile may have found more to do
                self._due.discard(member)
                await self._do_chores_once(member)
        except Exception:
            log.exception("the chores of a database met an error they do not know: database=%s", member.name)
        finally:
            self._busy.discard(member)

    async def _do_chores_once(self, member: Member) -> None:
        await self._list(member)
        at_once = asyncio.Semaphore(RECOVERIES)
        closed = self._of_another_epoch(member) if member in self._returned else []
        if not closed:
            self._returned.discard(member)
        await asyncio.gather(
            *(self._recover(lane, at_once) for lane in self._suspended(member)),
            *(self._open(lane, at_once) for lane in closed[:LANES_AT_ONCE]),
        )
        if any(lane.is_open for lane in closed[:LANES_AT_ONCE]):
            self._due.add(member)

    async def _list(self, member: Member) -> None:
        """List its tables when that is due, and complete the marks about it."""
        try:
            due = self._clock() - self._listed.get(member, -LISTING_SECONDS) >= LISTING_SECONDS
            if due or any(lane.missing for lane in self._suspended(member)):
                self._listed[member] = self._clock()
                await self._catalog.refresh(member)
            await self._complete_witnesses(member)
        except TicketDatabaseError as error:
            event(log, logging.WARNING, "could not list its tables", database=member.name, reason=error)

    async def _complete_witnesses(self, member: Member) -> None:
        """Write the live counters of `member` to the witnesses whose marks about it are incomplete."""
        due = {pair: since for pair, since in self._ring.incomplete.items() if pair[1] is member}
        if not due:
            return
        names = sorted(await member.database.names())
        for part in sliced(names, COUNTERS_AT_ONCE):
            found = await member.database.readable_positions(await member.database.tables(part))
            for pair in list(due):
                witness, _ = pair
                if not witness.is_witness:
                    del due[pair]  # it is told when it can keep marks again
                    continue
                try:
                    await self._ledger.exchange.complete(witness, member, found, self._catalog.lanes)
                except TicketDatabaseError as error:
                    event(log, logging.WARNING, "could not keep marks", database=witness.name, reason=error)
                    return
        for pair, since in due.items():
            if self._ring.incomplete.get(pair) == since:  # else one of the two has come up again meanwhile
                del self._ring.incomplete[pair]

    def _suspended(self, member: Member) -> list[Lane]:
        return [lane for lane in self._catalog.lanes_on(member) if lane.is_suspended]

    def _of_another_epoch(self, member: Member) -> list[Lane]:
        """The closed lanes that may have gone back. The server advances them now, while their marks are there."""
        lanes = self._catalog.lanes_on(member)
        return [lane for lane in lanes if lane.state is LaneState.CLOSED and self._ledger.is_of_another_epoch(lane)]

    async def _recover(self, lane: Lane, at_once: asyncio.Semaphore) -> None:
        async with at_once:
            if not lane.member.up:
                return
            try:
                await lane.recover()
            except TicketDatabaseError as error:
                lane.recovery_failed(error)

    async def _open(self, lane: Lane, at_once: asyncio.Semaphore) -> None:
        async with at_once:
            if not lane.member.up or lane.waiting or lane.state is not LaneState.CLOSED:
                return
            try:
                await lane.open()
            except TicketDatabaseError as error:
                lane.report(error)
