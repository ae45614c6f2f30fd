"""The agreement on the ring: which one the databases that answer record, and who may draw in it.

Decided by `ring_record`; what has to be done to the databases before another ring may be drawn in is in `ring_changes`.
"""

import itertools
from collections.abc import Iterable, Mapping

from app.common.errors import TicketDatabaseMisconfigured
from app.databases.protocol import Look, RingRecord, RingState, TicketDatabase, check_settings
from app.tickets import ring_changes
from app.tickets.ring import Member, Ring
from app.tickets.ring_record import (
    UNFINISHED,
    UNKNOWN,
    RingContradiction,
    begun,
    contradiction,
    contradiction_of_marks,
    first_record,
    increment_of_marks,
    may_begin,
    newest,
    with_offsets,
)


class RingRecords:
    """Agrees on the ring with the databases that answer. `increment`: TICKETS_INCREMENT, None where it is unset."""

    def __init__(self, ring: Ring, increment: int | None) -> None:
        self._ring = ring
        self._increment = increment

    async def agree(self, looks: Mapping[Member, Look]) -> tuple[RingRecord | None, dict[Member, str]]:
        """The ring, recorded on every database that may draw in it, and why each of the others may not.

        `looks`: what every database that answers has just said. Raises DatabaseFailed.
        """
        try:
            return await self._agree(looks)
        except RingContradiction as contradicted:
            return None, dict.fromkeys(looks, str(contradicted))

    async def _agree(self, looks: Mapping[Member, Look]) -> tuple[RingRecord | None, dict[Member, str]]:
        records = [look.record for look in looks.values() if look.record is not None]
        if any(record.state is RingState.GROWING for record in records):
            raise RingContradiction(UNFINISHED)
        if self._ring.record is not None and set(looks) != set(self._ring.members):
            records.append(self._ring.record)  # those that answer may have gone back to before it
        if not records:
            return await self._record_first(looks)
        try:
            record = newest(records)
        except RingContradiction:
            if not await self._never_drawn(looks):
                raise
            return await self._form(looks, self._increment or len(self._ring.members))
        if record.state is RingState.FORMING:
            return await self._form(looks, self._increment or record.increment)
        reason = contradiction(record, self._increment, len(self._ring.members))
        if reason is None:
            return await self._join(record, looks)
        _use(looks, self._increment or len(self._ring.members))
        if not await self._never_drawn(looks):
            raise RingContradiction(reason)
        return await self._form(looks, self._increment or len(self._ring.members))

    # --- no database records a ring ----------------------------------------------------------------------------------

    async def _record_first(self, looks: Mapping[Member, Look]) -> tuple[RingRecord | None, dict[Member, str]]:
        """Marks that agree with the settings: record the ring as it is. No marks: raise everything first."""
        listed = len(self._ring.members)
        kept = {member: await _kept_by(member.database) for member in looks}
        everything = set().union(*kept.values())
        increment = increment_of_marks(everything, self._increment, listed)
        _use(looks, increment)
        if not everything:
            if not may_begin([member.database.offset for member in looks], listed):
                raise RingContradiction(UNKNOWN)
            drawn = [member for member in looks if await ring_changes.holds_tickets(member.database)]
            if not drawn:
                return await self._record(first_record(increment, ()), looks)
            return await self._form(looks, increment)
        for member in looks:
            reason = contradiction_of_marks(kept[member], increment, [member.database.offset], listed)
            if reason is not None:
                _use(looks, max(increment, listed))
                if await self._never_drawn(looks):
                    return await self._form(looks, increment)
                raise RingContradiction(f"{member.name}: {reason}")
        record = first_record(increment, {offset for offset, _ in everything})
        foreign = [member for member in looks if not kept[member] and await ring_changes.holds_tickets(member.database)]
        return await self._record(record, looks, raised=foreign, everywhere=bool(foreign))

    # --- some database records the ring ------------------------------------------------------------------------------

    async def _join(
        self, record: RingRecord, looks: Mapping[Member, Look]
    ) -> tuple[RingRecord | None, dict[Member, str]]:
        """Databases that lack the record, or have an older one, take it, raised above the others where need be."""
        _use(looks, record.increment)
        refused: dict[Member, str] = {}
        raised: list[Member] = []
        misplaced: list[str] = []
        everywhere = False
        for member, look in looks.items():
            offset, found = member.database.offset, look.record
            if found is not None and _is_in_its_place(member, look):
                if found.since != record.since or offset not in record.offsets:
                    raised.append(member)
                    everywhere |= found.state is RingState.FORMING and await ring_changes.holds_tickets(member.database)
                continue
            kept = await _kept_by(member.database)
            if found is not None:
                if await ring_changes.holds_anything(member.database):
                    misplaced.append(member.name)
                    refused[member] = (
                        f"was drawn at offset {found.own}, and TICKETS_DATABASES lists it at {offset}: put the URLs "
                        "back in the order that they had"
                    )
                elif set(looks) != set(self._ring.members):  # those that cannot be asked may have drawn its ids
                    refused[member] = (
                        f"is recorded at offset {found.own}, holds no ticket, and is listed at {offset}: it takes "
                        "another place only where every database answers"
                    )
                else:
                    raised.append(member)
            elif reason := contradiction_of_marks(_of_this_ring(kept, record), record.increment, [offset], 0):
                refused[member] = reason
            elif not kept or record.since > 1 or offset not in record.offsets:
                raised.append(member)
                everywhere |= not kept and await ring_changes.holds_tickets(member.database)
        if misplaced:  # an empty one would draw the ids of one of them, from the beginning
            reason = f"holds no ticket, and its place is in doubt while {' and '.join(misplaced)} had another one"
            strangers = (member for member in raised if not _is_in_its_place(member, looks[member]))
            refused |= dict.fromkeys(strangers, reason)
        if record.since > 1:
            refused |= self._newcomers(record, looks, refused)
        joining = {member: look for member, look in looks.items() if member not in refused}
        if _formed_apart(record, [look.record for look in joining.values() if look.record is not None]):
            raised, everywhere = list(joining), True
        raised = [member for member in raised if member in joining]
        ring, more = await self._record(record, joining, raised, everywhere=everywhere)
        return ring, refused | more

    def _newcomers(
        self, record: RingRecord, looks: Mapping[Member, Look], refused: Mapping[Member, str]
    ) -> dict[Member, str]:
        """Databases at offsets that are new, where one of the ring cannot be asked: nobody keeps marks about them, and
        their ids may have been issued by others before the increment was what it is."""
        out = {*refused, *_misconfigured(looks, record.increment)}
        held = {member.database.offset for member in looks if member not in out}
        if held >= set(record.offsets):
            return {}
        away = ", ".join(f"offset {offset}" for offset in record.offsets if offset not in held)
        return {
            member: f"is new in the ring, and has to start above the databases that cannot be asked now: {away}"
            for member in looks
            if member not in out and member.database.offset not in record.offsets
        }

    async def _record(
        self,
        record: RingRecord,
        looks: Mapping[Member, Look],
        raised: Iterable[Member] = (),
        *,
        everywhere: bool = False,
    ) -> tuple[RingRecord | None, dict[Member, str]]:
        """Write the record on every database that is configured for it; first lift `raised` above all that is known.

        `everywhere`: one of them holds tickets that other programs drew, of whatever residue, so all are lifted.
        """
        refused = _misconfigured(looks, record.increment)
        joining = [member.database for member in looks if member not in refused]
        if not joining:
            return None, refused
        lifted = [member.database for member in raised if member not in refused]
        if lifted:
            tables = await ring_changes.tables_of(joining)
            floors = await ring_changes.floors_of(tables)
            await ring_changes.raise_tables(
                {each: tables[each] for each in (joining if everywhere else lifted)}, floors
            )
        new = with_offsets(record, [database.offset for database in joining])
        await ring_changes.write_record(new, {m.database: look.record for m, look in looks.items() if m not in refused})
        return new, refused

    async def _form(self, looks: Mapping[Member, Look], increment: int) -> tuple[RingRecord | None, dict[Member, str]]:
        """Raise everything and record a new ring; see the module's docstring.

        A database that does not answer is raised when it comes, and the others above what it holds. Whatever increment
        was found, it is no smaller than the list: an offset above it would have another one's residue.
        """
        increment = max(increment, len(self._ring.members))
        refused = _misconfigured(looks, increment)
        databases = {member.database: look.record for member, look in looks.items() if member not in refused}
        if not databases:
            return None, refused
        top = max((look.record.number for look in looks.values() if look.record is not None), default=0)
        change = begun(top, increment, [database.offset for database in databases], RingState.FORMING)
        return await ring_changes.change_ring(databases, change), refused

    async def _never_drawn(self, looks: Mapping[Member, Look]) -> bool:
        """Whether all databases answer, and no sequence has a ticket or a mark on any of them."""
        if set(looks) != set(self._ring.members):
            return False
        for member in looks:
            if await ring_changes.holds_anything(member.database):
                return False
        return True


