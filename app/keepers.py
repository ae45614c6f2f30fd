"""What the ledger writes to the other databases, and what it has read there.

The lanes that reserve on one database at the same moment share a write. A database that does not answer is down; one
that answers, but cannot keep marks, goes on drawing, and the others are protected by the rest of the ring.
"""

import asyncio
from collections.abc import Coroutine

from app.databases.protocol import Mark
from app.errors import MarkRefused, TicketDatabaseError, TicketDatabaseHung, TicketDatabaseUnavailable
from app.ring import Member, Ring


class Keepers:
    """The databases that keep marks for the others. `patience`: seconds that a lane waits for one of them."""

    def __init__(self, ring: Ring, patience: float) -> None:
        self._ring = ring
        self._patience = patience
        self._waiting: dict[Member, list[tuple[Mark, asyncio.Future[Mark]]]] = {}
        self._writing: set[Member] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.seen: dict[tuple[str, int], Mark] = {}
        """The largest mark ever read of each sequence and offset, for when its database cannot be asked."""

    async def on_others(self, member: Member, mark: Mark) -> dict[Member, Mark]:
        """Reserve on every other database that keeps marks; the row of each as it is then."""
        others = self._ring.keepers(member)
        answers = await asyncio.gather(*(self._reserve_on(other, mark) for other in others))
        rows = {other: row for other, row in zip(others, answers, strict=True) if row is not None}
        for row in rows.values():
            self.note(row)
        return rows

    async def _reserve_on(self, holder: Member, mark: Mark) -> Mark | None:
        """Reserve with the next write to this database, which the lanes that wait for one share."""
        future: asyncio.Future[Mark] = asyncio.get_running_loop().create_future()
        waiting = self._waiting.setdefault(holder, [])
        waiting.append((mark, future))
        if holder not in self._writing:
            self._writing.add(holder)
            self._spawn(self._write_on(holder))
        try:
            async with asyncio.timeout(self._patience):
                return await future
        except TimeoutError:
            self.failed(holder, TicketDatabaseHung("did not answer in time"))
        except TicketDatabaseError as error:
            self.failed(holder, error)
        return None

    async def _write_on(self, holder: Member) -> None:
        try:
            while self._waiting[holder]:
                batch, self._waiting[holder] = self._waiting[holder], []
                wanted = [(mark, future) for mark, future in batch if not future.done()]
                try:
                    rows = await holder.database.reserve([mark for mark, _ in wanted])
                except TicketDatabaseError as error:
                    for _, future in wanted:
                        if not future.done():
                            future.set_exception(error)
                else:
                    for mark, future in wanted:
                        if not future.done():
                            future.set_result(rows[mark.sequence, mark.offset])
        finally:
            self._writing.discard(holder)

    def failed(self, holder: Member, error: TicketDatabaseError) -> None:
        """A database that does not answer is down; one that answers, but cannot keep marks, may still draw."""
        if isinstance(error, TicketDatabaseUnavailable):
            self._ring.mark_down(holder, str(error))
        else:
            self._ring.keeps_no_marks(holder, str(error))

    def note(self, row: Mark) -> None:
        """Remember the largest mark ever read, for when its database cannot be asked."""
        key = (row.sequence, row.offset)
        seen = self.seen.get(key)
        if seen is None or (row.mark, row.issued) >= (seen.mark, seen.issued):
            self.seen[key] = row

    async def renew(self, holder: Member, old: Mark, new: Mark) -> None:
        """Raise MarkRefused if the row has changed; a holder that fails keeps marks no longer."""
        try:
            row = await holder.database.renew(old, new)
        except TicketDatabaseError as error:
            self.failed(holder, error)
            return
        if row.token != new.token:
            raise MarkRefused("its mark changed on another database while it was moved up")
        self.seen[row.sequence, row.offset] = row

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Let writes that are under way finish."""
        await asyncio.gather(*self._tasks, return_exceptions=True)


def take_larger(best: dict[tuple[str, int], Mark], mark: Mark) -> None:
    """Of two marks about the same the larger one holds."""
    key = (mark.sequence, mark.offset)
    row = best.get(key)
    if row is None or mark.mark > row.mark:
        best[key] = mark
