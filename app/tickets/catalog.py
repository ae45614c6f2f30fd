"""The catalog: which sequences there are, by asking the ticket databases, and how a sequence is made.

A sequence is a counter (a table) in the ticket databases, with the row that defines it where a server has made it. On
each database the row is written before the counter is made, and the counter is read before the row. So a server never
takes the counter of another kind for plain tickets. A counter that one database has and another lacks is made there by
any server that notices.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from app.databases.session import ENDS, Book, Counter, Write
from app.errors import (
    DatabaseError,
    DatabaseFailed,
    DatabaseRefused,
    NoTicketDatabase,
    SequenceError,
    SequenceMissing,
    SequenceUnusable,
    TicketError,
    UnknownSequence,
)
from app.tickets.definitions import Definition, Row, Seen, key_of, seen_of, settle
from app.tickets.everywhere import everywhere, lives_in_sight
from app.tickets.floors import Floors
from app.tickets.sight import Member, Sight

log = logging.getLogger(__name__)

FIRST_LOOK_SECONDS = 1.5
"""How long a request waits for the first looks on a server that has just started."""
REMEMBERED_SECONDS = 1.0
"""How long the server remembers that there is no such sequence."""
MOST_REMEMBERED = 10_000
"""The most names that it remembers so; with one more it forgets all of them."""


@dataclass(eq=False, slots=True)
class Entry:
    """A sequence. The catalog replaces the entry where another definition of the sequence stands.

    name: as it was made. key: the name in lower case, as the notebook has it. definition: its kind and that kind's
    parameters. row: its row of DEFINITIONS; None for a table made by hand. counters: as they were read last, by
    database. reasons: why it is not drawn from some databases.
    """

    name: str
    key: str
    definition: Definition
    row: Row | None
    counters: dict[Member, Counter] = field(default_factory=dict)
    reasons: dict[Member, str] = field(default_factory=dict)

    @property
    def is_counted(self) -> bool:
        """Whether its ids are drawn from the ticket databases."""
        return self.definition.counter_bits is not None

    @property
    def bits(self) -> int:
        """The width of its counters, the narrowest where databases differ."""
        return min((counter.bits for counter in self.counters.values()), default=self.definition.counter_bits or 64)

    @property
    def ceiling(self) -> int:
        """The largest id of its counters, the lowest where databases differ."""
        return min((counter.ceiling for counter in self.counters.values()), default=ENDS[self.bits])

    @property
    def floor(self) -> int:
        """No id at or below it is given: one less than the `start` of the definition."""
        return self.definition.start - 1


class Catalog:
    """The sequences that this server knows. floors: of this server.

    Attributes:
        entries: the sequences that can be served, by name in lower case.
        troubles: why a sequence that is there cannot be served by any database, by name in lower case.
        making: the names, in lower case, of sequences whose counters are about to be made.
        replaced: called with an entry that is not served any more: the sequence is gone, or defined otherwise.
    """

    def __init__(self, sight: Sight, floors: Floors) -> None:
        self.entries: dict[str, Entry] = {}
        self.troubles: dict[str, str] = {}
        self.making: set[str] = set()
        self.replaced: Callable[[Entry], None] = lambda _entry: None
        self._sight, self._floors = sight, floors
        self._views: dict[str, dict[Member, Seen]] = {}
        self._absent_until: dict[str, float] = {}

    # --- finding ------------------------------------------------------------------------------------------------------

    def known(self, name: str) -> Entry | None:
        """Return the sequence of this name, in lower case, if this server knows it already."""
        return self.entries.get(name)

    async def find(self, name: str, *, fresh: bool = False) -> Entry:
        """Return the sequence of this name, in any case, looked up on all databases in sight if it is not known.

        fresh: look it up in any case, so that its counters are the present ones. Raises InvalidRequest,
        UnknownSequence; NoTicketDatabase where no database can be asked, or none can serve the sequence.
        """
        key = key_of(name)
        entry = None if fresh else self.entries.get(key)
        if entry is None and (fresh or self._absent_until.get(key, 0.0) <= self._sight.clock()):
            await self.first_look()
            entry = await self.look_up(key)
        if entry is None:
            raise self._absent(key)
        return entry

    async def first_look(self) -> None:
        """Wait until a database is in sight, or none can come, but not for longer than a request can."""
        with suppress(TimeoutError):
            async with asyncio.timeout(FIRST_LOOK_SECONDS):
                while not self._sight.in_sight and self._sight.is_settling:
                    await self._sight.moved()

    async def look_up(self, key: str) -> Entry | None:
        """Look a name up on all databases in sight; None where it cannot be served. Look-ups share statements.

        Raises NoTicketDatabase where no database can be asked.
        """
        reads = await everywhere(
            self._sight, lives_in_sight(self._sight), lambda member, life: self._see(member, life, key)
        )
        if not reads:
            raise NoTicketDatabase("no ticket database can be asked for the sequence now")
        entry = self.take(key, reads)
        if entry is None:
            if len(self._absent_until) > MOST_REMEMBERED:
                self._absent_until.clear()
            self._absent_until[key] = self._sight.clock() + REMEMBERED_SECONDS
        return entry

    def _absent(self, key: str) -> TicketError:
        if key in self.troubles:
            return NoTicketDatabase(f"no ticket database can serve the sequence {key}: {self.troubles[key]}")
        return UnknownSequence(f"there is no sequence {key}; PUT /sequence/{key} makes it")

    async def _see(self, member: Member, life: str, key: str) -> Seen:
        """Read what one database has of a sequence: first the counter, then the row that defines it."""
        at = self._sight.clock()
        counter = (await member.database.sequences([key], life)).get(key)
        row = (await member.database.read(Book.DEFINITIONS, [key], life)).get(key)
        return seen_of(key, counter, row, at)

    # --- what is known ------------------------------------------------------------------------------------------------

    def take(self, key: str, reads: Mapping[Member, Seen]) -> Entry | None:
        """Take over what databases have of a sequence; return its entry, or None where it cannot be served."""
        views = self._views.setdefault(key, {})
        for member, seen in reads.items():
            if member not in views or views[member].at <= seen.at:
                views[member] = seen
        settled = settle(key, {member.offset: seen for member, seen in views.items()})
        definition, reason = settled.definition, settled.reason
        if definition is not None and not definition.is_known:
            reason = f"it is {definition}, which this release cannot serve"
        if reason:
            self.troubles[key] = reason
        else:
            self.troubles.pop(key, None)
        if definition is None or reason or not self._is_there(key, definition, views):
            self._drop(key)
            if all(seen.is_empty for seen in views.values()):
                del self._views[key]
            return None
        entry = self.entries.get(key)
        if entry is None or (entry.name, entry.definition) != (settled.name, definition):
            self._drop(key)
            entry = self.entries[key] = Entry(settled.name, key, definition, settled.row)
            self._absent_until.pop(key, None)
            self._floors.remember(key, entry.floor)
        entry.row = settled.row
        entry.reasons = {member: settled.reasons[member.offset] for member in views if member.offset in settled.reasons}
        entry.counters = {
            member: seen.counter
            for member, seen in views.items()
            if isinstance(seen.counter, Counter) and member not in entry.reasons
        }
        return entry

    def view(self, key: str, member: Member) -> Seen:
        """Return what this database had of the sequence when it was read last."""
        return self._views.get(key, {}).get(member, Seen())

    def standing_row(self, key: str) -> Row | None:
        """Return the row that defines the sequence by what was read last, even if its counters are gone."""
        return settle(key, {member.offset: seen for member, seen in self._views.get(key, {}).items()}).row

    def _is_there(self, key: str, definition: Definition, views: Mapping[Member, Seen]) -> bool:
        """Whether there is such a sequence. One whose tables were dropped on all databases is there no more."""
        if key in self.making or any(seen.counter is not None for seen in views.values()):
            return True
        return definition.counter_bits is None or not self._sight.whole

    def _drop(self, key: str) -> None:
        entry = self.entries.pop(key, None)
        if entry is not None:
            self.replaced(entry)

    # --- counters -----------------------------------------------------------------------------------------------------

    async def counter(self, entry: Entry, member: Member) -> Counter:
        """Return the sequence's counter as it is on this database now; it is made there if others have it.

        Raises SequenceError where the sequence cannot be drawn from this database, other DatabaseErrors where the
        database cannot be used.
        """
        key, life = entry.key, member.life
        if life is None:
            raise DatabaseFailed(f"{member.name} is not in sight")
        seen = await self._see(member, life, key)
        if seen.counter is None and entry.is_counted:
            await self.look_up(key)  # a sequence that was dropped everywhere is not made again
            if self.entries.get(key) is entry:
                await self._make(entry, member, life)
            seen = await self._see(member, life, key)
        if self.take(key, {member: seen}) is not entry:
            raise SequenceMissing(f"the sequence {entry.name} was dropped, or made otherwise, meanwhile; ask again")
        if isinstance(seen.counter, DatabaseError):
            raise seen.counter
        if member in entry.reasons:
            raise SequenceUnusable(f"{member.name}: {entry.reasons[member]}")
        if seen.counter is None:
            raise SequenceMissing(f"{member.name} has no counter for {entry.name}")
        if seen.row is None and entry.row is not None:
            await self.define(entry.key, entry.row, member, life)
        return seen.counter

    async def _make(self, entry: Entry, member: Member, life: str) -> None:
        """Write the row that defines the sequence, then make its counter above all that is known of the sequence."""
        if entry.row is not None and await self.define(entry.key, entry.row, member, life) != entry.row:
            raise SequenceMissing(f"{member.name} did not take the definition of {entry.name}; ask again")
        above = min(await self._known(entry), ENDS[entry.bits])
        log.info("making the sequence %s on %s above %d", entry.name, member.name, above)
        try:
            await member.database.make(entry.name, entry.bits, above, life)
        except DatabaseRefused as error:
            raise SequenceMissing(f"{member.name} has no counter for {entry.name}, and {error}") from error

    async def _known(self, entry: Entry) -> int:
        """The largest limit, floor and position of the sequence on any database in sight."""
        record = self._sight.record
        offsets = {member.offset for member in self._sight.members}.union(record.offsets if record is not None else ())
        names = [f"{entry.key}/{offset}" for offset in sorted(offsets)]

        async def read(member: Member, life: str) -> int:
            marks = await member.database.read(Book.MARKS, names, life)
            floors = await member.database.read(Book.FLOORS, [entry.key], life)
            return max((row.high for row in (*marks.values(), *floors.values())), default=0)

        kept = await everywhere(self._sight, lives_in_sight(self._sight), read)
        positions = (counter.position for counter in entry.counters.values())
        return max([entry.floor, self._floors.known.get(entry.key, 0), *kept.values(), *positions])

    async def define(self, key: str, row: Row, member: Member, life: str) -> Row | None:
        """Write this row where the database has none. Returns the row that is there then.

        Returns None where the database takes no row now, because the ring is being changed, and where a damaged row is
        there. Raises DatabaseError.
        """
        stamp = self._sight.stamp
        if stamp is None:
            return None
        if (await member.database.write([Write(Book.DEFINITIONS, key, None, row.note())], stamp, life))[0]:
            return row
        found = (await member.database.read(Book.DEFINITIONS, [key], life)).get(key)
        if found is None:  # the database has another ring number
            self._sight.look_at(member)
        return seen_of(key, None, found, 0.0).row

    async def ensure(self, entry: Entry, member: Member) -> str | None:
        """Make what one database lacks of a sequence. Returns why it could not be made; None where it is there.

        A database that fails goes out of sight.
        """
        life = member.life
        if life is None:
            return f"{member.name} is not in sight"
        try:
            if entry.is_counted:
                await self.counter(entry, member)
            elif entry.row is not None:
                await self.define(entry.key, entry.row, member, life)
        except (DatabaseError, NoTicketDatabase) as error:
            if isinstance(error, DatabaseError) and not isinstance(error, SequenceError) and member.life == life:
                self._sight.failed(member, error)
            return str(error)
        return None
