"""How sequences are made: agreed on with the other servers, then made as a table on each database that lacks it."""

import asyncio
import logging
from collections.abc import Callable, Mapping

from app.common.errors import AboveCeiling, NoTicketDatabase, SequenceConflict, TicketDatabaseError
from app.common.log import event
from app.common.sequences import Width, ceiling_of, is_inner_name
from app.kinds.definition import Definition
from app.kinds.kind import Kind
from app.tickets.ring.ring import Member, Ring
from app.tickets.sequences.definitions import in_words, same
from app.tickets.sequences.entry import TICKET, Entry
from app.tickets.sequences.known import KnownSequences

log = logging.getLogger(__name__)


class Maker:
    """Makes sequences and their tables."""

    def __init__(self, ring: Ring, sequences: KnownSequences, known_mark: Callable[[str, Member], int]) -> None:
        """`known_mark`: the largest mark ever read about a table on a database; 0 if there is none."""
        self._ring = ring
        self._sequences = sequences
        self._known_mark = known_mark

    async def make(self, name: str, width: Width | None, start: int | None, kind: Kind | None) -> tuple[Entry, bool]:
        """Make a sequence of plain tickets, unless it is known. Returns the sequence, and whether it was made.

        The caller has looked the name up. `width`, `start`: None if the client named none. `kind`: TICKET if the client
        named it, else None. Raises SequenceConflict, AboveCeiling, OlderServer, NoTicketDatabase.
        """
        entry, made = self._sequences.entries.get(name), False
        if entry is None:
            bits, first = width or Width.BIGINT, start or 1
            ceiling = ceiling_of(bits, unsigned=True)
            self._refuse_case_alone(name)
            if first >= ceiling:
                raise AboveCeiling(f"start has to be below {ceiling}, the end of a sequence of {int(bits)} bits")
            entry, made = await self._agree(Definition(name, TICKET.name, {"bits": int(bits), "start": first}))
        if entry.kind is not TICKET and (kind is not None or width is not None):
            raise SequenceConflict(f"the sequence {name} exists as {_in_words(entry)}")
        if width is not None and entry.width != width:
            raise SequenceConflict(f"the sequence {name} exists with {int(entry.width)} bits")
        return entry, made

    async def make_of_kind(self, name: str, kind: Kind, given: Mapping[str, int], now_ms: int) -> tuple[Entry, bool]:
        """Make a sequence of another kind than `ticket`, unless it is known. Returns the same as `make`.

        The caller has looked the name up. `given`: the parameters that the client named; the others are the kind's
        defaults at the time `now_ms` (milliseconds since 1970). Raises as `make` does, and InvalidRequest.
        """
        entry, made = self._sequences.entries.get(name), False
        if entry is None:
            self._refuse_case_alone(name)
            entry, made = await self._agree(Definition(name, kind.name, kind.complete(given, now_ms)))
        kind.refuse_unknown(given)
        if entry.kind is TICKET and entry.tables:
            raise SequenceConflict(f"the sequence {name} exists with tickets of {int(entry.width)} bits")
        if entry.kind is not kind or not same(given, entry.parameters):
            raise SequenceConflict(f"the sequence {name} exists as {_in_words(entry)}")
        return entry, made

    async def _agree(self, wanted: Definition) -> tuple[Entry, bool]:
        """Agree with the other servers on the definition of a sequence that is not known, and make its tables.

        Returns the sequence, and whether the definition is the one that this call claimed first. Raises OlderServer,
        NoTicketDatabase, SequenceConflict.
        """
        up = [member for member in self._ring.members if member.up]
        standing, made = await self._sequences.definitions.agree(wanted, up)
        name = wanted.sequence
        if standing.sequence != name:
            raise SequenceConflict(f"the sequence {standing.sequence} differs from {name} by case alone")
        self._sequences.define(standing)
        entry = self._sequences.entries.get(name)
        if standing.kind == TICKET.name:
            width, start = Width(standing.parameters.get("bits", 64)), standing.parameters.get("start", 1)
            await asyncio.gather(*(self._make_on(member, name, width, start) for member in up))
        elif entry is not None and entry.table:
            await asyncio.gather(*(self._make_on(member, entry.table, Width.BIGINT, 1) for member in up))
        self._sequences.refuse_troubled()
        entry = self._sequences.entries.get(name)
        if entry is None:
            raise NoTicketDatabase("no ticket database could make the sequence")
        return entry, made

    def _refuse_case_alone(self, name: str) -> None:
        clash = next((other for other in self._sequences.entries if other.lower() == name.lower()), None)
        if clash is not None:
            raise SequenceConflict(f"the sequence {clash} differs from {name} by case alone")

    async def inner(self, table: str) -> Entry:
        """An inner sequence, which no client can ask for by name. It is made if no database has it."""
        entry = self._sequences.by_table.get(table) or self._sequences.add(table, table)
        up = [member for member in self._ring.members if member.up and member not in entry.tables]
        await asyncio.gather(*(self._look_for(table, member) for member in up))
        for member in up:
            if member not in entry.tables:
                await self._make_above_others(entry, member)
        return entry

    async def _look_for(self, table: str, member: Member) -> None:
        """Enter the table if this database has it."""
        try:
            found = await member.database.tables([table])
        except TicketDatabaseError as error:
            event(log, logging.DEBUG, "could not be asked for it", sequence=table, database=member.name, reason=error)
        else:
            for each in found.values():
                self._sequences.enter(member, each)

    # --- tables ------------------------------------------------------------------------------------------------------

    async def make_missing(self, entries: list[Entry]) -> None:
        """Make each table that one database has and another lacks. A table that was dropped on every database is not
        made again, even if it was dropped on the last one while this makes another table."""
        for entry in entries:
            if len(entry.tables) == len(self._ring.members):
                continue
            for member in self._ring.members:
                is_one = entry.tables or is_inner_name(entry.table)
                if is_one and member.up and member not in entry.tables and member in self._sequences.listed:
                    await self._make_above_others(entry, member)

    async def _make_on(self, member: Member, name: str, width: Width, start: int) -> None:
        try:
            await member.database.make(name, width, start)
            table = (await member.database.tables([name])).get(name)
        except TicketDatabaseError as error:
            event(log, logging.WARNING, "could not make it", sequence=name, database=member.name, reason=error)
            return
        entry = None if table is None else self._sequences.enter(member, table)
        if table is not None and entry is not None:
            entry.start = max(entry.start or 1, start)
            self._sequences.listed.setdefault(member, {})[name] = table.created

    async def _make_above_others(self, entry: Entry, member: Member) -> None:
        """Make the table on a database that lacks it, above the positions of the other databases. Make none if the
        position of one of them is unknown. The lane learns from the marks what the database itself gave before."""
        start = await self._start_above_others(entry, member)
        if start is not None:
            event(log, logging.INFO, "making it", sequence=entry.name, database=member.name, start=start)
            await self._make_on(member, entry.table, entry.width, start)
            entry.lane_on(member).must_advance = True

    async def _start_above_others(self, entry: Entry, member: Member) -> int | None:
        """The first id of the table on this database: above the sequence's start, above the positions of the other
        databases that are up, and above the last known positions of those that are not. None if one is unknown."""
        start = max(entry.start or 1, entry.least)
        for other in self._ring.members:
            if other is member:
                continue
            remembered = self._remembered(entry, other)
            start = max(start, remembered)
            table = entry.tables.get(other)
            if table is None:
                continue
            if other.up:
                try:
                    position = await other.database.position(table.sequence)
                except TicketDatabaseError as error:
                    event(log, logging.DEBUG, "could not read a position", database=other.name, reason=error)
                    return None
                start = max(start, position.next_id)
            elif not remembered and entry.start is None:
                return None
        return min(start, entry.ceiling - 1)

    def _remembered(self, entry: Entry, member: Member) -> int:
        """The least id that the database can give next, by what this server knew last; 0 if it knows nothing."""
        known = max(entry.lane_on(member).guard.highest, self._known_mark(entry.table, member))
        return max(self._sequences.counters.next_id(entry, member), known + 1 if known else 0)


def _in_words(entry: Entry) -> str:
    return in_words(Definition(entry.name, entry.kind.name, entry.parameters))
