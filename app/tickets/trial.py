"""Hold a database back that has failed, until it has shown by a trial write that it keeps marks again (rule 7).

A database may answer looks while everything else fails there. Without a trial it would come into sight with each look,
and end all limits each time.
"""

from app.databases.session import Book, Note, Write
from app.errors import DatabaseFailed
from app.tickets.sight import Member

SOON = 60.0
"""Seconds. A database that fails within so much after it came back is held back for longer."""
FIRST, LONGEST = 1.0, 30.0
"""Seconds for which a database is held back, the first time and at most; doubled each time."""
LONGEST_NAME = 80
"""Characters of a row's name."""


class Trial:
    """When one database may come back into sight. All times are in seconds, by one clock."""

    def __init__(self) -> None:
        self._delay = 0.0
        self._until = self._back = float("-inf")
        self._is_away = False

    def lost(self, now: float) -> None:
        """A statement failed: hold the database back, unless it has been in sight for a minute."""
        if self._is_away:
            return
        self._is_away = True
        if now - self._back < SOON:
            self.failed(now)
        else:
            self._delay, self._until = 0.0, now

    def failed(self, now: float) -> None:
        """Hold the database back for twice as long as before; a trial write failed."""
        self._delay = min(LONGEST, max(FIRST, 2 * self._delay))
        self._until = now + self._delay

    def came_back(self, now: float) -> None:
        """A trial write succeeded."""
        self._back, self._is_away = now, False

    def is_due(self, now: float) -> bool:
        """Whether the next trial write may be made."""
        return now >= self._until


async def try_marks(member: Member, life: str, stamp: str, server: str, word: str) -> None:
    """Write a row into the marks, and delete it again. stamp: of the database's ring row. Raises DatabaseError."""
    name = f"#trial/{server}"[:LONGEST_NAME]
    database = member.database
    row = (await database.read(Book.MARKS, [name], life)).get(name)
    tried = Note(tenure=word, sure=row is None or not row.sure)
    for old, new in ((row, tried), (tried, None)):
        done = await database.write([Write(Book.MARKS, name, old, new)], stamp, life)
        if not done[0]:
            raise DatabaseFailed("did not take a trial write into its marks")
