"""What the ledger writes to the other databases, and what it has read there.

The lanes that reserve on one database at the same moment share a write. A database that does not answer is down; one
that answers, but cannot keep marks, goes on drawing, and the others are protected by the rest of the ring.
"""

import asyncio
from collections.abc import Iterable

from app.common.errors import (
    MarkRefused,
    RingChanged,
    TicketDatabaseBusy,
    TicketDatabaseError,
    TicketDatabaseHung,
    TicketDatabaseUnavailable,
)
from app.common.patience import patience
from app.common.tasks import Tasks
from app.databases.protocol import Mark
from app.tickets.ring.ring import Member, Ring


class WitnessLost(TicketDatabaseBusy):
    """A database that kept the marks did not take this one; what was drawn under it is dropped."""


class Witnesses:
    """The databases that keep marks for the others. `seconds`: how long a lane waits for one of them."""

    def __init__(self, ring: Ring, seconds: float) -> None:
        self._ring = ring
        self._seconds = seconds
        self._waiting: dict[tuple[Member, int], list[tuple[Mark, asyncio.Future[Mark]]]] = {}
        self._writing: set[tuple[Member, int]] = set()
        self._tasks = Tasks()
        self.seen: dict[tuple[str, int], Mark] = {}
        """The largest mark ever read of each sequence and offset, for when its database cannot be asked."""

    async def on_others(self, member: Member, mark: Mark, ring: int) -> dict[Member, Mark]:
        """Reserve on every other database that keeps marks, under this ring number; the row of each as it is then.

        All of them or none: raises WitnessLost if one of them fails, whatever the reason, and RingChanged. Empty where
        there is none to ask, and only there.
        """
        rows: dict[Member, Mark] = {}
        while others := [other for other in self._ring.witnesses(member) if other not in rows]:  # one may come up
            answers = await asyncio.gather(*(self._reserve_on(other, mark, ring) for other in others))
            for other, row in zip(others, answers, strict=True):
                if row is None:
                    raise WitnessLost(f"lost {other.name}, which kept its high-water marks, while it drew")
                rows[other] = row
            if ring != self._ring.number:  # what was answered in the ring before is not to be remembered in this one
                raise RingChanged
            for row in rows.values():
                self.note(row)
        return rows

    async def _reserve_on(self, witness: Member, mark: Mark, ring: int) -> Mark | None:
        """Reserve with the next write to this database, which the lanes that wait for one share."""
        future: asyncio.Future[Mark] = asyncio.get_running_loop().create_future()
        key = witness, ring
        self._waiting.setdefault(key, []).append((mark, future))
        if key not in self._writing:
            self._writing.add(key)
            self._tasks.spawn(self._write_on(witness, ring))
        try:
            async with patience(self._seconds):
                return await future
        except TimeoutError:
            self.failed(witness, TicketDatabaseHung("did not answer in time"), ring)
        except RingChanged as error:
            self.failed(witness, error, ring)
            raise
        except TicketDatabaseError as error:
            self.failed(witness, error, ring)
        return None

    async def _write_on(self, witness: Member, ring: int) -> None:
        key = witness, ring
        try:
            while self._waiting[key]:
                batch, self._waiting[key] = self._waiting[key], []
                pending = [(mark, future) for mark, future in batch if not future.done()]
                try:
                    rows = await witness.database.reserve([mark for mark, _ in pending], ring)
                except TicketDatabaseError as error:
                    for _, future in pending:
                        if not future.done():
                            future.set_exception(error)
                else:
                    for mark, future in pending:
                        if not future.done():
                            future.set_result(rows[mark.sequence, mark.offset])
            del self._waiting[key]
        finally:
            self._writing.discard(key)

    def failed(self, witness: Member, error: TicketDatabaseError, ring: int) -> None:
        """A database that does not answer is down, and one that records another ring is asked which; one that answers,
        but cannot keep marks, may still draw; one that was merely busy is asked again. `ring`: the number of the ring
        that it was asked under."""
        if isinstance(error, RingChanged):
            self._ring.records_another_ring(ring, str(error))
        elif isinstance(error, TicketDatabaseUnavailable):
            self._ring.mark_down(witness, str(error))
        elif not isinstance(error, TicketDatabaseBusy):
            self._ring.keeps_no_marks(witness, str(error))

    def note(self, row: Mark) -> None:
        """Remember the largest mark ever read, for when its database cannot be asked."""
        key = (row.sequence, row.offset)
        seen = self.seen.get(key)
        if seen is None or (row.mark, row.issued) >= (seen.mark, seen.issued):
            self.seen[key] = row

    async def supersede(self, witness: Member, old: Mark, new: Mark, ring: int) -> None:
        """Raise MarkRefused if the row has changed, WitnessLost if the witness fails; RingChanged."""
        try:
            row = await witness.database.supersede(old, new, ring)
        except TicketDatabaseError as error:
            self.failed(witness, error, ring)
            if isinstance(error, RingChanged):
                raise
            raise WitnessLost(f"lost {witness.name}, which kept its high-water marks") from error
        if row.token != new.token:
            raise MarkRefused("its mark changed on another database while it was advanced")
        if ring == self._ring.number:
            self.seen[row.sequence, row.offset] = row

    def forget(self) -> None:
        """Another ring: what was read of the one before says nothing about this one."""
        self.seen.clear()

    async def close(self) -> None:
        """Let writes that are under way finish."""
        await self._tasks.wait()


def take_larger(best: dict[tuple[str, int], Mark], marks: Iterable[Mark]) -> None:
    """Of two marks about the same the larger one holds."""
    for mark in marks:
        row = best.get((mark.sequence, mark.offset))
        if row is None or mark.mark > row.mark:
            best[mark.sequence, mark.offset] = mark
