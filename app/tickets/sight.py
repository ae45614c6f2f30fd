"""What one server knows of its ticket databases: which are in sight, in which life, and by which ring record it goes.

Each server has a sight of its own. The probe changes it; lanes, marks and levels read it. Nothing here does I/O.

For a server a database is in one of these states:

    in sight     The last look reached it, found it in the ring with the record that this server goes by, and nothing
                 has failed there since: `life` is set. Lanes draw from it, and marks go to it. Until it is level for
                 good in that life (`level`), the next database must not go back.
    doubtful     A statement failed there, and no look has ended since that says what is there now. No limit rises.
    held back    The look that followed has ended. The database comes back only after a trial write.
    down         The last look failed.
    quarantined  The last look found what may not be drawn from, or not yet (see `agreement`).

A lane asks three things. Is it still the lane that it was opened as: `era`, and the life of its database. May it issue
at or below its limit: `is_fresh`. Does its limit stand: `generation`, which changes whenever a database comes into
sight, so that a limit of before, and a mark that was under way, count no more.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum

from app.databases.database import Database
from app.databases.record import Record
from app.databases.session import RingRow
from app.errors import DatabaseError, DatabaseFailed
from app.tickets.counts import Counts

NEVER, NOT_YET = float("-inf"), float("inf")
NO_LOOK = DatabaseFailed("no look has ended yet")
SHORTEST = 0.001
"""Seconds that a wait lasts at least: two clocks of different resolution never agree on less."""
SOON, FIRST_DELAY, LONGEST_DELAY = 60.0, 1.0, 30.0
"""Seconds. A database that fails again within `SOON` is held back for `FIRST_DELAY`, and then doubled each time."""


class Status(StrEnum):
    """How a database stands in /healthz."""

    UP = "up"
    DOWN = "down"
    QUARANTINED = "quarantined"


@dataclass(eq=False, repr=False)
class Entry:
    """One entry of the list of ticket databases: what a decision about the ring rests on.

    Attributes:
        offset, name: its place in the list, from 1, and host:port, for people.
        row, found: the ring row and the life that the last look found; None and empty where it failed, with `error`.
        row_since: since when this server has seen the ring row as it is.
        life: the life in which it is in sight, None while it is not.
        steady: since when it has been in sight in one life without a failure. A database that lacks the highest record
            until a server has brought it up stays steady.
    """

    offset: int
    name: str
    row: RingRow | None = None
    found: str = ""
    error: DatabaseError = NO_LOOK
    row_since: float = NEVER
    life: str | None = None
    steady: float = NOT_YET

    @property
    def body(self) -> str:
        """The word of the data that it holds, empty where it did not answer."""
        return self.row.body if self.row is not None else ""


class Member(Entry):
    """An entry with all that this server knows of its database. Times are by `Sight.clock`.

    Attributes:
        drawn_body: the word of the data that it held when it came into sight.
        status, reason, since: for /healthz.
        came: when it came into sight last.
        level: the life in which it was made level for good.
        looked: when its last look began that has ended, whether it answered or failed.
        begun, ended: the number of the last look that began, and of the last look that ended.
        void: looks up to this number say nothing of what is there now: since then something failed there or was
            refused, or this server has written the ring row or stood still.
        trial: something failed there, so it comes back into sight only after a trial write. trying: that is under way.
        delay, due: for how many seconds it is held back, and when its next trial write is due, or when it came back.
        tried: when a node that another server uses was tried last.
        warnings, latency: what weakens a guarantee, as the database server said of itself at the last look that it
            answered, and how many seconds that look took.
        wake: set to look at once.
    """

    def __init__(self, offset: int, database: Database) -> None:
        super().__init__(offset, database.name)
        self.database = database
        self.counts = Counts()
        self.drawn_body = self.level = ""
        self.status, self.reason, self.since = Status.DOWN, str(NO_LOOK), 0.0
        self.came = self.looked = self.tried = NEVER
        self.begun = self.ended = self.void = 0
        self.trial = self.trying = False
        self.delay, self.due = 0.0, NEVER
        self.warnings: Sequence[str] = ()
        self.latency: float | None = None
        self.wake = asyncio.Event()

    @property
    def node(self) -> str | None:
        """host:port of the node in use; None where the database has one node only."""
        return self.database.node

    @property
    def is_stale(self) -> bool:
        """Whether no look has ended yet that says what is there now."""
        return self.ended <= self.void

    @property
    def doubtful(self) -> bool:
        """Whether a failure there was not followed by a look yet. No limit rises meanwhile."""
        return self.trial and self.is_stale

    def look_again(self) -> None:
        """Look at once; looks that have begun count no more."""
        self.void = self.begun
        self.wake.set()

    def forget(self, error: DatabaseError) -> None:
        """Forget what the last look found, because it failed, or counts no more."""
        self.row, self.found, self.error = None, "", error

    def hold_back(self, now: float) -> None:
        """Hold it back: not at all, or for twice as long as before if it came back or was tried a short time ago."""
        self.delay = min(LONGEST_DELAY, max(FIRST_DELAY, 2 * self.delay)) if now - self.due < SOON else 0.0
        self.due = now + self.delay


@dataclass(eq=False)
class Sight:
    """The members with what holds for all of them together.

    members: in the order of their offsets. interval: seconds between two looks. timeout: the database timeout, in
    seconds. clock: seconds by a clock that counts suspension.
    """

    members: Sequence[Member]
    interval: float
    timeout: float
    clock: Callable[[], float]
    record: Record | None = None
    """The ring record that this server goes by; None before it knows one."""
    generation: int = 0
    """Rises when a database comes into sight: the limits of before count no more."""
    era: int = 0
    """Rises when the record changes, and when a mark is refused for its number: the lanes of before are closed."""
    is_settling: bool = True
    """Whether databases may come into sight without anything that happens outside: looks or a change are under way."""
    is_levelling: bool = False
    """Whether this server makes the databases level just now, or is about to."""
    refused: bool = False
    """A database refused a mark for its ring number, and this server has not looked at every database since."""
    _moved: asyncio.Event = field(default_factory=asyncio.Event)
    fresh_until: float = NEVER
    """Until then, by `clock`, ids may be issued; see `is_fresh`."""

    def __post_init__(self) -> None:
        for member in self.members:
            member.since = self.clock()

    @property
    def stamp(self) -> str | None:
        """The ring number to draw and to mark under; None while nobody may draw."""
        record = self.record
        return record.stamp if record is not None and record.drawn and not self.refused else None

    @property
    def in_sight(self) -> list[Member]:
        """The members that are in sight, in the order of their offsets."""
        return [member for member in self.members if member.life is not None]

    @property
    def whole(self) -> bool:
        """Whether the databases at all offsets of the ring that are in use are in sight."""
        seen = {member.offset for member in self.members if member.life is not None}
        return self.record is not None and seen.issuperset(self.record.offsets)

    @property
    def doubtful(self) -> bool:
        """Whether any member is in doubt."""
        return any(member.doubtful for member in self.members)

    def is_fresh(self) -> bool:
        """Whether a look at every database began within three probe intervals and a database timeout, and has ended."""
        return self.clock() <= self.fresh_until

    def keeps(self, member: Member, life: str, era: int, sure: bool) -> bool:
        """Tell whether a lane or a lease goes on as it was opened on this member; one that can become sure does not."""
        return era == self.era and (member.life is None or member.life == life) and (sure or not self.whole)

    def alone(self, member: Member) -> bool:
        """Whether no other database than this one is in sight."""
        return all(other is member or other.life is None for other in self.members)

    # --- what changes it ---------------------------------------------------------------------------------------------

    def look_at(self, member: Member | None = None) -> None:
        """Look at this member at once, and at all if none is named or in sight; after a look under way, once more."""
        for each in [member] if member is not None and self.in_sight else self.members:
            each.wake.set()

    def failed(self, member: Member, error: DatabaseError, life: str | None = None) -> None:
        """A statement failed at this member: it goes out of sight, and the probe looks at it at once.

        life: the life in which that was; where the member is not in sight in that life any more, nothing is changed.
        The member comes back only after a trial write, because a database may answer looks and nothing else.
        """
        if life not in {None, member.life}:
            return
        if not member.trial:
            member.hold_back(self.clock())
        member.trial, member.void = True, member.begun
        self.leave(member, Status.DOWN, str(error))
        self.look_at(member)

    def refuse(self) -> None:
        """A member refused a mark for its ring number: every lane of this server stops until it has looked."""
        self.refused = True
        self.era += 1
        for each in self.members:
            each.look_again()
        self.move()

    def enter(self, member: Member, life: str) -> None:
        """This member comes into sight, in this life: all limits end, and the databases have to be made level."""
        member.drawn_body, member.came = member.body, self.clock()
        member.steady = min(member.steady, member.came)
        self.generation += 1
        self.is_levelling = True
        self._place(member, life, Status.UP, "")

    def leave(self, member: Member, status: Status, reason: str, *, stays_steady: bool = False) -> None:
        """This member is not in sight (any more). Open lanes keep their stock and their limits."""
        member.steady = member.steady if stays_steady else NOT_YET
        if member.life is not None or (member.status, member.reason) != (status, reason):
            self._place(member, None, status, reason)

    def go_by(self, record: Record | None) -> None:
        """Take up another ring record; the lanes of the one before close."""
        if record != self.record:
            self.record = record
            self.era += 1
            self.move()

    def _place(self, member: Member, life: str | None, status: Status, reason: str) -> None:
        if member.status is not status:
            member.since = self.clock()
            member.counts.quarantines += status is Status.QUARANTINED and member.status is Status.UP
        member.life, member.status, member.reason = life, status, reason
        self.move()

    # --- waiting for it ----------------------------------------------------------------------------------------------

    def move(self) -> None:
        """Wake whoever waits for a change: a look has ended, a member came or went."""
        # Shorter than the silence after which others pass over this server's heartbeat, see `Probe._found`.
        self.fresh_until = min(member.looked for member in self.members) + 3 * self.interval + self.timeout
        self._moved.set()
        self._moved = asyncio.Event()

    async def confirmed(self) -> None:
        """Return once no member is in doubt, and all were looked at not long ago."""
        while self.doubtful or not self.is_fresh():
            await self.moved()

    async def moved(self, seconds: float | None = None) -> None:
        """Return at the next change, or after so many seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(None if seconds is None else max(SHORTEST, seconds)):
                await self._moved.wait()
