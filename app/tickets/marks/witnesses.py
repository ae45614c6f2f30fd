"""The writer of marks: has ticket databases keep a mark, and remembers the largest mark of each sequence.

Marks that are written to one database at the same moment share a statement. What a database's failure means for the
ring is decided in `ring/failures`.
"""

import asyncio
from collections.abc import Callable, Iterable

from app.common.errors import (
    MarkRefused,
    RingChanged,
    TicketDatabaseBusy,
    TicketDatabaseError,
    TicketDatabaseHung,
)
from app.common.patience import patience
from app.common.tasks import Tasks
from app.databases.protocol import Mark
from app.tickets.ring.failures import Asked
from app.tickets.ring.marks import Wanted, keep_marks
from app.tickets.ring.ring import Member, Ring


class WitnessLost(TicketDatabaseBusy):
    """A witness did not take the mark; the lane drops what it drew under it."""


class Witnesses:
    """Writes marks to ticket databases. `seconds`: how long one database may take to keep a mark."""

    def __init__(self, ring: Ring, seconds: float) -> None:
        self._ring = ring
        self._seconds = seconds
        self._waiting: dict[tuple[Member, int], list[tuple[Wanted, asyncio.Future[Mark]]]] = {}
        self._writing: set[tuple[Member, int]] = set()
        self._tasks = Tasks()
        self.seen: dict[tuple[str, int], Mark] = {}
        """The largest mark ever read of each sequence and offset. It counts even if its database cannot be asked."""

    async def on_others(self, member: Member, mark: Mark, ring: int) -> dict[Member, Mark]:
        """Have every witness of `member` keep the mark; see `keep`. Empty if, and only if, there is no witness."""
        return await self.keep(Wanted(mark), ring, lambda: self._ring.witnesses(member))

    async def keep(self, wanted: Wanted, ring: int, databases: Callable[[], Iterable[Member]]) -> dict[Member, Mark]:
        """Have all of these databases keep the mark under this ring number. Returns the row of each as it stands then.

        `databases`: called again after each round of writes, since another database may have come up meanwhile.

        Raises WitnessLost if any of the databases fails, whatever the reason; RingChanged if one records another ring,
        or this server has changed it meanwhile.
        """
        rows: dict[Member, Mark] = {}
        while missing := [member for member in databases() if member not in rows]:
            answers = await asyncio.gather(*(self._keep_on(member, wanted, ring) for member in missing))
            for member, row in zip(missing, answers, strict=True):
                if row is None:
                    raise WitnessLost(f"lost {member.name}, which keeps its high-water marks")
                rows[member] = row
            if ring != self._ring.number:  # a row of the previous ring must not be remembered in this one
                raise RingChanged
            for row in rows.values():
                self.note(row)
        return rows

    async def _keep_on(self, witness: Member, wanted: Wanted, ring: int) -> Mark | None:
        """Keep the mark with the next write to this database, which all waiting marks share. None where that fails."""
        future: asyncio.Future[Mark] = asyncio.get_running_loop().create_future()
        key = witness, ring
        self._waiting.setdefault(key, []).append((wanted, future))
        if key not in self._writing:
            self._writing.add(key)
            self._tasks.spawn(self._write_on(witness, ring))
        try:
            async with patience(self._seconds):
                return await future
        except TimeoutError:
            self._ring.failed(witness, TicketDatabaseHung("did not answer in time"), Asked.MARKS)
        except TicketDatabaseError as error:
            self._failed(witness, error, ring)
        return None

    async def _write_on(self, witness: Member, ring: int) -> None:
        key = witness, ring
        try:
            while self._waiting[key]:
                batch, self._waiting[key] = self._waiting[key], []
                pending = [(wanted, future) for wanted, future in batch if not future.done()]
                try:
                    rows = await keep_marks(witness.database, [wanted for wanted, _ in pending], ring)
                except TicketDatabaseError as error:
                    for _, future in pending:
                        if not future.done():
                            future.set_exception(error)
                else:
                    for (mark, _), future in pending:
                        if not future.done():
                            future.set_result(rows[mark.sequence, mark.offset])
            del self._waiting[key]
        finally:
            self._writing.discard(key)

    def _failed(self, witness: Member, error: TicketDatabaseError, ring: int) -> None:
        """Tell the ring of the error. Raises it again if the database records another ring."""
        self._ring.failed(witness, error, Asked.MARKS, ring)
        if isinstance(error, RingChanged):
            raise error

    def note(self, row: Mark) -> None:
        """Remember a row if it has the largest mark ever read of its sequence and offset."""
        key = (row.sequence, row.offset)
        seen = self.seen.get(key)
        if seen is None or (row.mark, row.issued) >= (seen.mark, seen.issued):
            self.seen[key] = row

    async def supersede(self, witness: Member, old: Mark, new: Mark, ring: int) -> None:
        """Replace the row `old` on a database. Raises MarkRefused if it has changed, WitnessLost if the database fails,
        and RingChanged."""
        try:
            row = await witness.database.supersede(old, new, ring)
        except TicketDatabaseError as error:
            self._failed(witness, error, ring)
            raise WitnessLost(f"lost {witness.name}, which keeps its high-water marks") from error
        if row.token != new.token:
            raise MarkRefused("its mark changed on another database while it was advanced")
        if ring == self._ring.number:
            self.seen[row.sequence, row.offset] = row

    def forget(self) -> None:
        """Forget what was read: the ring is another one now."""
        self.seen.clear()

    async def close(self) -> None:
        """Let writes that are under way finish."""
        await self._tasks.wait()


def take_larger(best: dict[tuple[str, int], Mark], marks: Iterable[Mark]) -> None:
    """Put each mark into `best` unless that has a mark as large of the same sequence and offset."""
    for mark in marks:
        row = best.get((mark.sequence, mark.offset))
        if row is None or mark.mark > row.mark:
            best[mark.sequence, mark.offset] = mark
