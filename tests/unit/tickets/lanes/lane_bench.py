"""One lane on a fake database, with a ledger that the tests control."""

import asyncio
from collections.abc import Sequence
from itertools import pairwise

from app.common.errors import (
    TicketDatabaseBusy,
    TicketDatabaseError,
)
from app.databases.protocol import Draw, Residue, Table
from app.operations.metrics import Metrics
from app.tickets.lanes.lane import Lane
from app.tickets.requests.request import Tickets
from app.tickets.ring.ring import Ring
from tests.fakes.asked import ask
from tests.fakes.ticket_database import FailingDraws, FakeServer, FakeTicketDatabase


class Witness:
    """A ledger that allows everything, and notes what it is asked."""

    def __init__(self) -> None:
        self.opened = 0
        self.marks_set_for: list[int] = []
        self.soon = 0
        self.step = 1_000_000
        self.fails_with: TicketDatabaseError | None = None
        self.breaks = False
        self.refuses = False
        self.lost_touch = False

    async def open(self, lane: Lane) -> None:
        self.opened += 1
        tables = await lane.member.database.tables([lane.sequence])
        lane.table = tables[lane.sequence]
        lane.guard.set_ceiling(lane.table.ceiling, lane.table.last)
        position = await lane.member.database.position(lane.sequence)
        lane.guard.advance(position.next_id - 1)
        lane.marks.token = f"life:{self.opened}"
        lane.marks.mark = lane.marks.next_mark_at = self.step

    async def set_mark(self, lane: Lane, last: int, *, protected: bool) -> None:
        self.marks_set_for.append(last)
        await asyncio.sleep(0)
        if self.fails_with is not None:
            raise self.fails_with
        lane.marks.mark, lane.marks.next_mark_at = last + self.step, last + self.step // 2

    def set_mark_soon(self, lane: Lane) -> None:
        self.soon += 1
        if self.breaks:
            raise ZeroDivisionError
        lane.marks.next_mark_at = lane.marks.mark

    def check(self, lane: Lane) -> None:
        if self.refuses:
            raise TicketDatabaseBusy("may not draw")
        if self.lost_touch:
            self.lost_touch = False
            lane.close()


class SlowDatabase(FailingDraws):
    """Takes ten milliseconds for each statement, and fails on demand. `counts`: the tickets of each draw."""

    def __init__(self, server: FakeServer) -> None:
        super().__init__(server, latency=lambda: (0.005, 0.005), largest_block=1000)
        self.counts: list[int] = []
        self.fails_with: TicketDatabaseError | None = None

    def fault(self) -> TicketDatabaseError | None:
        """See FailingDraws.fault."""
        return self.fails_with

    def drawing(self, residue: Residue, table: Table, count: int, after: int, least: int) -> Draw:
        """See FakeTicketDatabase.drawing."""
        self.counts.append(count)
        return super().drawing(residue, table, count, after, least)


class Bench:
    """One lane, and what it stands on."""

    def __init__(self) -> None:
        self.server = FakeServer(1)
        self.database = SlowDatabase(self.server)
        self.ring = Ring([self.database, FakeTicketDatabase(FakeServer(2))], now=lambda: 0.0)
        self.member = self.ring.members[0]
        self.witness = Witness()
        self.metrics = Metrics()
        self.lane = Lane("photos", self.member, self.ring, self.witness, self.metrics)

    async def begin(self) -> "Bench":
        self.ring.mark_up(self.member, await self.database.probe())
        return self

    def ask(self, count: int = 1, *, whole: bool = False, within: float = 0.5) -> "asyncio.Future[Tickets | None]":
        return ask(self.lane, count, within, whole=whole)

    async def asked(self, times: int) -> Sequence[Tickets | None]:
        return await asyncio.gather(*(self.ask() for _ in range(times)))


def in_order(answers: Sequence[Tickets | None]) -> bool:
    firsts = [tickets[0] for tickets in answers if tickets]
    return len(firsts) == len(answers) and all(a < b for a, b in pairwise(firsts))
