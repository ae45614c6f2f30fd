"""Bump a sequence: every ticket that any server hands out after the answer is larger than a number (rule 9).

The number becomes a floor on every database of the ring, and then the number of the floors rises there. Each live
server says in its heartbeat that it has read that number, so its lanes below the floor have closed. Every counter is
raised above the floor, so that later draws are above it too.
"""

from collections.abc import Awaitable, Callable, Mapping

from app.databases.record import State
from app.errors import (
    AboveCeiling,
    ForceRequired,
    Growing,
    NotConfirmed,
    NotForThisKind,
    SequenceError,
)
from app.tickets.catalog import Catalog, Entry
from app.tickets.definitions import TICKET
from app.tickets.everywhere import everywhere, lives_in_sight
from app.tickets.floors import Floors
from app.tickets.sight import Member, Sight

FORCE_PERCENT = 90
"""A bump that uses up more than this part of a sequence's ids has to be forced."""
AGAIN = "the bump is under way; ask for the same bump again"


class Bumps:
    """Bumps sequences. catalog, floors, sight: of this server.

    wait_known: given a number of the floors and a deadline by the clock of the sight, waits until the heartbeat of
    every live server names that number or a larger one; returns whether that was so before the deadline.
    """

    def __init__(
        self, sight: Sight, catalog: Catalog, floors: Floors, wait_known: Callable[[int, float], Awaitable[bool]]
    ) -> None:
        self._sight = sight
        self._catalog = catalog
        self._floors = floors
        self._wait_known = wait_known

    async def bump(self, name: str, above: int, *, force: bool, deadline: float) -> Entry:
        """Return the sequence when every ticket that is handed out from now on is larger than `above`.

        A number below the present position changes nothing. deadline: by the clock of the sight. Raises InvalidRequest,
        UnknownSequence, NotForThisKind, AboveCeiling, ForceRequired unless `force`; NotConfirmed, Growing or
        NoTicketDatabase where that cannot be confirmed now.
        """
        entry = await self._catalog.find(name)
        _check(entry, above, force)
        self._check_whole()
        lives = await self._floors.write(entry.key, above)
        self._check_lives(lives)
        number = await self._floors.raise_number(lives)
        if number is None:
            raise NotConfirmed(f"a ticket database did not take the number of the floors: {AGAIN}")
        await self._raise_counters(entry, above, lives)
        for member in lives:
            self._sight.look_at(member)
        if not await self._wait_known(number, deadline):
            raise NotConfirmed(f"a live ticket server has not been seen to know of the bump in time: {AGAIN}")
        self._check_lives(lives)
        return entry

    async def _raise_counters(self, entry: Entry, above: int, lives: Mapping[Member, str]) -> None:
        """Raise the counter on each of these databases, also where this server has to make it first."""
        reasons = await everywhere(self._sight, lives, lambda member, life: self._raise(entry, above, member, life))
        for member in lives:
            if member not in reasons:
                raise NotConfirmed(f"{member.name} failed while its counter was raised: {AGAIN}")
            if reasons[member]:
                raise NotConfirmed(f"the counter of {entry.name} was not raised on {member.name}: {reasons[member]}")

    async def _raise(self, entry: Entry, above: int, member: Member, life: str) -> str:
        """Raise one counter. Returns why it could not be raised, empty where it was. Raises DatabaseError."""
        try:
            counter = await self._catalog.counter(entry, member)
            if counter.position < above:
                error = (await member.database.raise_above({counter.name: above}, life)).get(counter.name)
                return str(error) if error is not None else ""
        except SequenceError as error:
            return str(error)
        return ""

    def _check_whole(self) -> None:
        """Raise NotConfirmed unless all databases of the ring are in sight, Growing while the ring changes."""
        record = self._sight.record
        if record is not None and record.state is State.CHANGING:
            raise Growing
        if record is None or self._sight.stamp is None:
            raise NotConfirmed("the ring of the ticket databases is not agreed on now; ask again")
        self._check_lives(lives_in_sight(self._sight))

    def _check_lives(self, lives: Mapping[Member, str]) -> None:
        """Raise NotConfirmed unless each database of the ring is among these and is still in sight in that life."""
        record = self._sight.record
        there = {member.offset for member, life in lives.items() if member.life == life}
        missing = sorted(set(record.offsets if record is not None else ()) - there)
        names = {member.offset: member.name for member in self._sight.members}
        if missing:
            which = ", ".join(
                names.get(offset, f"the one of offset {offset}, which is not listed,") for offset in missing
            )
            raise NotConfirmed(f"every ticket database has to be up for a bump, but {which} was not: {AGAIN}")


def _check(entry: Entry, above: int, force: bool) -> None:
    """Raise NotForThisKind, AboveCeiling, ForceRequired."""
    if entry.definition.kind != TICKET:
        raise NotForThisKind(
            f"{entry.name} is of kind {entry.definition.kind}, which cannot be advanced above a number"
        )
    if above >= entry.ceiling:
        raise AboveCeiling(f"above has to be below {entry.ceiling}, the end of {entry.name}")
    if 100 * above > FORCE_PERCENT * entry.ceiling and not force:
        raise ForceRequired(
            f"bumping {entry.name} above {above} uses more than {FORCE_PERCENT} % of its ids; "
            'confirm that with "force": true'
        )
