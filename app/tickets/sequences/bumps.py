"""The rules of a bump, which raises every later ticket of a sequence above a number.

A bump advances the sequence on every database, so that every later draw is above the number. Tickets in reserve were
drawn before. So the number is recorded on every database, as a mark under a name of its own, because a lane's mark does
not tell a bump from other servers' draws. Each server reads the marks with every probe, and drops the tickets in
reserve that are not above the record. The bump is answered when the largest window has passed in which a server may not
have read the record: see `reserve/window`.
"""

import asyncio
from dataclasses import dataclass, replace

from app.common.errors import (
    AboveCeiling,
    ColumnExhausted,
    ForceRequired,
    MarkRefused,
    NotConfirmed,
    NotForThisKind,
    TicketDatabaseBusy,
    TicketDatabaseError,
)
from app.common.sequences import bump_name
from app.databases.protocol import LARGEST_INCREMENT, Mark
from app.tickets.lanes.lane import Lane
from app.tickets.lanes.state import LaneState
from app.tickets.marks.ledger import Ledger
from app.tickets.marks.token import new_token
from app.tickets.reserve.reserves import Reserves
from app.tickets.ring.marks import Wanted
from app.tickets.ring.ring import Member, Ring
from app.tickets.sequences.catalog import Catalog
from app.tickets.sequences.entry import TICKET, Entry

FORCE_SHARE = 0.9
"""A bump that uses up more than this share of a sequence's ids has to be forced."""
TOKEN = "bumped:"  # noqa: S105 - a mark's
"""The token of every bump's record, so that a larger number replaces a smaller one."""
OFFSET = LARGEST_INCREMENT
"""The offset of every record. No database has it, so each database gets the record from the others when it comes up
older than it was."""
ANY_AGE = 1e9
"""Seconds. A server's announcement counts as long as it stands in a database."""
AGAIN = "the bump is under way: ask again"
TRIES = 3
"""How often a lane is advanced, while other servers advance it at the same time."""


@dataclass(frozen=True, slots=True, eq=False)
class _Committed:
    """A bump whose records were committed on every database.

    Attributes:
        entry: the sequence, as it was served in the ring of that moment.
        above: the number.
        at: when the records were committed.
        window: the largest window, in seconds, that any server had announced then.
    """

    entry: Entry
    above: int
    at: float
    window: float


