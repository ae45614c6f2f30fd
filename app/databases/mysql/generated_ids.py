"""Whether the ids that a table gives come from its counter, or from a trigger.

An OK packet has the id of the row, whoever has set it. `LAST_INSERT_ID()` has an id only if the counter has given it.
A trigger that sets ids gives two servers the same one, as it does if it takes them from the clock. So the server asks
behind a draw, before it hands the ticket out: behind the first draw of each table, and about once a second from then
on. Someone who makes such a trigger while tickets are drawn is noticed within that second.
"""

from collections.abc import Sequence

from app.common.errors import SequenceUnavailable
from app.databases.mysql.driver import Rows

QUESTION = "SELECT LAST_INSERT_ID()"
CHECK_SECONDS = 1.0
"""How long a look at a table's ids counts."""


class GeneratedIds:
    """When each table's ids are to be looked at again."""

    def __init__(self, seconds: float = CHECK_SECONDS) -> None:
        self._seconds = seconds
        self._due: dict[str, float] = {}

    def are_due(self, table: str, now: float) -> bool:
        """Whether a draw that began `now`, by `time.monotonic`, is to be followed by the question."""
        return now >= self._due.get(table, 0.0)

    def check(self, table: str, now: float, drawn: Sequence[int], generated: int) -> None:
        """Compare the ids of a draw's statements, of which the last one counts, with the answer to the question.

        Raises SequenceUnavailable where something else than the counter has set that id; then the next draw is due.
        """
        last = next((id_ for id_ in reversed(drawn) if id_), 0)
        if last != generated:
            self._due.pop(table, None)
            raise SequenceUnavailable("has a trigger that sets the ids of its table: DROP TRIGGER it")
        self._due[table] = now + self._seconds


def generated_of(rows: Rows) -> int:
    """The id in the row of `QUESTION`. Raises ValueError, TypeError, IndexError."""
    return int(rows[0][0])
