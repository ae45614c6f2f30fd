"""The rows about a lane: what every database of the ring knows of it, the lane's own included.

A row says up to which id the lane may issue (the limit) and under which tenure. Because a limit is on every database in
sight before an id up to it is issued, the server that draws from that counter next, on whatever is left of the data,
can begin above it. A mark raises the rows of one tenure, on all databases at the same time (rule 2). An opening gives
them another tenure (rule 4, see `opening`): from then on marks of the tenure before are refused.
"""

from enum import Enum

from app.databases.session import Mark, Marked
from app.tickets.everywhere import everywhere, lives_in_sight
from app.tickets.sight import Member, Sight

LONGEST_MARK = 2.0
"""Seconds that a mark may take: a level three seconds after a life was found comes after every mark of before."""


class Outcome(Enum):
    """What became of a mark."""

    STANDS = "stands"
    """Every database that was in sight has committed it in time. It counts only for that generation of the sight."""
    LOST = "lost"
    """A database failed, or the answer came late: what waits above the limit is dropped."""
    REFUSED = "refused"
    """A database has another tenure, or another ring number: the lane closes."""


async def mark_everywhere(sight: Sight, own: Member, mark: Mark, era: int) -> Outcome:
    """Send this mark to every database in sight, the lane's own included, and return what became of it.

    Tells the sight about each database that failed or refused. era: the one in which the lane was opened.
    """
    stamp, began = sight.stamp, sight.clock()
    if sight.era != era or stamp is None:
        return Outcome.REFUSED
    if own.life is None:
        return Outcome.LOST
    lives = lives_in_sight(sight)
    results = await everywhere(sight, lives, lambda member, life: member.database.mark(mark, stamp, life))
    if Marked.RING in results.values():
        sight.refuse()
    if sight.era != era or any(result is not Marked.DONE for result in results.values()):
        return Outcome.REFUSED
    if len(results) < len(lives) or sight.clock() - began > min(sight.timeout, LONGEST_MARK):
        return Outcome.LOST
    return Outcome.STANDS
