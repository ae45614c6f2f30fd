"""The high-water ledger: why no ticket comes twice, even if a ticket database goes back.

A database *goes back* when it stands below a ticket that it has given: because it was restored, replaced by an empty
one, promoted behind its primary, or because a table was truncated or made again.

Marks
=====

Each database keeps marks about the other databases. A mark says that no ticket of a database in a sequence above a
number has been issued. A *witness* of a database is another database that is up and can keep marks. Before a server
hands out a ticket, it has every witness of the ticket's database commit a mark that is not below the ticket. A lane
sets its marks ahead in steps, so they cost one write every few thousand tickets. The row of a mark also says up to
which ticket is known to be *issued*, and has a token, `<epoch>:<nonce>` (see `token`).

Opening a lane
==============

A lane opens before its first draw under an incarnation of its database, and again whenever a mark may have changed
without its knowledge. It first reads the rows about its sequence on every witness, adds the largest mark that this
server has ever read on any database, and then reads the position of its table. Draws of other servers in between only
take the position further away from the marks. The database has not gone back if

- every row of another epoch has a mark below the position, and
- the position is above all tickets that are known to be issued, and above the largest id in the table, and
- the table is not empty while a row has a mark.

Then the lane adopts the token in the rows and skips no id. So neither a reconnect nor a restarted ticket server costs
an id. Otherwise the database may have gone back. The lane advances the sequence past the largest mark, draws one ticket
as a check, drops it, and supersedes the token in every row, on condition that no row has changed since the lane read
it. If a row has changed, another server has set a mark meanwhile, and the lane advances the sequence again.

Late servers
============

A write of a mark names the token under which the lane drew. A witness refuses it if its row has another token. Suppose
that a server draws from a database, the database goes back, and another server advances the sequence before the first
one hands its ticket out. If the first server sets its mark after the token was superseded, the witness refuses the
mark, and the server drops the ticket. If it sets the mark before that, the row has changed, and the other server
advances past this mark, too. A server that has not read the marks for a while, because it was frozen, opens its lanes
again before it draws.

A write of a mark also names the number of the ring record under which the lane opened. A database that records another
number refuses the mark, so a ticket that was drawn before the ring changed is dropped.

Unverified lanes
================

The marks on a database cover only the time for which it was a witness, and its rows do not show what it missed. So a
lane that opens under a new epoch needs the marks of every other database in the ring. If one of them cannot be asked,
the lane is *unverified*: TICKETS_UNVERIFIED decides whether it draws, `/healthz` warns, and its token says so. It opens
again when that database comes up. A verified token of the present epoch proves that the database has not gone back
since the token was made. Then the lane needs no other database.

What follows for each case
==========================

- A server dies while it advances a sequence. It had committed the advance before it superseded the token, so the next
  server finds the old token and advances the sequence again.
- A witness fails while it is asked for a mark. The lane drops its draw and draws again with the witnesses that are
  left. Had the answer only been late because this process stood still, another server might have advanced the sequence.
- There is no witness. TICKETS_UNVERIFIED decides whether the lane draws, and `/healthz` warns. The server hands a
  ticket out only after the database's own ring record has been read again, and never if there was a witness when the
  draw was sent. When another database comes up, the next draw of each lane sets a mark there. If the row there has
  another token, the lane closes and opens again.
- A database cannot be asked for a mark, since it is down. While this process stood still, that database may have heard
  of another body of data in place of the lane's. So the server hands a ticket out only if it looked at each database
  that lacks the mark lately: its announcement stands there, or it could not reach that database.
- A witness is replaced by an empty database. Before that comes up, it gets the marks that the other databases keep, the
  larger of two, and the others get the marks about it that they lack. After that every lane sets a new mark, on this
  database as well. The live counters of sequences without a draw follow as soon as the server has read them, within
  seconds for thousands of sequences. Until then its marks are *incomplete*, and `/healthz` warns.
- A witness is restored. Its rows are old, and the same exchange brings them up to date. If a row still has an old
  token, the next mark is refused, and the lane opens again.
- A database is restored while every server is down. It starts under another incarnation, so its epoch differs from that
  of the rows, and the lanes advance it past the marks.
- Nobody asks for a sequence after its database was restored. The server opens the lane all the same, right after the
  first probe, so the marks may be lost afterwards. A sequence at its end is advanced to its end again.
- A table is made again, or loaded from a dump, under running servers. Its epoch is another one. A truncated table keeps
  its epoch, but stands below what is known to be issued. The server writes that with every probe, so a truncation can
  hide only the tickets issued since the last one.
- A table whose tickets hold the time (`sources/lane_stamps`) is truncated. The next draw advances it to the present. If
  its unit of time is long, the lane reads the position before the first draw in each unit. If it is short, a truncation
  can hide, until the tables are listed, what another server stamped ahead of this server's clock since the last probe.
- A sequence is bumped. The number is written to the other databases, as a mark and as issued, before the bump is
  answered. So a database that is restored from before the bump is advanced past it.
- A sequence comes to its end. A step that would pass the ceiling ends there. Steps shrink near the ceiling, so that an
  advance skips at most a sixteenth of what is left.

All databases restored together to an earlier state are outside the guarantee: nothing is left that knows better.
"""

