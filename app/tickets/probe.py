"""The probe: look at each ticket database, tell the others who this server is, and decide what is in sight (rule 7).

One task for each member looks with every probe interval, and at once where a statement failed or was refused. A look
writes this server's heartbeat and reads the ring row, the heartbeats of the others and the number of the floors. After
each look one decision is made for all members (see `agreement`), and the sight changes by it. One more task carries out
changes of the ring.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from app.databases.record import Record, State, new_word
from app.databases.session import Book, Look, Note, RingRow, Write
from app.errors import DatabaseError, DatabaseRefused
from app.tickets.agreement import agree
from app.tickets.changes import Changes, Post
from app.tickets.floors import Floors
from app.tickets.heartbeats import Heartbeats, Said, Server, Use, silence
from app.tickets.level import Levels
from app.tickets.nodes import choose_nodes
from app.tickets.sight import Member, Sight, Status
from app.tickets.situation import Agreement, Situation, Standing, Verdict
from app.tickets.trial import Trial, try_marks

SLICE = 0.25
"""Seconds after which a waiting task looks at the clock. The event loop's timers do not count suspension."""
CHANGING = 0.1
"""Seconds between two looks at most while `ticketd grow` changes the ring."""
SHORTEST = 0.001
"""Seconds that a wait lasts at least: two clocks of different resolution never agree on less."""
MOST_DELETED = 100
"""How many outdated heartbeats are deleted after one look."""
FAILED = "failed though it answers looks: comes back into sight after a trial write"
STOOD_STILL = "this ticket server stood still, and looks at the database again"


