"""Carry out what `agreement` decides: the changes of the ring, one conditional write after the other.

Any server may be anywhere in the middle of the same change. So every write rests on a decision of its own, made on
looks that are no older than those on which tickets are issued, and it takes effect only where the ring row is still
what the last look found. After each write the server looks at that database again before it decides on the next one.
There it sees, too, what became of a write whose answer was lost.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from app.databases.record import State
from app.databases.session import Look, RingRow
from app.errors import DatabaseError, OtherLife
from app.tickets.level import NotLevel, make_level
from app.tickets.sight import Member, Sight
from app.tickets.situation import Agreement, Entry, Step

log = logging.getLogger(__name__)


@dataclass(eq=False, slots=True)
class Post:
    """What the probe of this server knows of one member.

    Attributes:
        row, life: what the last look found; None and empty where it failed, `failure` says why.
        refused: whether it failed because the database is not what it should be.
        row_since: since when this server has seen the ring row as it is.
        body: the word of the body that is in sight.
        steady_since, steady_life: since when the member has been in sight, in which life, without a failure; None if it
            is not. A member that lacks the highest record until a server has brought it up stays steady.
        began: when the last look began.
        begun, ended: the number of the last look that began, and of the last look that ended.
        void: looks up to this number say nothing of what is there now: this server has written the ring row since, or
            stood still.
        failures, refusals: how many of each the last decision, and the last look, knew of; see Member and Sight.
        tried: when a node that another server uses was tried last.
        wake: set to look at once.
        look: the look that is under way, or the last one.
    """

    member: Member
    row: RingRow | None = None
    life: str = ""
    failure: str = "no look has ended yet"
    refused: bool = False
    row_since: float = 0.0
    body: str = ""
    steady_since: float | None = None
    steady_life: str = ""
    began: float = float("-inf")
    begun: int = 0
    ended: int = 0
    void: int = 0
    failures: int = 0
    refusals: int = 0
    tried: float = float("-inf")
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    look: asyncio.Future[tuple[Look, str]] | None = None

    @property
    def is_stale(self) -> bool:
        """Whether no look has ended yet that says what is there now."""
        return self.ended <= self.void

    def entry(self, now: float) -> Entry:
        """Return what a decision needs to know of this member."""
        is_steady = self.steady_since is not None and self.steady_life == self.life
        return Entry(
            self.member.offset,
            self.member.name,
            self.row,
            self.life,
            self.failure,
            self.refused,
            used=self.row is not None and self.member.life == self.life,
            in_sight_for=now - self.steady_since if is_steady and self.steady_since is not None else 0.0,
            unchanged_for=now - self.row_since if self.row is not None else 0.0,
        )


class Changes:
    """Carries out the changes of the ring.

    sight, posts: of this server. decide: makes a decision on what the looks have found until now.
    """

    def __init__(self, sight: Sight, posts: Sequence[Post], decide: Callable[[], Agreement]) -> None:
        self._sight = sight
        self._posts = {post.member.offset: post for post in posts}
        self._decide = decide
        self._level: tuple[str, ...] = ()

    async def carry_out(self) -> bool:
        """Carry out step after step until there is none. Returns False where a database failed: try again later."""
        self._level = ()
        while True:
            if any(post.is_stale for post in self._posts.values()):
                await self._sight.moved()
                continue
            step = self._decide().step
            if step is None or not self._sight.is_fresh():
                return True
            if not await self._take(step):
                return False

    async def _take(self, step: Step) -> bool:
        """Take one step, or make level what has to be level before it."""
        posts = [self._posts[offset] for offset in step.level]
        level = (step.record.stamp, *(post.life for post in posts))
        made, self._level = self._level, ()
        if posts and level != made:
            try:
                await make_level([(post.member.database, post.life, _stamp(post)) for post in posts])
            except NotLevel as error:
                log.warning("could not make the ticket databases level to %s: %s", step.kind, error)
                for post in posts:
                    if post.member.database is error.database and post.member.life == post.life:
                        self._sight.failed(post.member, error)
                return False
            self._level = level
            return True
        return await self._write(step, self._posts[step.offset])

    async def _write(self, step: Step, post: Post) -> bool:
        """Write the record where the ring row is still what the last look found."""
        member, old, life, record = post.member, post.row, post.life, step.record
        if old is None:
            return False
        # Until it is drawn from, a body has no offset.
        offset = old.offset if record.state is State.FORMING else member.offset
        try:
            done = await member.database.write_ring(old, RingRow(old.body, offset, record.stamp, record.dump()), life)
        except DatabaseError as error:
            if member.life == life:
                self._sight.failed(member, error)
            if isinstance(error, OtherLife):
                return True  # the next look finds the life
            log.warning("%s: could not %s: %s", member.name, step.kind, error)
            return False
        finally:
            post.void = post.begun
            post.wake.set()
        if done:
            log.info("%s, offset %d: %s, ring number %d", member.name, member.offset, step.kind, record.number)
        return True


def _stamp(post: Post) -> str:
    return post.row.stamp if post.row is not None else ""
