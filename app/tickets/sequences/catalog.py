"""The catalog: which sequences there are. A sequence is a table; this is what the server knows of the tables.

Listed with the probes, looked up at once when somebody asks for a name that is not known, made by `create`, and made by
itself where one database lacks what another has.

A sequence of another kind than `ticket` is a definition in the ticket databases (`definitions`). Where its ids are
counted there, it has a table too: an inner one, of a name that nobody can ask for.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace

from app.common.errors import (
    AboveCeiling,
    NoTicketDatabase,
    SequenceConflict,
    TicketDatabaseError,
    UnknownSequence,
)
from app.common.log import event
from app.common.sequences import Width, ceiling_of, counter_table, folded, is_inner_name, is_name, validated
from app.databases.protocol import Table
from app.kinds.definition import Definition
from app.kinds.kind import Kind, TimedKind
from app.tickets.lanes.lane import Lane
from app.tickets.lanes.state import LaneState
from app.tickets.reserve.reserves import Reserves
from app.tickets.ring.ring import Member, Ring, Rotation
from app.tickets.sequences.counters import Counters
from app.tickets.sequences.definitions import Definitions, in_words, same
from app.tickets.sequences.entry import TICKET, Entry
from app.tickets.sources.kind_sources import RefusingSource
from app.tickets.sources.sources import Sources

log = logging.getLogger(__name__)

FIRST_LOOK_SECONDS = 1.5
"""How long who asks for an unknown name waits for the first look at the databases of a server that has just started."""
LOOK_UP_PAUSE = 0.1
"""Seconds between two look-ups for unknown names: however many ask, the databases are asked so often at the most."""


class Catalog:
    """Every known sequence by name, and every lane by sequence and offset.

    `known_mark`: the largest mark ever read about a sequence on a database, 0 if there is none. `sources`: give
    sequences of another kind than `ticket` the source of their ids. `reserves`: give the others their reserve.
    """

    def __init__(
        self,
        ring: Ring,
        make_lane: Callable[[str, Member], Lane],
        known_mark: Callable[[str, Member], int],
        sources: Sources,
        reserves: Reserves,
    ) -> None:
        self._ring = ring
        ring.follow(self._database_changed)
        self._make_lane = make_lane
        self._known_mark = known_mark
        self._sources = sources
        self._reserves = reserves
        self.definitions = Definitions(ring)
        self.entries: dict[str, Entry] = {}
        self._by_table: dict[str, Entry] = {}
        self._beside: dict[str, set[Member]] = {}
        """The databases with a table of plain tickets whose name is that of a sequence of another kind."""
        self.lanes: dict[tuple[str, int], Lane] = {}
        self.counters = Counters()
        self._names: dict[Member, dict[str, str]] = {}
        self._asked_for: set[str] = set()
        self._look_up_task: asyncio.Task[bool] | None = None
        self._last_look_up = -LOOK_UP_PAUSE

    def _database_changed(self, member: Member) -> None:
        """Nobody waits for a database that is down."""
        if not member.up:
            for lane in self.lanes.values():
                if lane.member is member:
                    lane.send_on()

    def forget(self) -> None:
        """Another ring: every sequence is looked up again, and gets other lanes."""
        lanes = list(self.lanes.values())
        entries = list(self.entries.values())
        self.entries.clear()
        self._by_table.clear()
        self._beside.clear()
        self.definitions.forget()
        self.lanes.clear()
        self.counters.forget()
        self._names = {}
        for lane in lanes:
            lane.retire()
        for entry in entries:
            self._reserves.drop(entry.reserve)

    # --- finding ---------------------------------------------------------------------------------------------------

    def given(self, name: str) -> str:
        """The name of the sequence that a client means by `name`, known or not: folded where the databases fold names.

        A sequence of another kind than `ticket` that an earlier release has recorded under a name with capitals keeps
        that name.
        """
        return folded(name) if name not in self.entries and self._ring.folds_names else name

    async def find(self, name: str, seconds: float = FIRST_LOOK_SECONDS) -> Entry:
        """The sequence of that name, looked up in the databases if it is not known yet.

        `seconds`: how long to wait at most for the first look at them, on a server that has just started.

        Raises InvalidRequest, UnknownSequence; NoTicketDatabase where no database could be asked.
        """
        entry, is_answered = await self._search(name, seconds)
        if entry is None:
            if not is_answered:
                raise NoTicketDatabase("no ticket database can be asked for the sequence now")
            raise UnknownSequence(f"there is no sequence {name}; PUT /sequence/{name} makes it")
        return entry

    async def find_on_all(self, name: str) -> Entry:
        """The sequence with its tables on all databases that are up: one that has just come up may not have been
        listed yet. Raises as `find` does."""
        entry = await self.find(name)
        if any(member.up and member not in entry.tables for member in self._ring.members):
            await self._look_up({entry.name})
            entry = await self.find(name)
        return entry

    async def known(self, name: str, seconds: float = FIRST_LOOK_SECONDS) -> Entry | None:
        """The sequence of that name, looked up if it is not known yet; None where nobody has found it."""
        return (await self._search(name, seconds))[0]

    async def _search(self, name: str, seconds: float) -> tuple[Entry | None, bool]:
        """The same, and whether it is known or a database has said that it has none."""
        name = self.given(validated(name))
        is_answered = name in self.entries
        if not is_answered:
            await self._ring.wait_for_first_look(seconds)
            name = self.given(name)  # that they fold names may be known only now
            is_answered = await self._look_up({name})
        return self.entries.get(name), is_answered

    async def find_all(self, names: Iterable[str], seconds: float = FIRST_LOOK_SECONDS) -> set[str]:
        """Those of the names that are sequences. All that are not known are looked up together.

        `seconds`: see `find`. Raises NoTicketDatabase where no database could be asked for those.
        """
        wanted = set(filter(is_name, names))
        if any(self.given(name) not in self.entries for name in wanted):
            await self._ring.wait_for_first_look(seconds)
            unknown = set(map(self.given, wanted)) - self.entries.keys()
            if unknown and not await self._look_up(unknown):
                raise NoTicketDatabase("no ticket database can be asked for the sequences now")
        return {name for name in wanted if self.given(name) in self.entries}

    async def _look_up(self, names: set[str]) -> bool:
        """Ask all databases for the names, together with those that others ask for meanwhile. Returns whether any
        has answered: one that is busy may not, though it is up."""
        self._asked_for |= names
        is_answered = False
        while not names.isdisjoint(self._asked_for):
            if self._look_up_task is None or self._look_up_task.done():
                self._look_up_task = asyncio.create_task(self._look_up_all())
            is_answered = await asyncio.shield(self._look_up_task)
        return is_answered

    async def _look_up_all(self) -> bool:
        now = asyncio.get_running_loop().time
        await asyncio.sleep(self._last_look_up + LOOK_UP_PAUSE - now())
        self._last_look_up = now()
        names, self._asked_for = self._asked_for, set()
        up = [member for member in self._ring.members if member.up]
        answered = await asyncio.gather(*(self._look_up_on(member, names) for member in up))
        await self._make_missing(
            [self.entries[name] for name in names if name in self.entries and self.entries[name].table]
        )
        return any(answered)

    async def _look_up_on(self, member: Member, names: set[str]) -> bool:
        try:
            await self._read_definitions(member)
            requested = names | {self.entries[name].table for name in names if name in self.entries}
            for table in (await member.database.tables(requested)).values():
                self._enter(member, table)
        except TicketDatabaseError as error:
            event(log, logging.DEBUG, "could not look a sequence up", database=member.name, reason=error)
            return False
        return True

    async def refresh(self, member: Member) -> None:
        """List this database's tables, read some of the counters, make what it lacks. Raises TicketDatabaseError."""
        listed = self._names  # of this ring; that of the next one is another
        await self._read_definitions(member)
        names = await member.database.names()
        await self.definitions.complete(member, names)
        before = listed.get(member, {})
        offset = member.database.offset
        changed = {name for name, created in names.items() if before.get(name) != created}
        grown = {
            name
            for name in names
            if (lane := self.lanes.get((name, offset))) is not None and lane.state is LaneState.EXHAUSTED
        }
        tables = await member.database.tables(changed | grown)
        for table in tables.values():
            entry = self._enter(member, table)
            lane = None if entry is None else entry.lane_on(member)
            if lane is not None and lane.table is not None and lane.table.created != table.created:
                lane.close()
        for entry in self._by_table.values():
            if entry.table not in names:
                entry.tables.pop(member, None)
        listed[member] = names
        await self.counters.read(member, self._by_table)
        for name, members in self._beside.items():
            if name not in names:
                members.discard(member)
        await self._make_missing(list(self._by_table.values()))
        self._forget_dropped()
        if all(each.up and each in self._names for each in self._ring.members):
            has_table = {name for of_one in self._names.values() for name in of_one}
            await self.definitions.forget_abandoned(has_table, asyncio.get_running_loop().time())

    async def _read_definitions(self, member: Member) -> None:
        """Make entries for the kinds that this database records. Raises TicketDatabaseError."""
        for name in await self.definitions.read(member):
            self._define(self.definitions.known[name])
        self._refuse_troubled()

    def _refuse_troubled(self) -> None:
        for name, reason in self.definitions.troubles.items():
            entry = self.entries[name]
            if not isinstance(entry.source, RefusingSource):
                event(log, logging.ERROR, "cannot be served", sequence=name, reason=reason)
                entry.source = RefusingSource(reason)
                self._reserves.drop(entry.reserve)

    def _define(self, definition: Definition) -> None:
        """Serve a sequence as this definition of it says, which stands."""
        name, entry = definition.sequence, self.entries.get(definition.sequence)
        kind = self.definitions.kind_of(definition)
        if entry is not None and entry.kind is kind and (kind is TICKET or entry.parameters == definition.parameters):
            entry.least = definition.parameters.get("start", 1)
            return
        if entry is not None and entry.tables and entry.kind is TICKET:
            if min(member.database.offset for member in entry.tables) < (self.definitions.lowest_offset(name) or 0):
                return  # nobody defined the table, so it has the rank of its database
            self._beside[name] = set(entry.tables)
        if entry is not None:
            self._give_up(entry)
        if kind is TICKET:
            return  # its tables make the entry
        counted = isinstance(kind, TimedKind) and kind.parts == "shard"
        entry = self._add(name, counter_table(name) if counted else "")
        entry.parameters = definition.parameters
        if kind is not None:
            entry.kind = kind
            entry.source = self._sources.source_for(definition, kind, entry.rotation.lanes)

    def _give_up(self, entry: Entry) -> None:
        """Another definition stands from now on: what was served under this one ends, and its tables are listed
        again."""
        event(log, logging.WARNING, "another definition of it stands", sequence=entry.name)
        self._remove(entry, "has another definition")
        for names in self._names.values():
            names.pop(entry.name, None)

    def _remove(self, entry: Entry, reason: str) -> None:
        """For good: made again the sequence gets other lanes, and two of one database know nothing of the order in
        which the other hands out."""
        self._reserves.drop(entry.reserve)
        del self.entries[entry.name]
        self._by_table.pop(entry.table, None)
        for lane in entry.rotation.lanes:
            del self.lanes[entry.table, lane.member.database.offset]
            lane.retire(reason)

    def overruled(self) -> Iterator[tuple[str, Member, str]]:
        """What the databases keep under the name of a sequence and does not stand: the sequence, the database, and what
        to do, in words."""
        yield from self.definitions.overruled()
        for name, members in self._beside.items():
            for member in members:
                yield (
                    name,
                    member,
                    "there is a table of this name, made by hand or by a server of an older release, beside its "
                    "definition. Its tickets are none of this sequence: end that server, use another sequence for "
                    "them, and drop the table",
                )

    def _add(self, name: str, table: str) -> Entry:
        """A new entry, with lanes if it has a table."""
        lanes = tuple(self._make_lane(table, each) for each in self._ring.members) if table else ()
        entry = Entry(name, Rotation(lanes), table)
        if not is_inner_name(name):
            self.entries[name] = entry
        if table:
            self._by_table[table] = entry
        for lane in lanes:
            self.lanes[table, lane.member.database.offset] = lane
        return entry

    def _enter(self, member: Member, table: Table) -> Entry | None:
        """Take a table that a database has; None where it is the counter of a sequence that is not known."""
        name = table.sequence
        entry = self._by_table.get(name)
        if entry is None:
            if is_inner_name(name):
                return None
            defined = self.entries.get(name)
            if defined is not None:  # of another kind: no server that knows the definition makes a table of this name
                if member.database.offset >= (self.definitions.lowest_offset(name) or 0):
                    self._beside.setdefault(name, set()).add(member)
                    return None
                self._give_up(defined)
                self._beside.pop(name, None)
            entry = self._add(name, name)
            definition = self.definitions.known.get(name)
            if definition is not None and definition.kind == TICKET.name:
                entry.least = definition.parameters.get("start", 1)
            entry.reserve = self._reserves.make(name, entry.rotation.lanes)
        if isinstance(entry.kind, TimedKind):
            table = replace(table, ceiling=min(table.ceiling, entry.kind.last_tick(entry.parameters)))
        entry.tables[member] = table
        lane = entry.lane_on(member)
        lane.listed = table
        if lane.state is LaneState.EXHAUSTED and table.ceiling > lane.guard.ceiling:
            lane.close()
        return entry

    def _forget_dropped(self) -> None:
        """A sequence that no database has any more is gone, as soon as all of them can be asked."""
        if not all(member.up for member in self._ring.members):
            return
        for name in [name for name, entry in self.entries.items() if not entry.tables and entry.source is None]:
            if not any(name in names for names in self._names.values()):
                self._remove(self.entries[name], "has had the sequence dropped")

    # --- making ----------------------------------------------------------------------------------------------------

    async def create(
        self,
        name: str,
        width: Width | None,
        start: int | None,
        kind: Kind | None = None,
        *,
        looked_up: bool = False,
    ) -> tuple[Entry, bool]:
        """Make a sequence of plain tickets, or find that it is there already: its entry, and whether it was made.

        `kind`: TICKET where the caller named it, None where no kind was named. `looked_up`: the caller has had it
        looked up just now, so the databases need not be asked again. Raises SequenceConflict, AboveCeiling,
        NoTicketDatabase, InvalidRequest.
        """
        entry = self.entries.get(name) if looked_up else await self.known(name)
        if entry is None:
            self._refuse_case_alone(name)
            entry, made = await self._create(name, width or Width.BIGINT, start or 1)
        else:
            made = False
        if entry.kind is not TICKET and (kind is not None or width is not None):
            raise SequenceConflict(f"the sequence {name} exists as {_in_words(entry)}")
        if width is not None and entry.width != width:
            raise SequenceConflict(f"the sequence {name} exists with {int(entry.width)} bits")
        return entry, made

    async def create_of_kind(
        self, name: str, kind: Kind, given: Mapping[str, int], now_ms: int, *, looked_up: bool = False
    ) -> tuple[Entry, bool]:
        """Make a sequence of another kind than `ticket`, with these parameters, the others being the kind's defaults.
        `looked_up`, and what it raises: as `create`."""
        entry = self.entries.get(name) if looked_up else await self.known(name)
        made = False
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
        """Agree with the other servers on what a sequence that is not known is made as, and make its tables. Returns
        its entry, and whether it is what was `wanted` here first. Raises NoTicketDatabase, SequenceConflict."""
        up = [member for member in self._ring.members if member.up]
        standing, made = await self.definitions.agree(wanted, up)
        name = wanted.sequence
        if standing.sequence != name:
            raise SequenceConflict(f"the sequence {standing.sequence} differs from {name} by case alone")
        self._define(standing)
        entry = self.entries.get(name)
        if standing.kind == TICKET.name:
            width, start = Width(standing.parameters.get("bits", 64)), standing.parameters.get("start", 1)
            await asyncio.gather(*(self._make_on(member, name, width, start) for member in up))
        elif entry is not None and entry.table:
            await asyncio.gather(*(self._make_on(member, entry.table, Width.BIGINT, 1) for member in up))
        self._refuse_troubled()
        entry = self.entries.get(name)
        if entry is None:
            raise NoTicketDatabase("no ticket database could make the sequence")
        return entry, made

    def _refuse_case_alone(self, name: str) -> None:
        clash = next((other for other in self.entries if other.lower() == name.lower()), None)
        if clash is not None:
            raise SequenceConflict(f"the sequence {clash} differs from {name} by case alone")

    async def inner(self, table: str) -> Entry:
        """The entry of an inner sequence, which nobody can ask for by name; made where there is none."""
        entry = self._by_table.get(table) or self._add(table, table)
        up = [member for member in self._ring.members if member.up and member not in entry.tables]
        await asyncio.gather(*(self._look_for(table, member) for member in up))
        for member in up:
            if member not in entry.tables:
                await self._make_above_others(entry, member)
        return entry

    async def _look_for(self, table: str, member: Member) -> None:
        """Enter what a database has of it."""
        try:
            found = await member.database.tables([table])
        except TicketDatabaseError as error:
            event(log, logging.DEBUG, "could not be asked for it", sequence=table, database=member.name, reason=error)
        else:
            for each in found.values():
                self._enter(member, each)

    async def _create(self, name: str, width: Width, start: int) -> tuple[Entry, bool]:
        ceiling = ceiling_of(width, unsigned=True)
        if start >= ceiling:
            raise AboveCeiling(f"start has to be below {ceiling}, the end of a sequence of {int(width)} bits")
        return await self._agree(Definition(name, TICKET.name, {"bits": int(width), "start": start}))

    async def _make_on(self, member: Member, name: str, width: Width, start: int) -> None:
        try:
            await member.database.make(name, width, start)
            table = (await member.database.tables([name])).get(name)
        except TicketDatabaseError as error:
            event(log, logging.WARNING, "could not make it", sequence=name, database=member.name, reason=error)
            return
        entry = None if table is None else self._enter(member, table)
        if table is not None and entry is not None:
            entry.start = max(entry.start or 1, start)
            self._names.setdefault(member, {})[name] = table.created

    async def _make_missing(self, entries: list[Entry]) -> None:
        """Make what one database has and another lacks. A table that was dropped on all of them, the last one while
        this makes another, is not made again."""
        for entry in entries:
            if len(entry.tables) == len(self._ring.members):
                continue
            for member in self._ring.members:
                is_one = entry.tables or is_inner_name(entry.table)
                if is_one and member.up and member not in entry.tables and member in self._names:
                    await self._make_above_others(entry, member)

    async def _make_above_others(self, entry: Entry, member: Member) -> None:
        """Make its table on a database that lacks it, unless nobody can say how far the others have come. What the
        database itself gave before, the lane asks the marks for."""
        start = await self._start_above_others(entry, member)
        if start is not None:
            event(log, logging.INFO, "making it", sequence=entry.name, database=member.name, start=start)
            await self._make_on(member, entry.table, entry.width, start)
            entry.lane_on(member).must_advance = True

    async def _start_above_others(self, entry: Entry, member: Member) -> int | None:
        """Above all that is known of it: where it was made to begin, where the databases that are up stand, drawn from
        or not, and what is remembered of the others. None where that leaves one of which nothing is known."""
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
        """The least id that the database can give next, from what was last known of it; 0 if nothing is."""
        known = max(entry.lane_on(member).guard.highest, self._known_mark(entry.table, member))
        return max(self.counters.next_id(entry, member), known + 1 if known else 0)

    async def close(self) -> None:
        """End the look-up that is under way."""
        if self._look_up_task is not None:
            self._look_up_task.cancel()
            await asyncio.gather(self._look_up_task, return_exceptions=True)


def _in_words(entry: Entry) -> str:
    return in_words(Definition(entry.name, entry.kind.name, entry.parameters))
