"""A lane: who waits shares the next statement, first come, first served; a request that has gone is a gap."""

import asyncio
from collections.abc import Callable, Sequence
from itertools import pairwise

import pytest

from app.common.errors import (
    ColumnExhausted,
    MarkRefused,
    RingChanged,
    SequenceMissing,
    SequenceUnavailable,
    SequenceWentBack,
    TicketDatabaseBusy,
    TicketDatabaseError,
    TicketDatabaseHung,
    TicketDatabaseUnavailable,
)
from app.databases.protocol import Drawn, ProbeResult, Residue, RingRecord, Table
from app.operations.metrics import Metrics
from app.tickets.lanes.id_guard import WrongResidue
from app.tickets.lanes.lane import Lane
from app.tickets.lanes.queue import MOST_REQUESTS
from app.tickets.lanes.state import LaneState
from app.tickets.requests.request import Tickets
from app.tickets.ring.ring import Ring, Status
from tests.fakes.asked import ask
from tests.fakes.ticket_database import FakeServer, FakeTicketDatabase
from tests.fakes.virtual_time import settled, virtual_time


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


class SlowDatabase(FakeTicketDatabase):
    """Notes every statement, takes ten milliseconds for each, and fails on demand."""

    def __init__(self, server: FakeServer) -> None:
        super().__init__(server, latency=lambda: (0.005, 0.005), largest_block=1000)
        self.counts: list[int] = []
        self.fails_with: TicketDatabaseError | None = None

    def start_draw(
        self,
        residue: Residue,
        table: Table,
        count: int,
        after: int,
        done: Callable[[Drawn], None],
        *,
        least: int = 0,
    ) -> None:
        self.counts.append(count)
        super().start_draw(residue, table, count, after, lambda drawn: done(self.fails_with or drawn), least=least)


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


@virtual_time
async def test_one_request_alone_waits_for_nobody() -> None:
    bench = await Bench().begin()
    await bench.ask()
    began = asyncio.get_running_loop().time()
    assert await bench.ask() == range(3, 5, 2)
    assert asyncio.get_running_loop().time() - began == pytest.approx(0.01)
    assert bench.database.counts == [1, 1]


@virtual_time
async def test_one_statement_serves_so_many_requests_at_the_most() -> None:
    bench = await Bench().begin()
    first = bench.ask()
    await settled()
    answers = await asyncio.gather(first, *(bench.ask() for _ in range(MOST_REQUESTS + 10)))
    assert bench.database.counts == [1, MOST_REQUESTS, 10]
    assert in_order(answers)


@virtual_time
async def test_requests_that_wait_share_the_next_statement_first_come_first_served() -> None:
    bench = await Bench().begin()
    first = bench.ask()
    await settled()
    others = [bench.ask(count) for count in (1, 2, 5, 1)]
    answers = await asyncio.gather(first, *others)
    assert bench.database.counts == [1, 9]
    assert in_order(answers)
    assert [len(tickets or ()) for tickets in answers] == [1, 1, 2, 5, 1]
    assert len({ticket for tickets in answers for ticket in tickets or ()}) == 10


@virtual_time
async def test_a_statement_draws_no_more_than_the_database_can_and_the_rest_goes_with_the_next() -> None:
    bench = await Bench().begin()
    first = bench.ask()
    await settled()
    answers = await asyncio.gather(first, *(bench.ask(400) for _ in range(5)))
    assert bench.database.counts == [1, 800, 800, 400]
    assert in_order(answers)


@virtual_time
async def test_more_than_the_database_can_ever_draw_is_sent_on_and_nobody_behind_it_waits() -> None:
    bench = await Bench().begin()
    too_much, next_one = bench.ask(1001), bench.ask()
    assert await too_much is None
    assert await next_one == range(1, 3, 2)


