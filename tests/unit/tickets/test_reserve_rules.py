"""When a reserve hands out and when it does not, whom it asks for more, and what it takes the rate to be."""

import asyncio
import math
import re
from collections.abc import Callable

import pytest

from app.common.errors import Draining, NoTicketDatabase
from app.kinds.definition import Definition
from app.tickets.reserve import Reserve
from app.tickets.reserve_shelf import Piece, above
from tests.fakes.ticket_server import PROBE_INTERVAL, FakeTicketServer, Site
from tests.fakes.virtual_time import settled, virtual_time
from tests.unit.tickets.test_reserve import SECONDS, WINDOW, Noting, assert_in_order, empty, gaps, reserve_of, use


def coming(reserve: Reserve) -> int:
    """How many tickets are being drawn for it."""
    found = re.search(r"(\d+) coming", repr(reserve))
    assert found is not None
    return int(found[1])


async def used_up(site: Site, rate: int = 50, **settings: float | bool) -> tuple[FakeTicketServer, Reserve, list[int]]:
    """A server with a rate and nothing in reserve, and what it has given."""
    server = await site.ticket_server(**{"reserve_seconds": SECONDS, **settings})  # type: ignore[arg-type]
    given = await use(server, rate, 6)
    reserve = reserve_of(server)
    for shelf in reserve.shelves:  # so that nobody refills it meanwhile
        shelf.asks_at = math.inf
    given += empty(server)
    await asyncio.sleep(0.1)
    assert reserve.left == coming(reserve) == 0
    for shelf in reserve.shelves:
        shelf.asks_at = -math.inf
    await asyncio.sleep(0.3)
    return server, reserve, given


# --- handing out ----------------------------------------------------------------------------------------------------


@virtual_time
async def test_a_lane_whose_token_is_another_gives_nothing_from_that_moment_on() -> None:
    async with Site(1) as site:
        server = await site.ticket_server(reserve_seconds=SECONDS)
        await use(server, 100, 6)
        left = reserve_of(server).left
        server.lane("photos", 1).marks.adopt("another:1")
        assert server.desk.ready("photos") is None
        assert gaps(server)["superseded"] == left > 300
        assert reserve_of(server).left == 0


@virtual_time
async def test_nothing_is_given_after_the_window_whatever_is_asked_for() -> None:
    async with Site(2) as site:
        server = await site.ticket_server(reserve_seconds=SECONDS)
        await use(server, 100, 6)
        reserve = reserve_of(server)
        assert server.reserves.any_gives
        await server.prober.stop()
        await asyncio.sleep(WINDOW + 0.1)
        left = reserve.left
        most = max(len(shelf) for shelf in reserve.shelves)
        assert most + 1 <= left
        assert server.desk.ready("photos") is server.desk.ready("photos", 2) is None
        assert server.desk.ready("photos", 3, singly=True) is server.desk.ready("photos", most + 1, singly=True) is None
        assert reserve.left == left
        assert not server.reserves.any_gives


@virtual_time
async def test_many_singles_at_once_cause_a_refill_too() -> None:
    async with Site(2) as site:
        server = await site.ticket_server(reserve_seconds=SECONDS)
        await use(server, 100, 6)
        reserve = reserve_of(server)
        assert server.desk.ready("photos", max(len(shelf) for shelf in reserve.shelves) + 1, singly=True) is not None
        assert coming(reserve) > 200
        await asyncio.sleep(0.1)
        assert reserve.left > 400


@virtual_time
async def test_what_is_too_old_is_not_given_before_anybody_has_swept_it() -> None:
    async with Site(2) as site:
        server = await site.ticket_server(reserve_seconds=SECONDS)
        await use(server, 100, 6)
        site.clock.now += 3 * SECONDS + 1  # nothing else happens meanwhile
        server.reserves.window.until = math.inf
        assert server.desk.ready("photos") is None
        assert gaps(server)["aged"] > 300


@virtual_time
async def test_after_the_end_nothing_is_handed_out() -> None:
    async with Site(2) as site:
        server = await site.ticket_server(reserve_seconds=SECONDS)
        await use(server, 100, 6)
        assert server.desk.ready("photos", 2, singly=True) is not None
        server.desk.closed = True
        assert server.desk.ready("photos", 2, singly=True) is server.desk.ready("photos") is None


