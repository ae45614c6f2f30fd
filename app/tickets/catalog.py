"""The catalog: which sequences there are, by asking the ticket databases, and how a sequence is made.

A sequence is a counter (a table) in the ticket databases, with the row that defines it where a server has made it. On
each database the row is written before the counter is made, and the counter is read before the row. So a server never
takes the counter of another kind for plain tickets.

The database of the lowest offset is asked first to keep the definition of a new sequence, and decides. So all servers
that make one sequence at the same moment, and reach that database, go by one definition.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from app.databases.record import new_word
from app.databases.session import ENDS, Book, Counter, Write
from app.errors import (
    AboveCeiling,
    DatabaseError,
    DatabaseFailed,
    DatabaseRefused,
    ForceRequired,
    NotForThisKind,
    NoTicketDatabase,
    SequenceConflict,
    SequenceError,
    SequenceMissing,
    SequenceUnusable,
    UnknownSequence,
)
from app.kinds.table import kind_named
from app.tickets.definitions import TICKET, Definition, Seen, key_of, seen_of, settle
from app.tickets.everywhere import all_rows, everywhere, lives_in_sight
from app.tickets.floors import Floors, drawn
from app.tickets.sight import Member, Sight

log = logging.getLogger(__name__)

FORCE_PERCENT = 90  # a bump that uses up more than this part of a sequence's ids has to be forced
FIRST_LOOK_SECONDS = 1.5  # how long a request waits for the first looks on a server that has just started


@dataclass(eq=False, slots=True)
class Entry:
    """A sequence. The catalog replaces the entry where another definition of the sequence stands.

    key: its name in lower case, as the notebook has it. counters: as they were read last, by database. reasons: why it
    is not drawn from some databases.
    """

    key: str
    definition: Definition
    counters: dict[Member, Counter] = field(default_factory=dict)
    reasons: dict[Member, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The name as it was made."""
        return self.definition.name

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

    def compare(self, kind: str | None, given: Mapping[str, int]) -> None:
        """Raise SequenceConflict where the sequence is not what a client named: a kind, and parameters."""
        there = Definition(TICKET, {"bits": self.bits}) if self.definition.kind == TICKET else self.definition
        is_kind = there.kind == (kind or TICKET) or (kind is None and not given)
        named = [(name, value) for name, value in given.items() if name != "start"]
        if not is_kind or any(there.parameters.get(name) != value for name, value in named):
            raise SequenceConflict(f"the sequence {self.name} exists as {there}")

    def lacks(self, member: Member, seen: Seen) -> bool:
        """Whether a database lacks a part of the sequence."""
        is_complete = (seen.counter or not self.is_counted) and (seen.row or not self.definition.word)
        return member not in self.reasons and not is_complete


