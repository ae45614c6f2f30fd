"""The protocol of a ticket database, the same for every engine.

A ticket database is a counter for each sequence, and a notebook that survives with the counters.

The counter is drawn from, raised and read. A draw names its residue: the offset and increment of the lane that asks,
and the number of the ring that the lane was opened under. It takes all the tickets that it asks for or none, at any
distance from the end of the sequence; how the engine's own columns or integers end is no concern of the caller.

The notebook keeps marks about other databases, the ring record, how sequences were made, and which ticket servers use
the database. A mark or a record is written on a condition: the ring still has this number, and the row that is kept is
still the one that the server has read.

What names a database is its incarnation, not its address. An engine gives another one whenever the data may have gone
back: with a restart, with another server in its place, with a file that was put back.

`TicketDatabase` is what the domain calls. An engine whose sequences and notes are rows subclasses `NotebookDatabase`
(in `notebook`), which makes all of this from ten methods. An engine may also implement the protocol itself, and then
says why.

`engines` lists the engines. Every method raises a `TicketDatabaseError` and nothing else, and ends within the
database's timeout. `tests/contract/engines` holds each engine to what is said here. The file is long because a method
and the values that it takes and gives are read together.
"""

import asyncio
import math
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar, NamedTuple, Protocol

from app.common.errors import (
    SequenceMissing,
    SequenceUnavailable,
    TicketDatabaseBusy,
    TicketDatabaseError,
    TicketDatabaseMisconfigured,
)
from app.common.sequences import Width
from app.kinds.definition import Definition

LARGEST_INCREMENT = 65_535
"""The largest increment of a ring, and of one draw: the largest that every engine takes."""


class Residue(NamedTuple):
    """Which ids a lane draws, and in which ring: those that leave `offset` when divided by `increment`. `ring`: the
    number of the ring record that the lane was opened under; 0 before that."""

    offset: int
    increment: int
    ring: int = 0


class Draw(NamedTuple):
    """Tickets that one database has committed for one sequence: the `size` numbers `first + i * step`."""

    first: int
    step: int
    size: int

    @property
    def last(self) -> int:
        return self.first + self.step * (self.size - 1)


Drawn = Draw | TicketDatabaseError
"""The result of a draw: ids, or the error that refused it."""


@dataclass(frozen=True, slots=True)
class Table:
    """A sequence's table as it stands in one ticket database. An engine may know more about its own.

    `width`: of its ids, in bits. `ceiling`: the largest ticket that it can hold. `created` changes when the table is
    made anew, on a server only if that is in another second. `warnings`: what is served but should be repaired, in
    words.
    """

    sequence: str
    width: Width
    ceiling: int
    created: str
    warnings: tuple[str, ...] = ()

    @property
    def last(self) -> int:
        """The largest ticket that it gives: the ceiling, unless the engine cannot tell whether it gave that before."""
        return self.ceiling


@dataclass(frozen=True, slots=True)
class Position:
    """Where a table's counter stands: `next_id` is the live counter, `largest` the largest id in a row or 0.

    The next ticket is at least `next_id`. `next_id` is at most TICKET_LIMIT + 1 and `largest` at most TICKET_LIMIT,
    whatever the column can hold: the server tells both to databases that keep marks. `next_id <= largest` is a counter
    that has gone back, or that stands at the end of its column. An engine that has a counter and no rows says that all
    below `next_id` is in one. `created` changes when the table is made anew.
    """

    next_id: int
    largest: int
    created: str


