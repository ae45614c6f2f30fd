"""Carry out what `agreement` decides: the changes of the ring, one conditional write after the other.

Any server may be anywhere in the middle of the same change. So every write rests on a decision of its own, made on
looks that are no older than those on which tickets are issued, and it takes effect only where the ring row is still
what the last look found. After each write the server looks at that database again before it decides on the next one.
There it sees, too, what became of a write whose answer was lost.
"""

import asyncio
import logging
from collections.abc import Callable

from app.databases.record import State
from app.databases.session import RingRow
from app.errors import DatabaseError, OtherLife
from app.tickets.level import make_level
from app.tickets.sight import Member, Sight
from app.tickets.situation import Agreement, Step

log = logging.getLogger(__name__)


class Changes:
    """Carries out the changes of the ring. decide: makes a decision on what the looks have found until now."""

    def __init__(self, sight: Sight, decide: Callable[[], Agreement]) -> None:
        self._sight, self._decide = sight, decide

    async def run(self) -> None:
        """Carry out step after step whenever one is due; after a failure wait for a probe interval."""
        while True:
            step = await self._next() if self._sight.is_settling else None
            if step is None:
                await self._sight.moved()
            elif not await self._take(step):
                await asyncio.sleep(self._sight.interval)

    async def _next(self) -> Step | None:
        """Return the step that comes next, once there is a look at every database that says what is there now."""
        while any(member.is_stale for member in self._sight.members):
            await self._sight.moved()
        step = self._decide().step
        return step if self._sight.is_fresh() else None

    async def _take(self, step: Step) -> bool:
        """Take one step, with what has to be level before it."""
        if step.level:
            lives = self._lives(step)
            if not await make_level(self._sight, lives):
                log.warning("could not make the ticket databases level to %s", step.kind)
                return False
            if await self._next() != step or self._lives(step) != lives:
                return True  # another decision is due
        return await self._write(step, self._sight.members[step.offset - 1])

    def _lives(self, step: Step) -> dict[Member, str]:
        """Return the databases to make level, with the lives in which the last looks found them."""
        return {member: member.found for member in self._sight.members if member.offset in step.level}

    async def _write(self, step: Step, member: Member) -> bool:
        """Write the record where the ring row is still what the last look found."""
        old, life, record = member.row, member.found, step.record
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