# --- waiting --------------------------------------------------------------------------------------------------------


@virtual_time
async def test_nobody_waits_for_a_refill_that_could_not_be_handed_out() -> None:
    async with Site(2) as site:
        server, reserve, _ = await used_up(site)
        reserve.refill()
        assert coming(reserve)
        server.reserves.window.until = -math.inf
        asked = asyncio.create_task(server.desk.take("photos"))
        await settled()
        assert not reserve.waiting
        await asked


@virtual_time
async def test_who_waits_is_sent_on_where_what_comes_may_not_be_handed_out() -> None:
    """One of two refills has come, and there is no use in waiting for the other."""
    async with Site(2) as site:
        server, reserve, _ = await used_up(site, 100)
        site.servers[0].lock("photos")
        reserve.refill()
        assert all(shelf.refilling for shelf in reserve.shelves)
        asked = asyncio.create_task(server.desk.take("photos", 600))
        await settled()
        assert reserve.waiting
        server.reserves.window.until = -math.inf
        await asyncio.sleep(0.02)
        assert [shelf.refilling for shelf in reserve.shelves] == [True, False]
        assert not reserve.waiting
        site.servers[0].unlock()
        await asked


@virtual_time
async def test_nobody_overtakes_those_who_wait() -> None:
    async with Site(1) as site:
        server, reserve, _ = await used_up(site, 100)
        reserve.refill()
        await asyncio.sleep(0.1)
        assert server.desk.ready("photos", reserve.left - 5) is not None
        assert coming(reserve) > 0
        first: list[int] = []
        second: list[int] = []
        server.desk.accept(Noting(first, 100))
        server.desk.accept(Noting(second))
        await settled()
        assert reserve.waiting
        await asyncio.sleep(0.1)
        assert max(first) < min(second)


@virtual_time
async def test_who_has_waited_long_enough_is_sent_on_alone() -> None:
    async with Site(1) as site:
        server, reserve, _ = await used_up(site, 100)
        reserve.refill()
        await asyncio.sleep(0.1)
        assert server.desk.ready("photos", reserve.left - 5) is not None
        site.servers[0].lock("photos")
        assert coming(reserve) > 0
        given: list[list[int]] = [[], [], []]
        requests = [Noting(each, count) for each, count in zip(given, (100, 2, 50), strict=True)]
        for request in requests:
            server.desk.accept(request)
        assert reserve.waiting
        requests[0].until = -math.inf
        reserve.expire(asyncio.get_running_loop().time())
        assert requests[0].lane is server.lane("photos", 1)
        assert len(given[1]) == 2  # it was only behind
        assert requests[2].lane is None
        assert reserve.waiting
        site.servers[0].unlock()
        await asyncio.sleep(0.1)
        assert max(given[1]) < min(given[2]) < min(given[0])


@virtual_time
async def test_who_has_gone_away_while_it_waited_gets_nothing() -> None:
    for fails in (False, True):
        async with Site(1) as site:
            server, reserve, given = await used_up(site)
            reserve.refill()
            asked = [asyncio.create_task(server.desk.take("photos", 5)) for _ in range(4)]
            await settled()
            assert reserve.waiting
            for task in asked[:2]:
                task.cancel()
            site.servers[0].loses_replies = int(fails)
            answers = await asyncio.gather(*asked, return_exceptions=True)
            given += [ticket for tickets in answers if not isinstance(tickets, BaseException) for ticket in tickets]
            assert len(answers) == 4
            await asyncio.sleep(2)
            given += await use(server, 20, 0.5)
            assert server.metrics.in_flight == 0
            assert server.catalog.entries["photos"].issued == len(given)
            assert_in_order(given, 1)


@virtual_time
async def test_those_who_wait_are_refused_when_the_server_ends() -> None:
    async with Site(1) as site:
        server, reserve, _ = await used_up(site)
        reserve.refill()
        asked = asyncio.create_task(server.desk.take("photos"))
        await settled()
        assert reserve.waiting
        await server.reserves.stop()
        with pytest.raises(Draining):
            await asked


