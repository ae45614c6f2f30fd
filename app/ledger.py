"""The high-water ledger: what makes *never twice* hold when a database comes back older than it was.

Every database keeps marks about the others. A mark m(d, s), on a database e that is not d, says: no ticket of d in
sequence s above m has been issued. It is reserved ahead in steps, so that it costs a write every few thousand tickets,
and is committed on every other database that is up before a ticket above it is handed out. Its row also says what is
known *issued*, and carries a token `<incarnation of d>:<nonce>`.

A lane (d, s) opens before it draws under an incarnation of d, and again whenever it has lost touch. It reads the rows
about (d, s) from every database that is up, adds what it has ever read from one that is not, and then reads d's
position, in that order: whoever draws in between only moves d up. d has not gone back if

- every row of another life (another incarnation of d, or its table made anew) has a mark below where d stands, and
- d stands above all that is known issued, and above the largest id in its table, and
- its table is not empty while a row has a mark.

Then the lane adopts the token there is, and nothing is skipped: a reconnect or a ticket server's restart costs no id.
Otherwise d may have gone back (restored, replaced, restarted with who knows which files, truncated): it is moved above
the largest mark, one draw is checked and dropped, and the token is renewed on every row, on condition that no row has
changed since it was read. If one has, somebody reserved more meanwhile, and all of it is done again.

A reservation names the token it was made under, and is refused where the row has another one. So a server that drew
from d before it went back, and is only now about to reserve and hand out, is refused, and drops what it drew; a server
that reserved before the renewal made the renewal start again. That is the fence between two servers of which one is
late, or old. A server that has not read the marks for a while (it was frozen) opens its lanes again first.

What holds, and what does not:

- Two servers, one of them late: above. The token is renewed only after d has been moved, committed, so a server that
  dies in between leaves the old token, and the next one does it again.
- Marks lost with their database (e is replaced by an empty one): before e counts as up it receives what the other
  databases keep, the larger mark winning, and at least the live counters; those that are up receive what they lack
  about e. From then on every lane reserves anew, on e too.
- A ledger that is itself restored: its rows are old, and the same copying lifts them. A row with an old token refuses
  the next reservation, and the lane opens again.
- Both databases restored to an earlier state: outside the guarantee. Nothing is left that knows better.
- A database restored while every server was down: its start is another one, so its life differs from the rows on the
  others, and it is moved above their marks.
- A sequence that nobody asks for after its database was restored: its lane is opened all the same, with the first
  probe, and one at its end is moved to the end again. So the marks may be lost afterwards.
- A table remade, or loaded from a dump, under a running server: its life differs too. A table truncated keeps its life;
  it is seen by standing below what is known issued, which is written with every probe, so what a truncation under
  running servers can hide is what was issued since the last one.
- A sequence bumped: mark and issued are lifted to the number on the other databases before the bump is answered, so a
  database restored from before the bump is moved above it.
- A step that straddles the ceiling ends there; steps shrink as the ceiling comes near, so that a move above the mark
  close to the end skips no more than a sixteenth of what is left.
- No other database up, or none that can keep marks: nothing can be reserved. TICKETS_UNVERIFIED decides whether d
  draws; /healthz warns. When another one comes up, every lane reserves on it at its next draw, and its older row, with
  another token, closes the lane, which opens again with all the above.
"""

import asyncio
import logging
import secrets
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import replace

from app.databases.protocol import Mark, Position, Table
from app.errors import (
    ColumnExhausted,
    MarkRefused,
    SequenceMissing,
    SequenceUnavailable,
    TicketDatabaseBusy,
    TicketDatabaseError,
    TicketDatabaseUnavailable,
)
from app.keepers import Keepers, take_larger
from app.lane import Lane, LaneState
from app.log import event
from app.ring import Member, Ring

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
RENEWALS = 10
"""How often a move up begins again because somebody reserved meanwhile."""


