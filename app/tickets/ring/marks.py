"""The one write of high-water marks to a ticket database: for lanes, leases, bumps and changes of the ring."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from app.databases.protocol import Mark, TicketDatabase


def never(_: Mark) -> bool:
    """No row of another token is superseded."""
    return False


class Wanted(NamedTuple):
    """A mark that a database has to keep.

    `supersedes`: whether the mark takes the place of a given row that has another token. The row's number stays if it
    is larger.
    """

    mark: Mark
    supersedes: Callable[[Mark], bool] = never


async def keep_marks(database: TicketDatabase, wanted: Sequence[Wanted], ring: int) -> Mapping[tuple[str, int], Mark]:
    """Have the database keep these marks under this ring number, committed.

    Returns the rows as they stand then, by sequence and offset. Raises RingChanged and other TicketDatabaseErrors.
    """
    rows = dict(await database.keep([mark for mark, _ in wanted], ring))
    for mark, supersedes in wanted:
        row = rows[mark.sequence, mark.offset]
        if row.token != mark.token and supersedes(row):
            new = replace(mark, mark=max(mark.mark, row.mark))
            rows[mark.sequence, mark.offset] = await database.supersede(row, new, ring)
    return rows