@virtual_time
async def test_a_request_that_is_gone_leaves_a_gap_and_no_cancelled_statement() -> None:
    bench = await Bench().begin()
    await bench.ask()
    first = bench.ask()
    await settled()
    waiting = [bench.ask() for _ in range(3)]
    first.cancel()  # under way
    waiting[1].cancel()  # in the queue
    answers = [await waiting[0], await waiting[2]]
    assert in_order(answers)
    assert bench.database.counts == [1, 1, 2]
    assert bench.metrics.gaps[bench.member.name, "gone"] == 1
    issued = [1, *(tickets[0] for tickets in answers if tickets)]
    assert issued == [1, 5, 7]  # 3 is the gap
    assert await bench.ask() == range(9, 11, 2)


@virtual_time
async def test_requests_that_go_at_any_moment_neither_stick_nor_share_a_ticket() -> None:
    bench = await Bench().begin()
    asked: list[asyncio.Future[Tickets | None]] = []
    for number in range(300):
        asked.append(bench.ask(1 + number % 3))
        if number % 2:
            asked[number * 7 % len(asked)].cancel()
        await asyncio.sleep(0.001 * (number % 5))
    answers = await asyncio.gather(*asked, return_exceptions=True)
    given = [ticket for tickets in answers if isinstance(tickets, range) for ticket in tickets]
    assert len(given) == len(set(given)) > 100
    assert not bench.lane.waiting


@virtual_time
async def test_a_batch_that_fails_sends_every_waiter_on() -> None:
    bench = await Bench().begin()
    first = bench.ask()
    await settled()
    waiting = [bench.ask() for _ in range(4)]
    bench.database.fails_with = TicketDatabaseUnavailable("broke the connection off")
    assert await asyncio.gather(first, *waiting) == [None] * 5
    assert bench.member.status is Status.DOWN


@virtual_time
async def test_a_request_whose_time_is_over_is_sent_on_while_the_statement_goes_on() -> None:
    bench = await Bench().begin()
    await bench.ask()
    bench.server.hang()
    patient, hurried = bench.ask(within=0.4), bench.ask(within=0.1)
    await asyncio.sleep(0.2)
    bench.lane.expire(asyncio.get_running_loop().time())
    assert hurried.done()
    assert hurried.result() is None
    assert not patient.done()
    bench.server.thaw()
    answer = await patient
    assert answer is not None
    assert await bench.ask() != answer


@virtual_time
async def test_what_comes_after_everybody_has_been_sent_on_is_given_to_nobody() -> None:
    bench = await Bench().begin()
    await bench.ask()
    bench.server.hang()
    asked = bench.ask(within=0.1)
    await asyncio.sleep(0.2)
    bench.lane.expire(asyncio.get_running_loop().time())
    assert await asked is None
    bench.server.thaw()
    await asyncio.sleep(0.1)
    assert bench.server.table("photos").largest == 3
    assert await bench.ask() == range(5, 7, 2)


@virtual_time
async def test_it_opens_before_its_first_draw_and_again_when_it_was_closed() -> None:
    bench = await Bench().begin()
    await bench.asked(3)
    assert bench.witness.opened == 1
    bench.lane.close()
    await bench.asked(3)
    assert bench.witness.opened == 2


@virtual_time
async def test_the_ledger_is_asked_before_every_draw() -> None:
    bench = await Bench().begin()
    await bench.ask()
    bench.witness.refuses = True
    assert await bench.ask() is None
    assert bench.database.counts == [1]
    bench.witness.refuses, bench.witness.lost_touch = False, True
    assert await bench.ask() == range(3, 5, 2)
    assert bench.witness.opened == 2


@virtual_time
async def test_what_was_drawn_while_the_lane_was_closed_is_dropped() -> None:
    bench = await Bench().begin()
    await bench.ask()
    asked = bench.ask()
    await settled()
    bench.lane.close()
    assert await asked is None
    assert await bench.ask() == range(5, 7, 2)


@virtual_time
async def test_no_ticket_above_the_mark_is_handed_out_before_the_next_mark_is_set() -> None:
    bench = await Bench().begin()
    bench.witness.step = 100
    await bench.ask(20)
    assert bench.witness.marks_set_for == []
    await bench.ask(20)
    await bench.ask(20)  # ends at 119
    assert bench.witness.marks_set_for == [119]


