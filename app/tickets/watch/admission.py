"""The admission of ticket databases into the ring: of all that answer together, one admission at a time."""

import asyncio
import itertools
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace

from app.common.errors import RingChanged, TicketDatabaseError
from app.common.log import event
from app.databases.protocol import ProbeResult, RingRecord
from app.tickets.agreement.changes import DatabaseFailed
from app.tickets.agreement.record import same_ring
from app.tickets.agreement.ring_records import BeingTakenIn, RingRecords
from app.tickets.marks.ledger import Ledger
from app.tickets.reserve.reserves import Reserves
from app.tickets.ring.failures import Asked, Effect
from app.tickets.ring.ring import Member, Ring
from app.tickets.sequences.catalog import Catalog
from app.tickets.watch.chores import Chores

log = logging.getLogger(__name__)

Probe = Callable[[Member], Awaitable[ProbeResult | None]]
"""Probes a database. Returns None if the probe failed, after it has told the ring."""

ATTEMPTS = 3
"""How often an admission begins again at once because another server has changed the ring meanwhile."""
TAKING_IN_SECONDS = 0.05
"""How long another server gets to record a body's new word on the body itself, after it did so on another database.
Without that each restart of a database would quarantine it for a moment, and an alert would be sent."""


class Admission:
    """Admits databases that answer into the ring."""

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
        """Admit the database, after every other one has answered a probe or has failed it.

        The server probes all databases that are not up while it holds the lock, since an earlier probe may be long
        past.
        """
        async with self._one_at_a_time:
            for attempt in range(1, ATTEMPTS + 1):
                if member.up:
                    return
                try:
                    await self._take_in_all(waits=attempt < ATTEMPTS)
                except BeingTakenIn:
                    await asyncio.sleep(TAKING_IN_SECONDS)
                except DatabaseFailed as failed:  # another server has changed the ring meanwhile
                    self._ring.failed(member, failed.error, Asked.PROBE)
                else:
                    return

    async def _take_in_all(self, *, waits: bool) -> None:
        away = [other for other in self._ring.members if not other.up]
        found: dict[Member, ProbeResult] = {}
        for other, result in zip(away, await asyncio.gather(*map(self._probe, away)), strict=True):
            twin = next((each for each, seen in found.items() if result and seen.identity == result.identity), None)
            if twin is not None:
                self._ring.quarantine(other, f"is the same server as {twin.name}")
            elif reason := self._ring.folds_alone(other):  # another database may have been probed after it
                self._ring.quarantine(other, reason)
            elif result is not None and not other.up:
                found[other] = result
        await self._admit(found, waits=waits)

    async def _admit(self, coming: dict[Member, ProbeResult], *, waits: bool) -> None:
        """Agree on the ring, exchange the marks, then have all databases of `coming` come up at once.

        The order of the steps matters:

        1. The ring, since marks count for one ring only.
        2. The lanes close before any mark is read, so that none of them draws on what was known before.
        3. The server reads the marks of the databases that stay down, for what they say about the others.
        4. The databases that come get all marks. From the moment they are up they are witnesses.
        5. The databases that are up get the marks about the databases that come, before the first draw on those.
        """
        try:
            self._ring.is_changing = True
            try:
                await self._agree_on_ring(coming, waits=waits)
            finally:
                self._ring.is_changing = False
            if coming:
                await self._bring_all_up_to_date(coming)
                self._take_up(coming)
                self._reserves.came_up(coming)
        finally:
            self._ring.taking_in = {}

    async def _bring_all_up_to_date(self, coming: dict[Member, ProbeResult]) -> None:
        """Have each database keep what the others know. Takes those out of `coming` that do not answer."""
        for member, result in coming.items():
            member.incarnation = result.incarnation
            for lane in self._catalog.lanes_on(member):
                lane.close()
        up = [member for member in self._ring.members if member.is_witness]
        for member in self._ring.members:
            if not member.up and member not in coming:
                await self._remember_marks(member)
        for member in list(coming):
            if not await self._bring_up_to_date(member, [other for other in [*up, *coming] if other is not member]):
                del coming[member]
        for member in up:
            await self._bring_up_to_date(member, list(coming))

    def _take_up(self, coming: dict[Member, ProbeResult]) -> None:
        for member, result in coming.items():
            self._chores.came_up(member)
            self._ring.mark_up(member, result)
        for lane in self._catalog.lanes.values():
            lane.marks.lapse()  # each lane sets its next mark on the databases that have come, too
        self._ledger.reopen_unverified()
        for one, other in itertools.permutations([member for member in self._ring.members if member.up], 2):
            if one in coming or other in coming:
                self._ring.incomplete[one, other] = self._ring.generation
                other.wake.set()

    async def _agree_on_ring(self, coming: dict[Member, ProbeResult], *, waits: bool) -> None:
        """Have the databases of `coming` record the ring that this server draws in. Removes those that may not draw.

        A database that is up goes on drawing even if it cannot show its marks or take another record. The databases
        whose admission needs that have to wait. Raises DatabaseFailed if another server has changed the ring meanwhile,
        and BeingTakenIn with `waits`.
        """
        silent: set[Member] = set()
        while coming:
            up = {
                member: member.probe_result
                for member in self._ring.members
                if member.up and member.probe_result is not None and member not in silent
            }
            try:
                record, refused = await self._records.agree(up | coming, waits=waits)
            except DatabaseFailed as failed:
                if isinstance(failed.error, RingChanged):
                    raise
                member = next(each for each in self._ring.members if each.database is failed.database)
                coming.pop(member, None)
                self._ring.failed(member, failed.error, Asked.DRAW if member.up else Asked.PROBE)
                if member.up:
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
        """Probe again over connections for the new increment. Removes the databases that fail, or have restarted."""
        for member in list(coming):
            found = await self._probe(member)
            if found is None or found.incarnation != coming[member].incarnation:
                del coming[member]
            else:
                coming[member] = found

    def _adopt(self, record: RingRecord) -> bool:
        """Draw in this ring from now on. Returns whether connections for another increment are needed."""
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
        """Write the marks of `others` that `member` lacks. Returns whether it may be up.

        Raises DatabaseFailed if it records another ring.
        """
        try:
            await self._ledger.exchange.admit(member, others)
        except RingChanged as error:
            raise DatabaseFailed(member.database, error) from error
        except TicketDatabaseError as error:
            return self._ring.failed(member, error, Asked.ADMISSION) is Effect.KEEPS_NO_MARKS
        member.marks_error = None
        return True

    async def _remember_marks(self, member: Member) -> None:
        """Read the marks on a database that stays down, if it can be read."""
        try:
            await self._ledger.exchange.read(member)
        except TicketDatabaseError as error:
            event(log, logging.DEBUG, "could not read its marks", database=member.name, reason=error)

    # --- a database that is up and is no witness -------------------------------------------------------------------

    async def keep_marks_again(self, member: Member) -> bool:
        """Try whether a database that is up can keep marks again. Returns false if it has to leave the ring.

        Raises TicketDatabaseError.
        """
        member.database.forget_connections()
        result = await member.database.probe()
        if result.incarnation != member.incarnation:  # new connections would draw from another database
            self._ring.mark_down(member, "was restarted or replaced")
            return False
        async with self._one_at_a_time:
            others = [m for m in self._ring.members if m.up and m is not member]
            try:
                if not await self._bring_up_to_date(member, others):
                    return False
            except DatabaseFailed as failed:
                self._ring.failed(member, failed.error, Asked.ADMISSION)
                return False
        if member.marks_error is None:
            self._can_keep_marks_again(member, others)
        return True

    def _can_keep_marks_again(self, member: Member, others: list[Member]) -> None:
        """Make it a witness again. Its marks about the other databases are incomplete."""
        for lane in self._catalog.lanes.values():
            lane.marks.lapse()
        self._ledger.reopen_unverified()
        self._ring.keeps_marks_again(member)
        self._reserves.came_up([member])
        for other in others:
            self._ring.incomplete[member, other] = self._ring.generation
            other.wake.set()


def _as_recorded(result: ProbeResult, record: RingRecord, member: Member) -> ProbeResult:
    """The result of the probe, had the database recorded this ring and its body of data before."""
    offset = member.database.offset
    body = record.body_at(offset)
    assert body is not None
    return replace(result, record=replace(record, own=offset, body=body.word, life=result.incarnation))
