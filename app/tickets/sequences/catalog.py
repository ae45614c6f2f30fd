"""The catalog: which sequences there are, by asking the ticket databases.

Each database's tables are listed with the probes. A name that is not known is looked up as soon as a client asks for
it. A table that one database has and another lacks is made there.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable

from app.common.errors import NoTicketDatabase, TicketDatabaseError, UnknownSequence
from app.common.log import event
from app.common.sequences import is_name, validated
from app.tickets.lanes.lane import Lane
from app.tickets.lanes.state import LaneState
from app.tickets.reserve.reserves import Reserves
from app.tickets.ring.ring import Member, Ring
from app.tickets.sequences.entry import Entry
from app.tickets.sequences.known import KnownSequences
from app.tickets.sequences.making import Maker
from app.tickets.sources.sources import Sources

log = logging.getLogger(__name__)

FIRST_LOOK_SECONDS = 1.5
"""How long a request for an unknown name waits, on a server that has just started, for the first look at a database."""
LOOK_UP_PAUSE = 0.1
"""The least seconds between two look-ups for unknown names, whatever the number of requests."""


class Catalog(KnownSequences):
    """The known sequences, kept true by questions to the databases. `maker`: makes sequences and missing tables."""

    def __init__(
        self,
        ring: Ring,
        make_lane: Callable[[str, Member], Lane],
        known_mark: Callable[[str, Member], int],
        sources: Sources,
        reserves: Reserves,
    ) -> None:
        super().__init__(ring, make_lane, sources, reserves)
        self.maker = Maker(ring, self, known_mark)
        self._asked_for: set[str] = set()
        self._look_up_task: asyncio.Task[bool] | None = None
        self._last_look_up = -LOOK_UP_PAUSE

    async def find(self, name: str, seconds: float = FIRST_LOOK_SECONDS) -> Entry:
        """The sequence of that name, looked up in the databases if it is not known yet.

        `seconds`: how long a server that has just started waits at most for its first look at the databases.

        Raises InvalidRequest, UnknownSequence; NoTicketDatabase if no database could be asked.
        """
        entry, is_answered = await self._search(name, seconds)
        if entry is None:
            if not is_answered:
                raise NoTicketDatabase("no ticket database can be asked for the sequence now")
            raise UnknownSequence(f"there is no sequence {name}; PUT /sequence/{name} makes it")
        return entry

    async def find_on_all(self, name: str) -> Entry:
        """The sequence with its tables on all databases that are up. A database that has just come up is asked, because
        its tables may not have been listed yet. Raises as `find` does."""
        entry = await self.find(name)
        if any(member.up and member not in entry.tables for member in self._ring.members):
            await self._look_up({entry.name})
            entry = await self.find(name)
        return entry

    async def known(self, name: str, seconds: float = FIRST_LOOK_SECONDS) -> Entry | None:
        """The sequence of that name, looked up if it is not known yet; None if no database has it. Raises
        InvalidRequest."""
        return (await self._search(name, seconds))[0]

    async def _search(self, name: str, seconds: float) -> tuple[Entry | None, bool]:
        """The sequence that `find` finds, and whether the answer is certain: it is known, or a database has none."""
        name = self.given(validated(name))
        is_answered = name in self.entries
        if not is_answered:
            await self._ring.wait_for_first_look(seconds)
            name = self.given(name)  # that they fold names may be known only now
            is_answered = await self._look_up({name})
        return self.entries.get(name), is_answered

    async def find_all(self, names: Iterable[str], seconds: float = FIRST_LOOK_SECONDS) -> set[str]:
        """The names that are sequences. The names that are not known are looked up together.

        `seconds`: see `find`. Raises NoTicketDatabase if no database could be asked for the unknown names.
        """
        wanted = set(filter(is_name, names))
        if any(self.given(name) not in self.entries for name in wanted):
            await self._ring.wait_for_first_look(seconds)
            unknown = set(map(self.given, wanted)) - self.entries.keys()
            if unknown and not await self._look_up(unknown):
                raise NoTicketDatabase("no ticket database can be asked for the sequences now")
        return {name for name in wanted if self.given(name) in self.entries}

    async def _look_up(self, names: set[str]) -> bool:
        """Ask all databases for the names, together with the names of other calls. Returns whether any database has
        answered: a busy database may not answer, though it is up."""
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
        await self.maker.make_missing(
            [self.entries[name] for name in names if name in self.entries and self.entries[name].table]
        )
        return any(answered)

    async def _look_up_on(self, member: Member, names: set[str]) -> bool:
        try:
            await self._read_definitions(member)
            requested = names | {self.entries[name].table for name in names if name in self.entries}
            for table in (await member.database.tables(requested)).values():
                self.enter(member, table)
        except TicketDatabaseError as error:
            event(log, logging.DEBUG, "could not look a sequence up", database=member.name, reason=error)
            return False
        return True

    # --- listing -----------------------------------------------------------------------------------------------------

    async def refresh(self, member: Member) -> None:
        """List this database's tables, read some of its counters, and make the tables that it lacks. Raises
        TicketDatabaseError."""
        listed = self.listed  # a change of the ring during this call begins another list
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
            entry = self.enter(member, table)
            lane = None if entry is None else entry.lane_on(member)
            if lane is not None and lane.table is not None and lane.table.created != table.created:
                lane.close()
        for entry in self.by_table.values():
            if entry.table not in names:
                entry.tables.pop(member, None)
        listed[member] = names
        await self.counters.read(member, self.by_table)
        for name, members in self.beside.items():
            if name not in names:
                members.discard(member)
        await self.maker.make_missing(list(self.by_table.values()))
        self.forget_dropped()
        if all(each.up and each in self.listed for each in self._ring.members):
            has_table = {name for of_one in self.listed.values() for name in of_one}
            await self.definitions.forget_abandoned(has_table, asyncio.get_running_loop().time())

    async def _read_definitions(self, member: Member) -> None:
        """Serve the definitions that this database keeps. Raises TicketDatabaseError."""
        for name in await self.definitions.read(member):
            self.define(self.definitions.known[name])
        self.refuse_troubled()

    async def close(self) -> None:
        """End the look-up that is under way."""
        if self._look_up_task is not None:
            self._look_up_task.cancel()
            await asyncio.gather(self._look_up_task, return_exceptions=True)