@virtual_time
async def test_a_refused_mark_drops_what_was_drawn_and_closes_the_lane() -> None:
    bench = await Bench().begin()
    bench.witness.step = 1
    await bench.ask()
    bench.witness.fails_with = MarkRefused()
    assert await bench.ask() is None
    assert bench.lane.state is LaneState.CLOSED
    assert bench.member.up
    assert bench.metrics.violations[bench.member.name, "mark"] == 1


@pytest.mark.parametrize("opened_in", [5, 4])
@virtual_time
async def test_a_draw_of_the_present_ring_that_a_database_refuses_takes_all_of_them_down(opened_in: int) -> None:
    """One of an earlier ring is only dropped: this server has changed the ring since, and the databases are well."""
    bench = await Bench().begin()
    bench.ring.record = RingRecord(5, 2, 5, (1, 2), own=1)
    bench.ring.mark_up(bench.ring.members[1], await bench.ring.members[1].database.probe())
    bench.witness.step = 1
    await bench.ask()
    bench.lane.residue = bench.lane.residue._replace(ring=opened_in)
    bench.witness.fails_with = RingChanged()
    assert await bench.ask() is None
    assert bench.lane.state is LaneState.CLOSED
    assert [member.up for member in bench.ring.members] == [opened_in == 4] * 2
    assert bench.metrics.violations[bench.member.name, "ring"] == 1


@virtual_time
async def test_the_next_step_is_reserved_ahead_without_anybody_waiting() -> None:
    bench = await Bench().begin()
    await bench.ask()
    bench.lane.marks.next_mark_at = 2
    began = asyncio.get_running_loop().time()
    await bench.ask()
    assert bench.witness.soon == 1
    assert asyncio.get_running_loop().time() - began == pytest.approx(0.01)


@pytest.mark.parametrize(
    ("error", "state", "status"),
    [
        (SequenceUnavailable("is locked"), LaneState.SUSPENDED, Status.UP),
        (SequenceMissing("has no table"), LaneState.SUSPENDED, Status.UP),
        (SequenceWentBack("gave id 3 after 5"), LaneState.SUSPENDED, Status.UP),
        (ColumnExhausted("is at its end"), LaneState.EXHAUSTED, Status.UP),
        (TicketDatabaseBusy("deadlocked"), LaneState.OPEN, Status.UP),
        (MarkRefused("another incarnation"), LaneState.CLOSED, Status.UP),
        (TicketDatabaseUnavailable("refused"), LaneState.OPEN, Status.DOWN),
        (TicketDatabaseHung("hung"), LaneState.SUSPENDED, Status.DOWN),
        (WrongResidue("gave id 4"), LaneState.OPEN, Status.QUARANTINED),
    ],
)
def test_the_state_that_follows_from_each_error(error: TicketDatabaseError, state: LaneState, status: Status) -> None:
    @virtual_time
    async def scenario() -> None:
        bench = await Bench().begin()
        await bench.ask()
        bench.database.fails_with = error
        assert await bench.ask() is None
        assert bench.lane.state is state
        assert bench.member.status is status

    scenario()


@virtual_time
async def test_a_wrong_residue_is_never_handed_out_and_quarantines_the_database() -> None:
    bench = await Bench().begin()
    await bench.ask()
    bench.server.draws_as = (2, 2)
    assert await bench.ask() is None
    assert bench.member.status is Status.QUARANTINED
    assert bench.member.residue_of == "photos"
    assert bench.metrics.violations[bench.member.name, "residue"] == 1


@virtual_time
async def test_an_id_below_the_floor_is_never_handed_out_and_suspends_the_lane() -> None:
    bench = await Bench().begin()
    await bench.ask(50)
    bench.server.truncate("photos")
    assert await bench.ask() is None
    assert bench.lane.state is LaneState.SUSPENDED
    assert bench.lane.must_advance
    assert bench.metrics.violations[bench.member.name, "order"] == 1
    assert bench.member.up


