"""The worker number that this server stamps ids under, leased from the ticket databases.

What is leased is the right to stamp times up to T under a number. T is a high-water mark, as the ledger keeps them: it
is committed before it is used, on the database that the number belongs to (its offset is the number's remainder) and on
every other one that is up. The next holder stamps only above every T that any database knows, so two servers never have
the right to the same time. That alone is what it rests on, never on how much time has passed: a server that was frozen
for a day may go on up to its T, and nobody else ever stamps there.

Whoever renews does so under its own token. Where another server has taken the number over, the token differs; the
lease is lost, and what was granted before holds up to its T.
"""

import asyncio
import logging
import secrets
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from app.common.errors import (
    NoTicketDatabase,
    RingChanged,
    TicketDatabaseError,
    TicketDatabaseUnavailable,
    TicketError,
)
from app.common.log import event
from app.databases.protocol import Mark
from app.tickets.rights import NotYet
from app.tickets.ring import Member, Ring
from app.tickets.server_clock import ServerClock

log = logging.getLogger(__name__)

T = TypeVar("T")

WORKERS = 1_024
LEASE_MS = 120_000
"""How far ahead of now a lease lasts."""
RENEW_SECONDS = 20.0
RETRY_SECONDS = 0.5
"""How soon it is tried again where it could not be had or renewed."""
MARGIN_MS = 1_000
"""A number is free so long after its last T: the servers' clocks differ."""
WAIT_SECONDS = 0.02
"""How soon a request looks again that has come while a lease is being confirmed."""
PREFIX = "_worker_"


class LeaseLost(TicketError):
    """Another server has taken the worker number over."""


