"""The exchange of marks outside of draws: before a database comes up, and with every probe."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from app.common.errors import MarkRefused, TicketDatabaseError
from app.common.sequences import is_bump_name
from app.databases.protocol import Mark, Position
from app.tickets.lanes.lane import Lane
from app.tickets.lanes.state import LaneState
from app.tickets.marks.token import epoch_of, is_verified, new_token
from app.tickets.marks.witnesses import Witnesses, take_larger
from app.tickets.ring.failures import Asked
from app.tickets.ring.ring import Member, Ring

EVERYTHING_SECONDS = 30.0
"""How often the server reads all marks of a database. In between it reads those that have changed."""
OVERLAP_SECONDS = 3.0
"""How far a reading of changed marks reaches back before the last reading. A row is dated when it is written and
can be read once it is committed."""

Key = tuple[str, int]
"""A lane: its sequence and its database's offset."""


class MarkExchange:
    """Reads the marks that each database keeps, and writes the marks that it lacks.

    `on_bump`: called for every record of a bump that is read, with its name and the number that it bumped above.
    """

    def __init__(
        self, ring: Ring, witnesses: Witnesses, clock: Callable[[], float], on_bump: Callable[[str, int], None]
    ) -> None:
        self._ring = ring
        self._on_bump = on_bump
        self._witnesses = witnesses
        self._clock = clock
        self._kept: dict[Member, dict[Key, Mark]] = {}
        self._read: dict[Member, tuple[float, float]] = {}
        """When the server read all marks of a database, and when it read any."""
        self._clocks: dict[Member, tuple[float, float]] = {}
        """When its marks were read last, by the database's clock and by this server's."""

    def forget(self) -> None:
        """Forget what was read: the ring is another one now."""
        self._kept.clear()
        self._read.clear()

    async def read(self, witness: Member) -> list[Mark]:
        """Read and remember every mark that a database keeps. Raises TicketDatabaseError."""
        marks = await witness.database.marks()
        for mark in marks:
            self._note(mark)
        return marks

    def _note(self, mark: Mark) -> None:
        self._witnesses.note(mark)
        if is_bump_name(mark.sequence):
            self._on_bump(mark.sequence, mark.mark)

    # --- a database comes up ---------------------------------------------------------------------------------------

    async def admit(self, member: Member, others: Iterable[Member]) -> None:
        """Write the marks that `member` lacks, before it counts as up. Raises TicketDatabaseError if `member` fails.

        `others`: the databases that are up or are coming up with it. If one of them fails, the ring takes note.
        """
        found = {(m.sequence, m.offset): m for m in await self.read(member)}
        self._kept.pop(member, None)
        best = dict(found)
        for other in others:
            try:
                marks = await self.read(other)
            except TicketDatabaseError as error:
                self._ring.failed(other, error, Asked.MARKS)
                continue
            take_larger(best, (mark for mark in marks if mark.offset != member.database.offset))
        changed = {
            key: mark for key, mark in best.items() if found.get(key) != mark and not _hides(mark, found.get(key))
        }
        await self._bring(member, found, changed)

    async def _bring(self, member: Member, found: Mapping[Key, Mark], changed: Mapping[Key, Mark]) -> None:
        """Write the rows that changed: a larger number under the same token, or another token."""
        ring = self._ring.number
        raised = [m for key, m in changed.items() if key not in found or found[key].token == m.token]
        raised = raised or [*found.values()][:1]  # unchanged, as a test that marks can be written
        if raised:
            await member.database.keep(raised, ring)
        replacements = [(found[key], m) for key, m in changed.items() if key in found and found[key].token != m.token]
        if replacements:
            await member.database.supersede_all(replacements, ring)

    async def complete(
        self, witness: Member, member: Member, positions: Mapping[str, Position], lanes: Mapping[Key, Lane]
    ) -> None:
        """Have `witness` keep marks up to where `member` stands, for sequences that no server draws from.

        `positions`: by sequence. A row of another epoch keeps its token, so that the lane still finds out whether
        `member` has gone back. Raises TicketDatabaseError; MarkRefused if another server changed a row meanwhile, so
        that the caller has to try again.
        """
        if witness not in self._kept:
            await self.refresh(witness, lanes)
        kept = self._kept.get(witness, {})
        database = member.database
        raised = []
        for sequence, position in positions.items():
            row = kept.get((sequence, database.offset))
            last = position.next_id - 1
            if row is None:
                token = new_token(f"{member.incarnation}.{position.created}", verified=False)
                raised.append(Mark(sequence, database.offset, self._ring.increment, last, last, token))
            elif row.mark < last:
                raised.append(replace(row, mark=last))
        if raised:
            rows = await witness.database.keep(raised, self._ring.number)
            kept.update(rows)
            if any(rows[mark.sequence, mark.offset].mark < mark.mark for mark in raised):
                raise MarkRefused("had a mark changed by another server meanwhile")

    # --- with every probe ------------------------------------------------------------------------------------------

    async def refresh(
        self, witness: Member, lanes: Mapping[Key, Lane], on_read: Callable[[], None] = lambda: None
    ) -> None:
        """Read what `witness` keeps about these lanes, and write there what this server knows to be issued.

        `on_read`: called in between, unless the ring changed meanwhile. Raises TicketDatabaseError.
        """
        read_at, ring = self._clock(), self._ring.number
        rows = await self._read_changes(witness, read_at)
        if rows is None:
            return
        on_read()
        kept = self._kept[witness]
        unknown: list[Mark] = []
        for key, lane in lanes.items():
            if lane.member is witness or not lane.marks.token:
                continue
            self._compare(lane, rows.get(key), read_at)
            row = kept.get(key)
            if row is not None:
                lane.guard.advance(row.issued)
            if (lane.marks.mark or lane.issued) and (row is None or lane.guard.highest > row.issued):
                unknown.append(_issued_by(lane, row))
        if unknown:
            kept.update(await witness.database.keep(unknown, ring))

    async def _read_changes(self, witness: Member, read_at: float) -> dict[Key, Mark] | None:
        """The rows that may have changed since the last reading, or all rows; None if the ring changed meanwhile."""
        ring = self._ring.number
        all_at, last_at = self._read.get(witness, (-EVERYTHING_SECONDS, 0.0))
        clock = _clock_of(witness)
        was_set = clock is None or self._was_set(witness, clock)
        everything = read_at - all_at >= EVERYTHING_SECONDS or witness not in self._kept or was_set
        within = None if everything else read_at - last_at + OVERLAP_SECONDS
        rows = {(m.sequence, m.offset): m for m in await witness.database.marks(within, anybody=False)}
        if self._ring.number != ring or (not everything and witness not in self._kept):
            return None  # the ring changed, or the database came up again; the next probe reads everything
        self._kept[witness] = rows if everything else self._kept[witness] | rows
        self._read[witness] = (read_at if everything else all_at, read_at)
        if clock is not None:
            self._clocks[witness] = clock  # not before: if a reading fails, the next one has to see the change, too
        for row in rows.values():
            self._note(row)
        return rows

    def _was_set(self, witness: Member, now: tuple[float, float]) -> bool:
        """Whether the clock that dates the rows was set since the last reading, or this server's clock stood still, as
        that of a suspended machine does. `now`: by both clocks."""
        before = self._clocks.get(witness)
        return before is not None and abs((now[0] - before[0]) - (now[1] - before[1])) > OVERLAP_SECONDS / 3

    def _compare(self, lane: Lane, changed: Mark | None, read_at: float) -> None:
        """Close an open lane whose token was superseded. Otherwise note that its marks were read just now."""
        if lane.state is not LaneState.OPEN:
            return
        if changed is not None and changed.token != lane.marks.token:
            lane.close()
        else:
            lane.marks.read_at = max(lane.marks.read_at, read_at)


def _clock_of(witness: Member) -> tuple[float, float] | None:
    """The time of the last probe by the database's clock and by this server's; None before the first probe."""
    result = witness.probe_result
    return None if result is None else (result.clock.seconds, result.clock.until)


def _hides(mark: Mark, found: Mark | None) -> bool:
    """Whether the row `mark`, written over the row `found`, would hide that the sequence has to be advanced.

    A lane with an unverified token opened without the marks that this database keeps of the earlier epoch, so the
    position may lie below them. The older row shows that to a lane, which supersedes it once it has advanced.
    """
    return found is not None and not is_verified(mark.token) and epoch_of(found.token) != epoch_of(mark.token)


def _issued_by(lane: Lane, row: Mark | None) -> Mark:
    """A mark that says what the lane has issued. It keeps the row's token, so that the row takes the number."""
    highest = lane.guard.highest
    token = lane.marks.token if row is None else row.token
    mark = max(lane.marks.mark, highest) if token == lane.marks.token else highest
    return Mark(lane.sequence, lane.residue.offset, lane.residue.increment, mark, highest, token)
