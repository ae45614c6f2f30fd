"""Floors: at or below the floor of a sequence no offset gives an id any more (rule 9).

Every ticket database keeps all floors, and a number that rises behind each floor that was written. A server that sees
a larger number reads all floors, and then says in its heartbeat which number it has read. The writer of a floor writes
the number last, one above every number that it has seen. So a server that names that number, or a larger one, has read
the floor, and its lanes below the floor have closed.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from app.databases.record import Record, State
from app.databases.session import Book
from app.errors import Growing, NotConfirmed, NoTicketDatabase
from app.tickets.everywhere import all_rows, everywhere, lives_in_sight, raise_rows
from app.tickets.sight import Member, Sight

NUMBER = "floors"  # the row of COUNTS that holds the number of the floors
AGAIN = "the bump is under way; ask for the same bump again"


def drawn(sight: Sight) -> Record:
    """Return the ring record to write under. Raises Growing while the ring changes, NoTicketDatabase without a ring."""
    record = sight.record
    if record is not None and record.state is State.CHANGING:
        raise Growing
    if record is None or sight.stamp is None:
        raise NoTicketDatabase("the ring of the ticket databases is not agreed on now; ask again")
    return record


class Floors:
    """The floors that this server knows.

    Attributes:
        known: the largest floor that was read or kept, by the sequence's name in lower case. Floors only rise.
        number: every floor up to this number was read. The heartbeat says it.
        heard: returns the largest number that any heartbeat names, so that a new number is above it.
        wait_known: given a number and a deadline by the clock of the sight, waits until the heartbeat of every live
            server names that number or a larger one; returns whether that was so before the deadline. To be set.
    """

    wait_known: Callable[[int, float], Awaitable[bool]]

    def __init__(self, sight: Sight, heard: Callable[[], int] = lambda: 0) -> None:
        self.known: dict[str, int] = {}
        self.number = 0
        self.heard = heard
        self._sight = sight

    def remember(self, sequence: str, value: int) -> None:
        """Issue nothing at or below this value any more, on this server."""
        key = sequence.lower()
        if value > self.known.get(key, 0):
            self.known[key] = value

    async def keep(self, sequence: str, value: int) -> tuple[dict[Member, str], int]:
        """Write a floor on every database in sight, and then raise the number of the floors there.

        Returns the databases that have taken both, with the life in which each took them, and the number. A database
        that failed is out of sight.
        """
        self.remember(sequence, value)
        lives = await self._raise(lives_in_sight(self._sight), Book.FLOORS, sequence.lower(), value)
        rows = await everywhere(self._sight, lives, lambda each, life: each.database.read(Book.COUNTS, [NUMBER], life))
        numbers = [row.high for found in rows.values() for row in found.values()]
        number = 1 + max(self.number, self.heard(), *numbers)
        return await self._raise({member: lives[member] for member in rows}, Book.COUNTS, NUMBER, number), number

    async def confirm(
        self, sequence: str, value: int, raise_counter: Callable[[Member], Awaitable[str | None]], deadline: float
    ) -> None:
        """Keep a floor, and return when every database and every live server goes by it.

        raise_counter: raises the sequence's counter on a database above the floor, so that later draws are above it
        too; returns why it could not. deadline: by the clock of the sight. Raises NotConfirmed, and as `drawn`.
        """
        drawn(self._sight)
        self._check_lives(lives_in_sight(self._sight))
        lives, number = await self.keep(sequence, value)
        self._check_lives(lives)
        reasons = await asyncio.gather(*(raise_counter(member) for member in lives))
        for member, reason in zip(lives, reasons, strict=True):
            if reason is not None:
                raise NotConfirmed(f"the counter of {sequence} was not raised on {member.name}: {reason}: {AGAIN}")
            self._sight.look_at(member)
        if not await self.wait_known(number, deadline):
            raise NotConfirmed(f"a live ticket server has not been seen to know of the bump in time: {AGAIN}")
        self._check_lives(lives)

    def _check_lives(self, lives: Mapping[Member, str]) -> None:
        """Raise NotConfirmed unless each database of the ring is among these and is still in sight in that life."""
        record = self._sight.record
        there = {member.offset for member, life in lives.items() if member.life == life}
        names = {member.offset: member.name for member in self._sight.members}
        missing = sorted(set(record.offsets if record is not None else ()) - there)
        if missing:
            which = ", ".join(names.get(each, f"the one of offset {each}, which is not listed,") for each in missing)
            raise NotConfirmed(f"every ticket database has to be up for a bump, but {which} was not: {AGAIN}")

    async def read(self, member: Member, life: str, number: int) -> None:
        """Read all floors of one database.

        number: its number of the floors, as it was before this call. Every floor that it stands for was written before
        it, so a database that is read to the end is enough. Raises DatabaseError.
        """
        for name, row in (await all_rows(member, life, Book.FLOORS)).items():
            self.remember(name, row.high)
        self.number = max(self.number, number)

    async def _raise(self, lives: Mapping[Member, str], book: Book, name: str, high: int) -> dict[Member, str]:
        """Raise one row on these databases; return those that have it."""
        stamp = self._sight.stamp
        if stamp is None:
            return {}
        raised = await everywhere(
            self._sight, lives, lambda member, life: raise_rows(member, life, book, {name: high}, stamp=stamp)
        )
        for member, done in raised.items():
            if not done:
                self._sight.look_at(member)
        return {member: lives[member] for member, done in raised.items() if done}
