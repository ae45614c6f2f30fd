"""The high-water ledger: what makes *never twice* hold when a database comes back older than it was.

Every database keeps marks about the others. A mark m(d, s), on a database e that is not d, says: no ticket of d in
sequence s above m has been issued. It is reserved ahead in steps, so that it costs a write every few thousand tickets,
and is committed on every other database that is up before a ticket above it is handed out. Its row also says what is
known *issued*, and carries a token `<epoch of d>:<nonce>` (`marks_token`).

A lane (d, s) opens before it draws under an incarnation of d, and again whenever it has lost touch. It reads the rows
about (d, s) from every database that is up, adds what it has ever read from one that is not, and then reads d's
position, in that order: whoever draws in between only advances d. d has not gone back if

- every row of another epoch (another incarnation of d, or its table made anew) has a mark below where d stands, and
- d stands above all that is known issued, and above the largest id in its table, and
- its table is not empty while a row has a mark.

Then the lane adopts the token there is, and nothing is skipped: a reconnect or a ticket server's restart costs no id.
Otherwise d may have gone back (restored, replaced, restarted with who knows which files, truncated): it is advanced
past the largest mark, one draw is checked and dropped, and the token is superseded on every row, on condition that no
row has changed since it was read. If one has, somebody reserved more meanwhile, and all of it is done again.

A reservation names the token it was made under, and is refused where the row has another one. So a server that drew
from d before it went back, and is only now about to reserve and hand out, is refused, and drops what it drew; a server
that reserved before the token was superseded made that start again. That is the fence between two servers of which
one is late, or old. A server that has not read the marks for a while (it was frozen) opens its lanes again first.

What holds, and what does not:

- Two servers, one of them late: above. The token is superseded only after d has been advanced, committed, so a server
  that dies in between leaves the old token, and the next one does it again.
- Marks lost with their database (e is replaced by an empty one): before e counts as up it receives what the other
  databases keep, the larger mark winning; those that are up receive what they lack about e. From then on every lane
  reserves anew, on e too. For the sequences that nobody draws from, e receives the live counters as soon as they have
  been read, which takes seconds where there are thousands; until then /healthz warns.
- A ledger that is itself restored: its rows are old, and the same copying lifts them. A row with an old token refuses
  the next reservation, and the lane opens again.
- Both databases restored to an earlier state: outside the guarantee. Nothing is left that knows better.
- A database restored while every server was down: its start is another one, so its epoch differs from the rows on the
  others, and it is moved above their marks.
- A sequence that nobody asks for after its database was restored: its lane is opened all the same, with the first
  probe, and one at its end is moved to the end again. So the marks may be lost afterwards.
- A table remade, or loaded from a dump, under a running server: its epoch differs too. A table truncated keeps its
  epoch; it is seen by standing below what is known issued, which is written with every probe, so what a truncation
  under running servers can hide is what was issued since the last one.
- Where tickets hold the time (`lane_stamps`), the next draw advances a truncated counter to the present. In a long
  moment the position is read before the first draw; in a short one, what a truncation can hide until the tables are
  listed is what another server has stamped ahead of this one's clock since the last probe.
- A sequence bumped: mark and issued are raised to the number on the other databases before the bump is answered, so a
  database restored from before the bump is moved above it.
- A step that straddles the ceiling ends there; steps shrink as the ceiling comes near, so that a move above the mark
  close to the end skips no more than a sixteenth of what is left.
- No other database up, or none that can keep marks: nothing can be reserved. TICKETS_UNVERIFIED decides whether d
  draws; /healthz warns. A ticket is then handed out only after d's own ring record has been read again, and never for
  a draw that was sent while marks were kept. When another database comes up, every lane reserves on it at its next
  draw, and its older row, with another token, closes the lane, which opens again with all the above.
- A witness lost while it is asked: what was drawn is dropped, and the draw begins again with the witnesses that are
  left. Its answer may have been late because this process stood still, while another server advanced d.
- A witness vouches for what it was up for, and nobody can tell from its rows what it missed. So a lane that opens on
  another epoch of d needs the marks of every other database of the ring. Where one of them cannot be asked, the lane is
  unverified: TICKETS_UNVERIFIED decides whether it draws, /healthz warns, its token says so, and it opens again when
  that one is up. A row with a verified token of d's present epoch says that d has not gone back since; then nobody
  else has to be asked.
- The ring changed: every reservation names the number of the ring record that the lane was opened under. The database
  refuses it under another number, so what was drawn in the ring before is dropped.
"""

