"""Until when a server may hand out tickets in reserve: what a bump waits for.

A bump of a sequence commits a record on every database, and is answered when as much time has passed since then as the
largest window that any server has announced there. So a server may hand out what it has in reserve as long as its
window since either of these is not over:

- it began to look at a database, announced itself there, and then read its records: a record that was committed before
  that look is known, and one that was committed after it waits for the window;
- it began to look at every database, and none could be reached: it cannot know of a bump, which the contract excepts.
  That a look which began before the record was committed failed is no excuse, so this has the same window.

Servers of releases that do not announce themselves record no bumps. While a database says that one of them uses it,
and for OLDER_SECONDS after a database said so last and could not be asked again, the window is closed: nothing is
handed out. Tickets asked for before that are dropped, since such a server may have answered a bump above them.

The clock is one that goes on while the machine is suspended, and is read at each hand-out: a server that stood still
anywhere finds its window over, and has to look first.
"""

import math
from collections.abc import Callable, Sequence

from app.databases.protocol import OLDER_SECONDS
from app.tickets.ring.ring import Member

HURRY_SECONDS = 0.25
"""Seconds between two looks at a database while none is up, and at least between two that are asked for here."""


def window_seconds(probe_interval: float, database_timeout: float) -> float:
    """How long a look counts: until the next one has ended, whether it finds the database or not."""
    return max(probe_interval + database_timeout, HURRY_SECONDS + 2 * database_timeout)


class Window:
    """Until when tickets in reserve may be handed out, by `clock`, from what the looks at these databases found.

    `until` is what every hand-out is held against.
    """

    def __init__(self, members: Sequence[Member], seconds: float, clock: Callable[[], float]) -> None:
        self.seconds = seconds
        self.until = -math.inf
        self._members = members
        self._clock = clock
        self._read: dict[Member, float] = {}
        self._looked: dict[Member, tuple[float, bool]] = {}
        self._asked_at = -math.inf
        self._older: dict[Member, float] = {}
        """When each database said last that a server uses it which does not announce bumps."""
        self.older_at = -math.inf
        """When any database said so last. Tickets that were asked for before are not handed out."""

    def __repr__(self) -> str:
        return f"<Window of {self.seconds} s until {self.until}>"

    def looked(self, member: Member, began: float, *, reached: bool) -> None:
        """A look at a database, which began then, has ended."""
        if began >= self._looked.get(member, (-math.inf, False))[0]:
            self._looked[member] = began, reached
            self._work_out()

    def read(self, member: Member, began: float) -> None:
        """The records of a database have been read, after a look that began then and announced this server."""
        self._read[member] = max(began, self._read.get(member, -math.inf))
        self._work_out()

    def told_of_servers(self, member: Member, *, older: bool) -> None:
        """A database has said whether a server uses it that does not announce bumps."""
        if older:
            self._older[member] = self.older_at = self._clock()
        else:
            self._older.pop(member, None)
        self._work_out()

    @property
    def older_on(self) -> list[Member]:
        """The databases used by a server that does not announce bumps."""
        since = self._clock() - OLDER_SECONDS
        return [member for member in self._members if self._older.get(member, -math.inf) > since]

    @property
    def reaches_none(self) -> bool:
        """Whether the last look at every database has failed."""
        looked = self._looked
        return all(member in looked and not looked[member][1] for member in self._members)

    def _work_out(self) -> None:
        began = max(self._read.values(), default=-math.inf)
        if self.reaches_none:
            began = max(began, min(at for at, _ in self._looked.values()))
        self.until = -math.inf if self.older_on else began + self.seconds

    def look_again(self) -> None:
        """It is over, and somebody asks for what is in reserve: have every database looked at now."""
        now = self._clock()
        if now >= self._asked_at + HURRY_SECONDS:
            self._asked_at = now
            for member in self._members:
                member.settled = member.up  # who finds no database waits for what this finds
                member.wake.set()
