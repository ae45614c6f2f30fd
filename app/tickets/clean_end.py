"""Lower the limits to the positions at the clean end of an embedded pair, so that the next start skips nothing.

Each opening of the embedded pair is another life, so the next process advances every lane above its limit. One process
uses the pair, and its lanes have ended, so nothing above the positions was issued. A process that is killed lowers
nothing and leaves gaps.
"""

import asyncio
from collections.abc import Iterable
from contextlib import suppress

from app.databases.session import Book, Write
from app.errors import TicketError
from app.tickets.everywhere import everywhere, lives_in_sight
from app.tickets.lane import Lane
from app.tickets.opening import LaneSpec
from app.tickets.sight import Member, Sight

LONGEST = 3.0
"""Seconds that this may take in all."""


async def lower_limits(sight: Sight, lanes: Iterable[Lane]) -> None:
    """Lower the rows about these lanes, which draw no more, on every database. What fails leaves a gap."""
    with suppress(TimeoutError):
        async with asyncio.timeout(LONGEST):
            await asyncio.gather(*(_lower(sight, lane.spec) for lane in lanes))


async def _lower(sight: Sight, spec: LaneSpec) -> None:
    lives, stamp = lives_in_sight(sight), sight.stamp
    if stamp is None or spec.member not in lives:
        return
    try:
        position = (await spec.read_counter()).position
    except TicketError:
        return

    async def lower(member: Member, life: str) -> None:
        row = (await member.database.read(Book.MARKS, [spec.row], life)).get(spec.row)
        if row is not None and row.high > position:
            await member.database.write([Write(Book.MARKS, spec.row, row, row._replace(high=position))], stamp, life)

    await everywhere(sight, lives, lower)
