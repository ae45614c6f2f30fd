"""Floors: at or below the floor of a sequence no offset gives an id any more.

Every ticket database keeps all floors, and a number that rises behind each floor that was written. A server that sees
a larger number reads all floors, and then says in its heartbeat which number it has read. The writer of a floor writes
the number last, one above every number that it has seen. So a server that names that number, or a larger one, has read
the floor.
"""

from collections.abc import Callable, Mapping
from functools import partial

from app.databases.session import Book
from app.tickets.everywhere import all_rows, everywhere, lives_in_sight, raise_row
from app.tickets.sight import Member, Sight

NUMBER = "floors"  # the row of COUNTS that holds the number of the floors


class Floors:
    """The floors that this server knows.

    Attributes:
        known: the largest floor that was read or kept, by the sequence's name in lower case. Floors only rise.
        number: every floor up to this number was read. The heartbeat says it.
        heard: returns the largest number that any heartbeat names, so that a new number is above it.
    """

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
        raised = await everywhere(self._sight, lives, partial(raise_row, book=book, name=name, high=high, stamp=stamp))
        for member, done in raised.items():
            if not done:
                self._sight.look_at(member)
        return {member: lives[member] for member, done in raised.items() if done}
