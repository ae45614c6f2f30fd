"""The agreement on the ring: which ring the databases that answer record, and which of them may draw in it.

`record` and `joining` hold the decisions. `changes` holds the steps that prepare the databases for another ring.
"""

import itertools
import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace

from app.common.errors import TicketDatabaseError, TicketDatabaseMisconfigured
from app.common.log import event
from app.common.sequences import is_bump_name, number_leased
from app.databases.protocol import ProbeResult, RingRecord, RingState, TicketDatabase, check_settings
from app.tickets.agreement import changes as ring_changes
from app.tickets.agreement.bodies import holders, is_being_taken_in, new_bodies
from app.tickets.agreement.joining import JOINS, Comer, Found, Joins, found_by_marks, found_by_record, refusals
from app.tickets.agreement.record import (
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


class BeingTakenIn(Exception):
    """Another server seems to be taking in the body of a database that has to wait: look again in a moment."""


class RingRecords:
    """Agrees on the ring with the databases that answer. `increment`: TICKETS_INCREMENT, None where it is unset."""

    def __init__(self, ring: Ring, increment: int | None) -> None:
        self._ring = ring
        self._increment = increment

    async def agree(
        self, results: Mapping[Member, ProbeResult], *, waits: bool = False
    ) -> tuple[RingRecord | None, dict[Member, str]]:
        """Agree on the ring and record it on every database that may draw in it.

        `results`: what a probe of each database that answers has just found. Returns the ring, None if no database may
        draw, and the reason for each database that may not. Raises DatabaseFailed. With `waits`, it raises BeingTakenIn
        where another server seems to be taking in the body of a database that has to wait.
        """
        try:
            record, refused = await self._agree(results, waits=waits)
        except RingContradiction as contradicted:
            return None, dict.fromkeys(results, str(contradicted))
        if record is not None:
            joining = {member: result for member, result in results.items() if member not in refused}
            record = await self._take_bodies_in(record, joining)
        return record, refused

    async def _agree(
        self, results: Mapping[Member, ProbeResult], *, waits: bool
    ) -> tuple[RingRecord | None, dict[Member, str]]:
        records = [result.record for result in results.values() if result.record is not None]
        if any(record.state is RingState.GROWING for record in records):
            raise RingContradiction(UNFINISHED)
        records = records or await self._recorded_elsewhere(results)
        recorded = bool(records)
        if self._ring.record is not None and not self._all_answer(results):
            records.append(self._ring.record)  # the databases that answer may have gone back to before it
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
            return await self._join(record, results, recorded=recorded, waits=waits)
        _use(results, self._increment or len(self._ring.members))
        if not await self._never_drawn(results):
            raise RingContradiction(reason)
        return await self._form(results, self._increment or len(self._ring.members))

    async def _recorded_elsewhere(self, results: Mapping[Member, ProbeResult]) -> list[RingRecord]:
        """The records of the databases that failed their probe but can be read, because they are read-only or full.

        Where such a record exists, the databases that answer are no new ring, even if none of them records one.
        """
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
        """Record a ring. Where the marks agree with the settings nothing is raised; without marks everything is."""
        listed = len(self._ring.members)
        kept = {member: await _kept_by(member.database) for member in results}
        everything = set().union(*kept.values())
        increment = increment_of_marks(everything, self._increment, listed)
        _use(results, increment)
        if not everything:
            if len(results) < listed:  # the databases that are away may be a ring, whose ids these would draw
                raise RingContradiction(UNKNOWN)
            drawn = [member for member in results if await ring_changes.holds_tickets(member.database)]
            if not drawn:
                return await self._record(first_record(increment, ()), results)
            return await self._form(results, increment)
        for member in results:
            reason = contradiction_of_marks(kept[member], increment, member.database.offset, listed)
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
        self, record: RingRecord, results: Mapping[Member, ProbeResult], *, recorded: bool, waits: bool
    ) -> tuple[RingRecord | None, dict[Member, str]]:
        """Have the databases that answer join the ring of `record`, as the table of `joining` says.

        `recorded`: whether any database that can be asked records a ring; else only this server remembers it. `waits`:
        whether to raise BeingTakenIn where another server seems to be taking in the body of a database.
        """
        _use(results, record.increment)
        refused = holders(record, results, self._ring.members)
        if waits and any(is_being_taken_in(record, self._ring.record, each, results[each]) for each in refused):
            raise BeingTakenIn
        comers = {
            member: await _ask(member.database, result.record, record)
            for member, result in results.items()
            if member not in refused or _is_elsewhere(member, result)
        }
        refused |= refusals(comers, all_answer=self._all_answer(results), recorded=recorded)
        if record.since > 1:
            known = {member: reason for member, reason in refused.items() if reason != UNKNOWN}
            refused |= self._newcomers(record, results, known)  # its reasons say more than UNKNOWN
        joining = {member: result for member, result in results.items() if member not in refused}
        joins = {member: JOINS[comers[member].found][comers[member].holds] for member in joining}
        raised = [member for member in joining if joins[member] is not Joins.AS_IT_IS]
        everywhere = Joins.ALL_RAISED in joins.values()
        if _formed_apart(record, [result.record for result in joining.values() if result.record is not None]):
            raised, everywhere = list(joining), True
        ring, more = await self._record(record, joining, raised, everywhere=everywhere)
        return ring, refused | more

    def _newcomers(
        self, record: RingRecord, results: Mapping[Member, ProbeResult], refused: Mapping[Member, str]
    ) -> dict[Member, str]:
        """Refuse the databases at offsets that are new in the ring while any database of the ring cannot be asked.

        No database keeps marks about a new offset, and its ids may have been issued under an earlier increment.
        """
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
        """Raise the sequences of `raised` above everything known, then record the ring on every database whose settings
        fit it.

        `everywhere`: a database holds tickets that may have any residue, so the sequences of all are raised.
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
        # if a database is restored after it was raised and before this is recorded, the others' marks say so
        for database, recorded in found.items():
            if recorded is not None and floors:
                present = replace(new, number=recorded.number)
                await ring_changes.keep_floors([database], floors, present, of=lifted)
        await ring_changes.write_record(new, found)
        return new, refused

    async def _form(
        self, results: Mapping[Member, ProbeResult], increment: int
    ) -> tuple[RingRecord | None, dict[Member, str]]:
        """Raise everything and record a new ring.

        A database that does not answer is raised when it joins, and so are the others above what it holds. The
        increment is at least the length of the list, since a larger offset would have the residue of another.
        """
        increment = max(increment, len(self._ring.members))
        refused = _misconfigured(results, increment)
        databases = {member.database: result.record for member, result in results.items() if member not in refused}
        if not databases:
            return None, refused
        records = [result.record for result in results.values() if result.record is not None]
        change = begun(records, increment, [database.offset for database in databases], RingState.FORMING)
        return await ring_changes.change_ring(databases, change), refused

    async def _take_bodies_in(self, record: RingRecord, results: Mapping[Member, ProbeResult]) -> RingRecord:
        """Record the bodies of data that have not been in use so far: on the other databases first, and on those that
        hold one last, so that a server which is slower than another one takes none in. Raises DatabaseFailed.

        Each database records that this server uses them in the same transaction: a server that uses another body finds
        both, and waits.
        """
        taken = new_bodies(record, results)
        self._ring.taking_in = {
            member: taken[member.database.offset].word for member in results if member.database.offset in taken
        }
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

    def _all_answer(self, results: Mapping[Member, ProbeResult]) -> bool:
        return set(results) == set(self._ring.members)

    async def _never_drawn(self, results: Mapping[Member, ProbeResult]) -> bool:
        """Whether all databases answer and no sequence has a ticket or a mark on any of them."""
        if not self._all_answer(results):
            return False
        for member in results:
            if await ring_changes.holds_anything(member.database):
                return False
        return True


async def _kept_by(database: TicketDatabase) -> set[tuple[int, int]]:
    """Offset and increment of every mark that the database keeps about another database.

    Leases of worker numbers and records of bumps do not count: databases keep these about themselves, too.
    """
    marks = await ring_changes.or_fail(database, database.marks_of_all_rings())
    return {
        (mark.offset, mark.increment)
        for mark in marks
        if number_leased(mark.sequence) is None and not is_bump_name(mark.sequence)
    }


async def _ask(database: TicketDatabase, own: RingRecord | None, record: RingRecord) -> Comer:
    """Ask a database how it stands to the ring of `record`. `own`: its own record. Raises DatabaseFailed."""
    offset, wrong, holds = database.offset, "", False
    if own is None:
        found, wrong = found_by_marks(await _kept_by(database), offset, record)
    else:
        found = found_by_record(own, offset, record)
    if found is Found.ANOTHER_PLACE:
        holds = await ring_changes.holds_anything(database)
    elif found in (Found.BEGUN, Found.NOTHING):
        holds = await ring_changes.holds_tickets(database)
    return Comer(database.name, offset, found, holds, 0 if own is None else own.own, wrong)


def _use(results: Iterable[Member], increment: int) -> None:
    """Ask the databases over connections for this increment: on others a database seems to be misconfigured."""
    for member in results:
        member.database.use_increment(increment)


def _is_elsewhere(member: Member, result: ProbeResult) -> bool:
    """Whether the database records that it is drawn at another offset than the one at which it is listed."""
    return result.record is not None and result.record.own != member.database.offset


def _formed_apart(record: RingRecord, records: Iterable[RingRecord]) -> bool:
    """Whether any of these databases recorded the ring without another one after a change, so that it was raised
    without regard to the other's ids."""
    pairs = itertools.permutations(records, 2)
    return record.since > 1 and any(one.own not in other.offsets for one, other in pairs)


def _misconfigured(results: Mapping[Member, ProbeResult], increment: int) -> dict[Member, str]:
    """The databases whose own settings of increment or offset differ from the ring, each with what is wrong."""
    refused = {}
    for member, result in results.items():
        try:
            check_settings(result, increment, member.database.offset)
        except TicketDatabaseMisconfigured as error:
            refused[member] = str(error)
    return refused