@dataclass(frozen=True, slots=True)
class ClockReading:
    """A database's clock said `seconds` since 1970 at a moment between `since` and `until`, in seconds by
    `time.monotonic`."""

    seconds: float
    since: float
    until: float


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """The result of a probe: a committed write, and the database's identity.

    `incarnation` changes whenever the database may have gone back in time: with a restart, with another server in its
    place. Two incarnations of a server are told apart by the second in which they began. `identity` names the server
    itself, so that two URLs of one server are seen; it may be another one after a restart. `latency`: what the probe's
    write took, in seconds. `increment` and `offset` are the ones that the server is configured with, None where the
    engine has no such setting; `setting_names`: what the server calls them. `record`: the ring that it records, None
    where it records none. `uses`: which bodies of data other servers say they use; `older`: the releases of the servers
    of the last OLDER_SECONDS that do not say so. `clock`: what its clock said. `warnings`: what is served but should be
    repaired (durability settings that are off). `folds_names`: whether table names that differ by case alone name one
    table there.
    """

    incarnation: str
    identity: str
    latency: float
    increment: int | None
    offset: int | None
    record: "RingRecord | None"
    clock: ClockReading
    warnings: tuple[str, ...] = ()
    setting_names: tuple[str, str] = ("increment", "offset")
    folds_names: bool = False
    uses: tuple["Use", ...] = ()
    older: tuple[str, ...] = ()


def check_settings(found: "Settings", increment: int, offset: int) -> None:
    """Raise TicketDatabaseMisconfigured unless a server's increment and offset, where it has any, are these."""
    given, required = (found.increment, found.offset), (increment, offset)
    for name, value, expected in zip(found.setting_names, given, required, strict=True):
        if value is not None and value != expected:
            raise TicketDatabaseMisconfigured(f"has {name}={value}, expected {expected}")


class Settings(Protocol):
    """The settings that a database server is configured with."""

    @property
    def increment(self) -> int | None: ...

    @property
    def offset(self) -> int | None: ...

    @property
    def setting_names(self) -> tuple[str, str]: ...


class RingState(StrEnum):
    """The ring as a ring record describes it.

    `drawn`: servers draw. `growing`: `ticketd grow` has begun and has not finished; nobody draws. `forming`: a server
    has begun to raise every sequence before the first draw; nobody draws until a server has finished.
    """

    DRAWN = "drawn"
    GROWING = "growing"
    FORMING = "forming"


@dataclass(frozen=True, slots=True, order=True)
class Body:
    """A body of data in use at an offset: what a ticket database holds, wherever it runs.

    `number`: of the ring record under which a server took it in. `word`: random, the body's own since then. `place`:
    the host and port at which that server reached it. Of two bodies at one offset the greater one stays.
    """

    number: int
    word: str
    place: str


@dataclass(frozen=True, slots=True)
class RingRecord:
    """The ring that a ticket database has been drawn in, as the database records it.

    `number` rises with every change of the ring. `since` is the number with which this increment began. `offsets`
    holds every offset that has been used since then, `own` is the database's own. `state`: whether servers draw. No
    addresses: a dead database may be replaced at another host.

    `bodies`: by its offset, each body of data that the database has heard to be in use. `body`: the word of the body
    that the database itself holds, and `life` the incarnation under which a server took that body in; both empty where
    no server has said. `former`: every other increment that the ring has had.
    """

    number: int
    increment: int
    since: int
    offsets: tuple[int, ...]
    own: int
    state: RingState = RingState.DRAWN
    bodies: tuple[tuple[int, Body], ...] = ()
    body: str = ""
    life: str = ""
    former: tuple[int, ...] = ()

    def body_at(self, offset: int) -> Body | None:
        """The body in use at this offset; None where none has been heard of."""
        return next((body for at, body in self.bodies if at == offset), None)


@dataclass(frozen=True, slots=True)
class Mark:
    """One row of the high-water ledger: what the database of `offset` and `increment` may have issued in `sequence`.

    No ticket above `mark` has been issued; `issued` has been, or is the number the sequence was bumped above. `token`
    is `<epoch>:<nonce>`, an epoch being the incarnation of that database and of its table: a server that advances
    the sequence after the database went back supersedes it, and a database refuses a mark under an older token.

    Marks of inner sequences, whose names begin with `_`, stand in a table of their own. A release that does not know
    inner sequences would take such a name for damage.
    """

    sequence: str
    offset: int
    increment: int
    mark: int
    issued: int
    token: str


