"""The agreement on the ring: which one the databases that answer record, and who may draw in it.

`record` holds the decisions, `changes` what has to be done to the databases before another ring may be drawn in.
"""

import itertools
import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace

from app.common.errors import TicketDatabaseError, TicketDatabaseMisconfigured
from app.common.log import event
from app.common.sequences import is_bump_name, number_leased
from app.databases.protocol import ProbeResult, RingRecord, RingState, TicketDatabase, check_settings
from app.tickets.ring import changes as ring_changes
from app.tickets.ring.bodies import holders, new_bodies
from app.tickets.ring.record import (
    UNFINISHED,
    UNKNOWN,
    RingContradiction,
    begun,
    contradiction,
    contradiction_of_marks,
    first_record,
    former_setting,
    increment_of_marks,
    newest,
    with_bodies,
    with_offsets,
)
from app.tickets.ring.ring import Member, Ring

log = logging.getLogger(__name__)


class RingRecords:
    """Agrees on the ring with the databases that answer. `increment`: TICKETS_INCREMENT, None where it is unset."""

    def __init__(self, ring: Ring, increment: int | None) -> None:
        self._ring = ring
        self._increment = increment

    async def agree(self, results: Mapping[Member, ProbeResult]) -> tuple[RingRecord | None, dict[Member, str]]:
        """The ring, recorded on every database that may draw in it, and why each of the others may not.

        `results`: what every database that answers has just said. Raises DatabaseFailed.
        """
        try:
            record, refused = await self._agree(results)
        except RingContradiction as contradicted:
            return None, dict.fromkeys(results, str(contradicted))
        if record is not None:
            record = await _take_bodies_in(record, {m: result for m, result in results.items() if m not in refused})
        return record, refused

    async def _agree(self, results: Mapping[Member, ProbeResult]) -> tuple[RingRecord | None, dict[Member, str]]:
        records = [result.record for result in results.values() if result.record is not None]
        if any(record.state is RingState.GROWING for record in records):
            raise RingContradiction(UNFINISHED)
        records = records or await self._recorded_elsewhere(results)
        recorded = bool(records)
        if self._ring.record is not None and not self._all_answer(results):
            records.append(self._ring.record)  # those that answer may have gone back to before it
        if not records:
            return await self._record_first(results)
        try:
            record = newest(records)
        except RingContradiction:
            if not await self._never_drawn(results):
                raise
            return await self._form(results, self._increment or len(self._ring.members))
        self._ring.note = former_setting(record, self._increment)
        if record.state is RingState.FORMING:
            wanted = self._increment if self._ring.note is None else None
            return await self._form(results, wanted or record.increment)
        reason = contradiction(record, self._increment, len(self._ring.members))
        if reason is None:
            return await self._join(record, results, recorded=recorded)
        _use(results, self._increment or len(self._ring.members))
        if not await self._never_drawn(results):
            raise RingContradiction(reason)
        return await self._form(results, self._increment or len(self._ring.members))

    async def _recorded_elsewhere(self, results: Mapping[Member, ProbeResult]) -> list[RingRecord]:
        """What the databases record that cannot draw, and can be read: one that is read-only, or full. Beside it those
        that answer are no new ring, though they record none."""
        found = []
        for member in self._ring.members:
            if member not in results:
                try:
                    record = await member.database.recorded_ring()
                except TicketDatabaseError as error:
                    event(log, logging.DEBUG, "could not read its ring record", database=member.name, reason=error)
                else:
                    found += [record] if record is not None else []
        return found

    # --- no database records a ring ----------------------------------------------------------------------------------

    async def _record_first(self, results: Mapping[Member, ProbeResult]) -> tuple[RingRecord | None, dict[Member, str]]:
        """Marks that agree with the settings: record the ring as it is. No marks: raise everything first."""
        listed = len(self._ring.members)
        kept = {member: await _kept_by(member.database) for member in results}
        everything = set().union(*kept.values())
        increment = increment_of_marks(everything, self._increment, listed)
        _use(results, increment)
        if not everything:
            if len(results) < listed:  # those that are away may be a ring, whose ids these would draw
                raise RingContradiction(UNKNOWN)
            drawn = [member for member in results if await ring_changes.holds_tickets(member.database)]
            if not drawn:
                return await self._record(first_record(increment, ()), results)
            return await self._form(results, increment)
        for member in results:
            reason = contradiction_of_marks(kept[member], increment, [member.database.offset], listed)
            if reason is not None:
                _use(results, max(increment, listed))
                if await self._never_drawn(results):
                    return await self._form(results, increment)
                raise RingContradiction(f"{member.name}: {reason}")
        record = first_record(increment, {offset for offset, _ in everything})
        foreign = [
            member for member in results if not kept[member] and await ring_changes.holds_tickets(member.database)
        ]
        return await self._record(record, results, raised=foreign, everywhere=bool(foreign))

    # --- some database records the ring ------------------------------------------------------------------------------

    async def _join(
        self, record: RingRecord, results: Mapping[Member, ProbeResult], *, recorded: bool
    ) -> tuple[RingRecord | None, dict[Member, str]]:
        """Databases that lack the record, or have an older one, take it, raised above the others where need be.

        `recorded`: whether any database that can be asked records a ring; else only this server remembers it.
        """
        _use(results, record.increment)
        held, refused = holders(record, results, self._ring.members), dict[Member, str]()
        raised: list[Member] = []
        misplaced: list[str] = []
        placeless: dict[Member, str] = {}
        everywhere = False
        for member, result in results.items():
            offset, found = member.database.offset, result.record
            in_place = found is not None and _is_in_its_place(member, result)
            if member in held and (in_place or found is None):
                continue
            if found is not None and in_place:
                if found.since != record.since or offset not in record.offsets:
                    raised.append(member)
                    everywhere |= found.state is RingState.FORMING and await ring_changes.holds_tickets(member.database)
                continue
            kept = await _kept_by(member.database)
            if found is not None:
                holds = await ring_changes.holds_anything(member.database)
                if holds:
                    misplaced.append(member.name)
                if reason := self._elsewhere(member, found, results, holds=holds):
                    refused[member] = reason
                else:
                    raised.append(member)
            elif contradicted := contradiction_of_marks(_of_this_ring(kept, record), record.increment, [offset], 0):
                refused[member] = contradicted
            elif not kept or record.since > 1 or offset not in record.offsets:
                raised.append(member)
                placeless |= {} if kept or recorded or self._all_answer(results) else {member: UNKNOWN}
                everywhere |= not kept and await ring_changes.holds_tickets(member.database)
        refused = held | refused | _in_doubt(misplaced, raised, results)
        if record.since > 1:
            refused |= self._newcomers(record, results, refused)
        refused = placeless | refused
        joining = {member: result for member, result in results.items() if member not in refused}
        if _formed_apart(record, [result.record for result in joining.values() if result.record is not None]):
            raised, everywhere = list(joining), True
        raised = [member for member in raised if member in joining]
        ring, more = await self._record(record, joining, raised, everywhere=everywhere)
        return ring, refused | more

    def _elsewhere(
        self, member: Member, found: RingRecord, results: Mapping[Member, ProbeResult], *, holds: bool
    ) -> str:
        """Why a database that records another offset than it is listed at may not be drawn from; empty where it may.
        `holds`: whether it has a ticket or a mark."""
        offset = member.database.offset
        if holds:
            return (
                f"was drawn at offset {found.own}, and TICKETS_DATABASES lists it at {offset}: put the URLs "
                "back in the order that they had"
            )
        if not self._all_answer(results):  # those that cannot be asked may have drawn its ids
            return (
                f"is recorded at offset {found.own}, holds no ticket, and is listed at {offset}: it takes "
                "another place only where every database answers"
            )
        return ""

    def _newcomers(
        self, record: RingRecord, results: Mapping[Member, ProbeResult], refused: Mapping[Member, str]
    ) -> dict[Member, str]:
        """Databases at offsets that are new, where one of the ring cannot be asked: nobody keeps marks about them, and
        their ids may have been issued by others before the increment was what it is."""
        out = {*refused, *_misconfigured(results, record.increment)}
        held = {member.database.offset for member in results if member not in out}
        if held >= set(record.offsets):
            return {}
        away = ", ".join(f"offset {offset}" for offset in record.offsets if offset not in held)
        return {
            member: f"is new in the ring, and has to start above the databases that cannot be asked now: {away}"
            for member in results
            if member not in out and member.database.offset not in record.offsets
        }

    async def _record(
        self,
        record: RingRecord,
        results: Mapping[Member, ProbeResult],
        raised: Iterable[Member] = (),
        *,
        everywhere: bool = False,
    ) -> tuple[RingRecord | None, dict[Member, str]]:
        """Write the record on every database that is configured for it; first lift `raised` above all that is known.

        `everywhere`: one of them holds tickets that other programs drew, of whatever residue, so all are lifted.
        """
        refused = _misconfigured(results, record.increment)
        joining = [member.database for member in results if member not in refused]
        if not joining:
            return None, refused
        lifted = [member.database for member in raised if member not in refused]
        floors: dict[str, int] = {}
        if lifted:
            tables = await ring_changes.tables_of(joining)
            floors = await ring_changes.floors_of(tables)
            await ring_changes.raise_tables(
                {each: tables[each] for each in (joining if everywhere else lifted)}, floors
            )
        new = with_offsets(record, [database.offset for database in joining])
        found = {m.database: result.record for m, result in results.items() if m not in refused}
        # who is restored between being raised and being recorded is told of it by the others, as after `grow`
        for database, recorded in found.items():
            if recorded is not None and floors:
                present = replace(new, number=recorded.number)
                await ring_changes.keep_floors([database], floors, present, of=lifted)
        await ring_changes.write_record(new, found)
        return new, refused

    async def _form(
        self, results: Mapping[Member, ProbeResult], increment: int
    ) -> tuple[RingRecord | None, dict[Member, str]]:
        """Raise everything and record a new ring; see the module's docstring.

        A database that does not answer is raised when it comes, and the others above what it holds. Whatever increment
        was found, it is no smaller than the list: an offset above it would have another one's residue.
        """
        increment = max(increment, len(self._ring.members))
        refused = _misconfigured(results, increment)
        databases = {member.database: result.record for member, result in results.items() if member not in refused}
        if not databases:
            return None, refused
        records = [result.record for result in results.values() if result.record is not None]
        change = begun(records, increment, [database.offset for database in databases], RingState.FORMING)
        return await ring_changes.change_ring(databases, change), refused

    def _all_answer(self, results: Mapping[Member, ProbeResult]) -> bool:
        return set(results) == set(self._ring.members)

    async def _never_drawn(self, results: Mapping[Member, ProbeResult]) -> bool:
        """Whether all databases answer, and no sequence has a ticket or a mark on any of them."""
        if not self._all_answer(results):
            return False
        for member in results:
            if await ring_changes.holds_anything(member.database):
                return False
        return True