@virtual_time
async def test_those_who_wait_in_a_sequence_of_another_ring_are_served_in_this_one() -> None:
    async with Site(1) as site:
        server, reserve, given = await used_up(site)
        reserve.refill()
        asked = asyncio.create_task(server.desk.take("photos"))
        await settled()
        assert reserve.waiting
        server.catalog.forget()
        given += await asked
        assert_in_order(given, 1)


@virtual_time
async def test_those_who_wait_when_a_reserve_is_closed_are_sent_on_but_not_who_has_gone_away() -> None:
    async with Site(1) as site:
        server, reserve, given = await used_up(site)
        reserve.refill()
        asked, gone = (asyncio.create_task(server.desk.take("photos")) for _ in range(2))
        await settled()
        gone.cancel()
        await settled()
        assert reserve.waiting
        reserve.close()
        assert not reserve.waiting
        given += await asked
        await asyncio.sleep(1)
        assert server.metrics.in_flight == 0
        assert server.catalog.entries["photos"].issued == len(given)


@virtual_time
async def test_who_found_no_database_is_served_from_what_may_be_handed_out_by_then() -> None:
    async with Site(1) as site:
        server = await site.ticket_server(reserve_seconds=20)
        await use(server, 100, 6)
        site.servers[0].down = True
        await asyncio.sleep(3)
        server.reserves.window.until = -math.inf
        server.ring.members[0].settled = True
        given: list[int] = []
        request = Noting(given)
        server.desk.accept(request)
        server.ring.members[0].settled = True
        server.reserves.window.until = math.inf
        await settled()
        assert given


@virtual_time
async def test_who_waited_for_a_busy_database_is_served_from_what_may_be_handed_out_by_then() -> None:
    async with Site(1) as site:
        server = await site.ticket_server(reserve_seconds=20)
        await use(server, 100, 6)
        reserve = reserve_of(server)
        until, server.reserves.window.until = server.reserves.window.until, -math.inf
        site.servers[0].deadlocks = 1
        asked = asyncio.create_task(server.desk.take("photos"))
        for _ in range(10):  # milliseconds, there and back; then it pauses for five
            if server.ring.members[0].failovers:
                break
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.001)
        draws, left = len(site.servers[0].draws), reserve.left
        server.reserves.window.until = until + 1
        await asked
        assert len(site.servers[0].draws) == draws
        assert reserve.left == left - 1


@virtual_time
async def test_a_block_that_a_busy_database_has_to_be_asked_for_again_is_drawn_there_too() -> None:
    async with Site(1) as site:
        server = await site.ticket_server(reserve_seconds=20)
        await use(server, 100, 6)
        left = reserve_of(server).left
        site.servers[0].deadlocks = 1
        await server.desk.take("photos", 5, whole=True)
        assert site.servers[0].deadlocks == 0
        assert server.ring.members[0].failovers == 1
        assert reserve_of(server).left == left


# --- refills --------------------------------------------------------------------------------------------------------


@virtual_time
async def test_what_is_coming_is_not_asked_for_twice() -> None:
    async with Site(2) as site:
        _, reserve, _ = await used_up(site, 20)
        reserve.refill()
        asked = coming(reserve)
        assert 0 < asked <= reserve.demand.size
        assert sum(shelf.refilling for shelf in reserve.shelves) == 1  # so few are one statement's
        reserve.refill()
        assert coming(reserve) == asked


@virtual_time
async def test_a_lane_has_one_refill_under_way() -> None:
    async with Site(2) as site:
        _, reserve, _ = await used_up(site, 100, largest_block=60)
        reserve.refill()
        assert coming(reserve) == 60
        reserve.refill()
        assert coming(reserve) == 60


@virtual_time
async def test_a_little_that_is_missing_is_not_drawn() -> None:
    async with Site(2) as site:
        server = await site.ticket_server(reserve_seconds=SECONDS)
        await use(server, 100, 20)
        reserve = reserve_of(server)
        assert server.desk.ready("photos", reserve.left - int(0.93 * reserve.demand.size), singly=True) is not None
        assert coming(reserve) == 0
        assert server.desk.ready("photos", int(0.05 * reserve.demand.size), singly=True) is not None
        assert coming(reserve) > 0


