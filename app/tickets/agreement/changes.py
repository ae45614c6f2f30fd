"""The steps of a change of the ring, for a server that forms one and for `ticketd grow` alike.

After the change a database may draw ids that had the residue of another database. So every sequence on every database
is raised above everything that any database has drawn, or may have drawn.

The order of a change:

1. Every database records, under a new number, that a change has begun. From then on the databases refuse marks that
   are written under an older number. A server without a witness finds the new number before it hands out a draw.
2. The server reads the marks, then the positions. A ticket that was handed out before step 1 lies at or below one of
   them, since the ring's number was checked after the ticket was drawn.
3. The server raises every table above all of that, committed, and writes marks of the new increment that say so to
   every other database.
4. Every database records the new ring.

No server draws under the record that an interrupted change leaves behind. The change is begun again with step 1.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from app.common.errors import RingChanged, TicketDatabaseError
from app.databases.protocol import Mark, RingRecord, RingState, Table, TicketDatabase
from app.tickets.agreement.record import finished
from app.tickets.ring.marks import Wanted, keep_marks

T = TypeVar("T")


class DatabaseFailed(Exception):
    """A database failed while the ring was agreed on or changed."""

    def __init__(self, database: TicketDatabase, error: TicketDatabaseError) -> None:
        super().__init__(f"{database.name} {error}")
        self.database = database
        self.error = error


async def change_ring(
    databases: Mapping[TicketDatabase, RingRecord | None],
    change: RingRecord,
    say: Callable[[str], None] = lambda _: None,
) -> RingRecord:
    """Change the ring of these databases, given with their present records. `change`: the record that begins it.

    `say`: called with a sentence at each step. Returns the new ring. Raises DatabaseFailed; the change may then be
    begun again.
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
    await keep_floors(databases, floors, change, of=databases)
    new = finished(change)
    await write_record(new, {database: as_kept(change, database, old) for database, old in databases.items()})
    return new


def as_kept(record: RingRecord, database: TicketDatabase, old: RingRecord | None) -> RingRecord:
    """The record as this database keeps it: with its own offset, and the body of data that `old` names."""
    body, life = ("", "") if old is None else (old.body, old.life)
    return replace(record, own=database.offset, body=body, life=life)


async def write_record(record: RingRecord, databases: Mapping[TicketDatabase, RingRecord | None]) -> None:
    """Write the record on these databases, given with their present records. Each keeps what it records of its body.

    Raises DatabaseFailed, with RingChanged if a database has another record meanwhile.
    """
    for database, old in databases.items():
        await write_own_record(as_kept(record, database, old), database, old)


async def write_own_record(new: RingRecord, database: TicketDatabase, old: RingRecord | None) -> None:
    """Write this record on the database, whose present record is `old`. Raises as `write_record` does."""
    if old != new:
        try:
            found = await database.record_ring(old, new)
        except TicketDatabaseError as error:
            raise DatabaseFailed(database, error) from error
        if found != new:
            raise DatabaseFailed(database, RingChanged("had its ring record changed by another server meanwhile"))


Tables = Mapping[TicketDatabase, Sequence[Table]]
"""The tables of sequences that each database has."""


async def tables_of(databases: Iterable[TicketDatabase]) -> Tables:
    """Raises DatabaseFailed."""
    databases = list(databases)
    return dict(zip(databases, await asyncio.gather(*map(_tables_of, databases)), strict=True))


async def floors_of(tables: Tables) -> dict[str, int]:
    """For each sequence, the largest id that any of these databases may have drawn. Raises DatabaseFailed."""
    floors: Counter[str] = Counter()
    for database in tables:
        for mark in await or_fail(database, database.marks_of_all_rings()):
            floors[mark.sequence] = max(floors[mark.sequence], mark.mark, mark.issued)
    questions = [
        or_fail(database, database.positions(table.sequence for table in held)) for database, held in tables.items()
    ]
    for positions in await asyncio.gather(*questions):
        for name, position in positions.items():
            floors[name] = max(floors[name], position.next_id - 1, position.largest)
    return dict(floors)


async def raise_tables(tables: Tables, floors: Mapping[str, int]) -> None:
    """Raise these tables above their floors. Raises DatabaseFailed."""

    async def advance(database: TicketDatabase, held: Sequence[Table]) -> None:
        lower = {table.sequence: min(floors.get(table.sequence, 0), table.ceiling) for table in held}
        await or_fail(database, database.advance({name: floor for name, floor in lower.items() if floor > 0}))

    await asyncio.gather(*(advance(database, held) for database, held in tables.items()))


async def make_tables(tables: Tables, lacking: TicketDatabase, floors: Mapping[str, int]) -> None:
    """Make the tables that one database lacks, each above its floor. Raises DatabaseFailed."""
    known = {table.sequence: table for held in tables.values() for table in held}
    for name in sorted(known.keys() - {table.sequence for table in tables[lacking]}):
        start = min(floors.get(name, 0) + 1, known[name].ceiling - 1)
        await or_fail(lacking, lacking.make(name, known[name].width, start))


async def keep_floors(
    databases: Iterable[TicketDatabase], floors: Mapping[str, int], change: RingRecord, *, of: Iterable[TicketDatabase]
) -> None:
    """Write marks to `databases` that say how far each sequence was raised on the other databases among `of`.

    Raises DatabaseFailed.
    """
    raised = list(of)
    for database in databases:
        wanted = [
            Wanted(Mark(name, other.offset, change.increment, floor, floor, f"raised:{change.number}"), _any_row)
            for name, floor in sorted(floors.items())
            for other in raised
            if other is not database and floor
        ]
        if wanted:
            await or_fail(database, keep_marks(database, wanted, change.number))


def _any_row(_: Mark) -> bool:
    """Supersede any row: one of another token is from an earlier time in which the ring had this increment."""
    return True


async def or_fail(database: TicketDatabase, question: Coroutine[None, None, T]) -> T:
    """The database's answer. Raises DatabaseFailed, which names the database."""
    try:
        return await question
    except TicketDatabaseError as error:
        raise DatabaseFailed(database, error) from error


async def _tables_of(database: TicketDatabase) -> list[Table]:
    names = await or_fail(database, database.names())
    tables = await or_fail(database, database.tables(names))
    return [tables[name] for name in sorted(tables)]


async def holds_tickets(database: TicketDatabase) -> bool:
    """Whether any sequence of the database has a ticket, or begins above 1."""
    tables = await _tables_of(database)
    positions = await or_fail(database, database.positions(table.sequence for table in tables))
    return any(position.largest or position.next_id > 1 for position in positions.values())


async def holds_anything(database: TicketDatabase) -> bool:
    """Whether any sequence has a ticket on the database, or a mark above 0."""
    marks = await or_fail(database, database.marks_of_all_rings())
    return any(mark.mark or mark.issued for mark in marks) or await holds_tickets(database)