async def _take_bodies_in(record: RingRecord, results: Mapping[Member, ProbeResult]) -> RingRecord:
    """Record the bodies of data that have not been in use so far: on the other databases first, and on those that hold
    one last, so that a server which is slower than another one takes none in. Raises DatabaseFailed."""
    taken = new_bodies(record, results)
    if not taken:
        return record
    new = with_bodies(record, taken)
    for member in sorted(results, key=lambda member: member.database.offset in taken):
        result, database = results[member], member.database
        found = ring_changes.as_kept(record, database, result.record)
        kept = ring_changes.as_kept(new, database, result.record)
        if (body := taken.get(database.offset)) is not None:
            kept = replace(kept, body=body.word, life=result.incarnation)
        await ring_changes.write_own_record(kept, database, found)
    return new


async def _kept_by(database: TicketDatabase) -> set[tuple[int, int]]:
    """Offset and increment of every mark that the database keeps about a database. A worker number's lease is none: the
    database that the number belongs to keeps it as well; nor is the record of a bump."""
    marks = await ring_changes.or_fail(database, database.marks_of_all_rings())
    return {
        (mark.offset, mark.increment)
        for mark in marks
        if number_leased(mark.sequence) is None and not is_bump_name(mark.sequence)
    }


def _of_this_ring(kept: set[tuple[int, int]], record: RingRecord) -> set[tuple[int, int]]:
    """Without those of increments from before the ring grew, on a database that has marks of this increment too."""
    current = {(offset, increment) for offset, increment in kept if increment == record.increment}
    return current if current and record.since > 1 else kept


