"""Blocks: which form each has, what their results mean, and what is learnt from them; on connections that a test
answers."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from app.common.errors import (
    ColumnExhausted,
    SequenceMissing,
    SequenceWentBack,
    TicketDatabaseBusy,
    TicketDatabaseError,
)
from app.databases.mysql import sequence_sql
from app.databases.mysql.draws.block_forms import ALONE
from app.databases.protocol import Draw
from tests.unit.databases.draw_bench import Bench, of_tables, table, turns

BLOCK = 0, 1, 0, 3, 0, 199, 0
"""BEGIN, below, SET, the block, SET, above, COMMIT."""


def between(below: int) -> Sequence[int]:
    """The same behind what has been drawn so far."""
    return 0, below, 0, below + 2, 0, below + 202, 0


@pytest.mark.parametrize("read_by_the_driver", [False, True])
async def test_a_block_is_drawn_by_itself(read_by_the_driver: bool) -> None:
    bench = Bench()
    bench.start("photos", 100)
    bench.start("songs")
    (connection,) = bench.pool.all
    (connection.leave_to_the_driver if read_by_the_driver else connection.answer)(*BLOCK)
    await turns()
    assert bench.answers == [("photos", Draw(1, 2, 100))]
    assert connection.sent[1] == "REPLACE INTO `songs` (stub) VALUES ('a')"
    await bench.queue.close()


async def test_a_block_that_fails_half_way_has_failed_and_its_session_is_no_more() -> None:
    bench = Bench()
    bench.start("photos", 100)
    (connection,) = bench.pool.all
    connection.leave_to_the_driver(0, 1, 0, SequenceMissing())
    await turns()
    assert bench.kinds() == [("photos", SequenceMissing)]
    assert not connection.usable
    await bench.queue.close()


async def test_a_block_on_a_table_that_went_back_is_none() -> None:
    bench = Bench()
    bench.queue.start_draw(table(), 100, 500, lambda drawn: bench.answers.append(("photos", drawn)))
    (connection,) = bench.pool.all
    connection.answer(*BLOCK)
    assert bench.kinds() == [("photos", SequenceWentBack)]
    assert bench.pool.idle == [connection]


@pytest.mark.parametrize("read_by_the_driver", [False, True])
async def test_once_the_table_has_been_seen_for_a_blocks_width_the_next_one_goes_right_after_it(
    read_by_the_driver: bool,
) -> None:
    bench = Bench()
    (connection,) = bench.pool.all
    bench.start("photos", 9, after=3)
    connection.answer(5)
    for after, first, given in (
        (199, 201, (0, 201, 0, 203, 0, 399, 0)),
        (399, 401, (0, 401, 599, 0)),
        (599, 601, (0, 601, 799, 0)),
    ):
        bench.start("photos", 100, after=after)
        assert ("SET_VAR" if after > 199 else "SESSION") in connection.sent[-1]
        (connection.leave_to_the_driver if read_by_the_driver else connection.answer)(*given)
        await turns()
        assert bench.answers[-1] == ("photos", Draw(first, 2, 100))
    assert "SET_VAR(auto_increment_increment = 198) SET_VAR(auto_increment_offset = 7)" in connection.sent[-1]
    assert connection.sent[-1].count("REPLACE") == 2
    await bench.queue.close()


async def test_a_table_made_anew_has_to_be_seen_anew() -> None:
    """One that begins again within a block's width would not be noticed to have gone back."""
    bench = Bench()
    (connection,) = bench.pool.all
    bench.start("photos", 9, after=1_000)
    connection.answer(1_001)
    bench.start("photos", 100, after=900)
    assert "SESSION" in connection.sent[-1]
    connection.answer(0, 901, 0, 903, 0, 1099, 0)
    bench.start("photos", 100, after=1099)
    assert "SET_VAR" in connection.sent[-1]
    connection.answer(0, 1101, 1299, 0)
    made_anew = replace(table(), created="later")
    bench.queue.start_draw(made_anew, 100, 1500, lambda drawn: None)
    assert "SESSION" in connection.sent[-1]
    await bench.queue.close()


async def test_a_block_after_the_last_that_others_drew_into_is_drawn_again_between_ids() -> None:
    bench = Bench()
    (connection,) = bench.pool.all
    bench.start("photos", 9)
    connection.answer(1)
    bench.start("photos", 100, after=1_001)
    connection.answer(0, 1_003, 1_203, 0)
    assert "SESSION" in connection.sent[-1]
    connection.answer(0, 1_205, 0, 1_207, 0, 1_409, 0)  # somebody has drawn in the midst of it as well
    assert bench.answers[1:] == [("photos", Draw(1_207, 2, 100))]
    last = 1_409
    for blocks in range(ALONE + 2):
        bench.start("photos", 100, after=last - 2)
        assert ("SESSION" if blocks < ALONE else "SET_VAR") in connection.sent[-1]
        connection.answer(*between(last + 2) if blocks < ALONE else (0, last + 2, last + 200, 0))
        last += 204 if blocks < ALONE else 200
        assert bench.answers[-1] == ("photos", Draw(last - 200 if blocks < ALONE else last - 198, 2, 100))
    await bench.queue.close()


