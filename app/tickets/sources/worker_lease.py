"""The lease of the worker number that this server stamps ids under.

The lease is the right to stamp times up to T under the number. T is a high-water mark, as the ledger keeps them. The
server commits it before it uses it: on the database that the number belongs to (the database's offset is the number's
remainder), and on every other database that is up. The next holder stamps only above every T that any database knows,
so two servers never have the right to the same time. Safety rests on that alone, and not on the time that has passed: a
server that was frozen for a day may go on up to its T, and no other server ever stamps there.

A database that has gone back may have forgotten the holder of a number. Then the server asks every other database, as
it does with marks. If one of them cannot be asked, TICKETS_UNVERIFIED decides whether the number is used, and /healthz
warns.

A server renews under its own token. If another server has taken the number over, the token differs. Then the lease is
lost, and the earlier right holds up to its T.
"""

import asyncio
import logging
import secrets
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from app.common.errors import (
    NoTicketDatabase,
    RingChanged,
    TicketDatabaseError,
    TicketDatabaseUnavailable,
    TicketError,
    Unverified,
)
from app.common.log import event
from app.common.sequences import lease_name, number_leased
from app.databases.protocol import Mark
from app.tickets.marks.ledger import Ledger
from app.tickets.ring.failures import Asked
from app.tickets.ring.marks import Wanted
from app.tickets.ring.ring import Member, Ring
from app.tickets.sources.rights import WAIT_SECONDS, NotYet
from app.tickets.sources.server_clock import ServerClock

log = logging.getLogger(__name__)

WORKERS = 1_024
LEASE_MS = 120_000
"""How far a lease reaches ahead of now."""
RENEW_SECONDS = 20.0
PATIENCE_MS = LEASE_MS // 2
"""While more than this is left of a lease, the server leases no other number, even if the database of its number is
away. The database may be back soon, and no server can use an abandoned number before its lease has ended."""
RETRY_SECONDS = 0.5
"""How soon the server tries again after it could not lease or renew a number."""
MARGIN_MS = 1_000
"""How long after its last T a number is free, because the servers' clocks differ."""
FOR_EVER = 2**63 - 1


