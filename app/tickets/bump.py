"""Bump a sequence: every ticket that any server hands out after the answer is larger than a number (rule 9).

The number becomes a floor on every database of the ring, and then the number of the floors rises there. Each live
server says in its heartbeat that it has read that number, so its lanes below the floor have closed. Every counter is
raised above the floor, so that later draws are above it too.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from app.errors import AboveCeiling, ForceRequired, NotConfirmed, NotForThisKind
from app.tickets.catalog import Catalog, Entry, drawn
from app.tickets.definitions import TICKET
from app.tickets.everywhere import lives_in_sight
from app.tickets.floors import Floors
from app.tickets.sight import Member, Sight

FORCE_PERCENT = 90  # a bump that uses up more than this part of a sequence's ids has to be forced
AGAIN = "the bump is under way; ask for the same bump again"


class Bumps:
    """Bumps sequences. catalog, floors, sight: of this server.

    wait_known: given a number of the floors and a deadline by the clock of the sight, waits until the heartbeat of
    every live server names that number or a larger one; returns whether that was so before the deadline.
    """

    def __init__(
        self, sight: Sight, catalog: Catalog, floors: Floors, wait_known: Callable[[int, float], Awaitable[bool]]
    ) -> None:
        self._sight, self._catalog, self._floors, self._wait_known = sight, catalog, floors, wait_known

    async def bump(self, name: str, above: int, *, force: bool, deadline: float) -> Entry:
        """Return the sequence when every ticket that is handed out from now on is larger than `above`.

        A number below the present position changes nothing. deadline: by the clock of the sight. Raises InvalidRequest,
        UnknownSequence, NotForThisKind, AboveCeiling, ForceRequired unless `force`; NotConfirmed, Growing or
        NoTicketDatabase where that cannot be confirmed now.
        """
        sight, entry = self._sight, await self._catalog.find(name)
        kind, end = entry.definition.kind, entry.ceiling
        if kind != TICKET:
            raise NotForThisKind(f"{entry.name} is of kind {kind}, which cannot be advanced above a number")
        if above >= end:
            raise AboveCeiling(f"above has to be below {end}, the end of {entry.name}")
        if 100 * above > FORCE_PERCENT * end and not force:
            used = f"bumping {entry.name} above {above} uses more than {FORCE_PERCENT} % of its ids"
            raise ForceRequired(f'{used}; confirm that with "force": true')
        drawn(sight)
        self._check_lives(lives_in_sight(sight))
        lives, number = await self._floors.keep(entry.key, above)
        self._check_lives(lives)
        # also where this server has to make the counter first
        reasons = await asyncio.gather(*(self._catalog.ensure(entry, member, above) for member in lives))
        for member, reason in zip(lives, reasons, strict=True):
            if reason is not None:
                raise NotConfirmed(f"the counter of {entry.name} was not raised on {member.name}: {reason}: {AGAIN}")
            sight.look_at(member)
        if not await self._wait_known(number, deadline):
            raise NotConfirmed(f"a live ticket server has not been seen to know of the bump in time: {AGAIN}")
        self._check_lives(lives)
        return entry

    def _check_lives(self, lives: Mapping[Member, str]) -> None:
        """Raise NotConfirmed unless each database of the ring is among these and is still in sight in that life."""
        record = self._sight.record
        there = {member.offset for member, life in lives.items() if member.life == life}
        names = {member.offset: member.name for member in self._sight.members}
        missing = sorted(set(record.offsets if record is not None else ()) - there)
        if missing:
            which = ", ".join(names.get(each, f"the one of offset {each}, which is not listed,") for each in missing)
            raise NotConfirmed(f"every ticket database has to be up for a bump, but {which} was not: {AGAIN}")
