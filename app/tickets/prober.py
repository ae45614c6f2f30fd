"""The probe loops: what keeps the state of each ticket database true, off the way of any ticket.

One loop for each database: a look at it (a committed write and a check), then either its way into the ring, or the
floors that it keeps. What takes time where there are many sequences is done beside the loop (`chores`), so that a
probe waits for none of it.
"""

import asyncio
import itertools
import logging
import time
from collections.abc import Callable
from dataclasses import replace

from app.common.errors import (
    ColumnExhausted,
    RingChanged,
    SequenceUnavailable,
    TicketDatabaseBusy,
    TicketDatabaseError,
    TicketDatabaseMisconfigured,
    TicketDatabaseUnavailable,
)
from app.common.log import event
from app.common.tasks import Tasks
from app.databases.protocol import ProbeResult, RingRecord, check_settings
from app.tickets.catalog import Catalog
from app.tickets.chores import Chores
from app.tickets.id_guard import WrongResidue
from app.tickets.ledger import Ledger
from app.tickets.ring import Member, Ring
from app.tickets.ring_agreement import RingRecords
from app.tickets.ring_changes import DatabaseFailed
from app.tickets.ring_record import same_ring

log = logging.getLogger(__name__)

LAST_PROBE_SECONDS = 1.0
"""How long the end waits for a probe under way: a connection that is cancelled cannot say good-bye."""
HURRY_SECONDS = 0.25
"""Seconds between probes while no database is up."""


