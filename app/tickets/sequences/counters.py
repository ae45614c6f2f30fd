"""The positions of the sequences' tables, as this server read them last: a few with each listing."""

from collections.abc import Mapping

from app.common.errors import SequenceWentBack
from app.tickets.lanes.lane import Lane
from app.tickets.lanes.state import LaneState
from app.tickets.ring.ring import Member
from app.tickets.sequences.entry import Entry

AT_ONCE = 40
"""How many positions are read with each listing."""


class Counters:
    """The next id of each table on each database, as it was last read."""

    def __init__(self) -> None:
        self._next_ids: dict[Member, dict[str, int]] = {}
        self._read_next: dict[Member, int] = {}

    def forget(self) -> None:
        """Begin another ring: every position is read again."""
        self._next_ids.clear()

    async def read(self, member: Member, by_table: Mapping[str, Entry]) -> None:
        """Read the positions of the next few of these tables. A table that stands at or below an id that it gave has
        gone back, and its lane is suspended. Raises TicketDatabaseError."""
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
                lanes[name].suspend(SequenceWentBack(f"stands at {known[name]} after {before} had been issued"))

    def note(self, entry: Entry, member: Member, next_id: int) -> None:
        """Note the present position of the sequence's table on this database."""
        self._next_ids.setdefault(member, {})[entry.table] = next_id

    def next_id(self, entry: Entry, member: Member) -> int:
        """The next id of the table when it was last read; 0 if it was not."""
        return self._next_ids.get(member, {}).get(entry.table, 0)

    def last(self, entry: Entry, lane: Lane) -> int:
        """The last id that this server knows was drawn, without asking the database."""
        counted = self._next_ids.get(lane.member, {}).get(entry.table, 1) - 1
        return max(lane.guard.highest, counted)