class Probe:
    """Looks at the members of a sight, and changes the sight. One task runs `run`; `close` comes after it.

    name: `hostname:port` of this server, at most 80 ASCII characters. increment: TICKETS_INCREMENT, None where it is
    unset. levels: is told what comes into sight. floors: are read where their number rises. grow: this process is a
    `ticketd grow`: it draws nothing, says so, and never takes its own change back.
    """

    def __init__(
        self, sight: Sight, name: str, *, increment: int | None, levels: Levels, floors: Floors, grow: bool = False
    ) -> None:
        self._sight, self._name, self._word = sight, name, new_word()
        self._increment, self._levels, self._floors, self._grow = increment, levels, floors, grow
        self._posts = {member: Post(member) for member in sight.members}
        self._trials = {member: Trial() for member in sight.members}
        self._heartbeats = Heartbeats(name, self._word)
        self._changes = Changes(sight, list(self._posts.values()), self._agree)
        self._looks = self._number = 0
        self._seen: Record | None = None
        self._changing: tuple[str, float] = "", 0.0
        self._awake = sight.clock()
        self._published: dict[int, Use] = {}
        self._change_due = asyncio.Event()
        sight.look_at = self.look_at
        self.noted: Callable[[str, float, float, float], None] = lambda _name, _now, _began, _ended: None
        """Called with what a look read of a database's clock, see `ServerClock.noted`."""

    def look_at(self, member: Member) -> None:
        """Look at this member at once, and at all if none is in sight; after a look that is under way, once more."""
        for post in [self._posts[member]] if self._sight.in_sight else self._posts.values():
            post.wake.set()

    def agreement_under(self, increment: int) -> Agreement:
        """Return what would be decided if the ring had this increment, and change nothing."""
        situation = self._situation()
        seen = situation.seen
        return agree(replace(situation, seen=replace(seen, increment=increment) if seen is not None else None))

    def found(self, member: Member) -> tuple[RingRow | None, str]:
        """Return the ring row that the last look found, None where it failed, and the life in which it was."""
        post = self._posts[member]
        return post.row, post.life

    def servers(self) -> list[Server]:
        """Return the other live servers, in the order of their names."""
        return self._heartbeats.live(self._sight.clock())

    def floors_heard(self) -> int:
        """Return the largest number of the floors that a live server has read."""
        return max((server.said.floors for server in self.servers() if server.said is not None), default=0)

    async def wait_known(self, number: int, deadline: float) -> bool:
        """Wait until every other live server has read the floors up to this number; False where that takes too long.

        deadline: by the clock of the sight. What looks found that began before this call does not count.
        """
        wanted = {post: post.begun + 1 for post in self._posts.values() if post.member.life is not None}
        for post in wanted:
            post.wake.set()
        while True:
            has_looked = all(post.ended >= look for post, look in wanted.items())
            if has_looked and all(
                server.said is not None and server.said.floors >= number for server in self.servers()
            ):
                return True
            if (left := deadline - self._sight.clock()) <= 0:
                return False
            with suppress(TimeoutError):
                async with asyncio.timeout(max(SHORTEST, min(left, self._sight.interval))):
                    await self._sight.moved()

    async def run(self) -> None:
        """Look at every member again and again, until this is cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for post in self._posts.values():
                tasks.create_task(self._watch(post))
            tasks.create_task(self._change())

    async def close(self) -> None:
        """Remove this server's heartbeats: it lets go of everything. Call this when `run` has ended."""
        looks = [post.look for post in self._posts.values() if post.look is not None]
        await asyncio.gather(*looks, return_exceptions=True)
        await asyncio.gather(*(self._remove(post) for post in self._posts.values()))

    async def _remove(self, post: Post) -> None:
        with suppress(DatabaseError):
            row = (await post.member.database.read(Book.HEARTBEATS, [self._name], post.life)).get(self._name)
            if row is not None and row.tenure == self._word:
                write = Write(Book.HEARTBEATS, self._name, row, None)
                await post.member.database.write([write], None, post.life)

    # --- looks -------------------------------------------------------------------------------------------------------

    async def _watch(self, post: Post) -> None:
        sight = self._sight
        while True:
            await self._look(post)
            while not post.wake.is_set() and (left := post.began + self._pause() - sight.clock()) > 0:
                with suppress(TimeoutError):
                    async with asyncio.timeout(max(SHORTEST, min(left, SLICE))):
                        await post.wake.wait()
                self._notice_standstill()

    def _pause(self) -> float:
        """Return how many seconds there are between two looks: fewer while the ring is changed, and nobody draws."""
        record, interval = self._sight.record, self._sight.interval
        return min(interval, CHANGING) if record is not None and record.state is State.CHANGING else interval

    async def _look(self, post: Post) -> None:
        """Look at one member, and decide anew. A look settles only what happened before it began."""
        sight, member = self._sight, post.member
        self._notice_standstill()
        post.wake.clear()
        post.begun += 1
        post.began = began = sight.clock()
        failures, refusals = member.failures, sight.refusals
        look: Look | None = None
        try:
            post.look = asyncio.ensure_future(member.database.look(self._name, self._beat()))
            post.look.add_done_callback(lambda ended: ended.cancelled() or ended.exception())  # who waited may be gone
            found, life = await asyncio.shield(post.look)  # the heartbeat of a look that is cancelled may come late
            if found.floors_number > self._floors.number:
                # a server that was out of touch must not issue, from its stock either, what a bump has passed since
                await self._floors.read(member, life, found.floors_number)
                self._wake_all()
            look = found
        except DatabaseError as error:
            post.row, post.life, post.failure = None, "", str(error)
            post.refused = isinstance(error, DatabaseRefused)
        self._notice_standstill()
        if look is not None:
            self._take_up(post, look, life)
        post.ended, post.refusals, member.looked = post.begun, refusals, began
        if member.failures == failures:
            member.doubtful = False
        if all(each.refusals == sight.refusals for each in self._posts.values()):
            sight.refused = False
        standing = self._agree().verdicts[member.offset].standing
        sight.move()
        if look is not None:
            if member.trial and standing is Standing.IN:
                await self._try_marks(post)
            await self._delete_outdated(post, life)

    def _wake_all(self) -> None:
        """Look at every member at once, so that the others learn what this server says."""
        for post in self._posts.values():
            post.wake.set()

    def _beat(self) -> Note:
        """Return this server's heartbeat."""
        self._looks += 1
        interval = self._sight.interval
        said = Said(
            interval,
            silence(interval, self._sight.timeout),
            self._uses(),
            self._increment,
            self._floors.number,
            grow=self._grow,
        )
        return Note(high=self._looks, tenure=self._word, text=said.dump())

    def _uses(self) -> dict[int, Use]:
        """Return what this server draws from: the databases in sight."""
        if self._grow:
            return {}
        return {
            member.offset: Use(self._posts[member].body, life, member.node or member.name)
            for member in self._sight.members
            if (life := member.life) is not None
        }

    def _take_up(self, post: Post, look: Look, life: str) -> None:
        """Keep what a look found."""
        member, now = post.member, self._sight.clock()
        member.facts, member.warnings, member.latency = look.facts, look.facts.warnings, now - post.began
        self._heartbeats.read(member.offset, life, look.heartbeats, now)
        self.noted(member.name, look.facts.now, post.began, now)
        if post.begun > post.void:
            if look.ring != post.row:
                post.row_since = now
            post.row, post.life = look.ring, life

    def _notice_standstill(self) -> None:
        """Lose sight of everything if this process stood still for so long that others no longer count on it."""
        now, sight = self._sight.clock(), self._sight
        stood_still = now - self._awake > 3 * sight.interval + sight.timeout
        self._awake = now
        if stood_still:
            sight.is_settling = True
            for member, post in self._posts.items():
                post.row, post.life, post.failure, post.refused = None, "", STOOD_STILL, False
                post.void, post.steady_since = post.begun, None
                post.wake.set()
                self._leave(member, Status.DOWN, STOOD_STILL)

    async def _try_marks(self, post: Post) -> None:
        """Let a member that failed come back into sight if a trial write succeeds.

        While no member is in sight none is held back: tickets can be had as long as one database can write.
        """
        member, trial, failures, row = post.member, self._trials[post.member], post.member.failures, post.row
        is_due = trial.is_due(self._sight.clock()) or not self._sight.in_sight
        if row is None or post.is_stale or member.doubtful or not is_due:
            return
        member.trying = True
        try:
            await try_marks(member, post.life, row.stamp, self._name, self._word)
            if member.failures == failures:
                member.trial = False
                trial.came_back(self._sight.clock())
        except DatabaseError:
            trial.failed(self._sight.clock())
        finally:
            member.trying = False
        self._agree()
        self._sight.move()

    async def _delete_outdated(self, post: Post, life: str) -> None:
        """Delete heartbeats that have stood still for an hour."""
        member = post.member
        rows = list(self._heartbeats.outdated(member.offset, self._sight.clock()).items())[:MOST_DELETED]
        if rows:
            with suppress(DatabaseError):  # they are deleted after another look
                writes = [Write(Book.HEARTBEATS, name, note, None) for name, note in rows]
                await member.database.write(writes, None, life)

    # --- decisions ---------------------------------------------------------------------------------------------------

    def _agree(self) -> Agreement:
        """Decide on what the looks have found until now, and change the sight by it."""
        sight, now, posts = self._sight, self._sight.clock(), list(self._posts.values())
        for post in posts:
            self._note_failures(post, now)
        agreement = agree(self._situation())
        self._seen, self._number = agreement.seen, agreement.number
        sight.go_by(agreement.record)
        may_enter = not any(post.is_stale for post in posts)
        sight.is_settling = agreement.step is not None or not may_enter
        for post in posts:
            self._place(post, agreement.verdicts[post.member.offset], may_enter)
        if agreement.step is not None:
            self._change_due.set()
        choose_nodes(posts, self._heartbeats, now)
        if (uses := self._uses()) != self._published:
            self._published = uses
            self._wake_all()
        return agreement

    def _situation(self) -> Situation:
        now, me = self._sight.clock(), (self._name, self._word)
        entries, servers = [post.entry(now) for post in self._posts.values()], self._heartbeats.live(now)
        quiet = self._grow_quiet(now)
        return Situation(entries, self._increment, me, new_word(), servers, self._seen, self._number, quiet)

    def _note_failures(self, post: Post, now: float) -> None:
        """Take note of what failed at a member since the last decision."""
        member = post.member
        if member.failures != post.failures:
            post.failures, post.steady_since = member.failures, None
            if member.trial:
                self._trials[member].lost(now)

    def _grow_quiet(self, now: float) -> float:
        """Return for how many seconds `ticketd grow` has left the change that is under way."""
        record = self._seen
        if self._grow or record is None or record.state is not State.CHANGING:
            return 0.0
        if self._changing[0] != record.stamp:
            self._changing = record.stamp, now
        return min(self._heartbeats.grow_quiet(now), now - self._changing[1])

    def _place(self, post: Post, verdict: Verdict, may_enter: bool) -> None:
        """Let a member come into sight, or go out of it.

        may_enter: whether a look at every member has ended since this server began, stood still, or changed the ring.
        """
        member, standing = post.member, verdict.standing
        if standing is not Standing.IN:
            if standing is not Standing.LAGS:
                post.steady_since = None
            status = Status.DOWN if standing is Standing.DOWN else Status.QUARANTINED
            self._leave(member, status, verdict.reason)
        elif member.trial:
            self._leave(member, Status.DOWN, FAILED)
        elif may_enter and not member.doubtful and member.life != post.life and post.row is not None:
            if post.steady_since is None or post.steady_life != post.life:
                post.steady_since, post.steady_life = self._sight.clock(), post.life
            post.body = post.row.body
            self._sight.enter(member, post.life)
            self._levels.came(member)

    def _leave(self, member: Member, status: Status, reason: str) -> None:
        if member.life is not None or (member.status, member.reason) != (status, reason):
            self._sight.leave(member, status, reason)

    # --- what takes longer -------------------------------------------------------------------------------------------

    async def _change(self) -> None:
        """Carry out changes of the ring; after a failure once in a probe interval."""
        while True:
            await self._change_due.wait()
            if not await self._changes.carry_out():
                await asyncio.sleep(self._sight.interval)
            self._change_due.clear()
