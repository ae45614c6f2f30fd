"""The reserves of all sequences of a server, and until when it may hand out their tickets."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence

from app.common.boot_clock import boot_seconds
from app.common.errors import TicketDatabaseError
from app.common.log import event
from app.common.sequences import bump_name
from app.common.slices import in_slices
from app.common.tasks import Tasks
from app.databases.protocol import OLDER, OLDER_SECONDS
from app.tickets.lanes.attempts import Attempts
from app.tickets.lanes.lane import Lane
from app.tickets.requests.observer import Observer
from app.tickets.requests.supply import Supply
from app.tickets.reserve.reserve import Reserve
from app.tickets.reserve.window import Window
from app.tickets.ring.ring import Member, Ring

log = logging.getLogger(__name__)

DRIFT = 0.002
"""The share by which a bump waits longer than a server's own window. Two clocks may be slewed in opposite directions,
each by half a thousandth at the most."""
NOT_DRAWN_AHEAD = "no tickets are drawn ahead"
BESIDE_OLDER = "a ticket server of an older release serves it and does not announce bumps"
SWEEP_SECONDS = 1.0
"""How often old tickets are dropped from reserves without requests."""


class Reserves:
    """Makes the reserves, and tells them of events that concern them all.

    Attributes:
        seconds: TICKETS_RESERVE_SECONDS; 0 if the server has no reserves.
        window: until when tickets in reserve may be handed out.
        clock: seconds; goes on while the machine is suspended.
    """

    def __init__(
        self,
        ring: Ring,
        observer: Observer,
        *,
        seconds: float,
        window: float,
        attempts: Attempts,
        may_draw: Callable[[Member], bool],
        clock: Callable[[], float] = boot_seconds,
    ) -> None:
        self.seconds = seconds
        self.window = Window(ring.members, window, clock)
        self.clock = clock
        self._ring = ring
        self._observer = observer
        self._attempts = attempts
        self._may_draw = may_draw
        self._reserves: dict[str, Reserve] = {}
        self._living_on_them = False
        self._beside_older = False
        self._known: dict[Member, str] = {}
        """The incarnation of each database whose records are complete."""
        self._tasks = Tasks()

    @property
    def announced(self) -> float:
        """The window that this server announces, in seconds; 0 if it has no reserves."""
        return self.window.seconds * (1 + DRIFT) if self.seconds else 0.0

    def supply(self, name: str, lanes: Sequence[Lane]) -> Supply:
        """The supply of a sequence of plain tickets: a reserve, or the lanes alone without TICKETS_RESERVE_SECONDS."""
        if not self.seconds:
            return Supply()
        made = self._reserves[bump_name(name)] = Reserve(
            name,
            lanes,
            self.seconds,
            window=self.window,
            attempts=self._attempts,
            may_draw=self._may_draw,
            observer=self._observer,
            clock=self.clock,
        )
        return made

    def drop(self, supply: Supply) -> None:
        """Drop all tickets of a reserve for good: its sequence or its ring is gone. Other supplies hold none."""
        if isinstance(supply, Reserve):
            name = bump_name(supply.sequence)
            if self._reserves.get(name) is supply:
                del self._reserves[name]
            supply.close()

    # --- what the looks at the databases find -------------------------------------------------------------------------

    def looked(self, member: Member, began: float, *, reached: bool) -> None:
        """See Window.looked."""
        self.window.looked(member, began, reached=reached)
        if not self.seconds or self.window.reaches_none is self._living_on_them:
            return
        self._living_on_them = self.window.reaches_none
        tickets = sum(reserve.left for reserve in self._reserves.values())
        if self._living_on_them and tickets:
            event(log, logging.WARNING, "no ticket database can be reached: lives on its reserves", tickets=tickets)
        elif not self._living_on_them:
            event(log, logging.INFO, "reaches a ticket database: lives no longer on its reserves alone", left=tickets)

    async def ask_for_servers(self, member: Member) -> bool:
        """Ask a database which servers use it. True if it has answered; then its marks may be `read`.

        If a server does not announce bumps, the window closes, and all reserves are dropped.
        """
        if not self.seconds:
            return True
        try:
            servers = await member.database.servers(OLDER_SECONDS)
        except TicketDatabaseError as error:
            event(log, logging.WARNING, "could not ask which servers use it", database=member.name, reason=error)
            return False
        self.window.told_of_servers(member, older=any(server.release == OLDER for server in servers))
        self._say_whether_beside_older()
        return True

    def _say_whether_beside_older(self) -> None:
        names = ", ".join(member.name for member in self.window.older_on)
        if names:
            for reserve in self._reserves.values():
                reserve.drop_all("older")
        if bool(names) is self._beside_older:
            return
        self._beside_older = bool(names)
        if names:
            event(log, logging.WARNING, NOT_DRAWN_AHEAD, database=names, reason=BESIDE_OLDER)
        else:
            event(log, logging.INFO, "tickets are drawn ahead again: every server announces bumps")

    @property
    def warnings(self) -> Iterator[tuple[Member, str]]:
        """Why the server draws no tickets ahead, by the database that lists an older server."""
        for member in self.window.older_on:
            yield member, f"{NOT_DRAWN_AHEAD}: {BESIDE_OLDER}; upgrade that server, or stop it"

    def read(self, member: Member, began: float) -> None:
        """See Window.read. A database that cannot keep marks does not count, because it may lack the record of a
        bump."""
        if member.marks_error is None:
            self.window.read(member, began)

    def bumped(self, name: str, above: int) -> None:
        """Take a bump's record that was read on a database. `name`: of the record; `above`: its number."""
        reserve = self._reserves.get(name)
        if reserve is not None:
            reserve.bumped(above)

    def came_up(self, members: Iterable[Member]) -> None:
        """These databases came up, or keep marks again. A database that came up as another incarnation may have lost
        the record of a bump. If another database cannot be asked for that record, all reserves are dropped."""
        for member in members:
            if member.marks_error is not None or self._known.get(member) == member.incarnation:
                continue
            self._known[member] = member.incarnation
            if self._ring.not_asked(member, self._ring.witnesses(member)):
                for reserve in self._reserves.values():
                    reserve.drop_all("blind")

    # --- what is seen from outside ------------------------------------------------------------------------------------

    @property
    def any_gives(self) -> bool:
        """Whether any sequence has tickets in reserve that may be handed out now."""
        return any(reserve.has_tickets for reserve in self._reserves.values())

    def unprotected(self) -> Iterator[tuple[str, Member, int]]:
        """The unprotected tickets in reserve: sequence, database, and how many."""
        for reserve in list(self._reserves.values()):
            if reserve.left:
                for member, count in reserve.unprotected():
                    yield reserve.sequence, member, count

    # --- its life -----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to drop tickets that are too old."""
        if self.seconds:
            self._tasks.spawn(self._sweep())

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(min(SWEEP_SECONDS, self.seconds))
            async for part in in_slices(self._reserves.values()):
                now = self.clock()
                for reserve in part:
                    if reserve.left:
                        reserve.drop_aged(now)

    async def stop(self) -> None:
        """Drop all reserves, and refuse the requests that wait for refills, because the server ends."""
        await self._tasks.cancel()
        for reserve in self._reserves.values():
            reserve.refuse_waiting()
            reserve.close()