def life_of(token: str) -> str:
    """The life (incarnation of the database, and of its table) that a token was made under."""
    return token.rpartition(":")[0]


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
        self._keepers = Keepers(ring, patience)
        self._forgets_after = forgets_after
        self._clock = clock
        self._tasks: set[asyncio.Task[None]] = set()
        self._reserving: set[Lane] = set()
        self._kept: dict[Member, dict[tuple[str, int], Mark]] = {}
        self._read: dict[Member, tuple[float, float]] = {}

    def may_draw(self, member: Member) -> bool:
        """Whether the settings let this database draw now."""
        return not self._refuse or bool(self._ring.keepers(member))

    def check(self, lane: Lane) -> None:
        """Before a draw: close a lane that has lost touch; raise TicketDatabaseBusy where it may not draw."""
        if not self.may_draw(lane.member):
            raise TicketDatabaseBusy("may not draw while no other database can be asked for its marks")
        if self._ring.keepers(lane.member) and self._clock() > lane.read_at + self._forgets_after:
            lane.close()

    def is_of_another_life(self, lane: Lane) -> bool:
        """Whether what is known of the sequence was issued by another life of the lane's database."""
        seen = self._keepers.seen.get((lane.sequence, lane.member.database.offset))
        return seen is not None and not seen.token.startswith(f"{lane.member.incarnation}.")

    def known_mark(self, sequence: str, member: Member) -> int:
        """The largest mark ever read about the sequence on this database; 0 if there is none."""
        seen = self._keepers.seen.get((sequence, member.database.offset))
        return 0 if seen is None else seen.mark

    # --- opening a lane --------------------------------------------------------------------------------------------

    async def open(self, lane: Lane) -> None:
        """Make sure that what the lane draws next was never issued. Raises TicketDatabaseError."""
        member, database = lane.member, lane.member.database
        incarnation, read_at = member.incarnation, self._clock()
        table = lane.listed or await self._table(lane)
        lane.fence.set_ceiling(table.ceiling, repeats_ceiling=table.repeats_ceiling)
        life = f"{incarnation}.{table.created}"
        proposal = Mark(lane.sequence, database.offset, database.increment, 0, 0, f"{life}:{secrets.token_hex(4)}")
        rows = await self._keepers.on_others(member, proposal)
        if not rows and self._refuse:
            raise TicketDatabaseBusy("may not draw while no other database can be asked for its marks")
        position = await database.position(table)
        if position.created != table.created:
            lane.listed = await self._table(lane)
            raise SequenceUnavailable("had its table made anew meanwhile")
        known = [row for row in rows.values() if row.token != proposal.token]
        seen = self._keepers.seen.get((lane.sequence, database.offset))
        if seen is not None:
            known.append(seen)
        issued = max([lane.fence.highest, *(row.issued for row in known)])
        lane.table = table
        if self._may_have_gone_back(lane, life, known, position, issued):
            await self._move_up(lane, proposal, rows, max([issued, position.largest, *(row.mark for row in known)]))
        elif lane.fence.next_after(position.next_id - 1) > lane.fence.last_allowed:
            lane.fence.lift(position.next_id - 1)
            raise ColumnExhausted("stands at the end of its column")
        else:
            own = [row for row in rows.values() if life_of(row.token) == life]
            best = max(own, key=lambda row: (row.mark, row.token), default=proposal)
            for holder, row in rows.items():
                if row.token != best.token:
                    await self._keepers.renew(holder, row, replace(best, mark=max(best.mark, row.mark), issued=issued))
            lane.token, lane.mark, lane.reserve_at = best.token, 0, 0
            lane.fence.lift(max(issued, position.next_id - 1))
        if member.incarnation != incarnation:
            raise TicketDatabaseUnavailable("was restarted or replaced")
        lane.must_rise = False
        lane.read_at = read_at

    async def _table(self, lane: Lane) -> Table:
        table = (await lane.member.database.tables([lane.sequence])).get(lane.sequence)
        if table is None:
            raise SequenceMissing("has no table for it")
        return table

    def _may_have_gone_back(self, lane: Lane, life: str, known: list[Mark], position: Position, issued: int) -> bool:
        return (
            (lane.must_rise and bool(known or issued or position.largest))
            or any(life_of(row.token) != life and row.mark >= position.next_id for row in known)
            or position.next_id <= max(issued, position.largest)
            or (position.largest == 0 and any(row.mark > 0 for row in known))
        )

    async def _move_up(self, lane: Lane, proposal: Mark, rows: dict[Member, Mark], known: int) -> None:
        database, table = lane.member.database, lane.table
        assert table is not None
        for _ in range(RENEWALS):
            above = min(max([known, *(row.mark for row in rows.values())]), lane.fence.ceiling)
            if above:
                await database.raise_above(table, above)
            if lane.fence.next_after(above) > lane.fence.last_allowed:
                raise ColumnExhausted("may have issued its last id")
            drawn = await database.draw(table, 1, 0)
            lane.fence.check(drawn, above)
            mark = min(drawn.last + self._step(lane, drawn.last), lane.fence.ceiling)
            new = replace(proposal, mark=mark, issued=drawn.last, token=f"{proposal.token}{secrets.token_hex(2)}")
            try:
                for holder, row in rows.items():
                    await self._keepers.renew(holder, row, new)
            except MarkRefused:
                rows = await self._keepers.on_others(lane.member, proposal)
                continue
            lane.fence.lift(drawn.last)
            lane.token = new.token
            lane.mark = lane.reserve_at = 0  # the next draw reserves, which proves the token on every database
            event(log, logging.WARNING, "moved up", sequence=lane.sequence, database=lane.member.name, above=above)
            return
        raise TicketDatabaseBusy("was reserved by others again and again while it was moved up")

    # --- reserving -------------------------------------------------------------------------------------------------

    async def reserve(self, lane: Lane, last: int) -> None:
        """Commit a mark above `last` on every other database that is up, before tickets up to it are handed out.

        Raises MarkRefused where the ledger holds another incarnation: what was drawn has to be dropped.
        """
        token = lane.token
        mark = min(last + self._step(lane, last), max(lane.fence.ceiling, last))
        database = lane.member.database
        wanted = Mark(lane.sequence, database.offset, database.increment, mark, last, token)
        rows: dict[Member, Mark] = {}
        while set(self._ring.keepers(lane.member)) - rows.keys():  # one may have come up meanwhile
            rows = await self._keepers.on_others(lane.member, wanted)
        for row in rows.values():
            if row.token != token or row.mark < last:
                raise MarkRefused("the ledger holds another incarnation of it")
        if not rows and self._refuse:
            raise TicketDatabaseBusy("may not draw while no other database can be asked for its marks")
        if lane.token == token:
            lane.mark, lane.reserve_at = mark, mark - (mark - last) // 2

    def reserve_soon(self, lane: Lane) -> None:
        """Reserve the next step in the background, so that no request waits for it."""
        if lane in self._reserving:
            return
        self._reserving.add(lane)
        self._spawn(self._reserve_ahead(lane))

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _reserve_ahead(self, lane: Lane) -> None:
        try:
            await self.reserve(lane, lane.fence.highest)
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
        left = max(lane.fence.ceiling - last, 0)
        return max(increment, min(tickets * increment, left // 16))

    # --- a database comes up ---------------------------------------------------------------------------------------

    async def admit(self, member: Member, others: Iterable[Member]) -> None:
        """Bring `member`'s ledger up to date, before it counts as up. Raises TicketDatabaseError if `member` fails.

        `others`: those that are up or about to be; one that fails here is marked down.
        """
        known = {(m.sequence, m.offset): m for m in await self._marks_of(member)}
        self._kept.pop(member, None)
        best = dict(known)
        counters: dict[Member, dict[str, tuple[int, str]]] = {}
        for other in others:
            try:
                marks = await self._marks_of(other)
                counters[other] = await other.database.counters(await other.database.names())
            except TicketDatabaseError as error:
                self._keepers.failed(other, error)
                continue
            for mark in marks:
                if mark.offset != member.database.offset and mark.increment == member.database.increment:
                    take_larger(best, mark)
        for other, found in counters.items():
            for sequence, (next_id, created) in found.items():
                self._account_for(best, other, sequence, next_id - 1, created)
        changed = {key: mark for key, mark in best.items() if known.get(key) != mark}
        await self._bring(member, known, changed)

    async def read_only(self, member: Member) -> None:
        """Remember the marks of a database that answers, though it is not in the ring. Raises TicketDatabaseError."""
        await self._marks_of(member)

    async def _marks_of(self, holder: Member) -> list[Mark]:
        """Every mark that it keeps, and remembered at once: whatever fails after this, what has been read holds."""
        marks = await holder.database.marks()
        for mark in marks:
            self._keepers.note(mark)
        return marks

    def _account_for(
        self, best: dict[tuple[str, int], Mark], other: Member, sequence: str, last: int, created: str
    ) -> None:
        """Lift the mark about `other` to where it stands now.

        A row of another life keeps its token: whether `other` has gone back is for the lane to find out.
        """
        key = (sequence, other.database.offset)
        row = best.get(key)
        if row is None:
            token = f"{other.incarnation}.{created}:{secrets.token_hex(4)}"
            best[key] = Mark(sequence, other.database.offset, other.database.increment, last, last, token)
        elif row.mark < last:
            best[key] = replace(row, mark=last)

    async def _bring(
        self, member: Member, known: Mapping[tuple[str, int], Mark], changed: Mapping[tuple[str, int], Mark]
    ) -> None:
        lifted = [m for key, m in changed.items() if key not in known or known[key].token == m.token]
        lifted = lifted or [*known.values()][:1]  # as it is: that marks can be written has to be seen, not assumed
        if lifted:
            await member.database.reserve(lifted)
        for key, mark in changed.items():
            old = known.get(key)
            if old is not None and old.token != mark.token:
                await member.database.renew(old, mark)

    # --- with every probe ------------------------------------------------------------------------------------------

    async def refresh(self, holder: Member, lanes: Mapping[tuple[str, int], Lane]) -> None:
        """Read the floors that `holder` keeps, and tell it what this server knows issued.

        Raises TicketDatabaseError.
        """
        read_at = self._clock()
        all_at, last_at = self._read.get(holder, (-EVERYTHING_SECONDS, 0.0))
        everything = read_at - all_at >= EVERYTHING_SECONDS or holder not in self._kept
        within = None if everything else read_at - last_at + OVERLAP_SECONDS
        rows = {(m.sequence, m.offset): m for m in await holder.database.marks(within)}
        if not everything and holder not in self._kept:
            return  # it was taken in anew meanwhile; the next probe reads everything
        kept = self._kept[holder] = rows if everything else self._kept[holder] | rows
        self._read[holder] = (read_at if everything else all_at, read_at)
        for changed in rows.values():
            self._keepers.note(changed)
        stale: list[Mark] = []
        for key, lane in lanes.items():
            if lane.member is holder or not lane.token:
                continue
            row = kept.get(key)
            if lane.state is LaneState.OPEN:
                if key in rows and rows[key].token != lane.token:
                    lane.close()
                else:
                    lane.read_at = max(lane.read_at, read_at)
            if row is not None:
                lane.fence.lift(row.issued)
            highest = lane.fence.highest
            if (lane.mark or lane.issued) and (row is None or highest > row.issued):
                # under the row's own token: what has been issued is to be known, whoever may draw from now on
                token = lane.token if row is None else row.token
                mark = max(lane.mark, highest) if token == lane.token else highest
                stale.append(Mark(*key, lane.member.database.increment, mark, highest, token))
        if stale:
            kept.update(await holder.database.reserve(stale))

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
        token = lane.token or f"{lane.member.incarnation}.{table.created}:{secrets.token_hex(4)}"
        wanted = Mark(lane.sequence, database.offset, database.increment, above, above, token)
        rows = await self._keepers.on_others(lane.member, wanted)
        if at_end:  # nothing is drawn under the token: whose it is does not matter
            for other in {row.token for row in rows.values()} - {token}:
                rows |= await self._keepers.on_others(lane.member, replace(wanted, token=other))
        elif any(row.token != token for row in rows.values()):
            raise MarkRefused("the ledger holds another incarnation of it")
        if any(row.issued < above for row in rows.values()):
            raise MarkRefused("the ledger did not take the number")
        if not at_end:
            await database.raise_above(table, above)
        lane.fence.lift(above)

    async def close(self) -> None:
        """Let reservations that are under way finish."""
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._keepers.close()