class NumberTaken(TicketError):
    """Another server was faster."""


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to stamp times above `after_ms` and at most `until_ms` (milliseconds since 1970) under a number.

    `member`: the database that the number belongs to; `ring`: the number of the ring that it was leased in.
    """

    number: int
    member: Member
    token: str
    ring: int
    after_ms: int
    until_ms: int

    def mark(self, until_ms: int, issued_ms: int) -> Mark:
        """The row that says so, up to another T."""
        database = self.member.database
        return Mark(f"{PREFIX}{self.number}", database.offset, database.increment, until_ms, issued_ms, self.token)


class WorkerLease:
    """Holds one lease at a time, for all sequences of this server, from the moment on that any needs it.

    `may_draw`: whether a database may be written to without another one to keep what it knows (TICKETS_UNVERIFIED).
    """

    def __init__(self, ring: Ring, clock: ServerClock, may_draw: Callable[[Member], bool]) -> None:
        self._ring = ring
        self._clock = clock
        self._may_draw = may_draw
        self._owner = secrets.token_hex(6)
        self._lease: Lease | None = None
        self._confirmed = False
        self._reason = "this server has no worker number yet"
        self._last_ms = 0
        self._needed = asyncio.Event()
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        ring.follow(self._database_changed)

    def __repr__(self) -> str:
        return f"<WorkerLease {self._lease}>"

    # --- what the sources ask --------------------------------------------------------------------------------------

    def need(self) -> None:
        """A sequence stamps ids under a worker number: lease one, and keep it."""
        self._needed.set()

    def right(self) -> Lease:
        """The lease that may be used now. Raises NotYet while it is being confirmed, NoTicketDatabase where there is
        none."""
        lease = self._lease
        if lease is None:
            raise NotYet(WAIT_SECONDS, NoTicketDatabase(self._reason))
        if not self._confirmed:
            raise NotYet(WAIT_SECONDS, NoTicketDatabase("the lease of the worker number is not confirmed yet"))
        return lease

    @property
    def lease(self) -> Lease | None:
        """The lease that is held, confirmed or not."""
        return self._lease

    @property
    def is_needed(self) -> bool:
        """Whether a sequence stamps ids under a worker number."""
        return self._needed.is_set()

    @property
    def reason(self) -> str | None:
        """Why there is none although one is needed; None where all is well."""
        return self._reason if self._needed.is_set() and self._lease is None else None

    # --- keeping it --------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to keep a lease, as soon as one is needed."""
        self._task = asyncio.get_running_loop().create_task(self._keep())

    async def stop(self, last_ms: int) -> None:
        """End, and give the number back: the next holder may stamp above `last_ms`, the last time stamped by this
        one."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        lease, self._lease = self._lease, None
        if lease is None:
            return
        held = lease.mark(lease.until_ms, 0)
        free = Mark(held.sequence, held.offset, held.increment, max(last_ms, lease.after_ms), 0, f"{self._owner}:free")
        for member in self._up():
            try:
                await member.database.supersede(held, free, lease.ring)
            except TicketDatabaseError as error:
                event(log, logging.DEBUG, "could not give the worker number back", database=member.name, reason=error)

    def _database_changed(self, member: Member) -> None:
        """A database that comes up may not know of the lease: it is used again when that one has it, too."""
        if member.up and self._lease is not None:
            self._confirmed = False
        self._wake.set()

    async def _keep(self) -> None:
        await self._needed.wait()
        while True:
            self._wake.clear()
            pause = RETRY_SECONDS
            try:
                await self._renew_or_lease()
                pause = RENEW_SECONDS
            except TicketError as error:
                self._reason = str(error)
                event(log, logging.WARNING, "no worker number could be leased or renewed", reason=error)
            except Exception:
                log.exception("the lease of a worker number met an unknown error")
            try:
                async with asyncio.timeout(pause):
                    await self._wake.wait()
            except TimeoutError:
                pass

    async def _renew_or_lease(self) -> None:
        """Raises TicketError where there is neither."""
        lease = self._lease
        if lease is not None and lease.member.up and lease.ring == self._ring.number:
            try:
                await self._renew(lease)
            except LeaseLost as error:
                event(log, logging.WARNING, "lost the worker number", number=lease.number, reason=error)
            else:
                return
        await self._lease_another()

    async def _renew(self, lease: Lease) -> None:
        """Have T committed further ahead, on every database that is up. Raises LeaseLost, TicketDatabaseError."""
        until = self._clock.now_ms() + LEASE_MS
        mark = lease.mark(max(until, lease.until_ms), 0)
        written: set[Member] = set()
        while waiting := [member for member in self._with_authority_first(lease.member) if member not in written]:
            member = waiting[0]
            row = (await self._ask(member, member.database.reserve([mark], lease.ring)))[mark.sequence, mark.offset]
            if row.token != lease.token:
                raise LeaseLost("another server has taken it over")
            written.add(member)
        self._hold(Lease(lease.number, lease.member, lease.token, lease.ring, lease.after_ms, mark.mark), lease.member)

    async def _lease_another(self) -> None:
        """Lease the smallest number that is free, from any database that is up. Raises TicketError."""
        ring, now = self._ring.number, self._clock.now_ms()
        up = self._up()
        known = await self._known(up)
        taken = 0
        for member in up:
            if not self._may_draw(member):
                continue
            increment = member.database.increment
            for number in range(member.database.offset % increment, WORKERS, increment):
                after = max((mark.mark for mark in known[number]), default=0) if number in known else 0
                if after + MARGIN_MS >= now:
                    taken += 1
                    continue
                try:
                    await self._take(member, number, ring, after, now + LEASE_MS)
                except NumberTaken:
                    taken += 1
                else:
                    return
        if taken:
            raise NoTicketDatabase(f"all worker numbers are leased by other servers: there are {WORKERS:,} at most")
        raise NoTicketDatabase("no ticket database can lease a worker number now")

    async def _known(self, up: Iterable[Member]) -> Mapping[int, list[Mark]]:
        """What these databases know of every number, of this ring and of those before."""
        found: dict[int, list[Mark]] = {}
        for member in up:
            for mark in await self._ask(member, member.database.marks_of_all_rings()):
                if mark.sequence.startswith(PREFIX):
                    found.setdefault(int(mark.sequence.removeprefix(PREFIX)), []).append(mark)
        return found

    async def _take(self, authority: Member, number: int, ring: int, after: int, until: int) -> None:
        """Take the number over, first on the database that it belongs to, which lets one server have it, then on every
        other. Raises NumberTaken, TicketDatabaseError."""
        incarnation = authority.incarnation
        lease = Lease(number, authority, f"{self._owner}:{secrets.token_hex(4)}", ring, after, until)
        mark = lease.mark(until, 0)
        written: set[Member] = set()
        while waiting := [member for member in self._with_authority_first(authority) if member not in written]:
            member = waiting[0]
            database = member.database
            row = (await self._ask(member, database.reserve([mark], ring)))[mark.sequence, mark.offset]
            if row.token != lease.token:
                if row.mark > after:
                    raise NumberTaken
                row = await self._ask(member, database.supersede(row, mark, ring))
                if row.token != lease.token:
                    raise NumberTaken
            written.add(member)
        if authority.incarnation != incarnation or self._ring.number != ring:
            raise TicketDatabaseUnavailable(f"{authority.name} was restarted or replaced while a number was leased")
        self._hold(lease, authority)
        event(log, logging.INFO, "leased a worker number", number=number, database=authority.name)

    def _hold(self, lease: Lease, authority: Member) -> None:
        if not authority.up:
            raise TicketDatabaseUnavailable(f"{authority.name} went down while the lease was written")
        self._lease, self._confirmed = lease, True

    def _up(self) -> list[Member]:
        return [member for member in self._ring.members if member.up]

    def _with_authority_first(self, authority: Member) -> list[Member]:
        return [authority, *(other for other in self._ring.witnesses(authority))]

    async def _ask(self, member: Member, question: Coroutine[None, None, T]) -> T:
        """What the database answers. One that fails is down, as everywhere. Raises TicketDatabaseError."""
        try:
            return await question
        except TicketDatabaseError as error:
            if isinstance(error, TicketDatabaseUnavailable | RingChanged):
                self._ring.mark_down(member, str(error))
            raise
