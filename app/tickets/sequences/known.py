"""The sequences that this server knows: what the ticket databases have told it, without asking them anything.

A sequence is a table. A sequence of another kind than `ticket` is a definition in the ticket databases (`definitions`);
if its ids are counted there, it has a table too: an inner one, under a name that no client can ask for.
"""

import logging
from collections.abc import Callable, Iterator
from dataclasses import replace

from app.common.log import event
from app.common.sequences import counter_table, folded, is_inner_name
from app.databases.protocol import Table
from app.kinds.definition import Definition
from app.kinds.kind import TimedKind
from app.tickets.lanes.lane import Lane
from app.tickets.lanes.state import LaneState
from app.tickets.reserve.reserves import Reserves
from app.tickets.ring.ring import Member, Ring, Rotation
from app.tickets.sequences.counters import Counters
from app.tickets.sequences.definitions import Definitions
from app.tickets.sequences.entry import TICKET, Entry
from app.tickets.sources.kind_sources import RefusingSource
from app.tickets.sources.sources import Sources

log = logging.getLogger(__name__)


class KnownSequences:
    """Every known sequence and its lanes.

    Attributes:
        entries: the sequences by name, without the inner ones.
        by_table: the sequences that have a table, by its name, inner ones included.
        lanes: the lanes by table and offset.
        listed: by database, the tables that it had when it was listed last, and when each was made.
        beside: by sequence of another kind, the databases that have a table of plain tickets under its name.
        counters: where the tables stood when they were read last.
        definitions: what the sequences were made as.
    """

    def __init__(
        self, ring: Ring, make_lane: Callable[[str, Member], Lane], sources: Sources, reserves: Reserves
    ) -> None:
        self.definitions = Definitions(ring)
        self.entries: dict[str, Entry] = {}
        self.by_table: dict[str, Entry] = {}
        self.lanes: dict[tuple[str, int], Lane] = {}
        self.listed: dict[Member, dict[str, str]] = {}
        self.beside: dict[str, set[Member]] = {}
        self.counters = Counters()
        self._ring = ring
        self._make_lane = make_lane
        self._sources = sources
        self._reserves = reserves
        ring.follow(self._database_changed)

    def _database_changed(self, member: Member) -> None:
        """Send the requests on that wait for a database that is down."""
        if not member.up:
            for lane in self.lanes_on(member):
                lane.send_on()

    def lanes_on(self, member: Member) -> list[Lane]:
        """The lanes of every sequence on this database."""
        place = self._ring.members.index(member)
        return [entry.rotation.lanes[place] for entry in self.by_table.values()]

    def forget(self) -> None:
        """Begin another ring: every sequence is looked up again, and gets other lanes."""
        lanes = list(self.lanes.values())
        entries = list(self.entries.values())
        self.entries.clear()
        self.by_table.clear()
        self.beside.clear()
        self.definitions.forget()
        self.lanes.clear()
        self.counters.forget()
        self.listed = {}
        for lane in lanes:
            lane.retire()
        for entry in entries:
            self._reserves.drop(entry.supply)

    def given(self, name: str) -> str:
        """The name of the sequence that a client means by `name`, known or not: folded if the databases fold names.

        An earlier release may have recorded a sequence of another kind under a name with capitals. It keeps that name.
        """
        return folded(name) if name not in self.entries and self._ring.folds_names else name

    # --- entering ----------------------------------------------------------------------------------------------------

    def add(self, name: str, table: str) -> Entry:
        """Add a new sequence, with lanes if it has a table."""
        lanes = tuple(self._make_lane(table, each) for each in self._ring.members) if table else ()
        entry = Entry(name, Rotation(lanes), table)
        if not is_inner_name(name):
            self.entries[name] = entry
        if table:
            self.by_table[table] = entry
        for lane in lanes:
            self.lanes[table, lane.residue.offset] = lane
        return entry

    def enter(self, member: Member, table: Table) -> Entry | None:
        """Take a table that a database has. Returns its sequence; None if the table belongs to no known sequence."""
        name = table.sequence
        entry = self.by_table.get(name)
        if entry is None:
            if is_inner_name(name):
                return None
            defined = self.entries.get(name)
            if defined is not None:  # of another kind: no server that knows the definition makes a table of this name
                if member.database.offset >= (self.definitions.lowest_offset(name) or 0):
                    self.beside.setdefault(name, set()).add(member)
                    return None
                self._give_up(defined)
                self.beside.pop(name, None)
            entry = self.add(name, name)
            definition = self.definitions.known.get(name)
            if definition is not None and definition.kind == TICKET.name:
                entry.least = definition.parameters.get("start", 1)
            entry.supply = self._reserves.supply(name, entry.rotation.lanes)
        if isinstance(entry.kind, TimedKind):
            table = replace(table, ceiling=min(table.ceiling, entry.kind.last_tick(entry.parameters)))
        entry.tables[member] = table
        lane = entry.lane_on(member)
        lane.listed = table
        if lane.state is LaneState.EXHAUSTED and table.ceiling > lane.guard.ceiling:
            lane.close()
        return entry

    def define(self, definition: Definition) -> None:
        """Serve a sequence by this definition, which stands."""
        name, entry = definition.sequence, self.entries.get(definition.sequence)
        kind = self.definitions.kind_of(definition)
        if entry is not None and entry.kind is kind and (kind is TICKET or entry.parameters == definition.parameters):
            entry.least = definition.parameters.get("start", 1)
            return
        if entry is not None and entry.tables and entry.kind is TICKET:
            if min(member.database.offset for member in entry.tables) < (self.definitions.lowest_offset(name) or 0):
                return  # the table has no definition, so the lower of the two offsets decides
            self.beside[name] = set(entry.tables)
        if entry is not None:
            self._give_up(entry)
        if kind is TICKET:
            return  # its tables make the entry
        counted = isinstance(kind, TimedKind) and kind.parts == "shard"
        entry = self.add(name, counter_table(name) if counted else "")
        entry.parameters = definition.parameters
        if kind is not None:
            entry.kind = kind
            entry.supply = self._sources.source_for(definition, kind, entry.rotation.lanes)

    def refuse_troubled(self) -> None:
        for name, reason in self.definitions.troubles.items():
            entry = self.entries[name]
            if not isinstance(entry.supply, RefusingSource):
                event(log, logging.ERROR, "cannot be served", sequence=name, reason=reason)
                before, entry.supply = entry.supply, RefusingSource(reason)
                self._reserves.drop(before)

    # --- leaving -----------------------------------------------------------------------------------------------------

    def _give_up(self, entry: Entry) -> None:
        """End a sequence because another definition of it stands from now on. Its tables are listed again."""
        event(log, logging.WARNING, "another definition of it stands", sequence=entry.name)
        self._remove(entry, "has another definition")
        for names in self.listed.values():
            names.pop(entry.name, None)

    def _remove(self, entry: Entry, reason: str) -> None:
        """End a sequence for good. If it is made again it gets other lanes. The old lanes must hand out nothing then,
        because two lanes of one database do not keep their tickets in one order."""
        self._reserves.drop(entry.supply)
        del self.entries[entry.name]
        self.by_table.pop(entry.table, None)
        for lane in entry.rotation.lanes:
            del self.lanes[entry.table, lane.residue.offset]
            lane.retire(reason)

    def forget_dropped(self) -> None:
        """End the sequences that no database has, once all databases can be asked."""
        if not all(member.up for member in self._ring.members):
            return
        gone = [name for name, each in self.entries.items() if not each.tables and each.supply.gives_plain_tickets]
        for name in gone:
            if not any(name in names for names in self.listed.values()):
                self._remove(self.entries[name], "has had the sequence dropped")

    # --- what does not stand -----------------------------------------------------------------------------------------

    def overruled(self) -> Iterator[tuple[str, Member, str]]:
        """The definitions and tables that do not stand, though a database keeps them under the name of a sequence: the
        sequence, the database, and what the operator can do."""
        yield from self.definitions.overruled()
        for name, members in self.beside.items():
            for member in members:
                yield (
                    name,
                    member,
                    "there is a table of this name, made by hand or by a server of an older release, beside its "
                    "definition. Its tickets are none of this sequence: end that server, use another sequence for "
                    "them, and drop the table",
                )
