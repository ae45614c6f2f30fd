"""What the databases keep for each other outside of any draw: before one comes up, and with every probe."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from app.common.errors import MarkRefused, TicketDatabaseError
from app.common.sequences import is_bump_name
from app.databases.protocol import Mark, Position
from app.tickets.lanes.lane import Lane
from app.tickets.lanes.state import LaneState
from app.tickets.marks.token import epoch_of, is_verified, new_token
from app.tickets.marks.witnesses import Witnesses, take_larger
from app.tickets.ring.ring import Member, Ring

EVERYTHING_SECONDS = 30.0
"""How often a whole ledger is read; in between, what has changed."""
OVERLAP_SECONDS = 3.0
"""How far what is read reaches back behind the last time: a row is seen when it is committed, not when it is dated."""

Key = tuple[str, int]
"""A lane: its sequence and its database's offset."""


class MarkExchange:
    """Reads what each database keeps, and tells it what it lacks. `on_bump` is told of every record of a bump that is
    read: its name, and the number that the sequence was bumped above."""

    def __init__(
        self, ring: Ring, witnesses: Witnesses, clock: Callable[[], float], on_bump: Callable[[str, int], None]
    ) -> None:
        self._ring = ring
        self._on_bump = on_bump
        self._witnesses = witnesses
        self._clock = clock
        self._kept: dict[Member, dict[Key, Mark]] = {}
        self._read: dict[Member, tuple[float, float]] = {}
        """When all of a database's marks were read, and when any were."""
        self._clocks: dict[Member, tuple[float, float]] = {}
        """What a database's clock said, and the time then by this server's, when its marks were read."""

    def forget(self) -> None:
        """Another ring: nothing that was read of the one before counts."""
        self._kept.clear()
        self._read.clear()

    async def read(self, witness: Member) -> list[Mark]:
        """Every mark that it keeps, and remembered at once: whatever fails after this, what has been read holds.

        Raises TicketDatabaseError.
        """
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
        """Bring `member`'s ledger up to date, before it counts as up. Raises TicketDatabaseError if `member` fails.

        `others`: those that are up or about to be; one that fails here is marked down.
        """
        found = {(m.sequence, m.offset): m for m in await self.read(member)}
        self._kept.pop(member, None)
        best = dict(found)
        for other in others:
            try:
                marks = await self.read(other)
            except TicketDatabaseError as error:
                self._witnesses.failed(other, error, self._ring.number)
                continue
            take_larger(best, (mark for mark in marks if mark.offset != member.database.offset))
        changed = {
            key: mark for key, mark in best.items() if found.get(key) != mark and not _hides(mark, found.get(key))
        }
        await self._bring(member, found, changed)

    async def _bring(self, member: Member, found: Mapping[Key, Mark], changed: Mapping[Key, Mark]) -> None:
        """Write the rows that changed: larger numbers under the same token, and other tokens."""
        ring = self._ring.number
        raised = [m for key, m in changed.items() if key not in found or found[key].token == m.token]
        raised = raised or [*found.values()][:1]  # as it is: that marks can be written has to be seen, not assumed
        if raised:
            await member.database.reserve(raised, ring)
        replacements = [(found[key], m) for key, m in changed.items() if key in found and found[key].token != m.token]
        if replacements:
            await member.database.supersede_all(replacements, ring)

    async def account_for(
        self, witness: Member, other: Member, positions: Mapping[str, Position], lanes: Mapping[Key, Lane]
    ) -> None:
        """Have `witness` keep at least what `other` has given, by sequence.

        For sequences that nobody has drawn from since `witness` came up. A row of another epoch keeps its token:
        whether `other` has gone back is for the lane to find out. Raises TicketDatabaseError; MarkRefused where another
        server was faster, and it has to be done again.
        """
        if witness not in self._kept:
            await self.refresh(witness, lanes)
        kept = self._kept.get(witness, {})
        database = other.database
        raised = []
        for sequence, position in positions.items():
            row = kept.get((sequence, database.offset))
            last = position.next_id - 1
            if row is None:
                token = new_token(f"{other.incarnation}.{position.created}", verified=False)
                raised.append(Mark(sequence, database.offset, database.increment, last, last, token))
            elif row.mark < last:
                raised.append(replace(row, mark=last))
        if raised:
            rows = await witness.database.reserve(raised, self._ring.number)
            kept.update(rows)
            if any(rows[mark.sequence, mark.offset].mark < mark.mark for mark in raised):
                raise MarkRefused("had a mark changed by another server meanwhile")

    # --- with every probe ------------------------------------------------------------------------------------------

    async def refresh(
        self, witness: Member, lanes: Mapping[Key, Lane], on_read: Callable[[], None] = lambda: None
    ) -> None:
        """Read what `witness` keeps about these lanes, and tell it what this server knows issued. `on_read` is called
        in between, unless what was read says nothing.

        Raises TicketDatabaseError.
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
            kept.update(await witness.database.reserve(unknown, ring))

    async def _read_changes(self, witness: Member, read_at: float) -> dict[Key, Mark] | None:
        """The rows that may have changed since the last time, or all; None where they say nothing about this ring."""
        ring = self._ring.number
        all_at, last_at = self._read.get(witness, (-EVERYTHING_SECONDS, 0.0))
        clock = _clock_of(witness)
        was_set = clock is None or self._was_set(witness, clock)
        everything = read_at - all_at >= EVERYTHING_SECONDS or witness not in self._kept or was_set
        within = None if everything else read_at - last_at + OVERLAP_SECONDS
        rows = {(m.sequence, m.offset): m for m in await witness.database.marks(within, anybody=False)}
        if self._ring.number != ring or (not everything and witness not in self._kept):
            return None  # the ring changed, or it was taken in anew meanwhile; the next probe reads everything
        self._kept[witness] = rows if everything else self._kept[witness] | rows
        self._read[witness] = (read_at if everything else all_at, read_at)
        if clock is not None:
            self._clocks[witness] = clock  # and not before: where a reading fails, the next one is to see it, too
        for row in rows.values():
            self._note(row)
        return rows

    def _was_set(self, witness: Member, now: tuple[float, float]) -> bool:
        """Whether its clock, which rows are dated by, has been set since its marks were read, or this server's has
        stood still, as a suspended machine's does."""
        before = self._clocks.get(witness)
        return before is not None and abs((now[0] - before[0]) - (now[1] - before[1])) > OVERLAP_SECONDS / 3

    def _compare(self, lane: Lane, changed: Mark | None, read_at: float) -> None:
        """Close an open lane whose token was superseded; else what it rests on is as new as this reading."""
        if lane.state is not LaneState.OPEN:
            return
        if changed is not None and changed.token != lane.marks.token:
            lane.close()
        else:
            lane.marks.read_at = max(lane.marks.read_at, read_at)


def _clock_of(witness: Member) -> tuple[float, float] | None:
    """What its clock said with the last probe, and this server's then; None where it has not been probed."""
    result = witness.probe_result
    return None if result is None else (result.clock.seconds, result.clock.until)


def _hides(mark: Mark, found: Mark | None) -> bool:
    """Whether this row, in the place of the one that was found, would hide that the lane has to be advanced.

    Who draws under an unverified token began without what this database knows of the epoch before, so its position may
    lie below; a lane sees that by the older row, and replaces it when it has been advanced.
    """
    return found is not None and not is_verified(mark.token) and epoch_of(found.token) != epoch_of(mark.token)


def _issued_by(lane: Lane, row: Mark | None) -> Mark:
    """What the lane has issued, under the row's own token: it is to be known, whoever may draw from now on."""
    highest = lane.guard.highest
    token = lane.marks.token if row is None else row.token
    mark = max(lane.marks.mark, highest) if token == lane.marks.token else highest
    database = lane.member.database
    return Mark(lane.sequence, database.offset, database.increment, mark, highest, token)
