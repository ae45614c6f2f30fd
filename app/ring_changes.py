"""Changes of the ring: what is done to the ticket databases before a new ring may be drawn in.

`RingRecords` agrees with the databases that answer on the ring, when one of them comes up. `raise_everything` is the
step that makes a change safe, for a server that forms a ring and for `ticketd grow` alike: where residues change hands,
every sequence on every database is raised above everything that any database has drawn or may have drawn.

The order of a change:

1. Every database records that a change has begun, under a new number. From then on a server that reserves a
   high-water mark under an older number is refused, and so is one whose draw no other database protects.
2. Marks are read, then positions. A ticket that was handed out before 1 lies at or below a mark or a position that is
   read here, since the number was checked after it was drawn.
3. Every table is raised above all of it, committed; marks of the new increment say so on every other database.
4. Every database records the new ring.

A change that stops half-way leaves a record that no server draws under. It is begun again from 1.
"""

import asyncio
import itertools
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from app.databases.protocol import Look, Mark, RingRecord, RingState, Table, TicketDatabase, check_settings
from app.errors import TicketDatabaseBusy, TicketDatabaseError, TicketDatabaseMisconfigured
from app.ring import Member, Ring
from app.ring_record import (
    UNFINISHED,
    UNKNOWN,
    RingContradiction,
    begun,
    contradiction,
    contradiction_of_marks,
    finished,
    first_record,
    increment_of_marks,
    may_begin,
    newest,
    same_ring,
    with_offsets,
)

T = TypeVar("T")


class DatabaseFailed(Exception):
    """A database failed while the ring was agreed on."""

    def __init__(self, database: TicketDatabase, error: TicketDatabaseError) -> None:
        super().__init__(f"{database.name} {error}")
        self.database = database
        self.error = error


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
            drawn = [member for member in looks if await _holds_tickets(member.database)]
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
        foreign = [member for member in looks if not kept[member] and await _holds_tickets(member.database)]
        return await self._record(record, looks, raised=foreign, everywhere=bool(foreign))

    # --- some database records the ring ------------------------------------------------------------------------------

    async def _join(
        self, record: RingRecord, looks: Mapping[Member, Look]
    ) -> tuple[RingRecord | None, dict[Member, str]]:
        """Databases that lack the record, or have an older one, take it, raised above the others where need be."""
        _use(looks, record.increment)
        refused: dict[Member, str] = {}
        raised: list[Member] = []
        everywhere = False
        for member, look in looks.items():
            offset, found = member.database.offset, look.record
            if found is not None and found.own == offset:
                if found.since != record.since or offset not in record.offsets:
                    raised.append(member)
                    everywhere |= found.state is RingState.FORMING and await _holds_tickets(member.database)
                continue
            kept = await _kept_by(member.database)
            if found is not None:
                if await holds_anything(member.database):
                    refused[member] = (
                        f"was drawn at offset {found.own}, and TICKETS_DATABASES lists it at {offset}: put the URLs "
                        "back in the order that they had"
                    )
                else:
                    raised.append(member)
            elif reason := contradiction_of_marks(_of_this_ring(kept, record), record.increment, [offset], 0):
                refused[member] = reason
            elif not kept or record.since > 1 or offset not in record.offsets:
                raised.append(member)
                everywhere |= not kept and await _holds_tickets(member.database)
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
            tables = await tables_of(joining)
            floors = await floors_of(tables)
            await raise_tables({each: tables[each] for each in (joining if everywhere else lifted)}, floors)
        new = with_offsets(record, [database.offset for database in joining])
        await write_record(new, {m.database: look.record for m, look in looks.items() if m not in refused})
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
        return await change_ring(databases, change), refused

    async def _never_drawn(self, looks: Mapping[Member, Look]) -> bool:
        """Whether all databases answer, and no sequence has a ticket or a mark on any of them."""
        if set(looks) != set(self._ring.members):
            return False
        for member in looks:
            if await holds_anything(member.database):
                return False
        return True


# --- steps of a change -----------------------------------------------------------------------------------------------


async def change_ring(
    databases: Mapping[TicketDatabase, RingRecord | None],
    change: RingRecord,
    say: Callable[[str], None] = lambda _: None,
) -> RingRecord:
    """Change the ring of these databases, each with the record that it has now, to `change`, which begins it.

    Returns the new ring. Raises DatabaseFailed; the change may then be begun again.
    """
    await write_record(change, databases)
    say(f"the change has begun on {len(databases)} databases; no ticket server draws until it is finished")
    for database in databases:
        database.use_increment(change.increment)
    tables = await tables_of(databases)
    floors = await floors_of(tables)
    say(f"{len(floors)} sequences have tickets or high-water marks")
    for database, held in tables.items():
        await raise_tables({database: held}, floors)
        if change.state is RingState.GROWING:
            await make_tables(tables, database, floors)
        say(f"{database.name}: every sequence stands above everything drawn")
    await keep_floors(databases, floors, change)
    new = finished(change)
    await write_record(new, {database: replace(change, own=database.offset) for database in databases})
    return new