@virtual_time
async def test_a_lane_that_could_not_give_a_refill_is_asked_again_a_moment_later() -> None:
    async with Site(1) as site:
        _, reserve, _ = await used_up(site)
        site.servers[0].deadlocks = 1
        reserve.refill()
        assert coming(reserve)
        await asyncio.sleep(0.05)
        reserve.refill()
        assert coming(reserve) == 0
        await asyncio.sleep(0.3)
        reserve.refill()
        assert coming(reserve) > 0


def suspend(server: FakeTicketServer) -> None:
    server.lane("photos", 1).suspend("cannot be locked")


def mark_down(server: FakeTicketServer) -> None:
    server.ring.mark_down(server.ring.members[0], "refuses connections")


def come_to_the_end(server: FakeTicketServer) -> None:
    guard = server.lane("photos", 1).guard
    guard.advance(guard.ceiling - 100 * reserve_of(server).demand.size + 2)


def close(server: FakeTicketServer) -> None:
    reserve_of(server).close()


def come_close_to_the_end(server: FakeTicketServer) -> None:
    guard = server.lane("photos", 1).guard
    guard.advance(guard.ceiling - 100 * reserve_of(server).demand.size - 2)


@pytest.mark.parametrize(
    ("happens", "asked"),
    [(suspend, False), (mark_down, False), (come_to_the_end, False), (close, False), (come_close_to_the_end, True)],
)
def test_a_lane_that_cannot_or_must_not_give_one_is_not_asked(
    happens: Callable[[FakeTicketServer], None], *, asked: bool
) -> None:
    @virtual_time
    async def scenario() -> None:
        async with Site(1) as site:
            server, reserve, _ = await used_up(site)
            happens(server)
            reserve.refill()
            assert (coming(reserve) > 0) is asked

    scenario()


@virtual_time
async def test_a_database_that_may_not_draw_is_not_asked_for_a_refill() -> None:
    async with Site(2) as site:
        server, reserve, _ = await used_up(site, refuse_unverified=True)
        site.servers[1].down = True
        await asyncio.sleep(PROBE_INTERVAL + 0.2)
        assert server.ring.members[0].up
        reserve.refill()
        assert coming(reserve) == 0


# --- the rate -------------------------------------------------------------------------------------------------------


@virtual_time
async def test_after_an_idle_span_the_rate_begins_anew() -> None:
    async with Site(2) as site:
        server = await site.ticket_server(reserve_seconds=SECONDS)
        await use(server, 1_000, 6)
        reserve = reserve_of(server)
        assert reserve.lasts is not None
        await asyncio.sleep(SECONDS + 0.1)
        assert reserve.lasts is None
        reserve.drop_all("dropped")
        await server.desk.take("photos")
        await asyncio.sleep(0.1)
        assert reserve.left == coming(reserve) == 0
        await server.desk.take("photos")
        assert reserve.demand.size < 15


@virtual_time
async def test_the_rate_follows_what_is_asked_for_slowly() -> None:
    async with Site(2) as site:
        server = await site.ticket_server(reserve_seconds=SECONDS)
        await use(server, 100, 6)
        reserve = reserve_of(server)
        await asyncio.sleep(0.5)
        await server.desk.take("photos")
        assert 60 < reserve.demand.rate < 105
        await use(server, 1_000, 0.2)
        assert reserve.demand.rate < 300


@virtual_time
async def test_what_is_dropped_has_not_been_used() -> None:
    async with Site(2) as site:
        server = await site.ticket_server(reserve_seconds=SECONDS)
        await use(server, 100, 6)
        reserve = reserve_of(server)
        reserve.drop_all("dropped")
        await use(server, 100, 0.5)
        assert reserve.demand.rate < 120


