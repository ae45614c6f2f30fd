"""What is on a fake server's disk: tables that count as MySQL's do, marks, a ring record."""

from dataclasses import dataclass, field

from app.common.errors import ColumnExhausted, SequenceWentBack
from app.common.sequences import Width, ceiling_of
from app.databases.protocol import ROOM, Draw, Mark, RingRecord, ServerEntry
from app.kinds.definition import Definition

ROWS_PER_STATEMENT = 64


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
    def repeats_ceiling(self) -> bool:
        return self.column_end == self.ceiling

    def draw(self, count: int, offset: int, increment: int, after: int = 0, least: int = 0) -> Draw:
        """What REPLACE does, for a row a ticket; a larger count is a block and the id above it, which looks at the
        first id before it moves the counter. A counter at the end stays there, and gives its id again and again.
        It is advanced to `least` first."""
        if least > 1:
            self.advance(least - 1)
        first = self.counter + (offset - self.counter) % increment
        last = first + (count - 1) * increment
        if first > self.column_end:
            raise ColumnExhausted("cannot draw a further id")
        if count > ROWS_PER_STATEMENT and first <= after:
            self.advance(first)
            raise SequenceWentBack(f"gave id {first} after {after} had been issued")
        if count > ROWS_PER_STATEMENT and first > self.ceiling - ROOM * count * increment:
            self.advance(first)
            raise ColumnExhausted("stands too close to its end")
        if last > self.column_end:
            self.counter = self.column_end  # fails whole, and uses up what is left
            raise ColumnExhausted("cannot draw a further id")
        self.counter = min(last + increment, self.column_end)
        self.largest = last
        return Draw(first, increment, count)

    def advance(self, above: int) -> None:
        self.largest = max(self.largest, above)
        self.counter = max(self.counter, min(above + 1, self.column_end))


@dataclass(slots=True)
class FakeState:
    """All that is on a server's disk."""

    tables: dict[str, FakeTable] = field(default_factory=dict)
    marks: dict[tuple[str, int, int], Mark] = field(default_factory=dict)
    changed: dict[tuple[str, int, int], float] = field(default_factory=dict)
    ring: RingRecord | None = None
    servers: dict[str, ServerEntry] = field(default_factory=dict)
    kinds: dict[str, Definition] = field(default_factory=dict)
