"""How a bump is made to hold for what servers have drawn ahead.

A bump raises every database's table, and so everything that is drawn from then on. What lies in reserve was drawn
before. So its number is recorded on every database, as a mark of a name of its own (a lane's mark does not tell a bump
from other servers' draws): every server reads the marks with each of its looks, and drops what is not above the record.
The bump is answered when the largest window has passed in which a server may not have read it: see `window`.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from app.common.errors import MarkRefused, NotConfirmed, TicketDatabaseError
from app.common.sequences import bump_name
from app.databases.protocol import LARGEST_INCREMENT, Mark
from app.tickets.reserve.reserve import Reserve
from app.tickets.reserve.reserves import Reserves
from app.tickets.ring.marks import Wanted
from app.tickets.ring.ring import Member, Ring

TOKEN = "bumped:"  # noqa: S105 - a mark's
"""All bumps have the same: a larger number replaces a smaller one."""
OFFSET = LARGEST_INCREMENT
"""Of no database, so that each of them is told by the others when it comes up older than it was."""
ANY_AGE = 1e9
"""Seconds. What a server has announced counts as long as it stands there."""
AGAIN = "the bump is under way: ask again"

Keep = Callable[[Wanted, int, Callable[[], Iterable[Member]]], Awaitable[Mapping[Member, Mark]]]


@dataclass(frozen=True, slots=True, eq=False)
class _Committed:
    """A bump whose records were committed `at` on every database, and the largest window that was announced then.

    `life`: see Bumps.settle.
    """

    life: object
    above: int
    at: float
    window: float


class Bumps:
    """Records bumps and waits for those who may not know of them.

    `keep`: writes marks, see Witnesses.keep. `timeout`: seconds that a request may take.
    """

    def __init__(self, ring: Ring, reserves: Reserves, keep: Keep, timeout: float) -> None:
        self._ring = ring
        self._keep = keep
        self._timeout = timeout
        self._clock = reserves.clock
        self._committed: dict[str, _Committed] = {}

    def now(self) -> float:
        """The time that a request's begin is given in."""
        return self._clock()

    async def settle(self, name: str, reserve: Reserve | None, above: int, *, life: object, began: float) -> None:
        """Return when every ticket that any server hands out from now on is larger than `above`: every table has been
        raised above it.

        `reserve`: what this server has drawn ahead of the sequence `name`. `life`: an object that the sequence has for
        as long as it is served in this ring. `began`: when the request came.

        Raises NotConfirmed where a database fails, or where that takes longer than the request may; then asking
        again ends when it would have ended, for a smaller number as well.

        A database that is up and cannot keep marks keeps no record either: it stands in the way only while there are
        servers that draw ahead, and might read there that there was no bump.
        """
        members = self._ring.members
        without = set(members) - set(self._keepers())
        try:
            await self._record(_record_of(name, above, members[0].database.increment))
            committed_at = self._clock()
            entries = [server for member in members for server in await member.database.servers(ANY_AGE)]
        except MarkRefused as error:
            raise NotConfirmed("a ticket database did not take the bump's record") from error
        except TicketDatabaseError as error:
            raise NotConfirmed(f"{AGAIN}. A ticket database {error}") from error
        if reserve is not None:
            reserve.bumped(above)
        window = max((server.reserve_window for server in entries), default=0.0)
        if without and window:
            raise NotConfirmed(f"{without.pop().name} cannot keep the bump's record for servers that draw ahead")
        found = _Committed(life, above, committed_at, window)
        before = self._committed.get(name)
        if before is not None and before.life is life and before.above >= above:
            found = before  # whoever has announced itself since then reads the record before it draws ahead
        self._committed[name] = found
        left = found.at + found.window - self._clock()
        if left > 0 and self._clock() + left > began + self._timeout:
            raise NotConfirmed(AGAIN)
        while left > 0:  # the event loop's timers go off a little early
            await asyncio.sleep(left)
            left = found.at + found.window - self._clock()

    async def _record(self, record: Mark) -> None:
        """Commit the record on every database that can keep marks. Raises MarkRefused, TicketDatabaseError.

        The second write changes the row, so that the database dates it again if it was there already. Otherwise servers
        that read the changed marks would not see it.
        """
        ring = self._ring.number
        rows = await self._keep(Wanted(record), ring, self._keepers)
        issued = max((row.issued for row in rows.values()), default=0)
        rows = await self._keep(Wanted(replace(record, issued=issued + 1)), ring, self._keepers)
        if any(row.token != record.token or row.mark < record.mark for row in rows.values()):
            raise MarkRefused("the record has another token")

    def _keepers(self) -> list[Member]:
        return [member for member in self._ring.members if member.marks_error is None]


def _record_of(name: str, above: int, increment: int) -> Mark:
    return Mark(bump_name(name), OFFSET, increment, above, 0, TOKEN)
