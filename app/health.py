"""The probe loops: what keeps the state of each ticket database true, off the way of any ticket.

One loop for each database: a look at it (a committed write and a check), then either its way into the ring, or the
things to do while it is up: floors, tables, suspended lanes.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable

from app.catalog import Catalog
from app.databases.protocol import Look
from app.errors import (
    ColumnExhausted,
    SequenceUnavailable,
    TicketDatabaseError,
    TicketDatabaseMisconfigured,
    TicketDatabaseUnavailable,
)
from app.fence import WrongResidue
from app.lane import Lane, LaneState
from app.ledger import Ledger
from app.log import event
from app.ring import Member, Ring

log = logging.getLogger(__name__)

LAST_PROBE_SECONDS = 1.0
"""How long the end waits for a probe under way: a connection that is cancelled cannot say good-bye."""
LISTING_SECONDS = 5.0
"""How often a database's tables are listed."""
HURRY_SECONDS = 0.25
"""Seconds between looks while no database is up."""
RECOVERIES = 8
"""How many suspended lanes of one database are tried at a time."""


class Health:
    """Probes the databases every `interval` seconds, and at once when one goes down."""

    def __init__(
        self,
        ring: Ring,
        ledger: Ledger,
        catalog: Catalog,
        interval: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ring = ring
        self._ledger = ledger
        self._catalog = catalog
        self._interval = interval
        self._clock = clock
        self._tasks: list[asyncio.Task[None]] = []
        self._stopping = False
        self._listed: dict[Member, float] = {}
        self._admission = asyncio.Lock()

    async def start(self) -> None:
        """Look at every database once, take in those that work, and begin the loops."""
        members = self._ring.members
        looks = await asyncio.gather(*(self._look(member) for member in members))
        await self._admit([(m, look) for m, look in zip(members, looks, strict=True) if look is not None])
        for member in members:
            await self._keep(member)
            self._ring.settle(member)
            self._tasks.append(asyncio.create_task(self._loop(member)))

    async def stop(self) -> None:
        """End the loops, each after the probe that is under way; tell the ledgers what was issued last."""
        self._stopping = True
        for member in self._ring.members:
            member.wake.set()
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=LAST_PROBE_SECONDS)
            for task in late:
                task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for member in self._ring.members:
            if member.up:
                try:
                    await self._ledger.refresh(member, self._catalog.lanes)
                except TicketDatabaseError as error:
                    event(log, logging.DEBUG, "could not write the last marks", database=member.name, reason=error)

    async def _loop(self, member: Member) -> None:
        while True:
            try:
                # with none up every request is waiting for the first that comes
                async with asyncio.timeout(self._interval if self._ring.any_up else min(self._interval, HURRY_SECONDS)):
                    await member.wake.wait()
            except TimeoutError:
                pass
            if self._stopping:
                return
            member.wake.clear()
            try:
                await self._probe(member)
            except Exception:
                log.exception("a probe met an error it does not know: database=%s", member.name)
            if not member.wake.is_set():  # else it went down while the probe was under way, which says nothing then
                self._ring.settle(member)

    async def _probe(self, member: Member) -> None:
        look = await self._look(member)
        if look is None:
            return
        if member.up and look.incarnation == member.incarnation:
            member.look = look
            self._ring.settle(member)
        else:
            if member.up:
                self._ring.mark_down(member, "was restarted or replaced")
            await self._take_in(member, look)
        await self._keep(member)

    async def _look(self, member: Member) -> Look | None:
        """What the database says; None where it is down or not what it should be, which the ring then knows."""
        try:
            look = await member.database.look()
            if member.residue_of is not None:
                look = await self._check_residue(member, member.residue_of)
            self._check_identity(member, look)
        except TicketDatabaseMisconfigured as error:
            member.database.forget_connections()
            self._ring.quarantine(member, str(error))
            return None
        except TicketDatabaseError as error:
            self._ring.unreachable(member, str(error))
            return None
        return look

    def _check_identity(self, member: Member, look: Look) -> None:
        for other in self._ring.members:
            if other is member:
                return
            if other.look is not None and other.look.identity == look.identity:
                raise TicketDatabaseMisconfigured(f"is the same server as {other.name}")

    async def _check_residue(self, member: Member, sequence: str) -> Look:
        """Draw once where the last id had a wrong residue, on a new connection, and drop it.

        A sequence that is at its end, or whose table is locked, cannot tell any more: then the database is taken back,
        and every id goes through the fence as ever.
        """
        member.database.forget_connections()
        look = await member.database.look()
        table = (await member.database.tables([sequence])).get(sequence)
        lane = self._catalog.lanes.get((sequence, member.database.offset))
        if table is None or lane is None:
            return look
        try:
            lane.fence.check(await member.database.draw(table, 1, 0), 0)
        except WrongResidue as error:
            raise WrongResidue(f"{error} (sequence {sequence})") from error
        except (ColumnExhausted, SequenceUnavailable) as error:
            event(log, logging.DEBUG, "the residue is not wrong", database=member.name, reason=error)
        return look

    # --- into the ring ---------------------------------------------------------------------------------------------

    async def _take_in(self, member: Member, look: Look) -> None:
        """Take the database in, after every other one has answered or has failed one attempt."""
        async with self._admission:
            if member.up:
                return
            others = [other for other in self._ring.members if other is not member and not other.up]
            looks = await asyncio.gather(*(self._look(other) for other in others))
            found = [(other, seen) for other, seen in zip(others, looks, strict=True) if seen is not None]
            await self._admit([(member, look), *found])

    async def _admit(self, found: Iterable[tuple[Member, Look]]) -> None:
        """Bring their ledgers up to date, and what those that are up keep of them; then take all of them in at once."""
        coming: dict[Member, Look] = {}
        for member, look in sorted(found, key=lambda each: each[0].database.offset):
            twin = next((other for other, seen in coming.items() if seen.identity == look.identity), None)
            if twin is None:
                coming[member] = look
            else:
                self._ring.quarantine(member, f"is the same server as {twin.name}")
        for member, look in coming.items():
            member.incarnation = look.incarnation
            self._close_lanes(member)
        up = [member for member in self._ring.members if member.up and member.marks_trouble is None]
        for member in self._ring.members:
            if not member.up and member not in coming:
                await self._remember_marks(member)
        for member in coming:
            await self._bring_up_to_date(member, [other for other in [*up, *coming] if other is not member])
        for member in up:
            await self._bring_up_to_date(member, list(coming))
        for member, look in coming.items():
            self._listed.pop(member, None)
            self._ring.mark_up(member, look)
        for lane in self._catalog.lanes.values():
            lane.mark = lane.reserve_at = 0  # every lane reserves anew, on those that have come too

    async def _bring_up_to_date(self, member: Member, others: list[Member]) -> None:
        try:
            await self._ledger.admit(member, others)
        except TicketDatabaseError as error:
            member.marks_trouble = str(error)
        else:
            member.marks_trouble = None

    async def _remember_marks(self, member: Member) -> None:
        """One that cannot come up may still be read: what it keeps about those that can holds."""
        try:
            await self._ledger.read_only(member)
        except TicketDatabaseError as error:
            event(log, logging.DEBUG, "could not read its marks", database=member.name, reason=error)

    def _close_lanes(self, member: Member) -> None:
        for lane in self._catalog.lanes.values():
            if lane.member is member:
                lane.close()

    # --- while it is up --------------------------------------------------------------------------------------------

    async def _keep(self, member: Member) -> None:
        """Read floors, list tables, try suspended lanes again."""
        if not member.up:
            return
        try:
            if member.marks_trouble is not None:
                member.database.forget_connections()
                look = await member.database.look()
                if look.incarnation != member.incarnation:  # from now on draws would be made on another one
                    self._ring.mark_down(member, "was restarted or replaced")
                    return
                async with self._admission:
                    await self._bring_up_to_date(member, [m for m in self._ring.members if m.up and m is not member])
                for lane in self._catalog.lanes.values():
                    lane.mark = lane.reserve_at = 0
            await self._refresh_marks(member)
            due = self._clock() - self._listed.get(member, -LISTING_SECONDS) >= LISTING_SECONDS
            if due or any(lane.missing for lane in self._suspended(member)):
                self._listed[member] = self._clock()
                await self._catalog.refresh(member)
        except TicketDatabaseError as error:
            event(log, logging.WARNING, "could not read floors or tables", database=member.name, reason=error)
        at_once = asyncio.Semaphore(RECOVERIES)
        await asyncio.gather(
            *(self._recover(lane, at_once) for lane in self._suspended(member)),
            *(self._open(lane, at_once) for lane in self._of_another_life(member)),
        )

    def _suspended(self, member: Member) -> list[Lane]:
        lanes = self._catalog.lanes.values()
        return [lane for lane in lanes if lane.member is member and lane.state is LaneState.SUSPENDED]

    def _of_another_life(self, member: Member) -> list[Lane]:
        """Those that were closed when it was taken in and may have gone back: they are moved above their marks
        now, while the marks are there."""
        lanes = self._catalog.lanes.values()
        return [
            lane
            for lane in lanes
            if lane.member is member and lane.state is LaneState.CLOSED and self._ledger.is_of_another_life(lane)
        ]

    async def _refresh_marks(self, member: Member) -> None:
        try:
            await self._ledger.refresh(member, self._catalog.lanes)
        except TicketDatabaseUnavailable:
            raise
        except TicketDatabaseError as error:
            self._ring.keeps_no_marks(member, str(error))

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