import logging
from collections.abc import Callable, Iterable
from dataclasses import replace

from app.common.errors import ColumnExhausted, MarkRefused, TicketDatabaseBusy, TicketDatabaseError
from app.common.tasks import Tasks
from app.databases.protocol import Mark
from app.tickets.lanes.lane import Lane
from app.tickets.lanes.state import LaneState
from app.tickets.marks.exchange import MarkExchange
from app.tickets.marks.lane_opening import LaneOpening
from app.tickets.marks.token import new_token
from app.tickets.marks.witnesses import Witnesses
from app.tickets.ring.ring import Member, Ring

log = logging.getLogger(__name__)


class Ledger:
    """Opens lanes, reserves marks for them, and says what is not protected. `exchange`: what the databases tell each
    other outside of any draw.

    `patience`: seconds that a lane waits for another database's marks. `forgets_after`: seconds after which what was
    read of the marks counts no more, and the lane opens again. `on_bump`: see MarkExchange.
    """

    def __init__(
        self,
        ring: Ring,
        *,
        refuse_unverified: bool,
        patience: float,
        forgets_after: float,
        clock: Callable[[], float],
        on_bump: Callable[[str, int], None],
    ) -> None:
        self._ring = ring
        self._refuse = refuse_unverified
        self._witnesses = Witnesses(ring, patience)
        self.exchange = MarkExchange(ring, self._witnesses, clock, on_bump)
        self._forgets_after = forgets_after
        self._clock = clock
        self._tasks = Tasks()
        self._reserving: set[Lane] = set()
        self._unverified: set[Lane] = set()

    def may_draw(self, member: Member) -> bool:
        """Whether the settings let this database draw now."""
        return not self._refuse or self._ring.has_witness(member)

    def may_lease(self, member: Member, unasked: str) -> bool:
        """Whether the settings let a worker number of this database be used now. `unasked`: the other databases that
        might know of another holder, and could not be asked."""
        return self.may_draw(member) and not (self._refuse and unasked)

    def unprotected(self, member: Member) -> Iterable[str]:
        """Why what this database issues might come twice if it goes back, or has gone back; empty where it cannot."""
        if not member.up:
            return
        if not self._ring.has_witness(member):
            yield "no other database can keep its high-water marks"
            return
        if unasked := {each.marks.unverified for each in self._unverified if each.member is member and each.is_open}:
            yield f"{', '.join(sorted(unasked))} could not be asked for its high-water marks"
        for witness, other in self._ring.unaccounted:
            if other is member:
                yield f"{witness.name} does not keep all its high-water marks yet"

    def reopen_unverified(self) -> None:
        """Another database came up: it may be one that could not be asked before."""
        unverified, self._unverified = self._unverified, set()
        for lane in unverified:
            lane.close()

    def check(self, lane: Lane) -> None:
        """Before a draw: close a lane that has lost touch; raise TicketDatabaseBusy where it may not draw."""
        if not self.may_draw(lane.member):
            raise TicketDatabaseBusy("may not draw while no other database can be asked for its marks")
        if self._ring.has_witness(lane.member) and self._clock() > lane.marks.read_at + self._forgets_after:
            lane.close()

    def is_of_another_epoch(self, lane: Lane) -> bool:
        """Whether what is known of the sequence was issued by another epoch of the lane's database."""
        seen = self._witnesses.seen.get((lane.sequence, lane.member.database.offset))
        return seen is not None and not seen.token.startswith(f"{lane.member.incarnation}.")

    def known_mark(self, sequence: str, member: Member) -> int:
        """The largest mark ever read about the sequence on this database; 0 if there is none."""
        seen = self._witnesses.seen.get((sequence, member.database.offset))
        return 0 if seen is None else seen.mark

    def forget(self) -> None:
        """Another ring: nothing that was read of the one before counts."""
        self.exchange.forget()
        self._unverified.clear()
        self._witnesses.forget()

    # --- opening a lane --------------------------------------------------------------------------------------------

    async def open(self, lane: Lane) -> None:
        """Make sure that what the lane draws next was never issued. Raises TicketDatabaseError.

        Why the steps stand in this order is said in `lane_opening`.
        """
        read_at = self._clock()
        opening = LaneOpening(lane, self._ring, self._witnesses)
        await opening.read_marks()
        if self._refuse and not (opening.rows and opening.verified):
            raise TicketDatabaseBusy("may not draw while no other database can be asked for its marks")
        await opening.read_position()
        if opening.may_have_gone_back:
            await opening.advance(lambda last: self._smallest_step(lane, last))
        else:
            await opening.adopt()
        opening.check_nothing_changed()
        lane.marks.unverified = "" if opening.verified else opening.absent
        (self._unverified.add if lane.marks.unverified else self._unverified.discard)(lane)
        lane.marks.ring = opening.ring
        lane.marks.read_at = read_at
        lane.must_advance = False

    # --- reserving -------------------------------------------------------------------------------------------------

    async def reserve(self, lane: Lane, last: int, *, protected: bool) -> None:
        """Commit a mark above `last` on every other database that is up, before tickets up to it are handed out.

        `protected`: whether any database kept marks when the draw was sent. Raises MarkRefused where the ledger holds
        another incarnation, RingChanged, TicketDatabaseBusy: what was drawn has to be dropped.
        """
        token = lane.marks.token
        mark = min(last + self._ids_ahead(lane, last), max(lane.guard.ceiling, last))
        database = lane.member.database
        proposed = Mark(lane.sequence, database.offset, database.increment, mark, last, token)
        rows = await self._witnesses.on_others(lane.member, proposed, lane.marks.ring)
        for row in rows.values():
            if row.token != token or row.mark < last:
                raise MarkRefused("the ledger holds another incarnation of it")
        if not rows:
            if protected or self._refuse:
                raise TicketDatabaseBusy("lost the database that kept its marks while it drew")
            await database.check_ring(lane.marks.ring)
        elif lane.marks.token == token:
            lane.marks.reserved(mark, last)

    def reserve_soon(self, lane: Lane) -> None:
        """Reserve the next step in the background, so that no request waits for it."""
        if lane in self._reserving:
            return
        self._reserving.add(lane)
        self._tasks.spawn(self._reserve_ahead(lane))

    async def _reserve_ahead(self, lane: Lane) -> None:
        try:
            await self.reserve(lane, lane.guard.highest, protected=True)
        except TicketDatabaseError as error:
            lane.report(error)
        finally:
            self._reserving.discard(lane)

    def _ids_ahead(self, lane: Lane, last: int) -> int:
        """How far ahead of `last` the next mark is to be, in ids."""
        left = max(lane.guard.ceiling - last, 0)
        return lane.marks.ids_ahead(self._clock(), lane.member.database.increment, left)

    def _smallest_step(self, lane: Lane, last: int) -> int:
        """The same for a sequence that is being advanced: what lies below its next mark is skipped again."""
        lane.marks.begin_again()
        return self._ids_ahead(lane, last)

    # --- advancing a sequence ---------------------------------------------------------------------------------------

    async def advance(self, lane: Lane, above: int) -> None:
        """Make every later ticket of the lane's database larger than `above`, and keep that on the others.

        One at its end gives no further ticket, and stays where it is; the others keep the number all the same, for when
        a copy from before comes back. Raises TicketDatabaseError.
        """
        at_end = False
        if lane.state is not LaneState.OPEN:
            try:
                await lane.open()
            except ColumnExhausted:
                at_end = True
        database, table = lane.member.database, lane.table
        assert table is not None
        ring = self._ring.number if at_end else lane.marks.ring
        token = lane.marks.token or new_token(f"{lane.member.incarnation}.{table.created}", verified=False)
        proposed = Mark(lane.sequence, database.offset, database.increment, above, above, token)
        rows = await self._witnesses.on_others(lane.member, proposed, ring)
        if any(
            other not in rows for other in self._ring.members if other is not lane.member and not other.marks_trouble
        ):
            # one of them has just gone down: where this one goes back to before, nobody would know of the number; one
            # that is up and keeps no marks is told by the counter when it can, and warned of until then
            raise TicketDatabaseBusy("could not have the number kept on every other database")
        if at_end:  # nothing is drawn under the token: whose it is does not matter
            for other in {row.token for row in rows.values()} - {token}:
                rows |= await self._witnesses.on_others(lane.member, replace(proposed, token=other), ring)
        elif any(row.token != token for row in rows.values()):
            raise MarkRefused("the ledger holds another incarnation of it")
        if any(row.issued < above for row in rows.values()):
            raise MarkRefused("the ledger did not take the number")
        if not at_end:
            await database.advance({lane.sequence: above})
        lane.guard.advance(above)

    async def close(self) -> None:
        """Let reservations that are under way finish."""
        await self._tasks.wait()
        await self._witnesses.close()
