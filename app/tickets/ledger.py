"""The high-water ledger: what makes *never twice* hold when a database comes back older than it was.

Every database keeps marks about the others. A mark m(d, s), on a database e that is not d, says: no ticket of d in
sequence s above m has been issued. It is reserved ahead in steps, so that it costs a write every few thousand tickets,
and is committed on every other database that is up before a ticket above it is handed out. Its row also says what is
known *issued*, and carries a token `<epoch of d>:<nonce>`.

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
import secrets
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import replace

from app.common.errors import (
    ColumnExhausted,
    MarkRefused,
    RingChanged,
    SequenceMissing,
    SequenceUnavailable,
    TicketDatabaseBusy,
    TicketDatabaseError,
    TicketDatabaseUnavailable,
)
from app.common.log import event
from app.common.tasks import Tasks
from app.databases.protocol import Mark, Position, Table
from app.tickets.lane import Lane, LaneState
from app.tickets.ring import Member, Ring
from app.tickets.witnesses import Witnesses, take_larger

log = logging.getLogger(__name__)

SMALLEST_STEP = 1_000
LARGEST_STEP = 10_000_000
"""How far ahead a mark is reserved, in tickets. A step is skipped when a database is restarted."""
QUICK_SECONDS, SLOW_SECONDS = 2.0, 60.0
"""A step that lasts less long is doubled, one that lasts longer is halved."""
EVERYTHING_SECONDS = 30.0
"""How often a whole ledger is read; in between, what has changed."""
OVERLAP_SECONDS = 3.0
"""How far what is read reaches back behind the last time: a row is seen when it is committed, not when it is dated."""
UNVERIFIED = "u-"
SUPERSEDE_ATTEMPTS = 10
"""How often a move up begins again because somebody reserved meanwhile."""


def epoch_of(token: str) -> str:
    """The epoch (incarnation of the database, and of its table) that a token was made under."""
    return token.rpartition(":")[0]


def _token(epoch: str, *, verified: bool) -> str:
    """A new token. One that was made while a database of the ring could not be asked for its marks says so: it does not
    show that its epoch went on from where the one before it ended."""
    return f"{epoch}:{'' if verified else UNVERIFIED}{secrets.token_hex(4)}"


def is_verified(token: str) -> bool:
    """Whether the token was made by somebody who had asked every database of the ring."""
    return not token.rpartition(":")[2].startswith(UNVERIFIED)


class Ledger:
    """Reads and writes marks on behalf of the lanes, and brings a database up to date before it comes up.

    `patience`: seconds that a lane waits for another database's marks. `forgets_after`: seconds after which what was
    read of the marks counts no more, and the lane opens again.
    """

    def __init__(
        self,
        ring: Ring,
        *,
        refuse_unverified: bool,
        patience: float,
        forgets_after: float,
        clock: Callable[[], float],
    ) -> None:
        self._ring = ring
        self._refuse = refuse_unverified
        self._witnesses = Witnesses(ring, patience)
        self._forgets_after = forgets_after
        self._clock = clock
        self._tasks = Tasks()
        self._reserving: set[Lane] = set()
        self._unverified: set[Lane] = set()
        self._kept: dict[Member, dict[tuple[str, int], Mark]] = {}
        self._read: dict[Member, tuple[float, float]] = {}

    def may_draw(self, member: Member) -> bool:
        """Whether the settings let this database draw now."""
        return not self._refuse or self._ring.has_witness(member)

    def unprotected(self, member: Member) -> Iterable[str]:
        """Why what this database issues might come twice if it goes back, or has gone back; empty where it cannot."""
        if not member.up:
            return
        if not self._ring.has_witness(member):
            yield "no other database can keep its high-water marks"
            return
        if unasked := {each.unverified for each in self._unverified if each.member is member and each.is_open}:
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
        if self._ring.has_witness(lane.member) and self._clock() > lane.read_at + self._forgets_after:
            lane.close()

    def is_of_another_epoch(self, lane: Lane) -> bool:
        """Whether what is known of the sequence was issued by another epoch of the lane's database."""
        seen = self._witnesses.seen.get((lane.sequence, lane.member.database.offset))
        return seen is not None and not seen.token.startswith(f"{lane.member.incarnation}.")

    def known_mark(self, sequence: str, member: Member) -> int:
        """The largest mark ever read about the sequence on this database; 0 if there is none."""
        seen = self._witnesses.seen.get((sequence, member.database.offset))
        return 0 if seen is None else seen.mark

    # --- opening a lane --------------------------------------------------------------------------------------------

    async def open(self, lane: Lane) -> None:
        """Make sure that what the lane draws next was never issued. Raises TicketDatabaseError.

        Marks are read before the position: whoever draws or moves the sequence up in between only takes the position
        further away from them.
        """
        member, database = lane.member, lane.member.database
        incarnation, read_at = member.incarnation, self._clock()
        ring = self._ring.number
        table = lane.listed or await self._table(lane)
        lane.guard.set_ceiling(table.ceiling, repeats_ceiling=table.repeats_ceiling)
        epoch = f"{incarnation}.{table.created}"
        absent = self._ring.absent_for(member, self._ring.witnesses(member))
        token = _token(epoch, verified=not absent)
        proposal = Mark(lane.sequence, database.offset, database.increment, 0, 0, token)
        rows = await self._witnesses.on_others(member, proposal, ring)
        known = [row for row in rows.values() if row.token != proposal.token]
        seen = self._witnesses.seen.get((lane.sequence, database.offset))
        if seen is not None:
            known.append(seen)
        absent = self._ring.absent_for(member, rows)
        verified = not absent or any(epoch_of(row.token) == epoch and is_verified(row.token) for row in known)
        if self._refuse and not (rows and verified):
            raise TicketDatabaseBusy("may not draw while no other database can be asked for its marks")
        position = await database.position(table)
        if position.created != table.created:
            lane.listed = await self._table(lane)
            raise SequenceUnavailable("had its table made anew meanwhile")
        issued = max([lane.guard.highest, *(row.issued for row in known)])
        lane.table = table
        proposal = replace(proposal, token=_token(epoch, verified=verified))
        if self._may_have_gone_back(lane, epoch, known, position, issued):
            known_mark = max([issued, position.largest, *(row.mark for row in known)])
            await self._advance(lane, proposal, rows, known_mark, ring)
        elif lane.guard.next_after(position.next_id - 1) > lane.guard.last_allowed:
            lane.guard.advance(position.next_id - 1)
            raise ColumnExhausted("stands at the end of its column")
        else:
            own = [row for row in rows.values() if epoch_of(row.token) == epoch]
            own = [row for row in own if is_verified(row.token) or not verified]
            best = max(own, key=lambda row: (row.mark, row.token), default=proposal)
            for witness, row in rows.items():
                if row.token != best.token:
                    superseded = replace(best, mark=max(best.mark, row.mark), issued=issued)
                    await self._witnesses.supersede(witness, row, superseded, ring)
            lane.token, lane.mark, lane.reserve_at = best.token, 0, 0
            lane.guard.advance(max(issued, position.next_id - 1))
        if member.incarnation != incarnation:
            raise TicketDatabaseUnavailable("was restarted or replaced")
        if self._ring.number != ring:
            raise RingChanged
        self._add_unverified(lane, rows, "" if verified else absent)
        lane.ring = ring
        lane.must_advance = False
        lane.read_at = read_at

    def _add_unverified(self, lane: Lane, asked: Container[Member], absent: str) -> None:
        """Remember whom a lane that opens could not ask, for `reopen_unverified`; empty where it has asked them all.

        Raises TicketDatabaseBusy where another database has come up meanwhile: the lanes that ask it were chosen then.
        """
        if any(other not in asked for other in self._ring.witnesses(lane.member)):
            raise TicketDatabaseBusy("was opened while another database came up, which may know more")
        lane.unverified = absent
        (self._unverified.add if absent else self._unverified.discard)(lane)

    async def _table(self, lane: Lane) -> Table:
        table = (await lane.member.database.tables([lane.sequence])).get(lane.sequence)
        if table is None:
            raise SequenceMissing("has no table for it")
        return table

    def _may_have_gone_back(self, lane: Lane, epoch: str, known: list[Mark], position: Position, issued: int) -> bool:
        return (
            (lane.must_advance and bool(issued or position.largest or any(row.mark for row in known)))
            or any(epoch_of(row.token) != epoch and row.mark >= position.next_id for row in known)
            or position.next_id <= max(issued, position.largest)
            or (position.largest == 0 and any(row.mark > 0 for row in known))
        )

    async def _advance(self, lane: Lane, proposal: Mark, rows: dict[Member, Mark], known: int, ring: int) -> None:
        database, table = lane.member.database, lane.table
        assert table is not None
        for _ in range(SUPERSEDE_ATTEMPTS):
            above = min(max([known, *(row.mark for row in rows.values())]), lane.guard.ceiling)
            if above:
                await database.advance(table, above)
            if lane.guard.next_after(above) > lane.guard.last_allowed:
                raise ColumnExhausted("may have issued its last id")
            drawn = await database.draw(table, 1, 0)
            lane.guard.check(drawn, above)
            mark = min(drawn.last + self._step(lane, drawn.last), lane.guard.ceiling)
            new = replace(proposal, mark=mark, issued=drawn.last, token=f"{proposal.token}{secrets.token_hex(2)}")
            try:
                for witness, row in rows.items():
                    await self._witnesses.supersede(witness, row, new, ring)
            except MarkRefused:
                rows = await self._witnesses.on_others(lane.member, proposal, ring)
                continue
            lane.guard.advance(drawn.last)
            lane.token = new.token
            lane.mark = lane.reserve_at = 0  # the next draw reserves, which proves the token on every database
            event(log, logging.WARNING, "advanced", sequence=lane.sequence, database=lane.member.name, above=above)
            return
        raise TicketDatabaseBusy("was reserved by others again and again while it was moved up")

    # --- reserving -------------------------------------------------------------------------------------------------

    async def reserve(self, lane: Lane, last: int, *, protected: bool) -> None:
        """Commit a mark above `last` on every other database that is up, before tickets up to it are handed out.

        `protected`: whether any database kept marks when the draw was sent. Raises MarkRefused where the ledger holds
        another incarnation, RingChanged, TicketDatabaseBusy: what was drawn has to be dropped.
        """
        token = lane.token
        mark = min(last + self._step(lane, last), max(lane.guard.ceiling, last))
        database = lane.member.database
        proposed = Mark(lane.sequence, database.offset, database.increment, mark, last, token)
        rows = await self._witnesses.on_others(lane.member, proposed, lane.ring)
        for row in rows.values():
            if row.token != token or row.mark < last:
                raise MarkRefused("the ledger holds another incarnation of it")
        if not rows:
            if protected or self._refuse:
                raise TicketDatabaseBusy("lost the database that kept its marks while it drew")
            await database.check_ring(lane.ring)
        elif lane.token == token:
            lane.mark, lane.reserve_at = mark, mark - (mark - last) // 2

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

    def _step(self, lane: Lane, last: int) -> int:
        """How far ahead of `last` the next mark is, in ids: more while steps go by quickly, less near the ceiling."""
        now = self._clock()
        increment = lane.member.database.increment
        span = now - lane.stepped_at
        tickets = lane.step or SMALLEST_STEP
        if lane.stepped_at and span < QUICK_SECONDS:
            tickets = min(tickets * 2, LARGEST_STEP)
        elif span > SLOW_SECONDS:
            tickets = max(tickets // 2, SMALLEST_STEP)
        lane.step, lane.stepped_at = tickets, now
        left = max(lane.guard.ceiling - last, 0)
        return max(increment, min(tickets * increment, left // 16))

    # --- a database comes up ---------------------------------------------------------------------------------------

    async def admit(self, member: Member, others: Iterable[Member]) -> None:
        """Bring `member`'s ledger up to date, before it counts as up. Raises TicketDatabaseError if `member` fails.

        `others`: those that are up or about to be; one that fails here is marked down.
        """
        known = {(m.sequence, m.offset): m for m in await self._marks_of(member)}
        self._kept.pop(member, None)
        best = dict(known)
        for other in others:
            try:
                marks = await self._marks_of(other)
            except TicketDatabaseError as error:
                self._witnesses.failed(other, error)
                continue
            take_larger(best, (mark for mark in marks if mark.offset != member.database.offset))
        changed = {key: mark for key, mark in best.items() if known.get(key) != mark}
        await self._bring(member, known, changed)

    async def read_only(self, member: Member) -> None:
        """Remember the marks of a database that answers, though it is not in the ring. Raises TicketDatabaseError."""
        await self._marks_of(member)

    async def _marks_of(self, witness: Member) -> list[Mark]:
        """Every mark that it keeps, and remembered at once: whatever fails after this, what has been read holds."""
        marks = await witness.database.marks()
        for mark in marks:
            self._witnesses.note(mark)
        return marks

    async def account_for(
        self,
        witness: Member,
        other: Member,
        found: Mapping[str, tuple[int, str]],
        lanes: Mapping[tuple[str, int], Lane],
    ) -> None:
        """Have `witness` keep at least the live counters of `other`, by sequence: the next id, and when it was made.

        For sequences that nobody has drawn from since `witness` came up. A row of another epoch keeps its token:
        whether `other` has gone back is for the lane to find out. Raises TicketDatabaseError; MarkRefused where another
        server was faster, and it has to be done again.
        """
        if witness not in self._kept:
            await self.refresh(witness, lanes)
        kept = self._kept.get(witness, {})
        database = other.database
        raised = []
        for sequence, (next_id, created) in found.items():
            row = kept.get((sequence, database.offset))
            last = next_id - 1
            if row is None:
                token = _token(f"{other.incarnation}.{created}", verified=False)
                raised.append(Mark(sequence, database.offset, database.increment, last, last, token))
            elif row.mark < last:
                raised.append(replace(row, mark=last))
        if raised:
            rows = await witness.database.reserve(raised, self._ring.number)
            kept.update(rows)
            if any(rows[mark.sequence, mark.offset].mark < mark.mark for mark in raised):
                raise MarkRefused("had a mark changed by another server meanwhile")

    async def _bring(
        self, member: Member, known: Mapping[tuple[str, int], Mark], changed: Mapping[tuple[str, int], Mark]
    ) -> None:
        ring = self._ring.number
        raised = [m for key, m in changed.items() if key not in known or known[key].token == m.token]
        raised = raised or [*known.values()][:1]  # as it is: that marks can be written has to be seen, not assumed
        if raised:
            await member.database.reserve(raised, ring)
        superseded = [(known[key], m) for key, m in changed.items() if key in known and known[key].token != m.token]
        if superseded:
            await member.database.supersede_all(superseded, ring)

    def forget(self) -> None:
        """Another ring: nothing that was read of the one before counts."""
        self._kept.clear()
        self._read.clear()
        self._unverified.clear()
        self._witnesses.forget()

    # --- with every probe ------------------------------------------------------------------------------------------

    async def refresh(self, witness: Member, lanes: Mapping[tuple[str, int], Lane]) -> None:
        """Read the floors that `witness` keeps, and tell it what this server knows issued.

        Raises TicketDatabaseError.
        """
        read_at, ring = self._clock(), self._ring.number
        all_at, last_at = self._read.get(witness, (-EVERYTHING_SECONDS, 0.0))
        everything = read_at - all_at >= EVERYTHING_SECONDS or witness not in self._kept
        within = None if everything else read_at - last_at + OVERLAP_SECONDS
        rows = {(m.sequence, m.offset): m for m in await witness.database.marks(within)}
        if self._ring.number != ring or (not everything and witness not in self._kept):
            return  # the ring changed, or it was taken in anew meanwhile; the next probe reads everything
        kept = self._kept[witness] = rows if everything else self._kept[witness] | rows
        self._read[witness] = (read_at if everything else all_at, read_at)
        for changed in rows.values():
            self._witnesses.note(changed)
        stale: list[Mark] = []
        for key, lane in lanes.items():
            if lane.member is witness or not lane.token:
                continue
            row = kept.get(key)
            if lane.state is LaneState.OPEN:
                if key in rows and rows[key].token != lane.token:
                    lane.close()
                else:
                    lane.read_at = max(lane.read_at, read_at)
            if row is not None:
                lane.guard.advance(row.issued)
            highest = lane.guard.highest
            if (lane.mark or lane.issued) and (row is None or highest > row.issued):
                # under the row's own token: what has been issued is to be known, whoever may draw from now on
                token = lane.token if row is None else row.token
                mark = max(lane.mark, highest) if token == lane.token else highest
                stale.append(Mark(*key, lane.member.database.increment, mark, highest, token))
        if stale:
            kept.update(await witness.database.reserve(stale, self._ring.number))

    # --- moving a sequence up --------------------------------------------------------------------------------------

    async def bump(self, lane: Lane, above: int) -> None:
        """Make every later ticket of the lane's database larger than `above`, and keep that on the others.

        One at its end gives no further ticket, and is not moved; the others keep the number all the same, for when a
        copy from before comes back. Raises TicketDatabaseError.
        """
        at_end = False
        if lane.state is not LaneState.OPEN:
            try:
                await lane.open()
            except ColumnExhausted:
                at_end = True
        database, table = lane.member.database, lane.table
        assert table is not None
        ring = self._ring.number if at_end else lane.ring
        token = lane.token or _token(f"{lane.member.incarnation}.{table.created}", verified=False)
        proposed = Mark(lane.sequence, database.offset, database.increment, above, above, token)
        rows = await self._witnesses.on_others(lane.member, proposed, ring)
        if at_end:  # nothing is drawn under the token: whose it is does not matter
            for other in {row.token for row in rows.values()} - {token}:
                rows |= await self._witnesses.on_others(lane.member, replace(proposed, token=other), ring)
        elif any(row.token != token for row in rows.values()):
            raise MarkRefused("the ledger holds another incarnation of it")
        if any(row.issued < above for row in rows.values()):
            raise MarkRefused("the ledger did not take the number")
        if not at_end:
            await database.advance(table, above)
        lane.guard.advance(above)

    async def close(self) -> None:
        """Let reservations that are under way finish."""
        await self._tasks.wait()
        await self._witnesses.close()
