"""How ticket databases come into the ring: one admission at a time, of all that answer, together."""

import asyncio
import itertools
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace

from app.common.errors import (
    RingChanged,
    TicketDatabaseBusy,
    TicketDatabaseError,
    TicketDatabaseMisconfigured,
    TicketDatabaseUnavailable,
)
from app.common.log import event
from app.databases.protocol import ProbeResult, RingRecord
from app.tickets.marks.ledger import Ledger
from app.tickets.reserve.reserves import Reserves
from app.tickets.ring.agreement import RingRecords
from app.tickets.ring.changes import DatabaseFailed, Overtaken
from app.tickets.ring.record import same_ring
from app.tickets.ring.ring import Member, Ring
from app.tickets.sequences.catalog import Catalog
from app.tickets.watch.chores import Chores

log = logging.getLogger(__name__)

Probe = Callable[[Member], Awaitable[ProbeResult | None]]
"""What a database says; None where it is down or not what it should be, which the ring then knows."""


ATTEMPTS = 3
"""How often the databases are looked at again at once, where another server changes the ring meanwhile."""


class Admission:
    """Takes databases that answer into the ring."""

    def __init__(
        self,
        ring: Ring,
        records: RingRecords,
        ledger: Ledger,
        catalog: Catalog,
        *,
        chores: Chores,
        probe: Probe,
        reserves: Reserves,
    ) -> None:
        self._ring = ring
        self._records = records
        self._ledger = ledger
        self._catalog = catalog
        self._chores = chores
        self._probe = probe
        self._reserves = reserves
        self._one_at_a_time = asyncio.Lock()

    async def take_in(self, member: Member) -> None:
        """Take the database in, after every other one has answered or has failed one attempt.

        All that is not up is looked at within the lock: what was seen before it was waited for may be long past.
        """
        async with self._one_at_a_time:
            for _ in range(ATTEMPTS):
                if member.up:
                    return
                try:
                    await self._take_in_all()
                except Overtaken as overtaken:
                    self._ring.records_another_ring(self._ring.number, str(overtaken.error))
                else:
                    return

    async def _take_in_all(self) -> None:
        absent = [other for other in self._ring.members if not other.up]
        found: dict[Member, ProbeResult] = {}
        for other, result in zip(absent, await asyncio.gather(*map(self._probe, absent)), strict=True):
            twin = next((each for each, seen in found.items() if result and seen.identity == result.identity), None)
            if twin is not None:
                self._ring.quarantine(other, f"is the same server as {twin.name}")
            elif reason := self._ring.folds_alone(other):  # the other one may have been looked at after it
                self._ring.quarantine(other, reason)
            elif result is not None and not other.up:
                found[other] = result
        await self._admit(found)

    async def _admit(self, coming: dict[Member, ProbeResult]) -> None:
        """Agree on the ring, bring the ledgers up to date, then take all of them in at once.

        The order is what it rests on. The ring comes first, since marks count for one ring alone. Lanes are closed
        before anything is read, so that none draws on what was known before. Then those that cannot come are read, for
        what they know of the others; those that come are told everything before they are up, since from then on they
        vouch for what the others have issued; and those that are up are told about those that come before the first
        draw on them. Only then is anybody up, all at once.
        """
        self._ring.is_changing = True
        try:
            await self._agree_on_ring(coming)
        finally:
            self._ring.is_changing = False
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
        self._reserves.came_up(coming)

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
        """Take out of `coming` those that may not draw; the others have recorded the ring that this server draws in.

        One that draws and cannot say what it keeps, or take another record, goes on drawing: whoever needs that from it
        has to wait.
        """
        silent: set[Member] = set()
        while coming:
            up = {
                member: member.probe_result
                for member in self._ring.members
                if member.up and member.probe_result is not None and member not in silent
            }
            try:
                record, refused = await self._records.agree(up | coming)
            except DatabaseFailed as failed:
                member = next(each for each in self._ring.members if each.database is failed.database)
                if isinstance(failed.error, RingChanged):
                    raise Overtaken(failed.database, failed.error) from failed
                coming.pop(member, None)
                if self._goes_on_drawing(member, failed.error):
                    silent.add(member)
                continue
            for member, reason in refused.items():
                coming.pop(member, None)
                member.database.forget_connections()
                self._ring.quarantine(member, reason)
            if record is None or not coming:
                coming.clear()
                return
            for member, result in (up | coming).items():
                if member not in refused:
                    member.probe_result = recorded = _as_recorded(result, record, member)
                    if member in coming:
                        coming[member] = recorded
            if not self._adopt(record):
                return
            await self._look_again(coming)

    async def _look_again(self, coming: dict[Member, ProbeResult]) -> None:
        """With connections for the increment that was not known before. Takes out those that are not what they were."""
        for member in list(coming):
            found = await self._probe(member)
            if found is None or found.incarnation != coming[member].incarnation:
                del coming[member]
            else:
                coming[member] = found

    def _goes_on_drawing(self, member: Member, error: TicketDatabaseError) -> bool:
        """False where the error takes it out of the ring, which then knows why."""
        if isinstance(error, TicketDatabaseMisconfigured):
            self._ring.quarantine(member, str(error))
        elif member.up and not isinstance(error, TicketDatabaseUnavailable):
            return True
        else:
            self._ring.mark_down(member, str(error))
            self._ring.unreachable(member, str(error))
        return False

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
        """False where it does not answer; one that cannot keep marks may draw. Raises Overtaken."""
        try:
            await self._ledger.exchange.admit(member, others)
        except RingChanged as error:
            raise Overtaken(member.database, error) from error
        except (TicketDatabaseUnavailable, TicketDatabaseBusy) as error:
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

    # --- one that is up and kept no marks --------------------------------------------------------------------------

    async def keep_marks_again(self, member: Member) -> bool:
        """Try whether a database that draws can keep marks again. False where it had to leave the ring.

        Raises TicketDatabaseError.
        """
        member.database.forget_connections()
        result = await member.database.probe()
        if result.incarnation != member.incarnation:  # from now on draws would be made on another one
            self._ring.mark_down(member, "was restarted or replaced")
            return False
        async with self._one_at_a_time:
            others = [m for m in self._ring.members if m.up and m is not member]
            try:
                if not await self._bring_up_to_date(member, others):
                    return False
            except Overtaken as overtaken:
                self._ring.records_another_ring(self._ring.number, str(overtaken.error))
                return False
        if member.marks_trouble is None:
            self._can_keep_marks_again(member, others)
        return True

    def _can_keep_marks_again(self, member: Member, others: list[Member]) -> None:
        """Every lane reserves on it too, and asks it where it could not; and some of what the others gave meanwhile
        nobody may know but they themselves."""
        for lane in self._catalog.lanes.values():
            lane.marks.lapse()
        self._ledger.reopen_unverified()
        self._ring.keeps_marks_again(member)
        self._reserves.came_up([member])
        for other in others:
            self._ring.unaccounted[member, other] = self._ring.generation
            other.wake.set()


def _as_recorded(result: ProbeResult, record: RingRecord, member: Member) -> ProbeResult:
    """What the database would say now that it has recorded this ring and its body of data."""
    offset = member.database.offset
    body = record.body_at(offset)
    assert body is not None
    return replace(result, record=replace(record, own=offset, body=body.word, life=result.incarnation))
