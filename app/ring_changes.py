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
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import replace
from typing import TypeVar

from app.databases.protocol import Look, Mark, RingRecord, RingState, Table, TicketDatabase, check_settings
from app.errors import SequenceMissing, TicketDatabaseBusy, TicketDatabaseError, TicketDatabaseMisconfigured
from app.ring import Member, Ring
from app.ring_record import (
    UNFINISHED,
    RingContradiction,
    begun,
    contradiction,
    contradiction_of_marks,
    finished,
    first_record,
    increment_of_marks,
    newest,
    same_ring,
    with_offsets,
)

T = TypeVar("T")

AT_ONCE = 4
"""How many tables of one database are read or raised at a time."""


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
        record = newest(records)
        if record.state is RingState.FORMING:
            return await self._form(looks, self._increment or record.increment)
        reason = contradiction(record, self._increment, len(self._ring.members))
        if reason is None:
            return await self._join(record, looks)
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
        if not everything:
            drawn = [member for member in looks if await _holds_tickets(member.database)]
            if not drawn:
                return await self._record(first_record(increment, ()), looks)
            return await self._form(looks, increment)
        for member in looks:
            reason = contradiction_of_marks(kept[member], increment, [member.database.offset], listed)
            if reason is not None:
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
            elif reason := contradiction_of_marks(kept, record.increment, [offset], 0):
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
            for database in joining:
                database.use_increment(record.increment)
            await raise_tables(joining if everywhere else lifted, await floors_of(joining))
        new = with_offsets(record, [database.offset for database in joining])
        await write_record(new, {m.database: look.record for m, look in looks.items() if m not in refused})
        return new, refused

    async def _form(self, looks: Mapping[Member, Look], increment: int) -> tuple[RingRecord | None, dict[Member, str]]:
        """Raise everything and record a new ring; see the module's docstring.

        A database that does not answer is raised when it comes, and the others above what it holds.
        """
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
    floors = await floors_of(databases)
    say(f"{len(floors)} sequences have tickets or high-water marks")
    for database in databases:
        await raise_tables([database], floors)
        if change.state is RingState.GROWING:
            await make_tables(databases, [database], floors)
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


async def floors_of(databases: Iterable[TicketDatabase]) -> dict[str, int]:
    """For each sequence the largest id that any of these databases has drawn, or may have drawn: marks, then positions.

    Raises DatabaseFailed.
    """
    floors: Counter[str] = Counter()
    databases = list(databases)
    for database in databases:
        for mark in await _or_fail(database, database.marks_of_all_rings()):
            floors[mark.sequence] = max(floors[mark.sequence], mark.mark, mark.issued)
    for database in databases:

        async def read(table: Table, database: TicketDatabase = database) -> None:
            try:
                position = await database.position(table)
            except SequenceMissing:
                return  # dropped meanwhile
            name = table.sequence
            floors[name] = max(floors[name], position.next_id - 1, position.largest)

        await _with_each(database, await _tables_of(database), read)
    return dict(floors)


async def raise_tables(databases: Iterable[TicketDatabase], floors: Mapping[str, int]) -> None:
    """Raise every table on these databases above its floor. Raises DatabaseFailed."""
    for database in databases:

        async def lift(table: Table, database: TicketDatabase = database) -> None:
            floor = min(floors.get(table.sequence, 0), table.ceiling)
            if floor:
                await database.raise_above(table, floor)

        await _with_each(database, await _tables_of(database), lift)


async def make_tables(
    databases: Iterable[TicketDatabase], lacking: Iterable[TicketDatabase], floors: Mapping[str, int]
) -> None:
    """Make on `lacking` the tables that any of `databases` has, above their floors. Raises DatabaseFailed."""
    known: dict[str, Table] = {}
    for database in databases:
        known |= {table.sequence: table for table in await _tables_of(database)}
    for database in lacking:

        async def make(table: Table, database: TicketDatabase = database) -> None:
            start = min(floors.get(table.sequence, 0) + 1, table.ceiling - 1)
            await database.make(table.sequence, table.width, start)

        held = {table.sequence for table in await _tables_of(database)}
        await _with_each(database, [known[name] for name in sorted(known.keys() - held)], make)


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


async def _with_each(
    database: TicketDatabase, tables: Iterable[Table], work: Callable[[Table], Coroutine[None, None, None]]
) -> None:
    """Do the work for each table, a few at a time. Raises DatabaseFailed."""
    pending = iter(list(tables))

    async def worker() -> None:
        for table in pending:
            await _or_fail(database, work(table))

    workers = [asyncio.create_task(worker()) for _ in range(AT_ONCE)]
    try:
        await asyncio.gather(*workers)
    finally:
        for each in workers:
            each.cancel()
        await asyncio.gather(*workers, return_exceptions=True)


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


async def _holds_tickets(database: TicketDatabase) -> bool:
    """Whether any sequence of the database has a ticket, or begins above 1."""
    names = await _or_fail(database, database.names())
    counters = await _or_fail(database, database.counters(names))
    if any(next_id > 1 for next_id, _ in counters.values()):
        return True
    for table in await _tables_of(database):  # a counter may read one too low until something has opened the table
        position = await _or_fail(database, database.position(table))
        if position.largest or position.next_id > 1:
            return True
    return False


async def holds_anything(database: TicketDatabase) -> bool:
    """Whether any sequence has a ticket on the database, or a mark above 0."""
    marks = await _or_fail(database, database.marks_of_all_rings())
    return any(mark.mark or mark.issued for mark in marks) or await _holds_tickets(database)


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
