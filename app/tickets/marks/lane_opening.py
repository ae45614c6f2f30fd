"""One opening of a lane: make sure that its next draw was never issued.

The order of the steps matters. The lane reads the marks before the position, so that a draw or an advance in between
only takes the position further away from the marks. If the database may have gone back, the lane advances the sequence
and draws once, both committed, before it supersedes the token. A server that dies in between leaves the old token, so
the next server advances again. What was read counts only if neither the ring nor the incarnation has changed since.
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
"""How often an advance begins again because another server has set a mark meanwhile."""


class LaneOpening:
    """A lane while it opens. The caller takes the steps in the order of the methods.

    Attributes:
        ring: the number of the ring when the opening began.
        epoch: the present epoch of the lane's table.
        rows: the mark about the lane that each witness keeps.
        known: these marks, and the largest one that the server has ever read.
        unverified: the names of the databases whose marks are needed and could not be read; empty if there are none.
        issued: the largest ticket that is known to be issued.
    """

    def __init__(self, lane: Lane, ring: Ring, witnesses: Witnesses) -> None:
        self.lane = lane
        self.residue = lane.residue._replace(ring=ring.number)
        self.rows: dict[Member, Mark] = {}
        self.known: list[Mark] = []
        self.unverified = ""
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
        """Read the table, then the mark of every witness. A witness without one keeps a first mark from now on.

        Raises TicketDatabaseError.
        """
        lane, member = self.lane, self._member
        self._table = table = lane.listed or await self._find_table()
        lane.guard.set_ceiling(table.ceiling, table.last)
        missing = self._ring.not_asked(member, self._ring.witnesses(member))
        token = new_token(self.epoch, verified=not missing)
        proposal = Mark(lane.sequence, self.residue.offset, self.residue.increment, 0, 0, token)
        self.rows = await self._witnesses.on_others(member, proposal, self.residue.ring)
        self.known = [row for row in self.rows.values() if row.token != token]
        seen = self._witnesses.seen.get((lane.sequence, self.residue.offset))
        if seen is not None:
            self.known.append(seen)
        # with a verified token of this epoch no further database has to be asked
        if not any(epoch_of(row.token) == self.epoch and is_verified(row.token) for row in self.known):
            self.unverified = self._ring.not_asked(member, self.rows)
        self._proposal = replace(proposal, token=new_token(self.epoch, verified=not self.unverified))

    async def read_position(self) -> None:
        """Read the position of the table. Raises TicketDatabaseError."""
        lane = self.lane
        self._position = await self._member.database.position(self._table.sequence)
        if self._position.created != self._table.created:
            lane.listed = await self._find_table()
            raise SequenceUnavailable("had its table made again while the lane opened")
        self.issued = max([lane.guard.highest, *(row.issued for row in self.known)])
        lane.table = self._table

    @property
    def may_have_gone_back(self) -> bool:
        """Whether the table may stand below a ticket that was issued from it."""
        position, known = self._position, self.known
        any_mark = any(row.mark > 0 for row in known)
        return (
            (self.lane.must_advance and bool(self.issued or position.largest or any_mark))
            or any(epoch_of(row.token) != self.epoch and row.mark >= position.next_id for row in known)
            or position.next_id <= max(self.issued, position.largest)
            or (position.largest == 0 and any_mark)
        )

    async def adopt(self) -> None:
        """Draw under the token that the witnesses have, since the database has not gone back. Skips no id.

        Raises TicketDatabaseError; ColumnExhausted if no id is left.
        """
        lane, position = self.lane, self._position
        if lane.guard.next_after(position.next_id - 1) > lane.guard.last_allowed:
            lane.guard.advance(position.next_id - 1)
            raise ColumnExhausted("stands at the end of its column")
        own = [row for row in self.rows.values() if epoch_of(row.token) == self.epoch]
        own = [row for row in own if is_verified(row.token) or self.unverified]
        best = max(own, key=lambda row: (row.mark, row.token), default=self._proposal)
        for witness, row in self.rows.items():
            if row.token != best.token:
                superseding = replace(best, mark=max(best.mark, row.mark), issued=self.issued)
                await self._witnesses.supersede(witness, row, superseding, self.residue.ring)
        lane.marks.adopt(best.token)
        lane.guard.advance(max(self.issued, position.next_id - 1))

    async def advance(self, ids_ahead: Callable[[int], int]) -> None:
        """Advance the sequence past the largest mark, check and drop one draw, and supersede the token on every
        witness, on condition that no row has changed since it was read: the database may have gone back.

        `ids_ahead`: how far above an id the mark has to lie. Raises TicketDatabaseError; ColumnExhausted if the last id
        may have been issued.
        """
        lane, database = self.lane, self._member.database
        known = max([self.issued, self._position.largest, *(row.mark for row in self.known)])
        rows = self.rows  # read again below, while `self.rows` remain what `unverified` rests on
        for _ in range(ATTEMPTS_TO_ADVANCE):
            above = min(max([known, *(row.mark for row in rows.values())]), lane.guard.ceiling)
            if above:
                await database.advance({lane.sequence: above})
            if lane.guard.next_after(above) > lane.guard.last_allowed:
                raise ColumnExhausted("may have issued its last id")
            drawn = await database.draw(self.residue, self._table, 1, 0)
            lane.guard.check(drawn, above)
            mark = min(drawn.last + ids_ahead(drawn.last), lane.guard.ceiling)
            token = f"{self._proposal.token}{secrets.token_hex(2)}"
            superseding = replace(self._proposal, mark=mark, issued=drawn.last, token=token)
            try:
                for witness, row in rows.items():
                    await self._witnesses.supersede(witness, row, superseding, self.residue.ring)
            except MarkRefused:
                rows = await self._witnesses.on_others(self._member, self._proposal, self.residue.ring)
                continue
            lane.guard.advance(drawn.last)
            lane.marks.adopt(token)
            event(log, logging.WARNING, "advanced", sequence=lane.sequence, database=self._member.name, above=above)
            return
        raise TicketDatabaseBusy("had its marks changed by other servers again and again while it was advanced")

    def check_nothing_changed(self) -> None:
        """Raise TicketDatabaseError unless everything that was read still counts."""
        if self._member.incarnation != self._incarnation:
            raise TicketDatabaseUnavailable("was restarted or replaced")
        if self._ring.number != self.residue.ring:
            raise RingChanged
        if any(other not in self.rows for other in self._ring.witnesses(self._member)):
            # a database that comes up closes the lanes that have to ask it, and this lane was not open yet
            raise TicketDatabaseBusy("was opened while another database came up, which may know more")

    async def _find_table(self) -> Table:
        sequence = self.lane.sequence
        table = (await self._member.database.tables([sequence])).get(sequence)
        if table is None:
            raise SequenceMissing("has no table for it")
        return table