class Catalog:
    """The sequences that this server knows.

    sight, floors: of this server. now_ms: the time for new sequences, in milliseconds since 1970.

    Attributes:
        entries: the sequences that can be served, by name in lower case.
        troubles: why a sequence that is there cannot be served by any database, by name in lower case.
        replaced: called with an entry that is not served any more: the sequence is gone, or defined otherwise.
    """

    def __init__(self, sight: Sight, floors: Floors, now_ms: Callable[[], int]) -> None:
        self.entries: dict[str, Entry] = {}
        self.troubles: dict[str, str] = {}
        self.replaced: Callable[[Entry], None] = lambda _entry: None
        self._sight, self._floors, self._now_ms = sight, floors, now_ms
        self._views: dict[str, dict[Member, Seen]] = {}

    # --- finding ------------------------------------------------------------------------------------------------------

    async def find(self, name: str, *, fresh: bool = False) -> Entry:
        """Return the sequence of this name, in any case, looked up on all databases in sight if it is not known.

        fresh: look it up in any case, so that its counters are the present ones. Raises InvalidRequest,
        UnknownSequence; NoTicketDatabase where no database can be asked, or none can serve the sequence.
        """
        key = key_of(name)
        entry = (None if fresh else self.entries.get(key)) or await self._look_up(key)
        if entry is None:
            raise UnknownSequence(f"there is no sequence {key}; PUT /sequence/{key} makes it")
        return entry

    async def first_look(self) -> None:
        """Wait until a database is in sight, or none can come, but not for longer than a request can."""
        sight, until = self._sight, self._sight.clock() + FIRST_LOOK_SECONDS
        while not sight.in_sight and sight.is_settling and (left := until - sight.clock()) > 0:
            await sight.moved(left)

    async def _look_up(self, key: str) -> Entry | None:
        """Look a name up on all databases in sight; None where there is no such sequence. Look-ups share statements.

        Raises NoTicketDatabase where no database can be asked, or none can serve the sequence.
        """
        await self.first_look()
        reads = await everywhere(self._sight, lives_in_sight(self._sight), partial(self.read, [key]))
        if not reads:
            raise NoTicketDatabase("no ticket database can be asked for the sequence now")
        entry = self.take(key, {member: found[key] for member, found in reads.items()})
        if key in self.troubles:
            raise NoTicketDatabase(f"no ticket database can serve the sequence {key}: {self.troubles[key]}")
        return entry

    async def read(self, keys: Sequence[str] | None, member: Member, life: str) -> dict[str, Seen]:
        """Read what one database has of these sequences: first the counters, then the rows that define them.

        keys: their names in lower case; None for all sequences that it has. Raises DatabaseError.
        """
        at, database = self._sight.clock(), member.database
        counters = await database.sequences(keys, life)
        read = all_rows(member, life, Book.DEFINITIONS) if keys is None else database.read(Book.DEFINITIONS, keys, life)
        rows = await read
        named = counters.keys() | rows.keys() if keys is None else keys
        return {key: seen_of(key, counters.get(key), rows.get(key), at) for key in named}

    def take(self, key: str, reads: Mapping[Member, Seen]) -> Entry | None:
        """Take over what databases have of a sequence; return its entry, or None where it cannot be served."""
        views = self._views.setdefault(key, dict.fromkeys(self._sight.members, Seen()))  # in the order of their offsets
        views |= {member: seen for member, seen in reads.items() if views[member].at <= seen.at}
        definition, reasons = settle(views)
        self.troubles.pop(key, None)
        if definition is not None and not definition.is_known:
            self.troubles[key] = f"it is {definition}, which this release cannot serve"
        elif definition is None and reasons:
            self.troubles[key] = next(iter(reasons.values()))
        # a sequence whose tables were dropped on all databases is there no more
        is_there = any(seen.counter for seen in views.values()) or not self._sight.whole
        is_served = definition is not None and key not in self.troubles and (is_there or not definition.counter_bits)
        entry = self.entries.get(key)
        if entry is not None and not (is_served and entry.definition == definition):
            self.replaced(self.entries.pop(key))
            entry = None
        if definition is None or not is_served:
            if not any(seen.counter or seen.row for seen in views.values()):
                del self._views[key]
            return None
        if entry is None:
            entry = self.entries[key] = Entry(key, definition)
            self._floors.remember(key, definition.start - 1)
        counters = {member: seen.counter for member, seen in views.items() if member not in reasons}
        entry.definition, entry.reasons = definition, reasons
        entry.counters = {member: counter for member, counter in counters.items() if isinstance(counter, Counter)}
        return entry

    # --- what a database lacks ----------------------------------------------------------------------------------------

    async def counter(self, entry: Entry, member: Member) -> Counter:
        """Return the sequence's counter as it is on this database now; it is made there if others have it.

        Raises SequenceError where the sequence cannot be drawn from this database, other DatabaseErrors where the
        database cannot be used.
        """
        key, life = entry.key, member.life
        if life is None:
            raise DatabaseFailed(f"{member.name} is not in sight")
        seen = (await self.read([key], member, life))[key]
        if seen.counter is None and await self._look_up(key) is entry:  # else it was dropped everywhere
            await self._make(entry, member, life)
            seen = (await self.read([key], member, life))[key]
        if self.take(key, {member: seen}) is not entry or seen.counter is None:
            raise SequenceMissing(f"the sequence {entry.name} was dropped, or made otherwise, meanwhile; ask again")
        if isinstance(seen.counter, DatabaseError):
            raise seen.counter
        if member in entry.reasons:
            raise SequenceUnusable(f"{member.name}: {entry.reasons[member]}")
        if seen.row is None and entry.definition.word:
            await self._define(entry, member, life)
        return entry.definition.capped(seen.counter)

    async def ensure(self, entry: Entry, member: Member, above: int = 0) -> str | None:
        """Make what one database lacks of a sequence, and raise its counter to `above` at least.

        Returns why that could not be done; None where it was. A database that fails goes out of sight.
        """

        async def make(member: Member, life: str) -> None:
            if not entry.is_counted:
                await self._define(entry, member, life)
            elif (counter := await self.counter(entry, member)).position < above:
                raised = await member.database.raise_above({counter.name: above}, life)
                if (error := raised.get(counter.name)) is not None:
                    raise error

        return await self._attempt(member, make)

    async def _attempt(self, member: Member, call: Callable[[Member, str], Awaitable[None]]) -> str | None:
        """Await this call for one database in its life; return why it failed, None where it did not."""
        if (life := member.life) is None:
            return f"{member.name} is not in sight"
        try:
            await call(member, life)
        except (SequenceError, NoTicketDatabase) as error:
            return str(error)
        except DatabaseError as error:
            self._sight.failed(member, error, life)
            return str(error)
        return None

    async def _make(self, entry: Entry, member: Member, life: str) -> None:
        """Write the row that defines the sequence, then make its counter above its counters, floors, marks and start.

        So a server that still takes it for the counter before draws no id again.
        """
        sight, definition, rows = self._sight, entry.definition, [f"{entry.key}/{member.offset}"]
        if definition.word:
            kept = await self._define(entry, member, life)
            if kept is None or not kept.agrees(definition):
                raise SequenceMissing(f"{member.name} did not take the definition of {definition.name}; ask again")
        if not entry.is_counted:
            return
        known = [counter.position for counter in entry.counters.values()]
        read = await everywhere(sight, lives_in_sight(sight), lambda each, at: each.database.read(Book.MARKS, rows, at))
        known += [mark.high for marks in read.values() for mark in marks.values()]
        above = min(max([definition.start - 1, self._floors.known.get(entry.key, 0), *known]), ENDS[entry.bits])
        log.info("making the sequence %s on %s above %d", definition.name, member.name, above)
        try:
            await member.database.make(definition.name, entry.bits, above, life)
        except DatabaseRefused as error:
            raise SequenceMissing(f"{member.name} has no counter for {definition.name}, and {error}") from error

    async def _define(self, entry: Entry, member: Member, life: str) -> Definition | None:
        """Write the row of a sequence where the database has none. Return the definition that it has then.

        Returns None where that is damaged, and while the ring is being changed. Raises DatabaseError.
        """
        key, stamp = entry.key, self._sight.stamp
        if stamp is None:
            return None
        row = Write(Book.DEFINITIONS, key, None, entry.definition.note())
        if (await member.database.write([row], stamp, life))[0]:
            return entry.definition
        note = (await member.database.read(Book.DEFINITIONS, [key], life)).get(key)
        if note is None:  # the database has another ring number
            self._sight.look_at(member)
        found = seen_of(key, None, note, 0.0).row
        return found if isinstance(found, Definition) else None

    # --- making a sequence --------------------------------------------------------------------------------------------

    async def create(self, name: str, kind: str | None, given: Mapping[str, int]) -> tuple[Entry, bool]:
        """Make a sequence, unless it is there. Returns the sequence, and whether this call has made it.

        kind, given: what the client named; None or left out stands for `ticket` and the kind's own values. One that is
        there is compared with what the client named, except for a `start`. Raises InvalidRequest, SequenceConflict,
        AboveCeiling for a `start` at the end of the sequence, NoTicketDatabase where no database could make it, and
        what `now_ms` raises, for a kind with an epoch.
        """
        key, known = key_of(name), kind_named(kind or TICKET)
        now_ms = self._now_ms() if "epoch" in known.parameters else 0
        mine = Definition(known.name, known.complete(given, now_ms), name, new_word())
        entry = await self._look_up(key)
        if entry is not None:
            entry.compare(kind, given)
            return entry, False
        known.check_new(mine.parameters, now_ms)
        if known.name == TICKET and mine.start >= (end := ENDS[mine.parameters["bits"]]):
            raise AboveCeiling(f"start has to be below {end}, the end of a sequence of {mine.counter_bits} bits")
        agreed = await self._agree(key, mine)
        make = partial(self._make, Entry(key, agreed))
        reasons = await asyncio.gather(*(self._attempt(member, make) for member in self._sight.in_sight))
        entry = await self._look_up(key)
        if entry is None or None not in reasons:
            why = next((reason for reason in reasons if reason is not None), "none is in sight")
            raise NoTicketDatabase(f"no ticket database could make the sequence {name}: {why}")
        made = mine.word == agreed.word == entry.definition.word
        if not made:
            entry.compare(kind, given)
        return entry, made

    async def _agree(self, key: str, mine: Definition) -> Definition:
        """Have the first database in sight that answers keep a definition; return the one that it has then.

        A definition whose counters were dropped stands. A database that fails may have taken the row all the same; it
        is the row that the next one is given too.
        """
        drawn(self._sight)
        standing, _ = settle(self._views.get(key, {}))
        if standing is not None and standing.word:
            return standing
        for member, life in lives_in_sight(self._sight).items():
            agreed = await everywhere(self._sight, {member: life}, partial(self._define, Entry(key, mine)))
            if (found := agreed.get(member)) is not None:
                return found
        raise NoTicketDatabase(f"no ticket database could keep the definition of {mine.name}; ask again")

    async def bump(self, name: str, above: int, *, force: bool, deadline: float) -> Entry:
        """Return a sequence when every ticket that any server hands out from now on is larger than `above`.

        A number below the present position changes nothing. deadline: by the clock of the sight. Raises InvalidRequest,
        UnknownSequence, NotForThisKind, AboveCeiling, ForceRequired unless `force`; NotConfirmed, Growing or
        NoTicketDatabase where that cannot be confirmed now.
        """
        entry = await self.find(name)
        name, kind, end = entry.name, entry.definition.kind, entry.ceiling
        if kind != TICKET:
            raise NotForThisKind(f"{name} is of kind {kind}, which cannot be advanced above a number")
        if above >= end:
            raise AboveCeiling(f"above has to be below {end}, the end of {name}")
        if 100 * above > FORCE_PERCENT * end and not force:
            used = f"bumping {name} above {above} uses more than {FORCE_PERCENT} % of its ids"
            raise ForceRequired(f'{used}; confirm that with "force": true')
        await self._floors.confirm(name, above, partial(self.ensure, entry, above=above), deadline)
        return entry