@virtual_time
async def test_recovery_checks_one_draw_and_drops_it() -> None:
    bench = await Bench().begin()
    await bench.ask()
    bench.lane.suspend(SequenceUnavailable("its table was locked"))
    assert not bench.lane.can_be_asked
    await bench.lane.recover()
    assert bench.lane.state is LaneState.OPEN
    assert bench.metrics.gaps[bench.member.name, "checked"] == 1
    assert await bench.ask() == range(5, 7, 2)


@virtual_time
async def test_recovery_that_draws_a_wrong_id_leaves_it_suspended() -> None:
    bench = await Bench().begin()
    await bench.ask(50)
    bench.lane.suspend(SequenceUnavailable("its table was locked"))
    bench.server.truncate("photos")
    with pytest.raises(SequenceWentBack):
        await bench.lane.recover()
    assert not bench.lane.can_be_asked


@virtual_time
async def test_who_asks_in_the_very_moment_the_last_statement_ends_is_served_too() -> None:
    bench = await Bench().begin()
    answers = [await bench.ask() for _ in range(5)]
    assert answers == [range(n, n + 2, 2) for n in (1, 3, 5, 7, 9)]


@virtual_time
async def test_suspending_sends_everybody_on() -> None:
    bench = await Bench().begin()
    await bench.ask()
    waiting = [bench.ask() for _ in range(3)]
    await settled()
    waiting += [bench.ask() for _ in range(3)]
    bench.lane.suspend(SequenceUnavailable("for a test"))
    assert await asyncio.gather(*waiting) == [None] * 6


def near_the_end(left: int) -> Callable[[Bench], None]:
    def use_up(bench: Bench) -> None:
        bench.server.table("photos").advance(bench.server.table("photos").ceiling - left)

    return use_up


@virtual_time
async def test_close_to_the_end_what_does_not_fit_in_one_statement_comes_one_at_a_time() -> None:
    bench = await Bench().begin()
    near_the_end(left=10)(bench)
    first = bench.ask(2)
    await settled()
    answers = await asyncio.gather(first, bench.ask(2), bench.ask(2))
    ids = [ticket for tickets in answers for ticket in tickets or ()]
    assert len(ids) == len(set(ids)) >= 4
    assert max(ids) <= bench.server.table("photos").ceiling


@virtual_time
async def test_the_end_is_reached_without_a_repeat_and_stays_reached() -> None:
    bench = await Bench().begin()
    near_the_end(left=11)(bench)
    answers = [await bench.ask() for _ in range(8)]
    ids = [tickets[0] for tickets in answers if tickets]
    assert len(ids) == len(set(ids))
    assert max(ids) <= bench.server.table("photos").ceiling
    assert bench.lane.state is LaneState.EXHAUSTED
    assert not bench.lane.can_be_asked


@virtual_time
async def test_a_block_at_the_end_is_whole_or_not_at_all() -> None:
    bench = await Bench().begin()
    near_the_end(left=30)(bench)
    assert await bench.ask(20, whole=True) is None
    assert await bench.ask(1) is not None


@virtual_time
async def test_an_error_that_nobody_knows_sends_everybody_on_and_the_lane_goes_on() -> None:
    bench = await Bench().begin()
    await bench.ask()
    bench.witness.breaks, bench.lane.marks.next_mark_at = True, 0
    assert await bench.asked(3) == [None] * 3
    bench.witness.breaks = False
    assert await bench.ask() is not None
    assert isinstance(bench.member.probe_result, ProbeResult)


@virtual_time
async def test_who_asks_in_one_turn_of_the_event_loop_shares_a_statement_once_there_is_company() -> None:
    bench = await Bench().begin()
    await bench.asked(8)
    assert bench.database.counts == [1, 7]
    await bench.asked(8)
    assert bench.database.counts == [1, 7, 8]
    await bench.ask()
    await bench.asked(8)
    assert bench.database.counts == [1, 7, 8, 1, 1, 7]