@dataclass(frozen=True, slots=True)
class Use:
    """A ticket server's announcement that it uses this body of data at this offset. `server`: its host name and port.

    It stands while the server renews it, and for USE_INTERVALS of the server's probe intervals after that, by the clock
    of the database that keeps it. An announcement that lies further ahead than that, because the clock was set back,
    does not stand either.
    """

    offset: int
    word: str
    place: str
    server: str


USE_INTERVALS = 5
"""A server's announcements stand for this many of its probe intervals after it has renewed them."""
_NOT_IN_A_PLACE = re.compile(r"[^0-9A-Za-z_.:\[\]-]")
LONGEST_PLACE = 255


def place_named(name: str) -> str:
    """A host and port, or a file's name, as every database can keep it: other characters become `_`."""
    return _NOT_IN_A_PLACE.sub("_", name)[:LONGEST_PLACE] or "_"


OLDER = "older"
"""The release of servers that do not announce themselves: 0.1.0 and 0.2.0. They record no bumps either."""
OLDER_SECONDS = 15.0
"""Seconds for which a server that does not announce itself counts as seen. Nobody knows its probe interval; the default
is a second."""
_INSTANCE = re.compile(r"[0-9a-f]{0,64}")
RELEASE = re.compile(r"[0-9A-Za-z.+_-]{1,64}")
_KIND = re.compile(r"[0-9a-z_]{1,32}")
_MOST_KINDS = 60


@dataclass(frozen=True, slots=True)
class ServerEntry:
    """A ticket server that uses a database, as it announces itself there with every probe.

    `instance`: hexadecimal digits that no other life of any server has; empty for one of an older release. `kinds`: of
    sequences, that it can serve. `probe_interval`: seconds between its probes. `reserve_window`: seconds for which it
    may hand out what it has drawn ahead after a sequence was bumped; 0 where it draws none ahead. `at`: when it was
    seen last, in seconds since 1970 by the database's clock; 0 in what is announced. `uses`: the bodies of data that it
    uses; None for a server of an earlier release, which does not say so. Raises ValueError where a value cannot be
    kept.
    """

    instance: str
    release: str
    kinds: tuple[str, ...]
    probe_interval: float
    reserve_window: float = 0.0
    at: float = 0.0
    uses: tuple[Use, ...] | None = ()

    def __post_init__(self) -> None:
        kinds = ((_KIND, kind) for kind in self.kinds)
        for pattern, text in ((_INSTANCE, self.instance), (RELEASE, self.release), *kinds):
            if pattern.fullmatch(text) is None:
                raise ValueError(text)
        seconds = self.probe_interval, self.reserve_window
        if len(self.kinds) > _MOST_KINDS or not all(0 <= each < math.inf for each in seconds):
            raise ValueError(len(self.kinds), *seconds)
        if not math.isfinite(self.at):
            raise ValueError(self.at)


