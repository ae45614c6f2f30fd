"""The check on ids: each rule, and what a broken one means."""

import pytest

from app.common.errors import ColumnExhausted, SequenceWentBack, TicketDatabaseMisconfigured, TicketDatabaseUnavailable
from app.common.sequences import TICKET_LIMIT
from app.databases.protocol import Draw
from app.tickets.lanes.id_guard import IdGuard, WrongResidue


def guard(offset: int = 1, increment: int = 2, ceiling: int = 1000, *, repeats: bool = False) -> IdGuard:
    made = IdGuard(offset, increment)
    made.set_ceiling(ceiling, ceiling - repeats)
    return made


def test_what_keeps_every_rule_passes() -> None:
    guard().check(Draw(101, 2, 1), 99)
    guard().check(Draw(101, 2, 50), 100)
    guard(offset=3, increment=3).check(Draw(6, 3, 2), 3)


@pytest.mark.parametrize("first", [0, -1])
def test_zero_means_that_nothing_was_drawn(first: int) -> None:
    with pytest.raises(TicketDatabaseUnavailable, match="without an id"):
        guard().check(Draw(first, 2, 1), 0)


@pytest.mark.parametrize(
    ("offset", "increment", "draw"),
    [
        (1, 2, Draw(102, 2, 1)),  # the other database's
        (2, 2, Draw(101, 2, 1)),
        (3, 4, Draw(104, 4, 1)),
        (1, 2, Draw(101, 1, 2)),  # begins right and goes on wrong
        (1, 2, Draw(101, 3, 2)),
    ],
)
def test_a_wrong_residue_is_dropped_and_is_the_whole_databases_fault(offset: int, increment: int, draw: Draw) -> None:
    with pytest.raises(WrongResidue, match=rf"gave id {draw.first}") as caught:
        guard(offset, increment).check(draw, 0)
    assert isinstance(caught.value, TicketDatabaseMisconfigured)


def test_an_offset_that_equals_the_increment_is_residue_zero() -> None:
    guard(offset=2, increment=2).check(Draw(4, 2, 1), 0)
    with pytest.raises(WrongResidue):
        guard(offset=2, increment=2).check(Draw(5, 2, 1), 0)


@pytest.mark.parametrize("first", [99, 97, 1])
def test_an_id_at_or_below_one_received_before_it_was_sent_for_went_back(first: int) -> None:
    with pytest.raises(SequenceWentBack, match=f"gave id {first} after 99"):
        guard().check(Draw(first, 2, 1), 99)


def test_an_id_below_one_received_meanwhile_is_normal() -> None:
    lifted = guard()
    lifted.advance(500)  # somebody received 500 after this statement was sent
    lifted.check(Draw(101, 2, 1), 99)


def test_advancing_goes_up_only() -> None:
    lifted = guard()
    lifted.advance(500)
    lifted.advance(3)
    assert lifted.highest == 500


def test_nothing_above_the_ceiling_passes() -> None:
    guard(ceiling=1001).check(Draw(1001, 2, 1), 0)
    with pytest.raises(ColumnExhausted, match="up to 1003"):
        guard(ceiling=1001).check(Draw(1003, 2, 1), 0)


def test_a_block_that_runs_past_the_ceiling_is_dropped_whole() -> None:
    guard(ceiling=1001).check(Draw(983, 2, 10), 0)
    with pytest.raises(ColumnExhausted):
        guard(ceiling=1001).check(Draw(985, 2, 10), 0)


def test_the_last_id_of_a_column_that_repeats_it_never_passes() -> None:
    with pytest.raises(ColumnExhausted):
        guard(ceiling=1001, repeats=True).check(Draw(1001, 2, 1), 0)
    guard(ceiling=1001, repeats=True).check(Draw(999, 2, 1), 0)


def test_no_ticket_is_above_what_64_bits_with_a_sign_hold() -> None:
    top = guard(ceiling=TICKET_LIMIT)
    top.check(Draw(TICKET_LIMIT, 2, 1), TICKET_LIMIT - 2)
    with pytest.raises(ColumnExhausted):
        top.check(Draw(TICKET_LIMIT + 2, 2, 1), TICKET_LIMIT)


@pytest.mark.parametrize("increment", [1, 2, 3, 7])
def test_the_next_id_is_the_smallest_larger_one_of_the_residue(increment: int) -> None:
    for offset in range(1, increment + 1):
        for number in range(30):
            expected = next(i for i in range(number + 1, number + 20) if i % increment == offset % increment)
            assert IdGuard(offset, increment).next_after(number) == expected


@pytest.mark.parametrize(("highest", "left"), [(0, 5), (1, 4), (2, 4), (8, 1), (9, 0), (50, 0)])
def test_headroom_counts_this_databases_ids(highest: int, left: int) -> None:
    odd = guard(ceiling=10)
    odd.advance(highest)
    assert odd.headroom() == left
