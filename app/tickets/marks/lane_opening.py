"""One opening of a lane: make sure that what it draws next was never issued.

The order is what it rests on. Marks are read before the position, so whoever draws or advances the sequence in between
only takes the position further away from them. Where the database may have gone back, it is advanced and the draw
after that is committed before the token is superseded: whoever dies in between leaves the old token, and the next one
does it again. What was read counts only if the ring and the database's incarnation are still what they were.
"""

import logging
import secrets
from collections.abc import Callable
from dataclasses import replace

from app.common.errors import (
    ColumnExhausted,
    MarkRefused,
    RingChanged,
    SequenceMissing,
    SequenceUnavailable,
    TicketDatabaseBusy,
    TicketDatabaseUnavailable,
)
from app.common.log import event
from app.databases.protocol import Mark, Position, Table
from app.tickets.lanes.lane import Lane
from app.tickets.marks.token import epoch_of, is_verified, new_token
from app.tickets.marks.witnesses import Witnesses
from app.tickets.ring.ring import Member, Ring

log = logging.getLogger(__name__)

ATTEMPTS_TO_ADVANCE = 10
"""How often an advance begins again because somebody reserved meanwhile."""


class LaneOpening:
    """What is known of a lane while it opens. The steps are called in the order in which they stand here.

    `ring`: the number of the ring when it began. `epoch`: of the lane's table now. `rows`: what each witness keeps
    about the lane, `known`: the same and what has ever been read of it. `absent`: the databases that could not be
    asked, by name. `verified`: whether the marks are all there are, so that it is certain whether the database has gone
    back. `issued`: the largest ticket known issued.
    """

    def __init__(self, lane: Lane, ring: Ring, witnesses: Witnesses) -> None:
        self.lane = lane
        self.ring = ring.number
        self.rows: dict[Member, Mark] = {}
        self.known: list[Mark] = []
        self.absent = ""
        self.verified = False
        self.issued = 0
        self._ring = ring
        self._witnesses = witnesses
        self._member = lane.member
        self._incarnation = lane.member.incarnation
        self._table: Table
        self._position: Position
        self._proposal: Mark

    @property
    def epoch(self) -> str:
        return f"{self._incarnation}.{self._table.created}"

    async def read_marks(self) -> None:
        """Read the table, then the rows of every witness; one that has none keeps a row of ours from now on.

        Raises TicketDatabaseError.
        """
        lane, member = self.lane, self._member
        self._table = table = lane.listed or await self._find_table()
        lane.guard.set_ceiling(table.ceiling, table.last)
        absent = self._ring.absent_for(member, self._ring.witnesses(member))
        token = new_token(self.epoch, verified=not absent)
        database = member.database
        proposal = Mark(lane.sequence, database.offset, database.increment, 0, 0, token)
        self.rows = await self._witnesses.on_others(member, proposal, self.ring)
        self.known = [row for row in self.rows.values() if row.token != token]
        seen = self._witnesses.seen.get((lane.sequence, database.offset))
        if seen is not None:
            self.known.append(seen)
        self.absent = self._ring.absent_for(member, self.rows)
        # a verified token of this epoch says that the database has not gone back since: nobody else has to be asked
        self.verified = not self.absent or any(
            epoch_of(row.token) == self.epoch and is_verified(row.token) for row in self.known
        )
        self._proposal = replace(proposal, token=new_token(self.epoch, verified=self.verified))

    async def read_position(self) -> None:
        """Read where the database stands. Raises TicketDatabaseError."""
        lane = self.lane
        self._position = await self._member.database.position(self._table.sequence)
        if self._position.created != self._table.created:
            lane.listed = await self._find_table()
            raise SequenceUnavailable("had its table made anew meanwhile")
        self.issued = max([lane.guard.highest, *(row.issued for row in self.known)])
        lane.table = self._table

    @property
    def may_have_gone_back(self) -> bool:
        """Whether the database may stand below what it has issued."""
        position, known = self._position, self.known
        any_mark = any(row.mark > 0 for row in known)
        return (
            (self.lane.must_advance and bool(self.issued or position.largest or any_mark))
            or any(epoch_of(row.token) != self.epoch and row.mark >= position.next_id for row in known)
            or position.next_id <= max(self.issued, position.largest)
            or (position.largest == 0 and any_mark)
        )

    async def adopt(self) -> None:
        """It has not gone back: draw under the token there is, on every witness. Skips no id.

        Raises TicketDatabaseError; ColumnExhausted where nothing is left.
        """
        lane, position = self.lane, self._position
        if lane.guard.next_after(position.next_id - 1) > lane.guard.last_allowed:
            lane.guard.advance(position.next_id - 1)
            raise ColumnExhausted("stands at the end of its column")
        own = [row for row in self.rows.values() if epoch_of(row.token) == self.epoch]
        own = [row for row in own if is_verified(row.token) or not self.verified]
        best = max(own, key=lambda row: (row.mark, row.token), default=self._proposal)
        for witness, row in self.rows.items():
            if row.token != best.token:
                superseding = replace(best, mark=max(best.mark, row.mark), issued=self.issued)
                await self._witnesses.supersede(witness, row, superseding, self.ring)
        lane.marks.adopt(best.token)
        lane.guard.advance(max(self.issued, position.next_id - 1))

    async def advance(self, ids_ahead: Callable[[int], int]) -> None:
        """It may have gone back: advance it past the largest mark, check one draw, which is dropped, and supersede the
        token on every witness, on condition that no row has changed since it was read.

        `ids_ahead`: how far ahead of an id the mark is to be. Raises TicketDatabaseError; ColumnExhausted where the
        last id may have been issued.
        """
        lane, database = self.lane, self._member.database
        known = max([self.issued, self._position.largest, *(row.mark for row in self.known)])
        rows = self.rows  # read anew below; whom `verified` rests on stays as it was
        for _ in range(ATTEMPTS_TO_ADVANCE):
            above = min(max([known, *(row.mark for row in rows.values())]), lane.guard.ceiling)
            if above:
                await database.advance({lane.sequence: above})
            if lane.guard.next_after(above) > lane.guard.last_allowed:
                raise ColumnExhausted("may have issued its last id")
            drawn = await database.draw(self._table, 1, 0)
            lane.guard.check(drawn, above)
            mark = min(drawn.last + ids_ahead(drawn.last), lane.guard.ceiling)
            token = f"{self._proposal.token}{secrets.token_hex(2)}"
            superseding = replace(self._proposal, mark=mark, issued=drawn.last, token=token)
            try:
                for witness, row in rows.items():
                    await self._witnesses.supersede(witness, row, superseding, self.ring)
            except MarkRefused:
                rows = await self._witnesses.on_others(self._member, self._proposal, self.ring)
                continue
            lane.guard.advance(drawn.last)
            lane.marks.adopt(token)
            event(log, logging.WARNING, "advanced", sequence=lane.sequence, database=self._member.name, above=above)
            return
        raise TicketDatabaseBusy("was reserved by others again and again while it was advanced")

    def check_nothing_changed(self) -> None:
        """Raise TicketDatabaseError unless all that was read still counts."""
        if self._member.incarnation != self._incarnation:
            raise TicketDatabaseUnavailable("was restarted or replaced")
        if self._ring.number != self.ring:
            raise RingChanged
        if any(other not in self.rows for other in self._ring.witnesses(self._member)):
            # the lanes that were to ask it were chosen when it came up, and this one was not open then
            raise TicketDatabaseBusy("was opened while another database came up, which may know more")

    async def _find_table(self) -> Table:
        sequence = self.lane.sequence
        table = (await self._member.database.tables([sequence])).get(sequence)
        if table is None:
            raise SequenceMissing("has no table for it")
        return table
