"""The probe: look at each ticket database, tell the others who this server is, and decide what is in sight (rule 7).

One task for each member looks with every probe interval, and at once where a statement failed or was refused. A look
writes this server's heartbeat and reads the ring row, the heartbeats of the others and the number of the floors. After
each look one decision is made for all members (see `agreement`), and the sight changes by it. One more task carries out
changes of the ring.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress

from app.databases.record import Record, State, new_word
from app.databases.session import Book, Look, Note, Residue, RingRow, Write
from app.errors import DatabaseError, DatabaseFailed, OtherLife
from app.tickets.agreement import Agreement, Kind, Standing, Step
from app.tickets.everywhere import PACKET
from app.tickets.floors import Floors
from app.tickets.heartbeats import Heartbeats, Said, Server, Use
from app.tickets.level import make_level
from app.tickets.sight import NOT_YET, SHORTEST, Member, Sight, Status

log = logging.getLogger(__name__)

SLICE = 0.25
"""Seconds after which a waiting task looks at the clock. The event loop's timers do not count suspension."""
CHANGING = 0.1
"""Seconds between two looks at most while `ticketd grow` changes the ring."""
OTHER_NODE = 10.0
"""Seconds after which a node that another server uses is tried again."""
FAILED = "failed though it answers looks: comes back into sight after a trial write"
STOOD_STILL = "this ticket server stood still, and looks at the database again"


