"""What one server sees of its ticket databases: which are in sight, in which life, and by which ring record it goes.

A database is in sight if the last look reached it, found it in the ring with the record that this server goes by, and
nothing has failed there since. Each server has a sight of its own. The probe changes it; lanes, marks and levels read
it. Nothing here does I/O.

A lane asks three things. Is it still the lane that it was opened as: `era`, and the life of its database. May it issue
at or below its limit: `is_fresh`. Does its limit stand: `generation`, which changes whenever a database comes into
sight, so that a limit of before, and a mark that was under way, count no more.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from app.databases.database import Database
from app.databases.record import Record
from app.databases.session import Facts
from app.errors import DatabaseError
from app.tickets.counts import Counts


class Status(StrEnum):
    """How a database stands in /healthz."""

    UP = "up"
    DOWN = "down"
    QUARANTINED = "quarantined"


@dataclass(eq=False, slots=True)
class Member:
    """One entry of the list of ticket databases.

    offset: its place in the list, from 1. life: the life in which it is in sight, None while it is not.
    status, reason, since: for /healthz, `since` by the server's own clock.
    looked: when its last look began that has ended, whether it answered or failed; by `Sight.clock`.
    doubtful: something failed there, and no look has ended since that began after it.
    trial: something failed there, so it comes back into sight only after a trial write. trying: that is under way.
    failures: how often something has failed there; a look that began before a failure confirms nothing.
    facts: what the database server said of itself at the last look that it answered; latency: how long that look took,
    in seconds.
    """

    offset: int
    database: Database
    life: str | None = None
    status: Status = Status.DOWN
    reason: str = "no look has ended yet"
    since: float = 0.0
    looked: float = float("-inf")
    doubtful: bool = False
    trial: bool = False
    trying: bool = False
    failures: int = 0
    facts: Facts | None = None
    latency: float | None = None
    warnings: tuple[str, ...] = ()
    counts: Counts = field(default_factory=Counts)

    @property
    def name(self) -> str:
        """host:port, for people."""
        return self.database.name

    @property
    def node(self) -> str | None:
        """host:port of the node in use; None where the database has one node only."""
        return self.database.node

    def __repr__(self) -> str:
        return f"<{self.name} offset {self.offset} {self.status} life {self.life}>"


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
    """Whether this server makes the databases level just now."""
    refused: bool = False
    """A database refused a mark for its ring number, and this server has not looked at every database since."""
    refusals: int = 0
    """How often a mark was refused for its ring number; a look that began before a refusal does not end it."""
    look_at: Callable[[Member], None] = field(default=lambda _member: None)
    """Set by the probe: look at this member at once."""
    _moved: asyncio.Event = field(default_factory=asyncio.Event)
    fresh_until: float = float("-inf")
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
        """Whether something failed at a database that no look has confirmed since. No limit rises meanwhile."""
        return any(member.doubtful for member in self.members)

    def is_fresh(self) -> bool:
        """Whether a look at every database has ended, well or badly, that began not long ago.

        Not long ago means within three probe intervals and a database timeout.
        """
        return self.clock() <= self.fresh_until

    def alone(self, member: Member) -> bool:
        """Whether no other database than this one is in sight."""
        return all(other is member or other.life is None for other in self.members)

    # --- what changes it ---------------------------------------------------------------------------------------------

    def failed(self, member: Member, error: DatabaseError) -> None:
        """A statement failed at this member: it goes out of sight, and the probe looks at it at once.

        It comes back only after a trial write, and later each time: a database may answer looks and nothing else.
        """
        member.failures += 1
        member.trial = member.doubtful = True
        self.leave(member, Status.DOWN, str(error))
        self.look_at(member)

    def refuse(self, member: Member) -> None:
        """This member refused a mark for its ring number: every lane of this server stops until it has looked."""
        self.refused = True
        self.refusals += 1
        self.era += 1
        for each in self.members:
            self.look_at(each)
        self.move()

    def enter(self, member: Member, life: str) -> None:
        """This member comes into sight, in this life: all limits end."""
        member.life = life
        self._set(member, Status.UP, "")
        self.generation += 1
        self.move()

    def leave(self, member: Member, status: Status, reason: str) -> None:
        """This member is not in sight (any more). Open lanes keep their stock and their limits."""
        member.life = None
        self._set(member, status, reason)
        self.move()

    def go_by(self, record: Record | None) -> None:
        """Take up another ring record; the lanes of the one before close."""
        if record != self.record:
            self.record = record
            self.era += 1
            self.move()

    def _set(self, member: Member, status: Status, reason: str) -> None:
        if member.status is not status:
            member.since = self.clock()
            member.counts.quarantines += status is Status.QUARANTINED and member.status is Status.UP
        member.status, member.reason = status, reason

    # --- waiting for it ----------------------------------------------------------------------------------------------

    def move(self) -> None:
        """Wake whoever waits for a change: a look has ended, a member came or went."""
        self.fresh_until = min(member.looked for member in self.members) + 3 * self.interval + self.timeout
        self._moved.set()
        self._moved = asyncio.Event()

    async def moved(self) -> None:
        """Return at the next change."""
        await self._moved.wait()