class Prober:
    """Probes the databases every `interval` seconds, and at once when one goes down."""

    def __init__(
        self,
        ring: Ring,
        records: RingRecords,
        ledger: Ledger,
        catalog: Catalog,
        *,
        interval: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._chores = Chores(ring, ledger, catalog, clock)
        self._ring = ring
        self._records = records
        self._ledger = ledger
        self._catalog = catalog
        self._interval = interval
        self._loops = Tasks()
        self._stopping = False
        self._admission = asyncio.Lock()

    def start(self) -> None:
        """Begin the loops. Each looks at its database at once; nobody waits for them here."""
        for member in self._ring.members:
            self._loops.spawn(self._loop(member))

    async def settled(self) -> None:
        """Wait until every database has been looked at once, and its tables have been listed."""
        while not all(member.settled for member in self._ring.members):
            await self._ring.wait_for_change(self._interval, expected=True)
        await self._chores.done()

    async def stop(self) -> None:
        """End the loops, each after the probe that is under way; tell the ledgers what was issued last."""
        self._stopping = True
        for member in self._ring.members:
            member.wake.set()
        await self._loops.wait(LAST_PROBE_SECONDS)
        await asyncio.gather(self._loops.cancel(), self._chores.stop())
        for member in self._ring.members:
            if member.up:
                try:
                    await self._ledger.exchange.refresh(member, self._catalog.lanes)
                except TicketDatabaseError as error:
                    event(log, logging.DEBUG, "could not write the last marks", database=member.name, reason=error)

    async def _loop(self, member: Member) -> None:
        while not self._stopping:
            member.wake.clear()
            try:
                await self._probe(member)
            except Exception:
                log.exception("a probe met an error it does not know: database=%s", member.name)
            if not member.wake.is_set():  # else it went down while the probe was under way, which says nothing then
                self._ring.settle(member)
            try:
                # with none up every request is waiting for the first that comes
                async with asyncio.timeout(self._interval if self._ring.any_up else min(self._interval, HURRY_SECONDS)):
                    await member.wake.wait()
            except TimeoutError:
                pass

    async def _probe(self, member: Member) -> None:
        known = member.probe_result
        result = await self._look(member)  # first, and without the lock: one that hangs holds up nobody's way in
        if result is None:
            return
        if member.up and member.probe_result is not known:
            result = member.probe_result  # meanwhile another one came up, and what this one has recorded since is newer
            assert result is not None
        if member.up and result.incarnation != member.incarnation:
            self._ring.mark_down(member, "was restarted or replaced")
        elif member.up and not same_ring(result.record, self._ring.record):
            self._ring.mark_down(member, "had its ring record changed")
        if member.up:
            member.probe_result = result
            self._ring.settle(member)
        else:
            await self._take_in(member)
        if member.up:
            await self._keep_marks(member)
        if member.up:
            self._chores.do(member)

    async def _look(self, member: Member) -> ProbeResult | None:
        """What the database says; None where it is down or not what it should be, which the ring then knows."""
        try:
            result = await member.database.probe()
            if result.record is not None and same_ring(result.record, self._ring.record):  # else they are yet to agree
                check_settings(result, result.record.increment, member.database.offset)
            if member.residue_of is not None:
                result = await self._check_residue(member, member.residue_of)
            self._check_identity(member, result)
        except TicketDatabaseMisconfigured as error:
            member.database.forget_connections()
            self._ring.quarantine(member, str(error))
            return None
        except TicketDatabaseError as error:
            self._ring.unreachable(member, str(error))
            return None
        return result

    def _check_identity(self, member: Member, result: ProbeResult) -> None:
        for other in self._ring.members:
            if other is member:
                return
            if other.probe_result is not None and other.probe_result.identity == result.identity:
                raise TicketDatabaseMisconfigured(f"is the same server as {other.name}")

    async def _check_residue(self, member: Member, sequence: str) -> ProbeResult:
        """Draw once where the last id had a wrong residue, on a new connection, and drop it.

        A sequence that is at its end, or whose table is locked, cannot tell any more: then the database is taken back,
        and every id is checked as ever.
        """
        member.database.forget_connections()
        result = await member.database.probe()
        table = (await member.database.tables([sequence])).get(sequence)
        lane = self._catalog.lanes.get((sequence, member.database.offset))
        if table is None or lane is None:
            return result
        try:
            lane.guard.check(await member.database.draw(table, 1, 0), 0)
        except WrongResidue as error:
            raise WrongResidue(f"{error} (sequence {sequence})") from error
        except (ColumnExhausted, SequenceUnavailable) as error:
            event(log, logging.DEBUG, "the residue is not wrong", database=member.name, reason=error)
        return result

    # --- into the ring ---------------------------------------------------------------------------------------------

    async def _take_in(self, member: Member) -> None:
        """Take the database in, after every other one has answered or has failed one attempt.

        All that is not up is looked at within the lock: what was seen before it was waited for may be long past.
        """
        async with self._admission:
            if member.up:
                return
            absent = [other for other in self._ring.members if not other.up]
            found: dict[Member, ProbeResult] = {}
            for other, result in zip(absent, await asyncio.gather(*map(self._look, absent)), strict=True):
                twin = next((each for each, seen in found.items() if result and seen.identity == result.identity), None)
                if twin is not None:
                    self._ring.quarantine(other, f"is the same server as {twin.name}")
                elif result is not None and not other.up:
                    found[other] = result
            await self._admit(found)

    async def _admit(self, coming: dict[Member, ProbeResult]) -> None:
        """Agree on the ring, bring the ledgers up to date, then take all of them in at once.

        In this order: marks count for one ring alone. The ledgers of those that come are brought up to date before
        they are up, since from then on they vouch for what the others have issued; and what those that are up keep
        about those that come is brought up to date before the first draw on them.
        """
        await self._agree_on_ring(coming)
        if not coming:
            return
        for member, result in coming.items():
            member.incarnation = result.incarnation
            self._close_lanes(member)
        up = [member for member in self._ring.members if member.up and member.marks_trouble is None]
        for member in self._ring.members:
            if not member.up and member not in coming:
                await self._remember_marks(member)
        for member in list(coming):
            if not await self._bring_up_to_date(member, [other for other in [*up, *coming] if other is not member]):
                del coming[member]
        for member in up:
            if not await self._bring_up_to_date(member, list(coming)):
                self._ring.mark_down(member, "could not keep the marks of those that came up")
        self._take_up(coming)

    def _take_up(self, coming: dict[Member, ProbeResult]) -> None:
        for member, result in coming.items():
            self._chores.came_up(member)
            self._ring.mark_up(member, result)
        for lane in self._catalog.lanes.values():
            lane.marks.lapse()  # every lane reserves anew, on those that have come too
        self._ledger.reopen_unverified()
        for one, other in itertools.permutations([member for member in self._ring.members if member.up], 2):
            if one in coming or other in coming:
                self._ring.unaccounted[one, other] = self._ring.generation
                other.wake.set()

    async def _agree_on_ring(self, coming: dict[Member, ProbeResult]) -> None:
        """Take out of `coming` those that may not draw; the others have recorded the ring that this server draws in."""
        while coming:
            up = {
                member: member.probe_result
                for member in self._ring.members
                if member.up and member.probe_result is not None
            }
            try:
                record, refused = await self._records.agree(up | coming)
            except DatabaseFailed as failed:
                member = next(each for each in self._ring.members if each.database is failed.database)
                coming.pop(member, None)
                if isinstance(failed.error, TicketDatabaseMisconfigured):
                    self._ring.quarantine(member, str(failed.error))
                else:
                    self._ring.mark_down(member, str(failed.error))
                    self._ring.unreachable(member, str(failed.error))
                continue
            for member, reason in refused.items():
                coming.pop(member, None)
                member.database.forget_connections()
                self._ring.quarantine(member, reason)
            if record is None or not coming:
                coming.clear()
                return
            for member, result in (up | coming).items():
                recorded = replace(result, record=replace(record, own=member.database.offset))
                member.probe_result = recorded
                if member in coming:
                    coming[member] = recorded
            if not self._adopt(record):
                return
            for member in list(coming):  # with connections for the increment that was not known before
                look_again = await self._look(member)
                if look_again is None:
                    del coming[member]
                else:
                    coming[member] = look_again

    def _adopt(self, record: RingRecord) -> bool:
        """Draw in this ring from now on. True if connections and lanes have to be made anew for it."""
        before = self._ring.record
        if same_ring(before, record):
            return False
        self._ring.record = record
        anew = any(member.database.increment != record.increment for member in self._ring.members)
        for member in self._ring.members:
            member.database.use_increment(record.increment)
        if before is not None and before.since == record.since:
            for lane in self._catalog.lanes.values():
                lane.close()
            return False
        for member in self._ring.members:
            if member.up:
                self._ring.mark_down(member, "had its ring record changed")
        self._catalog.forget()
        self._ledger.forget()
        event(log, logging.INFO, "draws in the ring", number=record.number, increment=record.increment)
        return anew

    async def _bring_up_to_date(self, member: Member, others: list[Member]) -> bool:
        """False where it does not answer, or answers in another ring; one that cannot keep marks may draw."""
        try:
            await self._ledger.exchange.admit(member, others)
        except (TicketDatabaseUnavailable, TicketDatabaseBusy, RingChanged) as error:
            self._ring.unreachable(member, str(error))
            return False
        except TicketDatabaseError as error:
            member.marks_trouble = str(error)
        else:
            member.marks_trouble = None
        return True

    async def _remember_marks(self, member: Member) -> None:
        """One that cannot come up may still be read: what it keeps about those that can holds."""
        try:
            await self._ledger.exchange.read(member)
        except TicketDatabaseError as error:
            event(log, logging.DEBUG, "could not read its marks", database=member.name, reason=error)

    def _close_lanes(self, member: Member) -> None:
        for lane in self._catalog.lanes.values():
            if lane.member is member:
                lane.close()

    # --- while it is up --------------------------------------------------------------------------------------------

    async def _keep_marks(self, member: Member) -> None:
        """Read the floors that it keeps, and tell it what was issued; try again to write marks where that failed."""
        try:
            if member.marks_trouble is not None:
                member.database.forget_connections()
                result = await member.database.probe()
                if result.incarnation != member.incarnation:  # from now on draws would be made on another one
                    self._ring.mark_down(member, "was restarted or replaced")
                    return
                async with self._admission:
                    others = [m for m in self._ring.members if m.up and m is not member]
                    if not await self._bring_up_to_date(member, others):
                        return
                if member.marks_trouble is None:
                    self._can_keep_marks_again(member, others)
            await self._ledger.exchange.refresh(member, self._catalog.lanes)
        except RingChanged as error:
            self._ring.mark_down(member, str(error))
        except (TicketDatabaseUnavailable, TicketDatabaseBusy) as error:
            event(log, logging.WARNING, "could not read floors", database=member.name, reason=error)
        except TicketDatabaseError as error:
            self._ring.keeps_no_marks(member, str(error))

    def _can_keep_marks_again(self, member: Member, others: list[Member]) -> None:
        """Every lane reserves on it too, and asks it where it could not; and some of what the others gave meanwhile
        nobody may know but they themselves."""
        for lane in self._catalog.lanes.values():
            lane.marks.lapse()
        self._ledger.reopen_unverified()
        for other in others:
            self._ring.unaccounted[member, other] = self._ring.generation
            other.wake.set()