class Bumps:
    """Bumps sequences. `timeout`: seconds that a request may take."""

    def __init__(self, ring: Ring, catalog: Catalog, ledger: Ledger, reserves: Reserves, timeout: float) -> None:
        self._ring = ring
        self._catalog = catalog
        self._ledger = ledger
        self._timeout = timeout
        self._clock = reserves.clock
        self._committed: dict[str, _Committed] = {}

    async def bump(self, name: str, above: int, *, force: bool) -> Entry:
        """Return the sequence when every ticket that any server hands out from now on is larger than `above`.

        Raises InvalidRequest, UnknownSequence, NotForThisKind, AboveCeiling; ForceRequired unless `force`;
        NotConfirmed while a database is not up or fails, or if a server may hold tickets in reserve and not know of the
        bump before the request's time is over. Then the same bump may be asked for again.
        """
        began = self._clock()
        entry = await self._catalog.find_on_all(name)
        self._check(entry, above, force)
        self._check_all_up(entry)
        for lane in entry.rotation.lanes:
            await self._try_to_advance(lane, above)
        await self._record_and_wait(entry, above, until=began + self._timeout)
        return entry

    def _check(self, entry: Entry, above: int, force: bool) -> None:
        name = entry.name
        if entry.kind is not TICKET:
            raise NotForThisKind(f"{name} is of kind {entry.kind.name}, which cannot be advanced above a number")
        if above >= entry.ceiling:
            raise AboveCeiling(f"above has to be below {entry.ceiling}, the end of {name}")
        if above > FORCE_SHARE * entry.ceiling and not force:
            raise ForceRequired(
                f'bumping {name} above {above} uses more than {FORCE_SHARE:.0%} of its ids: confirm with "force": true'
            )

    def _check_all_up(self, entry: Entry) -> None:
        for member in self._ring.members:
            if not member.up:
                raise NotConfirmed(f"every ticket database has to be up for a bump, but {member.name} is not")
            if member not in entry.tables:
                raise NotConfirmed(f"{member.name} has no table of {entry.name} yet; try again: a bump may be repeated")
        unlisted = self._ring.not_asked(self._ring.members[0], self._ring.members)
        if unlisted:
            raise NotConfirmed(
                f"every ticket database has to be up for a bump, but TICKETS_DATABASES lists none for {unlisted}"
            )

    async def _try_to_advance(self, lane: Lane, above: int) -> None:
        for _ in range(TRIES):
            try:
                await self.advance(lane, above)
            except MarkRefused:
                lane.close()
            except TicketDatabaseError as error:
                raise NotConfirmed(f"{lane.member.name} {error}; try again: a bump may be repeated") from error
            else:
                return
        raise NotConfirmed(f"{lane.member.name} was advanced by another server meanwhile; try again")

    async def advance(self, lane: Lane, above: int) -> None:
        """Make every later ticket of the lane larger than `above`, after the witnesses have kept the number.

        A sequence at its end stays there. The witnesses keep the number all the same, in case an earlier copy of the
        database comes back. Raises TicketDatabaseError.
        """
        at_end = False
        if lane.state is not LaneState.OPEN:
            try:
                await lane.open()
            except ColumnExhausted:
                at_end = True
        database, table = lane.member.database, lane.table
        assert table is not None
        ring = self._ring.number if at_end else lane.residue.ring
        token = lane.marks.token or new_token(f"{lane.member.incarnation}.{table.created}", verified=False)
        proposed = Mark(lane.sequence, lane.residue.offset, lane.residue.increment, above, above, token)
        rows = await self._ledger.witnesses.on_others(lane.member, proposed, ring)
        if any(other not in rows for other in self._ring.members if other is not lane.member and not other.marks_error):
            # The database that has just gone down would not know the number if this one goes back. A database that is
            # up and cannot keep marks gets the counter once it can; until then /healthz warns.
            raise TicketDatabaseBusy("could not have the number kept on every other database")
        if at_end:  # the lane draws nothing, so any token will do
            for other in {row.token for row in rows.values()} - {token}:
                rows |= await self._ledger.witnesses.on_others(lane.member, replace(proposed, token=other), ring)
        elif any(row.token != token for row in rows.values()):
            raise MarkRefused("the ledger holds another incarnation of it")
        if any(row.issued < above for row in rows.values()):
            raise MarkRefused("the ledger did not take the number")
        if not at_end:
            await database.advance({lane.sequence: above})
        lane.guard.advance(above)

    # --- tickets in reserve ------------------------------------------------------------------------------------------

    async def _record_and_wait(self, entry: Entry, above: int, *, until: float) -> None:
        """Return when no server holds a ticket in reserve that is not above the number.

        `until`: when the request's time is over. Raises NotConfirmed. A repeated bump, and one to a smaller number,
        waits only until the first one is known everywhere.

        A database that is up and cannot keep marks keeps no record either. That stops a bump only while there are
        servers with reserves: such a server might read there that there was no bump.
        """
        without = set(self._ring.members) - set(self._keepers())
        try:
            await self._record(bump_name(entry.name), above)
            committed_at = self._clock()
            servers = [server for member in self._ring.members for server in await member.database.servers(ANY_AGE)]
        except MarkRefused as error:
            raise NotConfirmed("a ticket database did not take the bump's record") from error
        except TicketDatabaseError as error:
            raise NotConfirmed(f"{AGAIN}. A ticket database {error}") from error
        if entry.reserve is not None:
            entry.reserve.bumped(above)
        window = max((server.reserve_window for server in servers), default=0.0)
        if without and window:
            raise NotConfirmed(f"{without.pop().name} cannot keep the bump's record for servers that draw ahead")
        found = _Committed(entry, above, committed_at, window)
        before = self._committed.get(entry.name)
        if before is not None and before.entry is entry and before.above >= above:
            found = before  # a server that has announced itself since then reads the record before it draws ahead
        self._committed[entry.name] = found
        left = found.at + found.window - self._clock()
        if left > 0 and self._clock() + left > until:
            raise NotConfirmed(AGAIN)
        while left > 0:  # the event loop's timers go off a little early
            await asyncio.sleep(left)
            left = found.at + found.window - self._clock()

    async def _record(self, name: str, above: int) -> None:
        """Commit the record on every database that can keep marks. Raises MarkRefused, TicketDatabaseError.

        The second write changes the row, so that the database dates it again if it was there already. Otherwise servers
        that read the changed marks would not see it.
        """
        ring, keep = self._ring.number, self._ledger.witnesses.keep
        record = Mark(name, OFFSET, self._ring.increment, above, 0, TOKEN)
        rows = await keep(Wanted(record), ring, self._keepers)
        issued = max((row.issued for row in rows.values()), default=0)
        rows = await keep(Wanted(replace(record, issued=issued + 1)), ring, self._keepers)
        if any(row.token != TOKEN or row.mark < above for row in rows.values()):
            raise MarkRefused("the record has another token")

    def _keepers(self) -> list[Member]:
        return [member for member in self._ring.members if member.marks_error is None]
