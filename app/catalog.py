"""The catalog: which sequences there are. A sequence is a table; this is what the server knows of the tables.

Listed with the probes, looked up at once when somebody asks for a name that is not known, made by `create`, and made by
itself where one database lacks what another has.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from app.databases.protocol import Table
from app.errors import (
    AboveCeiling,
    NoTicketDatabase,
    SequenceConflict,
    TicketDatabaseError,
    UnknownSequence,
)
from app.lane import Lane, LaneState
from app.log import event
from app.ring import Member, Ring, Rotation
from app.sequences import Width, ceiling_of, validated

log = logging.getLogger(__name__)

LOOK_UP_PAUSE = 0.1
"""Seconds between two look-ups for unknown names: however many ask, the databases are asked so often at the most."""


@dataclass(slots=True, eq=False)
class Entry:
    """One sequence: its place in the ring, and its table on each database that has it."""

    name: str
    rotation: Rotation[Lane]
    tables: dict[Member, Table] = field(default_factory=dict)

    @property
    def width(self) -> Width:
        """The width of its column; the narrowest, where databases differ."""
        return min((table.width for table in self.tables.values()), default=Width.BIGINT)

    @property
    def ceiling(self) -> int:
        """The largest ticket there can be; the lowest ceiling, where databases differ."""
        return min((table.ceiling for table in self.tables.values()), default=ceiling_of(Width.BIGINT, unsigned=True))

    @property
    def differs(self) -> bool:
        """Whether the databases' columns differ."""
        return len({(table.width, table.ceiling) for table in self.tables.values()}) > 1


