"""Whether the ids that a table gives come from its counter, or from a trigger.

An OK packet has the id of the row, whoever has set it. `LAST_INSERT_ID()` has an id only if the counter has given it.
A trigger that sets ids gives two servers the same one, as it does if it takes them from the clock. So the server asks
behind a draw, before it hands the ticket out: behind the first draw of each table, and from then on once a second for
each table that is drawn from, 20 times a second for all of them together. A trigger that someone makes while tickets
are drawn is noticed within that time.
"""

from collections.abc import Sequence

from app.common.errors import SequenceUnavailable
from app.databases.mysql.line.driver import Rows

QUESTION = "SELECT LAST_INSERT_ID()"
CHECK_SECONDS = 1.0
"""How long a look at a table's ids counts, at least."""
PAUSE_SECONDS = 0.05
"""Between two looks, unless a table's ids have never been looked at. A look costs about as much as a ticket."""


class GeneratedIds:
    """When each table's ids are to be looked at again."""

    def __init__(self, seconds: float = CHECK_SECONDS, pause: float = PAUSE_SECONDS) -> None:
        self._seconds = seconds
        self._pause = pause
        self._due: dict[str, float] = {}
        self._rests_until = 0.0

    def are_due(self, table: str, now: float) -> bool:
        """Whether a draw that began `now`, by `time.monotonic`, is to be followed by the question."""
        due = self._due.get(table)
        return due is None or (now >= due and now >= self._rests_until)

    def check(self, table: str, now: float, drawn: Sequence[int], generated: int) -> None:
        """Compare the ids of a draw's statements, of which the last one counts, with the answer to the question.

        Raises SequenceUnavailable where something else than the counter has set that id; then the next draw is due.
        """
        last = next((id_ for id_ in reversed(drawn) if id_), 0)
        if last != generated:
            self._due.pop(table, None)
            raise SequenceUnavailable("has a trigger that sets the ids of its table: DROP TRIGGER it")
        self._due[table] = now + self._seconds
        self._rests_until = now + self._pause


def generated_of(rows: Rows) -> int:
    """The id in the row of `QUESTION`. Raises ValueError, TypeError, IndexError."""
    return int(rows[0][0])