import logging
from collections.abc import Callable, Collection, Iterable

from app.common.errors import MarkRefused, TicketDatabaseBusy, TicketDatabaseError
from app.common.tasks import Tasks
from app.databases.protocol import Mark
from app.tickets.lanes.lane import Lane
from app.tickets.marks.exchange import MarkExchange
from app.tickets.marks.lane_opening import LaneOpening
from app.tickets.marks.witnesses import Witnesses
from app.tickets.ring.ring import Member, Ring

log = logging.getLogger(__name__)


class Ledger:
    """Opens lanes, sets marks for them, and says which databases are unprotected.

    `witnesses`: the writer of marks. `exchange`: reads and writes marks outside of draws.

    Args:
        refuse_unverified: whether TICKETS_UNVERIFIED is `refuse`.
        patience: how long one database may take to keep a mark, in seconds.
        forgets_after: seconds after its marks were read in which a lane has to open again.
        clock: in seconds, monotonic.
        boot_clock: the same, but goes on while the machine is suspended.
        on_bump: see MarkExchange.
    """

    def __init__(
        self,
        ring: Ring,
        *,
        refuse_unverified: bool,
        patience: float,
        forgets_after: float,
        clock: Callable[[], float],
        boot_clock: Callable[[], float],
        on_bump: Callable[[str, int], None],
    ) -> None:
        self._ring = ring
        self._refuse = refuse_unverified
        self.witnesses = Witnesses(ring, patience)
        self.exchange = MarkExchange(ring, self.witnesses, clock, on_bump)
        self._forgets_after = forgets_after
        self._clock = clock
        self._boot_clock = boot_clock
        self._tasks = Tasks()
        self._setting_marks: set[Lane] = set()
        self._unverified: set[Lane] = set()

    def may_draw(self, member: Member) -> bool:
        """Whether the settings let the server draw from this database now."""
        return not self._refuse or self._ring.has_witness(member)

    def may_lease(self, member: Member, unverified: str) -> bool:
        """Whether the settings let the server use a worker number of this database now. `unverified`: the databases
        that may know of another holder and could not be asked."""
        return self.may_draw(member) and not (self._refuse and unverified)

    def unprotected(self, member: Member) -> Iterable[str]:
        """Why a ticket of this database might come twice if the database goes back, or has gone back."""
        if not member.up:
            return
        if not self._ring.has_witness(member):
            yield "no other database can keep its high-water marks"
            return
        if unverified := {each.marks.unverified for each in self._unverified if each.member is member and each.is_open}:
            yield f"{', '.join(sorted(unverified))} could not be asked for its high-water marks"
        for witness, other in self._ring.incomplete:
            if other is member:
                yield f"{witness.name} does not keep all its high-water marks yet"

    def reopen_unverified(self) -> None:
        """Close the unverified lanes: a database that could not be asked before may have come up."""
        unverified, self._unverified = self._unverified, set()
        for lane in unverified:
            lane.close()

    def check(self, lane: Lane) -> None:
        """Raise TicketDatabaseBusy if the lane may not draw now. Close it if its marks were read too long ago."""
        if not self.may_draw(lane.member):
            raise TicketDatabaseBusy("may not draw while no other database can be asked for its marks")
        if not self._ring.has_witness(lane.member):
            self._see_that_all_were_looked_at(lane.member, ())
        elif self._clock() > lane.marks.read_at + self._forgets_after:
            lane.close()

    def is_of_another_epoch(self, lane: Lane) -> bool:
        """Whether the largest known mark of the lane is of another incarnation of its database."""
        seen = self.witnesses.seen.get((lane.sequence, lane.residue.offset))
        return seen is not None and not seen.token.startswith(f"{lane.member.incarnation}.")

    def known_mark(self, sequence: str, member: Member) -> int:
        """The largest mark ever read of the sequence on this database; 0 if there is none."""
        seen = self.witnesses.seen.get((sequence, member.database.offset))
        return 0 if seen is None else seen.mark

    def forget(self) -> None:
        """Forget what was read: the ring is another one now."""
        self.exchange.forget()
        self._unverified.clear()
        self.witnesses.forget()

    # --- opening a lane --------------------------------------------------------------------------------------------

    async def open(self, lane: Lane) -> None:
        """Make sure that the next draw of the lane was never issued; see `LaneOpening`. Raises TicketDatabaseError."""
        read_at = self._clock()
        opening = LaneOpening(lane, self._ring, self.witnesses)
        await opening.read_marks()
        if self._refuse and (opening.unverified or not opening.rows):
            raise TicketDatabaseBusy("may not draw while no other database can be asked for its marks")
        await opening.read_position()
        if opening.may_have_gone_back:
            await opening.advance(lambda last: self._smallest_step(lane, last))
        else:
            await opening.adopt()
        opening.check_nothing_changed()
        lane.marks.unverified = opening.unverified
        (self._unverified.add if lane.marks.unverified else self._unverified.discard)(lane)
        lane.residue = opening.residue
        lane.marks.read_at = read_at
        lane.must_advance = False

    # --- setting marks ---------------------------------------------------------------------------------------------

    async def set_mark(self, lane: Lane, last: int, *, protected: bool) -> None:
        """Have every witness commit a mark above `last`, before the lane hands out tickets up to it.

        `protected`: whether the lane had a witness when the draw was sent. Raises MarkRefused if a row has another
        token, RingChanged, and TicketDatabaseBusy if a witness failed. Then the lane has to drop its draw.
        """
        token = lane.marks.token
        mark = min(last + self._ids_ahead(lane, last), max(lane.guard.ceiling, last))
        database = lane.member.database
        proposed = Mark(lane.sequence, lane.residue.offset, lane.residue.increment, mark, last, token)
        rows = await self.witnesses.on_others(lane.member, proposed, lane.residue.ring)
        for row in rows.values():
            if row.token != token or row.mark < last:
                raise MarkRefused("the ledger holds another incarnation of it")
        if not rows:
            if protected or self._refuse:
                raise TicketDatabaseBusy("lost the database that kept its marks while it drew")
            await database.check_ring(lane.residue.ring)
        self._see_that_all_were_looked_at(lane.member, rows)
        if rows and lane.marks.token == token:
            lane.marks.was_set(mark, last)

    def _see_that_all_were_looked_at(self, member: Member, asked: Collection[Member]) -> None:
        """Raise TicketDatabaseBusy while a database that is not among those asked has to be looked at first, and where
        one said meanwhile that the ring is another one."""
        if len(asked) < len(self._ring.members) - 1 and not member.up:
            raise TicketDatabaseBusy("was taken out of the ring while it drew")
        if unsure := self._ring.unsure(member, asked, self._boot_clock()):
            raise TicketDatabaseBusy(f"waits until {unsure} has been looked at")

    def set_mark_soon(self, lane: Lane) -> None:
        """Set the next mark in the background, so that no request waits for it."""
        if lane in self._setting_marks:
            return
        self._setting_marks.add(lane)
        self._tasks.spawn(self._set_mark_ahead(lane))

    async def _set_mark_ahead(self, lane: Lane) -> None:
        try:
            await self.set_mark(lane, lane.guard.highest, protected=True)
        except TicketDatabaseError as error:
            lane.report(error)
        finally:
            self._setting_marks.discard(lane)

    def _ids_ahead(self, lane: Lane, last: int) -> int:
        """How far above `last` the next mark has to lie, in ids."""
        left = max(lane.guard.ceiling - last, 0)
        return lane.marks.ids_ahead(self._clock(), lane.residue.increment, left)

    def _smallest_step(self, lane: Lane, last: int) -> int:
        """How far above `last` the mark has to lie after an advance, in ids: the smallest step, since another
        advance would skip it."""
        lane.marks.begin_again()
        return self._ids_ahead(lane, last)

    async def close(self) -> None:
        """Let the writes that are under way finish."""
        await self._tasks.wait()
        await self.witnesses.close()