async def write_record(record: RingRecord, databases: Mapping[TicketDatabase, RingRecord | None]) -> None:
    """Write the record on databases that have these records now. Raises DatabaseFailed where one has another one."""
    for database, old in databases.items():
        new = replace(record, own=database.offset)
        if old == new:
            continue
        try:
            found = await database.record_ring(old, new)
        except TicketDatabaseError as error:
            raise DatabaseFailed(database, error) from error
        if not same_ring(found, new):
            raise DatabaseFailed(
                database, TicketDatabaseBusy("had its ring record changed by another server meanwhile")
            )


Tables = Mapping[TicketDatabase, Sequence[Table]]
"""The tables of sequences that each database has."""


async def tables_of(databases: Iterable[TicketDatabase]) -> Tables:
    """Raises DatabaseFailed."""
    databases = list(databases)
    return dict(zip(databases, await asyncio.gather(*map(_tables_of, databases)), strict=True))


async def floors_of(tables: Tables) -> dict[str, int]:
    """For each sequence the largest id that any of these databases has drawn, or may have drawn: marks, then positions.

    Raises DatabaseFailed.
    """
    floors: Counter[str] = Counter()
    for database in tables:
        for mark in await _or_fail(database, database.marks_of_all_rings()):
            floors[mark.sequence] = max(floors[mark.sequence], mark.mark, mark.issued)
    questions = [_or_fail(database, database.positions(held)) for database, held in tables.items()]
    for positions in await asyncio.gather(*questions):
        for name, position in positions.items():
            floors[name] = max(floors[name], position.next_id - 1, position.largest)
    return dict(floors)


async def raise_tables(tables: Tables, floors: Mapping[str, int]) -> None:
    """Raise these tables above their floors. Raises DatabaseFailed."""

    async def lift(database: TicketDatabase, held: Sequence[Table]) -> None:
        lower = {table.sequence: min(floors.get(table.sequence, 0), table.ceiling) for table in held}
        await _or_fail(database, database.raise_all_above({name: floor for name, floor in lower.items() if floor > 0}))

    await asyncio.gather(*(lift(database, held) for database, held in tables.items()))


async def make_tables(tables: Tables, lacking: TicketDatabase, floors: Mapping[str, int]) -> None:
    """Make on one database the tables that any of them has, above their floors. Raises DatabaseFailed."""
    known = {table.sequence: table for held in tables.values() for table in held}
    for name in sorted(known.keys() - {table.sequence for table in tables[lacking]}):
        start = min(floors.get(name, 0) + 1, known[name].ceiling - 1)
        await _or_fail(lacking, lacking.make(name, known[name].width, start))


async def keep_floors(databases: Iterable[TicketDatabase], floors: Mapping[str, int], change: RingRecord) -> None:
    """Write on every database how far each sequence was raised on the others. Raises DatabaseFailed."""
    databases = list(databases)
    for database in databases:
        marks = [
            Mark(name, other.offset, change.increment, floor, floor, f"raised:{change.number}")
            for name, floor in sorted(floors.items())
            for other in databases
            if other is not database and floor
        ]
        if not marks:
            continue
        rows = await _or_fail(database, database.reserve(marks, change.number))
        for mark in marks:
            row = rows[mark.sequence, mark.offset]
            if row.token != mark.token:  # from when this increment was the ring's before
                await _or_fail(
                    database, database.renew(row, replace(mark, mark=max(mark.mark, row.mark)), change.number)
                )


async def _or_fail(database: TicketDatabase, question: Coroutine[None, None, T]) -> T:
    try:
        return await question
    except TicketDatabaseError as error:
        raise DatabaseFailed(database, error) from error


async def _tables_of(database: TicketDatabase) -> list[Table]:
    names = await _or_fail(database, database.names())
    tables = await _or_fail(database, database.tables(names))
    return [tables[name] for name in sorted(tables)]


async def _kept_by(database: TicketDatabase) -> set[tuple[int, int]]:
    """Offset and increment of every mark that the database keeps."""
    return {(mark.offset, mark.increment) for mark in await _or_fail(database, database.marks_of_all_rings())}


def _of_this_ring(kept: set[tuple[int, int]], record: RingRecord) -> set[tuple[int, int]]:
    """Without those of increments from before the ring grew, on a database that has marks of this increment too."""
    current = {(offset, increment) for offset, increment in kept if increment == record.increment}
    return current if current and record.since > 1 else kept


async def _holds_tickets(database: TicketDatabase) -> bool:
    """Whether any sequence of the database has a ticket, or begins above 1."""
    counters = await _or_fail(database, database.counters(await _or_fail(database, database.names())))
    if any(next_id > 1 for next_id, _ in counters.values()):
        return True
    # a counter may read one too low until something has opened the table
    positions = await _or_fail(database, database.positions(await _tables_of(database)))
    return any(position.largest or position.next_id > 1 for position in positions.values())


async def holds_anything(database: TicketDatabase) -> bool:
    """Whether any sequence has a ticket on the database, or a mark above 0."""
    marks = await _or_fail(database, database.marks_of_all_rings())
    return any(mark.mark or mark.issued for mark in marks) or await _holds_tickets(database)


def _use(looks: Iterable[Member], increment: int) -> None:
    """Ask the databases over connections for this increment: those for another one find them misconfigured."""
    for member in looks:
        member.database.use_increment(increment)


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