async def test_where_a_statement_has_no_steps_of_its_own_all_blocks_go_between_ids() -> None:
    """A proxy may leave out comments. What somebody else draws in between could then make one run with the rest."""
    bench = Bench()
    bench.queue.forms.takes_steps = False
    (connection,) = bench.pool.all
    for begin in (1, 201, 401):
        bench.start("photos", 100, after=begin - 2)
        assert "SESSION" in connection.sent[-1]
        connection.answer(0, begin, 0, begin + 2, 0, begin + 198, 0)
        assert bench.answers[-1] == ("photos", Draw(begin, 2, 100))
    await bench.queue.close()


@pytest.mark.parametrize("lost", [TicketDatabaseBusy(), SequenceMissing(), None])
async def test_after_a_block_whose_answer_was_lost_the_next_one_goes_between_ids(
    lost: TicketDatabaseError | None,
) -> None:
    """It shows where the table stands; a block right after the last id that is known would leave a gap of its width."""
    bench = Bench(2)
    last, connection = bench.pool.all
    bench.start("photos", 9)
    connection.answer(1)
    bench.start("photos", 100, after=1_001)
    assert "SET_VAR" in connection.sent[-1]
    connection.leave_to_the_driver(*() if lost is None else (0, lost))
    while len(bench.answers) < 2 and not isinstance(lost, TicketDatabaseBusy):
        bench.answered.clear()
        await bench.answered.wait()
    await turns()
    if not isinstance(lost, TicketDatabaseBusy):  # which is drawn again
        bench.start("photos", 100, after=1_001)
        await turns()
    assert "SESSION" in last.sent[-1]
    last.answer(0, 1_203, 0, 1_205, 0, 1_401, 0)
    assert bench.answers[-1] == ("photos", Draw(1_203, 2, 100))
    bench.start("photos", 100, after=1_401)
    assert "SET_VAR" in last.sent[-1], "it is not taken to be shared"
    await bench.queue.close()


async def test_a_few_tickets_with_a_least_skip_none_that_it_may_leave_no_room_for() -> None:
    bench = Bench()
    (connection,) = bench.pool.all
    bench.start("photos", 9)
    connection.answer(1)
    bench.start("photos", 16, least=2_001, after=1_001)
    assert connection.sent[-1].split(";")[2:3] == [sequence_sql.draw("photos", 16)]
    await bench.queue.close()


@pytest.mark.parametrize("given", [(0, 1_003, 1_005, 0), (0, 1_003, 1_199, 0)])
async def test_a_block_that_ends_too_early_is_dropped_and_drawn_again(given: Sequence[int]) -> None:
    bench = Bench()
    (connection,) = bench.pool.all
    bench.start("photos", 9)
    connection.answer(1)
    bench.start("photos", 100, after=1_001)
    connection.answer(*given)
    connection.answer(0, 1_205, 0, 1_207, 0, 1_407, 0)
    assert bench.answers[1:] == [("photos", Draw(1_207, 2, 100))]
    await bench.queue.close()


@pytest.mark.parametrize(
    ("ids", "kind"), [((0, 1_001, 1_199, 0), SequenceWentBack), ((0, 2**63 - 501, 2**63 - 303, 0), ColumnExhausted)]
)
async def test_a_block_after_the_last_on_a_table_that_stands_elsewhere_is_none(
    ids: Sequence[int], kind: type[Exception]
) -> None:
    bench = Bench()
    (connection,) = bench.pool.all
    bench.start("photos", 9)
    connection.answer(1)
    bench.start("photos", 100, after=1_001) if kind is SequenceWentBack else bench.start("photos", 100, after=2**62 + 1)
    assert "SET_VAR" in connection.sent[-1]
    connection.answer(*ids)
    assert bench.kinds()[1:] == [("photos", kind)]
    await bench.queue.close()


