"""The counters of the sequences' tables, as this server has read them last: a few with each listing."""

from collections.abc import Mapping

from app.tickets.lanes.lane import Lane
from app.tickets.lanes.state import LaneState
from app.tickets.ring.ring import Member
from app.tickets.sequences.entry import Entry

AT_ONCE = 40
"""How many are read with each listing."""


class Counters:
    """The next id of sequences on each database, as they were last read."""

    def __init__(self) -> None:
        self._next_ids: dict[Member, dict[str, int]] = {}
        self._read_next: dict[Member, int] = {}

    def forget(self) -> None:
        """Another ring: they are read anew."""
        self._next_ids.clear()

    async def read(self, member: Member, by_table: Mapping[str, Entry]) -> None:
        """Read the next few of these tables; one that stands below what it has given has gone back. Raises
        TicketDatabaseError."""
        mine = [name for name, entry in by_table.items() if member in entry.tables]
        start = self._read_next.get(member, 0) % max(1, len(mine))
        self._read_next[member] = start + AT_ONCE
        part = mine[start : start + AT_ONCE]
        lanes = {name: by_table[name].lane_on(member) for name in part}
        highest = {name: lane.guard.highest for name, lane in lanes.items() if lane.state is LaneState.OPEN}
        found = await member.database.readable_positions(part)
        known = self._next_ids.setdefault(member, {})
        known.update({name: position.next_id for name, position in found.items()})
        for name, before in highest.items():
            if name in found and known[name] <= before:
                lanes[name].suspend(f"stands at {known[name]} after {before} had been issued", must_advance=True)

    def note(self, entry: Entry, member: Member, next_id: int) -> None:
        """The sequence's table on this database stands there now."""
        self._next_ids.setdefault(member, {})[entry.table] = next_id

    def next_id(self, entry: Entry, member: Member) -> int:
        """The id that was next when it was last read; 0 if it has not been."""
        return self._next_ids.get(member, {}).get(entry.table, 0)

    def last(self, entry: Entry, lane: Lane) -> int:
        """The last id known to be drawn, from what the background tasks know."""
        counted = self._next_ids.get(lane.member, {}).get(entry.table, 1) - 1
        return max(lane.guard.highest, counted)