class NumberTaken(TicketError):
    """Another server has leased the worker number."""


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to stamp times above `after_ms` and at most `until_ms` (milliseconds since 1970) under a number.

    `member`: the database that the number belongs to; `ring`: the number of the ring that it was leased in.
    `incarnation`: of that database, when every other one was asked; `unverified`: the names of those that could not be.
    """

    number: int
    member: Member
    token: str
    ring: int
    after_ms: int
    until_ms: int
    incarnation: str = ""
    unverified: str = ""

    def mark(self, until_ms: int, issued_ms: int) -> Mark:
        """The row that says so, up to another T."""
        database = self.member.database
        return Mark(lease_name(self.number), database.offset, database.increment, until_ms, issued_ms, self.token)


class WorkerLease:
    """Holds one lease at a time for all sequences of this server, as soon as a sequence needs it."""

    def __init__(self, ring: Ring, clock: ServerClock, ledger: Ledger) -> None:
        self._ring = ring
        self._clock = clock
        self._ledger = ledger
        self._owner = secrets.token_hex(6)
        self._lease: Lease | None = None
        self._confirmed = False
        self._refusal: NoTicketDatabase | None = NoTicketDatabase("this server has no worker number yet")
        """Why the server has no lease, or could not renew it; None after a lease or a renewal."""
        self._came_up = 0
        """How often a database has come up, or keeps marks again."""
        self._tried_at = -RETRY_SECONDS
        self._needed = asyncio.Event()
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        ring.follow(self._database_changed)

    def __repr__(self) -> str:
        return f"<WorkerLease {self._lease}>"

    # --- what the sources ask --------------------------------------------------------------------------------------

    def need(self) -> None:
        """Lease a number and keep it, because a sequence stamps ids under it."""
        self._needed.set()

    def right(self) -> Lease:
        """The lease that may be used now. Raises NotYet if there is none, or if it has to be confirmed first."""
        lease = self._lease
        if lease is None:
            raise NotYet(WAIT_SECONDS, self._refusal or NoTicketDatabase())
        if not self._confirmed:
            raise NotYet(WAIT_SECONDS, NoTicketDatabase("the lease of the worker number is not confirmed yet"))
        return lease

    def renews_soon(self) -> bool:
        """See Holder.renews_soon. After the clock was put right, or the process was frozen, the lease may be over."""
        if not any(member.up for member in self._ring.members):
            return False
        if asyncio.get_running_loop().time() - self._tried_at >= RETRY_SECONDS:
            self._wake.set()
        return True

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
        """Why there is no lease although a sequence needs one; None otherwise."""
        return str(self._refusal) if self._needed.is_set() and self._lease is None else None

    # --- keeping it --------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to keep a lease, as soon as a sequence needs one."""
        self._task = asyncio.get_running_loop().create_task(self._keep())

    async def stop(self, last_ms: int) -> None:
        """Stamp nothing from now on, and give the number back. The next holder may stamp above `last_ms`, the last time
        that this server has stamped."""
        lease, self._lease, self._refusal = self._lease, None, NoTicketDatabase("this server is stopping")
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if lease is not None:
            await self._give_back(lease, max(last_ms, lease.after_ms))

    def _database_changed(self, member: Member) -> None:
        """Confirm the lease before it is used again, because a database that comes up may not know of it."""
        if member.up:
            self._came_up += 1
            self._confirmed = False
        self._wake.set()

    async def _keep(self) -> None:
        await self._needed.wait()
        while True:
            self._wake.clear()
            self._tried_at = asyncio.get_running_loop().time()
            pause = RETRY_SECONDS
            try:
                await self._renew_or_lease()
                pause = RENEW_SECONDS
                self._refusal = None
            except TicketError as error:
                level = logging.DEBUG if str(error) == str(self._refusal) else logging.WARNING
                self._refusal = error if isinstance(error, NoTicketDatabase) else NoTicketDatabase(str(error))
                event(log, level, "no worker number could be leased or renewed", reason=error)
            except Exception:
                log.exception("the lease of a worker number met an unknown error")
            try:
                async with asyncio.timeout(pause):
                    await self._wake.wait()
            except TimeoutError:
                pass

    async def _renew_or_lease(self) -> None:
        """Renew the lease, or lease another number. Raises TicketError if both fail."""
        lease = self._lease
        if lease is not None and lease.ring != self._ring.number:
            self._lease = lease = None  # its rows do not count in this ring
        if lease is not None:
            if lease.member in self._up():
                try:
                    await self._renew(lease)
                except NumberTaken as error:
                    self._lease = None  # also where no other number can be leased now
                    event(log, logging.WARNING, "lost the worker number", number=lease.number, reason=error)
                else:
                    return
            elif self._confirmed and lease.until_ms - self._clock.now_ms() > PATIENCE_MS:
                return
        await self._lease_another()

    async def _renew(self, lease: Lease) -> None:
        """Have every database that is up commit a later T. Raises NumberTaken, TicketError."""
        authority, incarnation, came_up = lease.member, lease.member.incarnation, self._came_up
        if lease.unverified and self._ring.not_asked(authority, self._up()) != lease.unverified:
            # this lease's row, with the later T, may have replaced the row of another holder
            raise NumberTaken(
                f"{lease.unverified} could not be asked when it was leased, and may know of another holder"
            )
        until = self._clock.now_ms() + LEASE_MS
        wanted = Wanted(lease.mark(max(until, lease.until_ms), 0))
        written = await self._write(lease, wanted, self._authority(lease))
        written |= await self._write(lease, wanted, self._others(lease))
        certain = incarnation == lease.incarnation and not lease.unverified
        unverified = "" if certain else self._ring.not_asked(authority, written)
        self._hold(replace(lease, until_ms=wanted.mark.mark, incarnation=incarnation, unverified=unverified), came_up)

    async def _lease_another(self) -> None:
        """Lease the smallest number that is free, from the first database that has one. Raises TicketError."""
        ring, now = self._ring.number, self._clock.now_ms()
        up = self._up()
        known = await self._known(up)
        taken, refused = 0, False
        for member in up:
            unverified = self._ring.not_asked(member, up)
            if not self._ledger.may_lease(member, unverified):
                refused = True
                continue
            increment = self._ring.increment
            for number in range(member.database.offset % increment, WORKERS, increment):
                after = max(known.get(number, 0), self._ledger.known_mark(lease_name(number), member))
                if after + MARGIN_MS >= now:
                    taken += 1
                    continue
                try:
                    await self._take(Lease(number, member, self._token(), ring, after, now + LEASE_MS, "", unverified))
                except NumberTaken:
                    taken += 1
                else:
                    return
        if taken >= WORKERS:
            raise NoTicketDatabase(f"all worker numbers are leased by other servers: there are {WORKERS:,} at most")
        if taken:
            raise NoTicketDatabase("all worker numbers of the ticket databases that are up are leased by other servers")
        raise (Unverified if refused else NoTicketDatabase)("no ticket database can lease a worker number now")

    def _token(self) -> str:
        return f"{self._owner}:{secrets.token_hex(4)}"

    async def _known(self, up: Iterable[Member]) -> Mapping[int, int]:
        """The largest T of every number that these databases know, from this ring and earlier ones."""
        found: dict[int, int] = {}
        for member in up:
            try:
                marks = await member.database.marks_of_all_rings()
            except TicketDatabaseError as error:
                self._ring.failed(member, error, Asked.MARKS)
                raise
            for mark in marks:
                number = number_leased(mark.sequence)
                if number is not None:
                    found[number] = max(mark.mark, found.get(number, 0))
        return found

    async def _take(self, lease: Lease) -> None:
        """Take the number over, first on its own database, which lets a single server have it, then on the others.

        Raises NumberTaken, TicketError. Then the number is given back, so that another attempt uses up no other number.
        """
        authority, incarnation, came_up = lease.member, lease.member.incarnation, self._came_up
        wanted = Wanted(lease.mark(lease.until_ms, 0), lambda row: row.mark <= lease.after_ms)
        await self._write(lease, wanted, self._authority(lease))
        try:
            await self._write(lease, wanted, self._others(lease))
            if authority.incarnation != incarnation:
                raise TicketDatabaseUnavailable(f"{authority.name} was restarted or replaced while a number was leased")
            self._hold(replace(lease, incarnation=incarnation), came_up)
        except TicketError:
            await self._give_back(lease, lease.after_ms)
            raise
        event(log, logging.INFO, "leased a worker number", number=lease.number, database=authority.name)

    async def _write(self, lease: Lease, wanted: Wanted, databases: Callable[[], list[Member]]) -> set[Member]:
        """Have these databases keep T, and return them. Raises NumberTaken, TicketDatabaseError."""
        rows = await self._ledger.witnesses.keep(wanted, lease.ring, databases)
        if any(row.token != lease.token for row in rows.values()):
            raise NumberTaken
        return set(rows)

    async def _give_back(self, lease: Lease, last_ms: int) -> None:
        """Let the next holder stamp above `last_ms`. A database that cannot be told keeps the lease to its end."""
        held = lease.mark(FOR_EVER, 0)  # a renewal that was under way may have gone further than this server knows
        free = Mark(held.sequence, held.offset, held.increment, last_ms, 0, f"{self._owner}:free")
        for member in self._up():
            try:
                await self._ledger.witnesses.supersede(member, held, free, lease.ring)
            except TicketDatabaseError as error:
                event(log, logging.DEBUG, "could not give the worker number back", database=member.name, reason=error)

    def _hold(self, lease: Lease, came_up: int) -> None:
        """Use this lease from now on. Raises TicketDatabaseUnavailable, RingChanged or NoTicketDatabase if it may not
        be used."""
        authority = lease.member
        if authority not in self._up():
            raise TicketDatabaseUnavailable(f"{authority.name} went down while the lease was written")
        if lease.ring != self._ring.number:
            raise RingChanged
        if not self._ledger.may_lease(authority, lease.unverified):
            raise Unverified("a worker number may not be used while no other ticket database can be asked for it")
        self._lease, self._confirmed = lease, came_up == self._came_up

    def _up(self) -> list[Member]:
        """The databases that can keep a lease."""
        return [member for member in self._ring.members if member.is_witness]

    def _authority(self, lease: Lease) -> Callable[[], list[Member]]:
        return lambda: [lease.member]

    def _others(self, lease: Lease) -> Callable[[], list[Member]]:
        return lambda: self._ring.witnesses(lease.member)