async def test_more_than_a_few_rows_are_a_block_where_that_costs_less() -> None:
    bench = Bench()
    (connection,) = bench.pool.all
    bench.start("photos", 9)
    assert connection.sent[-1] == sequence_sql.draw("photos", 9)
    connection.answer(1)
    bench.start("photos", 8, after=17)
    assert connection.sent[-1] == sequence_sql.draw("photos", 8)
    connection.answer(19)
    bench.start("photos", 9, after=33)
    assert "SET_VAR(auto_increment_increment = 16)" in connection.sent[-1]
    connection.answer(0, 35, 53, 0)  # others draw
    assert connection.sent[-1] == sequence_sql.draw("photos", 9)
    for first in range(55, 55 + ALONE * 18, 18):  # behind those that were dropped, and alone from then on
        assert connection.sent[-1] == sequence_sql.draw("photos", 9)
        connection.answer(first)
        assert bench.answers[-1] == ("photos", Draw(first, 2, 9))
        bench.start("photos", 9, after=first + 16)
    assert "SET_VAR" in connection.sent[-1]
    await bench.queue.close()


async def test_close_to_the_end_of_the_column_a_block_goes_between_ids() -> None:
    """There a block's width must not be used up because others have raised the table."""
    bench = Bench()
    (connection,) = bench.pool.all
    bench.start("photos", 9)
    connection.answer(1)
    for after, form in ((2**62 + 1, "SET_VAR"), (2**63 - 2**40 + 1, "SESSION")):
        bench.start("photos", 100, after=after)
        assert form in connection.sent[-1]
        connection.answer(*between(after + 2) if form == "SESSION" else (0, after + 2, after + 200, 0))
    await bench.queue.close()


@pytest.mark.parametrize("what", ["lock mode", "MyISAM"])
async def test_blocks_by_their_ends_are_that_however_long_the_table_has_been_seen(what: str) -> None:
    bench = Bench()
    if what == "lock mode":
        bench.queue.forms.ends_only = True
    photos = replace(table(), counts_rows=what == "MyISAM")
    (connection,) = bench.pool.all
    bench.queue.start_draw(photos, 9, 0, lambda drawn: None)
    connection.answer(1)
    for after in (1_001, 3_001):
        bench.queue.start_draw(photos, 100, after, lambda drawn: None)
        assert connection.sent[-1].split(";")[0] == sequence_sql.draw("photos", 1)
        assert sequence_sql.draw("photos", 2) in connection.sent[-1].split(";")
        connection.answer(after + 2, 0, after + 4, 0)
    await bench.queue.close()


async def test_a_block_with_a_least_reads_one_result_more() -> None:
    bench = Bench()
    bench.start("photos", 100, least=5000)
    (connection,) = bench.pool.all
    connection.answer(0, 4999, 5001, 0, 5003, 0, 5199, 0)
    assert of_tables(connection.sent[0])[:3] == ["BEGIN", "photos!", "photos"]
    assert bench.answers == [("photos", Draw(5001, 2, 100))]
    bench.start("photos", 100, least=6000, after=5199)
    assert of_tables(connection.sent[1]) == ["BEGIN", "photos!", "photos", "photos", "COMMIT"]
    assert "SET_VAR(auto_increment_offset = 61)" in connection.sent[1]
    connection.answer(0, 5999, 6001, 6199, 0)
    assert bench.answers[1:] == [("photos", Draw(6001, 2, 100))]
    await bench.queue.close()


async def test_a_block_whose_least_is_close_to_the_end_has_two_ids_below_it() -> None:
    """As one whose table stands there: by the second its place is certain."""
    bench = Bench()
    bench.start("photos", 100, least=2**63 - 2**40)
    (connection,) = bench.pool.all
    assert of_tables(connection.sent[0])[:4] == ["BEGIN", "photos!", "photos", "photos"]
    await bench.queue.close()


async def test_under_traditional_locks_a_transaction_draws_from_no_table_twice_and_a_block_has_none() -> None:
    bench = Bench()
    bench.queue.forms.ends_only = True
    bench.start("busy")
    for name, least in (("b", 0), ("a", 500), ("b", 0)):
        bench.start(name, least=least)
    bench.start("blocks", 100, least=500)
    (connection,) = bench.pool.all
    connection.answer(1)
    assert of_tables(connection.sent[1]) == ["BEGIN", "a!", "a", "b", "COMMIT"]
    connection.answer(0, 499, 501, 3, 0)
    assert of_tables(connection.sent[2]) == ["b"]
    connection.answer(5)
    connection.answer(499, 501, 0, 503, 0)
    assert of_tables(connection.sent[3])[:2] == ["blocks!", "blocks"]
    came = [("a", 501, 1), ("b", 3, 1), ("b", 5, 1), ("blocks", 503, 100)]
    assert bench.answers[1:] == [(name, Draw(id_, 2, count)) for name, id_, count in came]
    await bench.queue.close()
