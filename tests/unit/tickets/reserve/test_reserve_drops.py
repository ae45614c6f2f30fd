"""What is dropped of what was drawn ahead, and what of it is warned of."""

import asyncio
import math
from collections.abc import Callable

import pytest

from app.common.errors import SequenceUnavailable, SequenceWentBack
from app.kinds.definition import Definition
from app.tickets.reserve.shelf import Piece, above
from tests.fakes.ticket_server import FakeTicketServer, Site
from tests.fakes.virtual_time import virtual_time
from tests.unit.tickets.reserves import SECONDS, coming, gaps, reserve_of, use, used_up


def close(server: FakeTicketServer) -> None:
    reserve_of(server).close()


def hear_of_a_bump(server: FakeTicketServer) -> None:
    reserve_of(server).bumped(1_000_000)
    reserve_of(server).bumped(10)


def give_by_itself(server: FakeTicketServer) -> None:
    shelf = reserve_of(server).shelves[0]
    shelf.passed(1_000_000)
    shelf.passed(10)


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
        marks.was_set(10**9, 10**9)  # as the next draw does that somebody keeps a mark of
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
        marks.was_set(10**9, 10**9)
        assert [count for *_, count in server.reserves.unprotected()] == [left]


@virtual_time
async def test_a_lane_whose_database_went_back_under_the_same_token_loses_its_reserve() -> None:
    async with Site(2) as site:
        server = await site.ticket_server(reserve_seconds=SECONDS)
        await use(server, 100, 6)
        of_each = [len(shelf) for shelf in reserve_of(server).shelves]
        server.lane("photos", 1).suspend(SequenceUnavailable("cannot be locked"))
        assert [len(shelf) for shelf in reserve_of(server).shelves] == of_each
        server.lane("photos", 1).suspend(SequenceWentBack("stands at 1"))
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
async def test_a_sequence_that_turns_out_to_be_another_hands_out_nothing_that_was_drawn_before() -> None:
    async with Site(2) as site:
        server = await site.ticket_server(reserve_seconds=20)
        await use(server, 100, 6)
        reserve = reserve_of(server)
        assert reserve.left > 300
        site.servers[0].state.kinds["photos"] = Definition("photos", "uuid4", {})
        await asyncio.sleep(8)
        assert server.desk.ready("photos") is None
        assert isinstance((await server.desk.take("photos"))[0], str)
        assert gaps(server)["ended"] > 300