class Catalog:
    """Every known sequence by name, and every lane by sequence and offset."""

    def __init__(self, ring: Ring, make_lane: Callable[[str, Member], Lane]) -> None:
        self._ring = ring
        self._make_lane = make_lane
        self.entries: dict[str, Entry] = {}
        self.lanes: dict[tuple[str, int], Lane] = {}
        self.counters: dict[Member, dict[str, int]] = {}
        """The next id of every sequence on each database, as of the last listing."""
        self._names: dict[Member, set[str]] = {}
        self._looking_up: asyncio.Task[None] | None = None
        self._next_look_up: asyncio.Task[None] | None = None

    # --- finding ---------------------------------------------------------------------------------------------------

    async def find(self, name: str) -> Entry:
        """The sequence of that name, looked up in the databases if it is not known yet.

        Raises InvalidRequest, UnknownSequence; NoTicketDatabase where no database could be asked.
        """
        validated(name)
        if name not in self.entries:
            await self._look_up()
        entry = self.entries.get(name)
        if entry is None:
            if not self._ring.any_up:
                raise NoTicketDatabase("no ticket database can be asked for the sequence now")
            raise UnknownSequence(f"there is no sequence {name}; PUT /sequence/{name} makes it")
        return entry

    async def _look_up(self) -> None:
        """List the tables of all databases; begun after this call, and shared by all who ask meanwhile."""
        if self._looking_up is None or self._looking_up.done():
            self._looking_up = asyncio.create_task(self._list_all(0.0))
            task = self._looking_up
        else:
            if self._next_look_up is None or self._next_look_up.done():
                self._next_look_up = asyncio.create_task(self._after(self._looking_up))
            task = self._next_look_up
        await asyncio.shield(task)

    async def _after(self, running: "asyncio.Task[None]") -> None:
        await asyncio.wait([running])
        self._looking_up = asyncio.create_task(self._list_all(LOOK_UP_PAUSE))
        self._next_look_up = None
        await asyncio.shield(self._looking_up)

    async def _list_all(self, pause: float) -> None:
        await asyncio.sleep(pause)
        members = [member for member in self._ring.members if member.up]
        results = await asyncio.gather(*(self._list(member) for member in members), return_exceptions=True)
        for member, result in zip(members, results, strict=True):
            if isinstance(result, TicketDatabaseError):
                event(log, logging.DEBUG, "could not list the sequences", database=member.name, reason=result)
            elif isinstance(result, BaseException):
                raise result
        await self._make_missing()

    async def refresh(self, member: Member) -> None:
        """List this database's tables and counters, and make what it lacks. Raises TicketDatabaseError."""
        await self._list(member)
        highest = {
            lane.sequence: lane.fence.highest
            for lane in self.lanes.values()
            if lane.member is member and lane.state is LaneState.OPEN
        }
        counters = await member.database.counters()
        self.counters[member] = {name: next_id for name, (next_id, _) in counters.items()}
        for name, before in highest.items():
            lane = self.lanes[name, member.database.offset]
            if name in counters and lane.table is not None:
                next_id, created = counters[name]
                if next_id <= before:
                    lane.suspend(f"stands at {next_id} after {before} had been issued", must_rise=True)
                elif created != lane.table.created:
                    lane.close()
        await self._make_missing()
        self._forget_dropped()

    async def _list(self, member: Member) -> None:
        names = await member.database.names()
        grown = [
            name
            for name in names
            if (lane := self.lanes.get((name, member.database.offset))) and lane.state is LaneState.EXHAUSTED
        ]
        unknown = [name for name in names if name not in self.entries or member not in self.entries[name].tables]
        wanted = unknown + grown
        if wanted:
            for table in (await member.database.tables(wanted)).values():
                self._enter(member, table)
        for name, entry in self.entries.items():
            if name not in names:
                entry.tables.pop(member, None)
        self._names[member] = names

    def _enter(self, member: Member, table: Table) -> Entry:
        name = table.sequence
        entry = self.entries.get(name)
        if entry is None:
            lanes = tuple(self._make_lane(name, each) for each in self._ring.members)
            entry = self.entries[name] = Entry(name, Rotation(lanes))
            for lane in lanes:
                self.lanes[name, lane.member.database.offset] = lane
        entry.tables[member] = table
        lane = self.lanes[name, member.database.offset]
        if lane.state is LaneState.EXHAUSTED and table.ceiling > lane.fence.ceiling:
            lane.state = LaneState.CLOSED
            self._ring.lanes_changed()
        return entry

    def _forget_dropped(self) -> None:
        """A sequence that no database has any more is gone, as soon as all of them can be asked."""
        if not all(member.up for member in self._ring.members):
            return
        for name in [name for name, entry in self.entries.items() if not entry.tables]:
            if not any(name in names for names in self._names.values()):
                del self.entries[name]
                for member in self._ring.members:
                    self.lanes.pop((name, member.database.offset)).send_on()

    # --- making ----------------------------------------------------------------------------------------------------

    async def create(self, name: str, width: Width | None, start: int | None) -> tuple[Entry, bool]:
        """Make the sequence, or find that it is there already: its entry, and whether it was made.

        Raises SequenceConflict, AboveCeiling, NoTicketDatabase, InvalidRequest.
        """
        validated(name)
        await self._look_up()
        entry = self.entries.get(name)
        if entry is None:
            clash = next((other for other in self.entries if other.lower() == name.lower()), None)
            if clash is not None:
                raise SequenceConflict(f"the sequence {clash} differs from {name} by case alone")
            entry = await self._create(name, width or Width.BIGINT, start or 1)
            made = True
        else:
            made = False
        if width is not None and entry.width != width:
            raise SequenceConflict(f"the sequence {name} exists with {int(entry.width)} bits")
        return entry, made

    async def _create(self, name: str, width: Width, start: int) -> Entry:
        ceiling = ceiling_of(width, unsigned=True)
        if start >= ceiling:
            raise AboveCeiling(f"start has to be below {ceiling}, the end of a sequence of {int(width)} bits")
        for member in self._ring.members:
            if member.up:
                await self._make_on(member, name, width, start)
        entry = self.entries.get(name)
        if entry is None:
            raise NoTicketDatabase("no ticket database could make the sequence")
        return entry

    async def _make_on(self, member: Member, name: str, width: Width, start: int) -> None:
        try:
            await member.database.make(name, width, start)
            table = (await member.database.tables([name])).get(name)
        except TicketDatabaseError as error:
            event(log, logging.WARNING, "could not make it", sequence=name, database=member.name, reason=error)
            return
        if table is not None:
            self._enter(member, table)
            self._names.setdefault(member, set()).add(name)

    async def _make_missing(self) -> None:
        """Make what one database has and another lacks, above where the others stand; its marks are seen to when the
        lane opens."""
        for entry in list(self.entries.values()):
            if not entry.tables or len(entry.tables) == len(self._ring.members):
                continue
            for member in self._ring.members:
                if member.up and member not in entry.tables and member in self._names:
                    start = await self._start_above_others(entry, member)
                    if start is not None:
                        event(log, logging.INFO, "making it", sequence=entry.name, database=member.name, start=start)
                        await self._make_on(member, entry.name, entry.width, start)
                        self.lanes[entry.name, member.database.offset].must_rise = True

    async def _start_above_others(self, entry: Entry, member: Member) -> int | None:
        start = 1
        for other, table in list(entry.tables.items()):
            if other is member or not other.up:
                continue
            try:
                position = await other.database.position(table)
            except TicketDatabaseError as error:
                event(log, logging.DEBUG, "could not read a position", database=other.name, reason=error)
                return None
            if position.largest:
                start = max(start, position.next_id)
        return min(start, entry.ceiling - 1)

    async def close(self) -> None:
        """End the look-ups that are under way."""
        tasks = [task for task in (self._next_look_up, self._looking_up) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
