"""The window: until when a server may hand out tickets in reserve. A bump waits for it.

A bump of a sequence commits a record on every database. It is answered when the largest window that any server has
announced there has passed since the commit. So a server may hand out tickets in reserve for the length of its window
after the latest of these moments:

- It began a probe of a database in which it announced itself and then read the records. It knows each record that was
  committed before the probe began. A bump that commits its record later waits for the window.
- It began to probe every database, and reached none. Then it cannot know of a bump, and the contract makes an
  exception. A failed probe that started before the bump was recorded proves nothing, so the same window applies.

Servers of releases that do not announce themselves record no bumps. While a database lists such a server, the window is
closed: the server hands out no ticket in reserve. If the database cannot be asked again, the window stays closed for
OLDER_SECONDS. Tickets that were drawn ahead before are dropped, because the older server may have answered a bump above
them.

The clock goes on while the machine is suspended, and is read at each hand-out. So a server that stood still finds its
window over, and probes first.
"""

import math
from collections.abc import Callable, Sequence

from app.databases.protocol import OLDER_SECONDS
from app.tickets.ring.ring import Member

HURRY_SECONDS = 0.25
"""Seconds between two probes of a database while no database is up. The least seconds between two that a request for
tickets in reserve causes."""


def window_seconds(probe_interval: float, database_timeout: float) -> float:
    """How many seconds a probe counts: until the next probe has ended, whether it reaches the database or not."""
    return max(probe_interval + database_timeout, HURRY_SECONDS + 2 * database_timeout)


class Window:
    """Works out from the probes of the databases until when tickets in reserve may be handed out.

    `until`: that time, by `clock`. `seconds`: the length of the window.
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
        """When each database last listed a server that does not announce bumps."""
        self.older_at = -math.inf
        """When any database last listed such a server. Refills that were asked for before are dropped."""

    def __repr__(self) -> str:
        return f"<Window of {self.seconds} s until {self.until}>"

    def looked(self, member: Member, began: float, *, reached: bool) -> None:
        """A probe of a database has ended. `began`: when the probe began."""
        if began >= self._looked.get(member, (-math.inf, False))[0]:
            self._looked[member] = began, reached
            self._work_out()

    def read(self, member: Member, began: float) -> None:
        """The records of a database have been read. `began`: when the probe before that began, which announced this
        server."""
        self._read[member] = max(began, self._read.get(member, -math.inf))
        self._work_out()

    def told_of_servers(self, member: Member, *, older: bool) -> None:
        """A database has listed its servers. `older`: whether one of them does not announce bumps."""
        if older:
            self._older[member] = self.older_at = self._clock()
        else:
            self._older.pop(member, None)
        self._work_out()

    @property
    def older_on(self) -> list[Member]:
        """The databases that list a server that does not announce bumps."""
        since = self._clock() - OLDER_SECONDS
        return [member for member in self._members if self._older.get(member, -math.inf) > since]

    @property
    def reaches_none(self) -> bool:
        """Whether the last probe of every database has failed."""
        looked = self._looked
        return all(member in looked and not looked[member][1] for member in self._members)

    def _work_out(self) -> None:
        began = max(self._read.values(), default=-math.inf)
        if self.reaches_none:
            began = max(began, min(at for at, _ in self._looked.values()))
        self.until = -math.inf if self.older_on else began + self.seconds

    def look_again(self) -> None:
        """Have every database probed now, because a request wants tickets in reserve and the window is over."""
        now = self._clock()
        if now >= self._asked_at + HURRY_SECONDS:
            self._asked_at = now
            for member in self._members:
                member.settled = member.up  # a request that finds no database waits for the probe
                member.wake.set()