class TicketDatabase(Protocol):
    """One ticket database: odd or even, or one of more. Every engine subclasses it."""

    system: ClassVar[str]
    """OpenTelemetry's name of the engine, for `db.system.name`."""
    name: str
    """host:port, or the embedded database's file name; never a secret."""
    offset: int
    """Of the ids that it draws."""
    increment: int
    """The increment that it draws with; that of the ring, once the ring is known."""
    describe: Callable[[], ServerEntry] | None = None
    """See `announce`; None where the program is no ticket server."""

    @property
    def largest_block(self) -> int:
        """The most tickets that one draw can take."""
        return LARGEST_INCREMENT // self.increment

    @property
    def instance(self) -> str:
        """Which ticket server this is; empty where it has announced nothing."""
        return "" if self.describe is None else self.describe().instance

    @property
    def connections(self) -> int:
        """How many connections are open."""

    async def probe(self) -> ProbeResult:
        """Connect if need be, write and commit a row of the server's own, read the settings and the ring record.

        Raises TicketDatabaseUnavailable, or TicketDatabaseMisconfigured where an operator has to act. Draws after it
        are made only on connections that found the same incarnation, the increment drawn with and the right offset;
        they raise TicketDatabaseUnavailable where it is another incarnation, and before the first look, and
        TicketDatabaseMisconfigured where the server has another increment or offset.

        It waits only while this process runs: an answer that came while it stood still is taken. Else every database
        would seem to be away, and a reserve that a bump has passed would be handed out.

        What is written says which server this is, if it has announced itself; else that of nobody who would be seen by
        `in_use` or `servers`.
        """

    def announce(self, describe: Callable[[], ServerEntry]) -> None:
        """Write what this returns with every probe from now on: a program that does so is a ticket server. `close`
        takes it away. `instance` and `probe_interval` never change."""
        self.describe = describe

    async def servers(self, within: float) -> list[ServerEntry]:
        """The ticket servers that have probed the database in the last so many seconds by its own clock, this one
        included. Those of releases that do not announce themselves are one, of the release OLDER and of no kinds."""

    def use_increment(self, increment: int) -> None:
        """Draw with this increment from now on. What is under way with another one fails or comes back as drawn."""

    async def record_ring(self, old: RingRecord | None, new: RingRecord) -> RingRecord:
        """Record `new` if the record is still `old` (None: there is none); commit. Returns the record as it stands.

        What the server announces is written in the same transaction, if it has announced itself.

        Raises TicketDatabaseUnavailable where there is none any more.
        """

    async def recorded_ring(self) -> RingRecord | None:
        """The ring that it records, None where it records none. Nothing is written: one that is read-only says it."""

    async def check_ring(self, number: int) -> None:
        """Raise RingChanged unless there is a ring record, and it has this number."""

    async def in_use(self, seconds: float) -> list[str]:
        """Watch the database for `seconds`, and name each other user in a few words. Empty if there is none."""

    def start_draw(
        self,
        residue: Residue,
        table: Table,
        count: int,
        after: int,
        done: Callable[[Drawn], None],
        *,
        least: int = 0,
    ) -> None:
        """Begin to draw and commit `count` tickets of a residue (1 to `largest_block`); `after` is the last id seen of
        this table, 0 if none.

        RingChanged where the database draws with another increment by now. An engine whose draw can see the ring record
        in its own transaction also raises that, and draws nothing, where another number is recorded. Elsewhere such a
        draw is refused with its mark.

        `done` is called exactly once, later, from the event loop (never before this method has returned), with a Draw
        or a TicketDatabaseError. It must not raise.

        All of them or none, at any distance from the end, and none above the table's `last` or its ceiling as they are
        handed in. No ticket is below `least`: where the counter stands lower it is advanced to that first, in the
        draw's own transaction. ColumnExhausted where one ticket does not fit any more; of several also where they may
        not fit, which is for the engine to say: fewer at a time may still be there. What does not fit uses up a few ids
        at the most; with a `least` that leaves no room, none.

        SequenceMissing; and where more than one is drawn SequenceWentBack may be raised, where the counter stands below
        `after`. The caller checks every draw against `after`.
        """

    async def draw(self, residue: Residue, table: Table, count: int, after: int, least: int = 0) -> Draw:
        """Draw for a caller that waits. If the caller is cancelled, the tickets that it drew become a gap."""
        drawn: asyncio.Future[Drawn] = asyncio.get_running_loop().create_future()

        def done(result: Drawn) -> None:
            if not drawn.done():
                drawn.set_result(result)

        self.start_draw(residue, table, count, after, done, least=least)
        result = await drawn
        if isinstance(result, TicketDatabaseError):
            raise result
        return result

    async def names(self) -> dict[str, str]:
        """The tables that could be sequences by their names, inner ones included, and when each was made; cheap however
        many there are."""

    async def tables(self, names: Iterable[str]) -> dict[str, Table]:
        """The tables of these sequences as they stand; one that is missing or no sequence's is left out."""

    async def positions(self, names: Iterable[str]) -> dict[str, Position]:
        """Where these sequences' tables stand now; one that is missing is left out. Expensive where there are many."""

    async def position(self, sequence: str) -> Position:
        """The position of one sequence. Raises SequenceMissing."""
        try:
            return (await self.positions([sequence]))[sequence]
        except KeyError:
            raise SequenceMissing("has no table for it") from None

    async def readable_positions(self, names: Iterable[str]) -> dict[str, Position]:
        """The positions of many sequences, without those that cannot be read now: damaged, or locked."""
        requested = list(names)
        with suppress(SequenceUnavailable, TicketDatabaseBusy):
            return await self.positions(requested)
        found: dict[str, Position] = {}
        for name in requested:
            with suppress(SequenceUnavailable, TicketDatabaseBusy):
                found |= await self.positions([name])
        return found

    async def make(self, sequence: str, width: Width, start: int) -> None:
        """Make the sequence's table where it is missing, so that its first ticket is at least `start`, which lies
        between 1 and the ceiling; committed. One that is there stays as it is."""

    async def advance(self, floors: Mapping[str, int]) -> None:
        """Make every later ticket of each sequence larger than its floor, whatever increment it is drawn with; a number
        that has been passed changes none. Committed. A floor is at most the ceiling. Where it raises SequenceMissing,
        some of the others may have been raised."""

    async def definitions(self) -> dict[str, Definition]:
        """What each sequence was made as, by its name in lower case, claims included; none of those that no server has
        defined. One that this release cannot read has no parameters."""

    async def define(self, definition: Definition, old: Definition | None = None) -> Definition:
        """Keep what a sequence is made as; committed. Returns what is kept then for its name, case ignored.

        It replaces `old` alone, which is a claim that has not been decided (None: nothing is kept). What servers of
        release 0.2.0 have written for the name is decided, and is kept in place of any claim.
        """

    async def forget_definition(self, definition: Definition) -> None:
        """Keep nothing for its name if this is what is kept; committed."""

    async def marks(self, changed_within: float | None = None, *, anybody: bool = True) -> list[Mark]:
        """The marks of this increment that this database keeps for the others: all, or those that changed in so many
        seconds, and maybe more. Works on a database that is not in the ring, too; unless `anybody` will do, only under
        the incarnation that the last look found: raises TicketDatabaseUnavailable where it is another one."""

    async def marks_of_all_rings(self) -> list[Mark]:
        """Every mark that this database keeps, whatever its increment."""

    async def keep(self, marks: Iterable[Mark], ring: int) -> Mapping[tuple[str, int], Mark]:
        """Keep these marks: a row with the same token (or none yet) takes the larger `mark` and `issued`; a row with
        another token stays as it is. Returns the rows as they stand after the commit, by sequence and offset.

        Raises RingChanged, and keeps nothing, unless the ring record has the number `ring`. With nothing to keep it may
        ask nothing.
        """

    async def supersede(self, old: Mark, new: Mark, ring: int) -> Mark:
        """Replace `old` by `new` if the row still has old's token and its mark is not above old's; commit. `issued`
        only rises. Returns the row as it stands after.

        Raises RingChanged as `keep` does, and TicketDatabaseUnavailable where the row is gone.
        """

    async def supersede_all(self, replacements: Iterable[tuple[Mark, Mark]], ring: int) -> None:
        """Replace many rows, each given as old and new, in few commits. Leaves out a row that is gone."""

    def forget_connections(self) -> None:
        """Use new connections from the next look on, if any can be had; something was wrong on those there are."""

    async def close(self) -> None:
        """End all connections in good order; no method is called after it."""
