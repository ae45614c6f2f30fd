"""In which form each draw goes out: as one plain statement, or as which of the blocks.

That depends on what the server allows, and on what has been seen of the table: for how long, and whether others draw
from it too.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from app.databases.mysql.draws.blocks import Block, BlockAfterLast, BlockBetweenIds, BlockByItsEnds, next_id
from app.databases.mysql.draws.pending_draw import PendingDraw
from app.databases.protocol import Draw

FEW_ROWS = 8
"""A block right after the last id costs the database as much as so many rows (MySQL 9.7), however large it is."""

ALONE = 64
"""After this many draws of more than a few tickets in a row that meet no other server, the server takes itself for the
only one that draws from the table. Two servers that take the databases in turn often miss each other."""


@dataclass(slots=True)
class Seen:
    """A table that was `created` then has been seen to stand at `since` and above; `created` is None where it has to be
    seen anew. `last` is the last id that a block's statements drew there, which may have been dropped. `alone`: how
    many draws in a row have met nobody since others were seen to draw from it; None where none were."""

    created: str | None
    since: int
    last: int = 0
    alone: int | None = None

    def has_met(self, *, nobody: bool) -> None:
        """A draw of more than a few tickets has found that others draw from the table, or that they seem not to."""
        if not nobody:
            self.alone = 0
        elif self.alone is not None:
            self.alone += 1
            if self.alone == ALONE:
                self.alone = None


class BlockForms:
    """Chooses the form of each draw on one database, and learns from what came.

    `ends_only`: draw blocks by their ends, as the server's `innodb_autoinc_lock_mode` requires. `takes_steps`: whether
    a statement can have an increment of its own there.
    """

    def __init__(self, offset: int, increment: int) -> None:
        self.ends_only = False
        self.takes_steps = False
        self._offset = offset
        self._increment = increment
        self._seen: dict[str, Seen] = {}

    def block_for(self, draw: PendingDraw) -> Block | None:
        """The block that the draw is; None where it is one plain statement. Some rows more than a few are that too
        where a block costs more than they do, or where it may skip ids that the least leaves no room for."""
        table, count = draw.table, draw.count
        is_plain = count <= table.rows_per_statement
        if count <= FEW_ROWS and is_plain:
            return None
        seen = self._seen_of(draw)
        what = table, count, draw.after, self._increment, self._offset, draw.least, seen.last
        ends_only = self.ends_only or table.counts_rows
        is_shared = seen.alone is not None
        if self.takes_steps and not (ends_only or is_shared or (is_plain and draw.least)):
            block = BlockAfterLast(*what)
            if block.is_certain(seen.since):
                return block
        if is_plain:
            return None
        return BlockByItsEnds(*what) if ends_only else BlockBetweenIds(*what, shared=is_shared)

    def drawn(self, draw: PendingDraw, block: Block, ids: Sequence[int]) -> Draw | None:
        """The ids of a block; None if another server drew in the middle of it. Raises TicketDatabaseError."""
        drawn = block.drawn(ids)
        seen = self._seen_of(draw)
        seen.last = block.last
        seen.has_met(nobody=block.met_nobody)
        return drawn

    def plain_drawn(self, draw: PendingDraw, first: int) -> Draw:
        """The draw that one plain statement makes from its first id."""
        if draw.count > FEW_ROWS:
            seen = self._seen_of(draw)
            known = max(draw.after, seen.last)
            seen.has_met(nobody=first == next_id(known, draw.least, self._increment, self._offset))
        return Draw(first, self._increment, draw.count)

    def lost(self, block: Block) -> None:
        """The block's draw is unknown. The next block goes between ids, which shows where the table stands."""
        seen = self._seen.get(block.table.sequence)
        if seen is not None:
            seen.created = None

    def _seen_of(self, draw: PendingDraw) -> Seen:
        """The table as draws of more than a few tickets have seen it since it was made."""
        table, after = draw.table, draw.after
        seen = self._seen.get(table.sequence)
        if seen is None:
            seen = self._seen[table.sequence] = Seen(table.created, after)
        elif seen.created != table.created or after < seen.since:
            seen.created, seen.since, seen.last = table.created, after, 0
        return seen