async def _kept_by(database: TicketDatabase) -> set[tuple[int, int]]:
    """Offset and increment of every mark that the database keeps."""
    return {
        (mark.offset, mark.increment) for mark in await ring_changes.or_fail(database, database.marks_of_all_rings())
    }


def _of_this_ring(kept: set[tuple[int, int]], record: RingRecord) -> set[tuple[int, int]]:
    """Without those of increments from before the ring grew, on a database that has marks of this increment too."""
    current = {(offset, increment) for offset, increment in kept if increment == record.increment}
    return current if current and record.since > 1 else kept


def _use(looks: Iterable[Member], increment: int) -> None:
    """Ask the databases over connections for this increment: those for another one find them misconfigured."""
    for member in looks:
        member.database.use_increment(increment)


def _is_in_its_place(member: Member, look: Look) -> bool:
    """Whether the database records that it is drawn at the offset at which it is listed."""
    return look.record is not None and look.record.own == member.database.offset


def _formed_apart(record: RingRecord, records: Iterable[RingRecord]) -> bool:
    """Whether one of these databases recorded the ring without another, after a change: what it was raised above then
    did not count the other's ids."""
    pairs = itertools.permutations(records, 2)
    return record.since > 1 and any(one.own not in other.offsets for one, other in pairs)


def _misconfigured(looks: Mapping[Member, Look], increment: int) -> dict[Member, str]:
    """Those whose increment or offset is not that of the ring, each with what is wrong."""
    refused = {}
    for member, look in looks.items():
        try:
            check_settings(look, increment, member.database.offset)
        except TicketDatabaseMisconfigured as error:
            refused[member] = str(error)
    return refused