@virtual_time
async def test_who_waited_in_vain_has_used_what_it_asked_for() -> None:
    async with Site(1) as site:
        server, reserve, _ = await used_up(site, 20)
        reserve.refill()
        before = reserve.demand.rate
        asked = [asyncio.create_task(server.desk.take("photos", 10)) for _ in range(40)]
        await settled()
        site.servers[0].deadlocks = 1
        await asyncio.gather(*asked)
        await asyncio.sleep(0.1)
        await server.desk.take("photos")
        assert reserve.demand.rate > 6 * before


# --- what comes late, and what is dropped ---------------------------------------------------------------------------


def hear_of_a_bump(server: FakeTicketServer) -> None:
    reserve_of(server).bumped(1_000_000)
    reserve_of(server).bumped(10)


def give_by_itself(server: FakeTicketServer) -> None:
    reserve = reserve_of(server)
    reserve.passed(reserve.shelves[0], 1_000_000)
    reserve.passed(reserve.shelves[0], 10)


@pytest.mark.parametrize(
    ("happens", "cause"), [(hear_of_a_bump, "bumped"), (give_by_itself, "passed"), (close, "ended")]
)
def test_a_refill_that_was_drawn_before_and_comes_after_is_dropped(
    happens: Callable[[FakeTicketServer], None], cause: str
) -> None:
    @virtual_time
    async def scenario() -> None:
        async with Site(1) as site:
            server, reserve, given = await used_up(site)
            reserve.refill()
            refill = coming(reserve)
            assert refill
            happens(server)
            await asyncio.sleep(0.1)
            assert reserve.left == coming(reserve) == 0
            assert gaps(server)[cause] == refill
            assert server.catalog.entries["photos"].issued == len(given)

    scenario()


@virtual_time
async def test_what_is_dropped_is_no_ticket_that_was_issued() -> None:
    async with Site(2) as site:
        server = await site.ticket_server(reserve_seconds=SECONDS)
        given = await use(server, 100, 6)
        reserve = reserve_of(server)
        left = reserve.left
        reserve.bumped(max(given) + 100)
        assert reserve.left == left - gaps(server)["bumped"] > 0
        assert server.catalog.entries["photos"].issued == len(given)
        first = [next(shelf.left()).next_id for shelf in reserve.shelves]
        assert {ticket - max(given) for ticket in first} == {101, 102}  # what is above is kept, to the ticket
        reserve.drop_all("dropped")
        assert server.catalog.entries["photos"].issued == len(given)


def test_what_is_above_a_number_is_never_more_than_there_was() -> None:
    piece = Piece(7, 15, 2, "t:1", 0.0, protected=True)
    left = {number: list(range(above(piece, number).next_id, piece.end, piece.step)) for number in (0, 6, 7, 8, 12, 99)}
    assert left == {0: [7, 9, 11, 13], 6: [7, 9, 11, 13], 7: [9, 11, 13], 8: [9, 11, 13], 12: [13], 99: []}
    assert above(piece, 99).size == 0


@virtual_time
async def test_a_refill_is_as_old_as_the_moment_when_it_was_asked_for() -> None:
    async with Site(1) as site:
        _, reserve, _ = await used_up(site)
        site.servers[0].lock("photos")
        reserve.refill()
        asked_at = site.clock.now
        await asyncio.sleep(0.3)
        site.servers[0].unlock()
        await asyncio.sleep(0.05)
        assert [piece.asked_at for piece in reserve.shelves[0].pieces] == [asked_at]


@virtual_time
async def test_what_is_drawn_above_the_last_mark_while_nobody_keeps_marks_is_warned_of() -> None:
    async with Site(2) as site:
        server = await site.ticket_server(reserve_seconds=SECONDS)
        await use(server, 100, 6)
        site.servers[1].down = True
        await asyncio.sleep(2)
        assert not list(server.reserves.unprotected())
        await use(server, 800, 6)
        lane = server.lane("photos", 1)
        assert lane.guard.highest > lane.marks.mark > 0
        assert not lane.marks.unverified
        ((sequence, member, count),) = server.reserves.unprotected()
        assert (sequence, member.name) == ("photos", site.servers[0].name)
        assert count == reserve_of(server).left