def _use(results: Iterable[Member], increment: int) -> None:
    """Ask the databases over connections for this increment: those for another one find them misconfigured."""
    for member in results:
        member.database.use_increment(increment)


def _is_in_its_place(member: Member, result: ProbeResult) -> bool:
    """Whether the database records that it is drawn at the offset at which it is listed."""
    return result.record is not None and result.record.own == member.database.offset


def _in_doubt(
    misplaced: list[str], raised: Iterable[Member], results: Mapping[Member, ProbeResult]
) -> dict[Member, str]:
    """The empty databases that would draw the ids of one of the misplaced ones from the beginning, and why they may
    not. `misplaced`: names of databases that were drawn at another offset."""
    if not misplaced:
        return {}
    reason = f"holds no ticket, and its place is in doubt while {' and '.join(misplaced)} had another one"
    return {member: reason for member in raised if not _is_in_its_place(member, results[member])}


def _formed_apart(record: RingRecord, records: Iterable[RingRecord]) -> bool:
    """Whether one of these databases recorded the ring without another, after a change: what it was raised above then
    did not count the other's ids."""
    pairs = itertools.permutations(records, 2)
    return record.since > 1 and any(one.own not in other.offsets for one, other in pairs)


def _misconfigured(results: Mapping[Member, ProbeResult], increment: int) -> dict[Member, str]:
    """Those whose increment or offset is not that of the ring, each with what is wrong."""
    refused = {}
    for member, result in results.items():
        try:
            check_settings(result, increment, member.database.offset)
        except TicketDatabaseMisconfigured as error:
            refused[member] = str(error)
    return refused