class Probe:
    """Looks at the members of a sight, and changes the sight. One task runs `run`; `close` comes after it.

    name: `hostname:port` of this server, at most 80 ASCII characters. increment: TICKETS_INCREMENT, None where it is
    unset. floors: are read where their number rises. grow: this process is a `ticketd grow`: it draws nothing, says
    so, and never takes its own change back.
    """

    def __init__(self, sight: Sight, name: str, *, increment: int | None, floors: Floors, grow: bool = False) -> None:
        self._sight, self._name, self.word = sight, name, new_word()
        self._increment, self._floors, self._grow = increment, floors, grow
        self._heartbeats = Heartbeats(name, self.word)
        self._looks = 0
        self._seen: Record | None = None
        self._awake = sight.clock()
        self._published: dict[int, Use] = {}
        self.noted: Callable[[str, float, float, float], None] = lambda _name, _now, _began, _ended: None
        """Called with what a look read of a database's clock, see `ServerClock.noted`."""

    def decide(self, seen: Record | None) -> Agreement:
        """Decide on what the looks have found until now, and change nothing. seen: the highest record of before."""
        now, me = self._sight.clock(), (self._name, self.word)
        quiet = self._heartbeats.quiet(seen.writer, now) if seen is not None else 0.0
        return Agreement(
            self._sight.members, self._increment, me, now=now, servers=self.servers(), seen=seen, grow_quiet=quiet
        )

    def servers(self) -> list[Server]:
        """Return the other live servers, in the order of their names."""
        return self._heartbeats.live(self._sight.clock())

    def floors_heard(self) -> int:
        """Return the largest number of the floors that a live server has read."""
        return max((server.said.floors for server in self.servers()), default=0)

    async def wait_known(self, number: int, deadline: float) -> bool:
        """Wait until every other live server has read the floors up to this number; False where that takes too long.

        deadline: by the clock of the sight. What looks found that began before this call does not count.
        """
        wanted = {member: member.begun + 1 for member in self._sight.in_sight}
        for member in wanted:
            member.wake.set()
        while True:
            has_looked = all(member.ended >= look for member, look in wanted.items())
            if has_looked and all(server.said.floors >= number for server in self.servers()):
                return True
            if (left := deadline - self._sight.clock()) <= 0:
                return False
            await self._sight.moved(min(left, self._sight.interval))

    async def run(self) -> None:
        """Look at every member again and again, and change the ring where that is due, until this is cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for member in self._sight.members:
                tasks.create_task(self._watch(member))
            tasks.create_task(self._change())

    async def close(self) -> None:
        """Remove this server's heartbeats: it lets go of everything. Call this when `run` has ended."""
        await asyncio.gather(*(self._remove(member) for member in self._sight.members))

    async def _remove(self, member: Member) -> None:
        with suppress(DatabaseError):
            row = (await member.database.read(Book.HEARTBEATS, [self._name], member.found)).get(self._name)
            if row is not None and row.tenure == self.word:
                await member.database.write([Write(Book.HEARTBEATS, self._name, row, None)], None, member.found)

    # --- looks -------------------------------------------------------------------------------------------------------

    async def _watch(self, member: Member) -> None:
        sight = self._sight
        while True:
            await self._look(member)
            while not member.wake.is_set() and (left := member.looked + self._pause() - sight.clock()) > 0:
                with suppress(TimeoutError):
                    async with asyncio.timeout(max(SHORTEST, min(left, SLICE))):
                        await member.wake.wait()
                self._notice_standstill()

    def _pause(self) -> float:
        """Return how many seconds there are between two looks."""
        record, interval = self._sight.record, self._sight.interval
        return min(interval, CHANGING) if record is not None and record.state is State.CHANGING else interval

    async def _look(self, member: Member) -> None:
        """Look at one member, and decide anew. A look settles only what happened before it began."""
        sight = self._sight
        self._notice_standstill()
        member.wake.clear()
        member.begun += 1
        began = sight.clock()
        look: Look | None = None
        try:
            look, life = await self._found(member)
            if look.floors_number > self._floors.number:
                # a server that was out of touch must not issue, from its stock either, what a bump has passed since
                await self._floors.read(member, life, look.floors_number)
                sight.look_at()  # so that the others learn what this server says
        except DatabaseError as error:
            look = None
            member.forget(error)
        self._notice_standstill()
        if look is not None:
            now = sight.clock()
            member.warnings, member.latency = look.facts.warnings, now - began
            self._heartbeats.read(member.offset, life, look.heartbeats, now)
            self.noted(member.name, look.facts.now, began, now)
            if member.begun > member.void:
                member.row_since = member.row_since if look.ring == member.row else now
                member.steady = member.steady if life == member.found else NOT_YET
                member.row, member.found = look.ring, life
        member.ended, member.looked = member.begun, began
        sight.refused = sight.refused and any(each.is_stale for each in sight.members)
        standing = self._agree().verdicts[member.offset].standing
        sight.move()
        if look is not None:
            if member.trial and standing is Standing.IN:
                await self._try_marks(member)
            if writes := self._heartbeats.outdated(member.offset, now):
                with suppress(DatabaseError):  # they are deleted after another look
                    await member.database.write(writes[:PACKET], None, life)

    async def _found(self, member: Member) -> tuple[Look, str]:
        """Look; where this is cancelled, end with the look, so that no heartbeat comes after it was removed."""
        sight, record, residue = self._sight, self._sight.record, None
        if record is not None and member.offset <= record.increment:
            residue = Residue(member.offset, record.increment)
        self._looks += 1
        silence = 5 * sight.interval + 2 * sight.timeout  # longer than ids are issued without a look, see `Sight.move`
        said = Said(silence, self._uses(), self._increment, self._floors.number, self._grow)
        beat = Note(high=self._looks, tenure=self.word, text=said.dump())
        look = asyncio.ensure_future(member.database.look(self._name, beat, residue))
        try:
            return await asyncio.shield(look)
        except asyncio.CancelledError:
            await asyncio.gather(look, return_exceptions=True)
            raise

    def _uses(self) -> dict[int, Use]:
        """Return what this server draws from: the databases in sight."""
        return {
            member.offset: Use(member.drawn_body, life, member.node or member.name)
            for member in self._sight.members
            if (life := member.life) is not None and not self._grow
        }

    def _notice_standstill(self) -> None:
        """Lose sight of everything if this process stood still for so long that others no longer count on it."""
        now, sight = self._sight.clock(), self._sight
        stood_still = now - self._awake > 3 * sight.interval + sight.timeout
        self._awake = now
        if stood_still:
            sight.is_settling = True
            for member in sight.members:
                member.forget(DatabaseFailed(STOOD_STILL))
                member.look_again()
                sight.leave(member, Status.DOWN, STOOD_STILL)

    async def _try_marks(self, member: Member) -> None:
        """Let a member that failed come back into sight if it takes a row into its marks, and deletes it again.

        While no member is in sight none is held back: tickets can be had as long as one database can write.
        """
        row, life, name, tried = member.row, member.found, f"#trial/{self.word}", Note(tenure=self.word)
        is_due = self._sight.clock() >= member.due or not self._sight.in_sight
        if row is None or member.is_stale or not is_due:
            return
        member.trying = True
        try:
            for before, after in ((None, tried), (tried, None)):  # the row may be there from an earlier trial
                done = await member.database.write([Write(Book.MARKS, name, before, after)], row.stamp, life)
            works = done[0] and not member.is_stale
        except DatabaseError:
            works = False
        member.trying = False
        if works:
            member.trial, member.due = False, self._sight.clock()
        else:
            member.hold_back(self._sight.clock())
        self._agree()
        self._sight.move()

    # --- decisions ---------------------------------------------------------------------------------------------------

    def _agree(self) -> Agreement:
        """Decide on what the looks have found until now, and change the sight by it."""
        sight = self._sight
        agreement = self.decide(self._seen)
        self._seen = agreement.seen
        sight.go_by(agreement.record)
        # A look at every member has ended since something failed, or since this server began, stood still or wrote.
        may_enter = not any(member.is_stale for member in sight.members)
        sight.is_settling = agreement.step is not None or not may_enter
        for member in sight.members:
            standing, reason = agreement.verdicts[member.offset]
            if standing is not Standing.IN:
                status = Status.DOWN if standing is Standing.DOWN else Status.QUARANTINED
                sight.leave(member, status, reason, stays_steady=standing is Standing.LAGS)
            elif member.trial:
                sight.leave(member, Status.DOWN, FAILED)
            elif may_enter and member.life != member.found:
                sight.enter(member, member.found)
        self._choose_nodes()
        if (uses := self._uses()) != self._published:
            self._published = uses
            sight.look_at()  # so that the others learn of it; a database that failed is looked at once more
        return agreement

    def _choose_nodes(self) -> None:
        """Turn to the node of a database that other servers use: an earlier one, or any while this server uses none.

        The next look tries the node, and goes on to the others where it fails.
        """
        now, lives = self._sight.clock(), [server.said.lives for server in self.servers()]
        for member in self._sight.members:
            if member.node is None or now < member.tried + OTHER_NODE:
                continue
            used = {use.node for each in lives if (use := each.get(member.offset)) is not None}
            if member.database.prefer(used, earlier=member.life is not None):
                member.tried = now
                member.wake.set()

    # --- changes of the ring -----------------------------------------------------------------------------------------

    async def _change(self) -> None:
        """Carry out step after step whenever one is due; after a failure wait for a probe interval.

        Any server may be anywhere in the middle of the same change. So every write rests on a decision of its own, made
        on looks that are no older than those on which tickets are issued, and it takes effect only where the ring row
        is still what the last look found. After each write the server looks at that database again before it decides on
        the next one. There it sees, too, what became of a write whose answer was lost.
        """
        while True:
            step = await self._next_step() if self._sight.is_settling else None
            if step is None:
                await self._sight.moved()
            elif not await self._take(step):
                await asyncio.sleep(self._sight.interval)

    async def _next_step(self) -> Step | None:
        """Return the step that comes next, once there is a look at every database that says what is there now."""
        while any(member.is_stale for member in self._sight.members):
            await self._sight.moved()
        step = self._agree().step
        return step if self._sight.is_fresh() else None

    async def _take(self, step: Step) -> bool:
        """Write the record of a step where the ring row is still what the last look found; False where that failed.

        Before a server finishes to take a body in, it makes all databases of the record level.
        """
        member, record = self._sight.members[step.offset - 1], step.record
        if step.kind is Kind.FINISH:
            lives = self._lives(record)
            if not await make_level(self._sight, lives):
                log.warning("could not make the ticket databases level to %s", step.kind)
                return False
            if await self._next_step() != step or self._lives(record) != lives:
                return True  # another decision is due
        old, life = member.row, member.found
        if old is None:
            return False
        # Until it is drawn from, a body has no offset.
        offset = old.offset if record.state is State.FORMING else member.offset
        try:
            done = await member.database.write_ring(old, RingRow(old.body, offset, record.stamp, record.dump()), life)
        except DatabaseError as error:
            self._sight.failed(member, error, life)
            log.warning("%s: could not %s: %s", member.name, step.kind, error)
            return isinstance(error, OtherLife)  # the next look finds that life
        finally:
            member.look_again()
        if done:
            log.info("%s, offset %d: %s, ring number %d", member.name, member.offset, step.kind, record.number)
        return True

    def _lives(self, record: Record) -> dict[Member, str]:
        """Return the databases of a record, with the lives in which the last looks found them."""
        return {member: member.found for member in self._sight.members if member.offset in record.offsets}
