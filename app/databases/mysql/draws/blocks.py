"""Blocks: more tickets than one plain statement draws. What is sent for one, and what its results have to be."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field

from app.common.errors import ColumnExhausted, SequenceWentBack, TicketDatabaseUnavailable
from app.databases.mysql import sequence_sql
from app.databases.mysql.table import MySQLTable
from app.databases.protocol import Draw

ROOM = 3
"""Several tickets are drawn at once where so many times their number are left before the end of the column."""
NEAR_THE_END = 16
"""In the last so-manieth of a column a block costs one id more, by which its place is certain: further away whatever
other servers have drawn since this one heard of it does not come near the end."""


def next_id(after: int, least: int, increment: int, offset: int) -> int:
    """The id that comes after that one, and not below the least, if nobody has drawn any in between."""
    above = max(after + 1, least)
    return above + (offset - above) % increment


@dataclass(slots=True, eq=False)
class Block(ABC):
    """`count` tickets of `table`, drawn together; `after` is the last id that is known of it. `least`: that none of
    them may be below, 0 where any will do. `dropped`: the last id that was drawn and is not known of it, 0 if none was.

    `last`: the last id that its statements have drawn. `met_nobody`: whether the results have shown that no other
    server has drawn since the last one, nor in between.
    """

    table: MySQLTable
    count: int
    after: int
    increment: int
    offset: int
    least: int = 0
    dropped: int = 0
    last: int = field(default=0, init=False)
    met_nobody: bool = field(default=False, init=False)

    @property
    @abstractmethod
    def statements(self) -> str: ...

    @property
    @abstractmethod
    def answers(self) -> int:
        """How many statements there are."""

    @abstractmethod
    def drawn(self, ids: Sequence[int]) -> Draw | None:
        """The block, from the id that each statement drew, 0 where it drew none. Raises TicketDatabaseError.

        None: another server drew in the midst of it. All are dropped, and it has to be drawn again, between ids.
        """

    @property
    def _next(self) -> int:
        return next_id(max(self.after, self.dropped), self.least, self.increment, self.offset)

    @property
    def _bounds(self) -> tuple[int, int]:
        """The ordinary id below the block is above the first, and at most the second, after which the block certainly
        fits into the column, with the gaps that it may leave."""
        return self.after, self.table.last - ROOM * self.count * self.increment

    def _check_place(self, below: int) -> None:
        """Raise unless the ordinary id below the block is within bounds, so that the block has been drawn."""
        after, limit = self._bounds
        if 0 < below <= after:
            raise SequenceWentBack(f"gave id {below} after {after} had been issued")
        if below > limit:
            raise ColumnExhausted(f"stands at {below}, too close to its end for a block of {self.count}")


@dataclass(slots=True, eq=False)
class BlockAfterLast(Block):
    """A block right after the last id that is known of the table, and the ordinary id above it, which belongs to it;
    see `sequence_sql.draw_after`. The quickest where nobody else draws: who has drawn in between leaves a gap before
    the block.

    Its place is chosen from memory, and the table is moved before anything can be seen: that it has gone back by less
    than the block's width is not noticed, and where others have raised it to the end of its column, a block's width is
    used up there. `is_certain` says for which draws that does not matter.
    """

    def is_certain(self, since: int) -> bool:
        """Whether a table that begins again is noticed, having been seen at `since` at the lowest, and the end of the
        column is far away."""
        highest, ceiling = max(self.after, self.least), self.table.ceiling
        return self.after - since >= self._wide and highest <= ceiling - ceiling // NEAR_THE_END

    @property
    def _wide(self) -> int:
        """From the first id to the one above those that are drawn in one."""
        return (self.count - 1) * self.increment

    @property
    def statements(self) -> str:
        """BEGIN, the advance if there is one, the block, the id above, COMMIT."""
        offset = (self._next - 1) % self._wide + 1
        return sequence_sql.draw_after(self.table.sequence, self._wide, offset, least=self.least)

    @property
    def answers(self) -> int:
        """See Block.answers."""
        return 4 + (self.least > 0)

    def drawn(self, ids: Sequence[int]) -> Draw | None:
        """See Block.drawn."""
        first, above, _commit = ids[1 + (self.least > 0) :]
        self._check_place(first)
        self.last = above
        if above != first + self._wide:
            return None
        self.met_nobody = first == self._next
        return Draw(first, self.increment, self.count)


@dataclass(slots=True, eq=False)
class BlockBetweenIds(Block):
    """A block between two ordinary ids, which belong to it; see `sequence_sql.draw_block`.

    The first of them shows where the table stands before it is moved. `shared`: others draw from the table too, so the
    three seldom meet, the block is taken whole, and the two ids are dropped; there is hardly a gap. Close to the end of
    the column two ordinary ids lie below the block.
    """

    shared: bool = False

    @property
    def _ids_below(self) -> int:
        """How many ordinary ids are drawn below the block."""
        ceiling = self.table.ceiling
        return 1 if max(self.after, self.least) <= ceiling - ceiling // NEAR_THE_END else 2

    @property
    def _size(self) -> int:
        """How many ids the block has between the ordinary ones."""
        return self.count if self.shared else max(self.count - self._ids_below - 1, 1)

    @property
    def statements(self) -> str:
        """BEGIN, the advance if there is one, the ids below, SET, the block, SET, the id above, COMMIT."""
        place = self._bounds, self.increment, self.offset
        return sequence_sql.draw_block(self.table.sequence, self._size, *place, below=self._ids_below, least=self.least)

    @property
    def answers(self) -> int:
        """See Block.answers."""
        return 6 + self._ids_below + (self.least > 0)

    def drawn(self, ids: Sequence[int]) -> Draw | None:
        """See Block.drawn."""
        *below, _set, first, _set, above, _commit = ids[1 + (self.least > 0) :]
        self._check_place(below[-1])
        lowest, end = below[0], first + self._size * self.increment
        if above < end:
            raise TicketDatabaseUnavailable(f"gave id {above} inside a block of {self._size} that begins at {first}")
        self.last = above
        is_one_run = lowest + self._ids_below * self.increment == below[-1] + self.increment == first and end == above
        if self.shared:
            self.met_nobody = is_one_run and lowest == self._next
            return Draw(first, self.increment, self.count)
        self.met_nobody = is_one_run
        return Draw(lowest, self.increment, self.count) if is_one_run else None


@dataclass(slots=True, eq=False)
class BlockByItsEnds(Block):
    """A block of which one statement draws the first and the last id; see `sequence_sql.draw_ends`."""

    @property
    def statements(self) -> str:
        """The advance if there is one, the id below, SET, the block's ends, SET."""
        place = self._bounds, self.increment, self.offset
        return sequence_sql.draw_ends(self.table.sequence, self.count, *place, least=self.least)

    @property
    def answers(self) -> int:
        """See Block.answers."""
        return 4 + (self.least > 0)

    def drawn(self, ids: Sequence[int]) -> Draw | None:
        """See Block.drawn."""
        below, _set, first, _set = ids[self.least > 0 :]
        self._check_place(below)
        return Draw(first, self.increment, self.count)
