"""The disk of a fake server: tables that count as MySQL's do, marks, a ring record."""

from dataclasses import dataclass, field

from app.common.errors import ColumnExhausted, SequenceWentBack
from app.common.sequences import Width, ceiling_of
from app.databases.protocol import Draw, Mark, RingRecord, ServerEntry, Table
from app.kinds.definition import Definition

ROWS_PER_STATEMENT = 64
ROOM = 3
"""Several are drawn at once where so many times their number are left, as far as the table is looked at."""
LAST_TICKETS = 1_000_000
"""With fewer left the table is looked at before several are drawn at once."""


@dataclass(slots=True)
class FakeTable:
    """One ticket table: `counter` is its AUTO_INCREMENT, `largest` its MAX(id), `created` its CREATE_TIME."""

    width: Width
    created: str
    unsigned: bool = True
    counter: int = 1
    largest: int = 0

    @property
    def column_end(self) -> int:
        """The largest number that the column holds."""
        bits = 32 if self.width is Width.INT else 64
        return int(2 ** (bits - (not self.unsigned)) - 1)

    @property
    def ceiling(self) -> int:
        return ceiling_of(self.width, unsigned=self.unsigned)

    @property
    def last(self) -> int:
        """The largest ticket that it gives: a column gives the largest number that it holds again and again."""
        return self.ceiling - (self.column_end == self.ceiling)

    def draw(
        self,
        count: int,
        offset: int,
        increment: int,
        after: int = 0,
        least: int = 0,
        *,
        most: int | None = None,
        past_its_end: bool = False,
    ) -> Draw:
        """Draw as REPLACE does, with a row for each ticket.

        A larger count is a block and the id above it, which looks at the first id before it moves the counter. A
        counter at the end stays there, and gives its id again and again. It is advanced to `least` first, if that
        leaves room. `most`: the largest ticket that is wanted. `past_its_end`: an id that a column gives above its end
        is a ticket.
        """
        end = self.last if most is None else min(self.last, most)
        room = (count - 1 if count <= ROWS_PER_STATEMENT else ROOM * count + 1) * increment
        if least > 1:
            if least + (offset - least) % increment + room > end:
                raise ColumnExhausted("holds no further id for it")
            self.advance(least - 1)
        first = self.counter + (offset - self.counter) % increment
        last = first + (count - 1) * increment
        if count > 1 and end - after < LAST_TICKETS * increment and first + (ROOM * count - 1) * increment > end:
            raise ColumnExhausted("may hold fewer further ids than were asked for", self.counter - 1)
        if first > self.column_end:
            raise ColumnExhausted("cannot draw a further id")
        if count > ROWS_PER_STATEMENT and first <= after:
            self.advance(first)
            raise SequenceWentBack(f"gave id {first} after {after} had been issued")
        if count > ROWS_PER_STATEMENT and first > end - ROOM * count * increment:
            self.advance(first)
            raise ColumnExhausted("stands too close to its end")
        if last > self.column_end:
            self.counter = self.column_end  # fails whole, and uses up what is left
            raise ColumnExhausted("cannot draw a further id")
        self.counter = min(last + increment, self.column_end)
        self.largest = last
        if last > end and not past_its_end:
            raise ColumnExhausted("holds no further id for it")
        return Draw(first, increment, count)

    def advance(self, above: int) -> None:
        self.largest = max(self.largest, above)
        self.counter = max(self.counter, min(above + 1, self.column_end))


@dataclass(frozen=True, slots=True, kw_only=True)
class FakeSequenceTable(Table):
    """The description of a table that a client gets. `end`: the largest number that its column holds."""

    end: int

    @property
    def last(self) -> int:
        """See Table.last."""
        return self.ceiling if self.ceiling < self.end else self.end - 1


@dataclass(slots=True)
class FakeState:
    """All that is on a server's disk."""

    tables: dict[str, FakeTable] = field(default_factory=dict)
    marks: dict[tuple[str, int, int], Mark] = field(default_factory=dict)
    changed: dict[tuple[str, int, int], float] = field(default_factory=dict)
    number: int = 0
    numbers: dict[tuple[str, int, int], int] = field(default_factory=dict)
    ring: RingRecord | None = None
    servers: dict[str, ServerEntry] = field(default_factory=dict)
    kinds: dict[str, Definition] = field(default_factory=dict)
