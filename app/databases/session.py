"""The session: what one engine has to write, as one class, to be used as a ticket database.

A session is one connection to one database server. It runs one call at a time, has no deadlines of its own and retries
nothing: `Database` ends a call that takes too long. After DatabaseFailed a session is never used again.

A ticket database holds counters, one for each sequence, and a notebook that goes back in time together with them: six
books of rows, and the ring row, on which every conditional write depends. Names of sequences are compared without case:
a counter keeps the name as it was made, and in the notebook each name is in lower case, folded by the caller.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import Any, NamedTuple, Protocol

from app.errors import DatabaseError

LARGEST_ID = (1 << 63) - 1
"""The largest id of any sequence, on every engine."""
ENDS = {32: (1 << 32) - 1, 53: (1 << 53) - 1, 64: LARGEST_ID}
"""The largest id of a sequence, by its bits."""
EMPTIED = "its table was emptied or made anew"
"""Why a draw found another counter than the caller has read or drawn from."""
MOST_IDS = 200_000
"""The most ids that one sequence's part of a draw may want."""


def most_ids(increment: int) -> int:
    """Return the most ids that one statement draws on every engine with this increment.

    MySQL bounds it: a session's increment is at most 65,535, and a REPLACE has eight rows (see the MySQL session).
    """
    return min(MOST_IDS, 7 * (65_535 // increment) + 1)


class Residue(NamedTuple):
    """The ids that a session draws: those that leave `offset`, from 1 to `increment`, when divided by `increment`."""

    offset: int
    increment: int

    def has(self, number: int) -> bool:
        """Tell whether an id is of this residue. An offset equal to the increment stands for the remainder 0."""
        return number % self.increment == self.offset % self.increment


class Book(StrEnum):
    """The books of the notebook. The name of a row is at most 80 ASCII characters long."""

    MARKS = "marks"
    """About each lane, by `sequence/offset`: limit, issued, tenure, sure. Worker numbers and trial writes, too."""
    FLOORS = "floors"
    """About each sequence or worker number: no offset gives an id at or below `high` any more."""
    COUNTS = "counts"
    """The row `floors`: a number that rises whenever a floor was written."""
    DEFINITIONS = "definitions"
    """About each sequence that a server has made: its kind and parameters, as JSON in `text`."""
    HEARTBEATS = "heartbeats"
    """About each ticket server, by `hostname:port`."""
    LIVES = "lives"
    """About each machine that has run this data: `tenure` is the word of the present life."""


class Note(NamedTuple):
    """The value of one row of the notebook. Two notes are the same if all five fields are.

    high: a limit, a floor or a number, from 0 to 2**63 - 1. issued: of a mark, the largest id known to be given, in the
    same range. tenure: a word that changes with the owner of the row, at most 200 ASCII characters. sure: of a mark,
    whether every database of the ring was in sight when the lane was opened. text: JSON of at most 4,000 characters.
    """

    high: int = 0
    issued: int = 0
    tenure: str | None = None
    sure: bool = False
    text: str = ""


class Write(NamedTuple):
    """Put `new` where the row is exactly `old`. `old` None: where there is no such row. `new` None: delete the row."""

    book: Book
    name: str
    old: Note | None
    new: Note | None


class Mark(NamedTuple):
    """Raise the row of MARKS by this name, if its tenure is this one.

    Its `high` becomes at least `limit`, and its `issued` at least this one. A mark makes a row sure, and never unsure.
    """

    name: str
    tenure: str
    limit: int
    issued: int
    sure: bool


class Marked(Enum):
    """The result of one mark: done, or refused for the row's tenure (or because there is no row) or the ring number."""

    DONE = "done"
    TENURE = "tenure"
    RING = "ring"


class RingRow(NamedTuple):
    """The ring row, which every ticket database has exactly one of.

    body: the random word of the data itself, made together with the server's own tables. It never changes. offset:
    where this body was last drawn from, 0 where never. stamp: the number of the ring record with the random word of its
    writer; empty where there is no record. text: the ring record as JSON, see `app.databases.record`.
    """

    body: str
    offset: int = 0
    stamp: str = ""
    text: str = ""


class Want(NamedTuple):
    """One sequence's part of a draw.

    sequence: the name as it was made. count: how many ids at least, from 1 to `MOST_IDS`. above: the first id has to be
    larger; the session raises the counter first if it has to. last: the largest id that the caller knows of, a hint for
    where the counter stands. ceiling: no id may be larger. drawn: the caller has drawn `last` itself since it read the
    counter. birth: of the counter that the caller read. If the counter has another birth, or is below an id that the
    caller has drawn, nothing is raised, and the result is a SequenceMissing: `EMPTIED`.
    """

    sequence: str
    count: int  # type: ignore[assignment]  # hides tuple.count
    above: int = 0
    last: int = 0
    ceiling: int = LARGEST_ID
    drawn: bool = False
    birth: str = ""


class Drawn(NamedTuple):
    """The ids `first`, `first + increment`, …, `count` of them, all committed, perhaps more than were wanted."""

    first: int
    count: int  # type: ignore[assignment]  # hides tuple.count


class Counter(NamedTuple):
    """A sequence as it stands in one database.

    bits: 32, 53 or 64. ceiling: the largest id that it can give. position: nothing at or below it will be drawn again.
    birth: a word that changes when the table (row, key) is made anew. warnings: what should be repaired, in words.
    """

    name: str
    bits: int
    ceiling: int
    position: int
    birth: str
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Facts:
    """What a database server says of itself.

    machine: the word of the server or node that runs the data, stable across its restarts. started, now: when it
    started, and its clock, in seconds since 1970. births: when the server's own tables were made; another word after a
    dump was read back. version: engine and version, for people. warnings: what weakens a guarantee, in words.
    """

    machine: str
    started: float
    births: str
    now: float
    version: str
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Look:
    """What one look found. `life` is the row of LIVES for `facts.machine`."""

    facts: Facts
    ring: RingRow
    life: Note | None
    heartbeats: Mapping[str, Note]
    floors_number: int


class Session(Protocol):
    """One connection.

    Every method raises DatabaseFailed where the connection or the database does not work, or the result is not known,
    and DatabaseRefused where the database is not what it should be and an operator has to act. `Database` takes any
    other exception for an answer that makes no sense. A method that returns a result for each item returns a
    SequenceError for an item that this database could not serve: what is wrong with one table concerns no other.

    residue: what this session draws; None where it draws nothing. facts: as they were on connecting. life: the life
    that this connection belongs to; empty at first, `Database` finds it and sets it.
    """

    residue: Residue | None
    facts: Facts
    life: str

    async def look(self, server: str, beat: Note) -> Look:
        """Write this server's row of HEARTBEATS, whatever is there, commit it, and read what a look reads."""

    async def draw(self, wanted: Sequence[Want]) -> list[Drawn | DatabaseError]:
        """Draw for several sequences in one packet, in constant time for each: all of it or none.

        Returns for each ids that are committed, SequenceMissing, SequenceBusy, SequenceExhausted (so many ids are not
        left, or pass the ceiling) or SequenceUnusable. Raises DatabaseRefused for an id of another residue. The lane
        checks that the ids rise.
        """

    async def sequences(self, names: Sequence[str] | None) -> dict[str, Counter | DatabaseError]:
        """Return the counters of these sequences, by their names in lower case; None: of all that there are.

        A name that is not there is left out. What cannot be served is a SequenceUnusable that says why, as are two
        tables whose names differ by case alone. No draw that was committed before the call lies above the position.
        """

    async def make(self, name: str, bits: int, above: int) -> None:
        """Make a sequence of this width whose first id is larger than `above`. One that is there stays as it is."""

    async def raise_above(self, floors: Mapping[str, int]) -> dict[str, DatabaseError | None]:
        """Raise counters, by the names as they were made, and commit: every later draw is larger than the number.

        A number below the position is harmless. One at or above the ceiling exhausts the sequence.
        """

    async def read(self, book: Book, names: Sequence[str]) -> dict[str, Note]:
        """Return the rows of a book by these names; a name that is not there is left out."""

    async def page(self, book: Book, after: str, count: int) -> list[tuple[str, Note]]:
        """Return the first `count` rows of a book whose names come after `after` in the order of their bytes."""

    async def read_ring(self) -> RingRow:
        """Return the ring row."""

    async def write_ring(self, old: RingRow, new: RingRow) -> bool:
        """Replace the ring row where it is exactly `old`; False where it is not. The body stays the same."""

    async def mark(self, marks: Sequence[Mark], stamp: str) -> list[Marked]:
        """Raise these marks, each by itself, all in one commit, where the ring row has this stamp.

        The statement locks the ring row, so that a mark and a `write_ring` never pass each other.
        """

    async def write(self, writes: Sequence[Write], stamp: str | None) -> list[bool]:
        """Do these writes, as `mark` does marks, and return for each whether it was done. stamp None: any stamp."""

    def abort(self) -> None:
        """Close the connection at once. A call under way ends with DatabaseFailed."""


Connect = Callable[[Any, Residue | None, float], Awaitable[Session]]
"""How an engine opens a session, at an address of its own kind, for a residue (None: it draws nothing): it logs in,
prepares the session, and makes the server's own tables where there are none. The number is the database timeout in
seconds, for what the session sets on the server (lock waits). Raises DatabaseFailed, DatabaseRefused."""