@virtual_time
async def test_what_is_drawn_while_one_of_three_could_not_be_asked_is_warned_of() -> None:
    async with Site(3) as site:
        site.servers[2].down = True
        server = await site.ticket_server(reserve_seconds=SECONDS)
        await use(server, 100, 6)
        reserve = reserve_of(server)
        assert all(lane.marks.mark for lane in server.catalog.lanes.values() if lane.member.up)
        assert sum(count for *_, count in server.reserves.unprotected()) == reserve.left > 300


@virtual_time
async def test_what_lies_below_a_mark_that_was_made_later_is_protected() -> None:
    async with Site(2) as site:
        site.servers[1].down = True
        server = await site.ticket_server(reserve_seconds=20)
        await use(server, 100, 6)
        left = reserve_of(server).left
        marks = server.lane("photos", 1).marks
        assert marks.mark == 0
        assert [count for *_, count in server.reserves.unprotected()] == [left]
        marks.unverified = ""
        marks.reserved(10**9, 10**9)  # as the next draw does that somebody keeps a mark of
        assert not list(server.reserves.unprotected())


@virtual_time
async def test_a_mark_of_another_token_vouches_for_nothing_that_was_drawn_before() -> None:
    async with Site(2) as site:
        site.servers[1].down = True
        server = await site.ticket_server(reserve_seconds=SECONDS)
        await use(server, 100, 6)
        left = reserve_of(server).left
        marks = server.lane("photos", 1).marks
        marks.adopt("another:1")
        marks.unverified = ""
        marks.reserved(10**9, 10**9)
        assert [count for *_, count in server.reserves.unprotected()] == [left]


@virtual_time
async def test_a_lane_whose_database_went_back_under_the_same_token_loses_its_reserve() -> None:
    async with Site(2) as site:
        server = await site.ticket_server(reserve_seconds=SECONDS)
        await use(server, 100, 6)
        of_each = [len(shelf) for shelf in reserve_of(server).shelves]
        server.lane("photos", 1).suspend("cannot be locked")
        assert [len(shelf) for shelf in reserve_of(server).shelves] == of_each
        server.lane("photos", 1).suspend("stands at 1", must_advance=True)
        assert [len(shelf) for shelf in reserve_of(server).shelves] == [0, of_each[1]]


@virtual_time
async def test_a_list_that_a_lane_collects_at_the_very_end_leaves_nothing_below_in_reserve() -> None:
    async with Site(1) as site:
        server = await site.ticket_server(reserve_seconds=SECONDS)
        given = await use(server, 20, 6)
        reserve = reserve_of(server)
        reserve.shelves[0].asks_at = math.inf
        found = server.desk.ready("photos", reserve.left - 3)
        assert found is not None
        site.servers[0].table("photos").advance(2**63 - 9)
        await server.desk.take("photos", whole=True)  # its lane knows by this how close the end is
        given += [*found, *await server.desk.take("photos", 5)]
        assert site.servers[0].draws[-1][1].size == 1
        assert given[-1] > 2**63 - 9
        assert reserve.left == 0
        assert gaps(server)["passed"] == 3


@virtual_time
async def test_a_sequence_that_is_no_more_leaves_its_reserve_behind() -> None:
    async with Site(2) as site:
        server = await site.ticket_server(reserve_seconds=20)
        await use(server, 100, 6)
        reserve = reserve_of(server)
        for database in site.servers:
            database.drop("photos")
        reserve.refill()
        await asyncio.sleep(8)
        assert "photos" not in server.catalog.entries
        assert reserve.take() is None
        assert gaps(server)["ended"] + gaps(server)["superseded"] > 300
        reserve.refill()
        assert coming(reserve) == 0


@virtual_time
async def test_a_sequence_that_cannot_be_served_hands_out_nothing_that_was_drawn_before() -> None:
    async with Site(2) as site:
        server = await site.ticket_server(reserve_seconds=20)
        await use(server, 100, 6)
        reserve = reserve_of(server)
        assert reserve.left > 300
        site.servers[0].state.kinds["photos"] = Definition("photos", "instagram", {"epoch": 0, "shards": 10})
        await asyncio.sleep(8)
        with pytest.raises(NoTicketDatabase):
            await server.desk.take("photos")
        assert server.desk.ready("photos") is None
        assert gaps(server)["ended"] > 300
