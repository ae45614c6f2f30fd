"""The table of what is done with a database that answers where a ring is recorded."""

import pytest

from app.databases.protocol import RingRecord, RingState
from app.tickets.ring.joining import Comer, Found, Joins, Marks, found_in, join, join_all, marks_of
from app.tickets.ring.record import UNKNOWN

RING = RingRecord(5, 3, 1, (1, 2, 3), own=1)
GROWN = RingRecord(5, 3, 4, (1, 2, 3), own=1)

# record found, marks, holds tickets, whether all answer (None: either), what is done
TABLE = [
    (Found.THIS_RING, Marks.NONE, False, None, Joins.AS_IT_IS),
    (Found.EARLIER_RING, Marks.NONE, False, None, Joins.RAISED),
    (Found.BEGUN, Marks.NONE, False, None, Joins.RAISED),
    (Found.BEGUN, Marks.NONE, True, None, Joins.ALL_RAISED),
    (Found.ANOTHER_PLACE, Marks.NONE, True, None, Joins.REFUSED),
    (Found.ANOTHER_PLACE, Marks.NONE, False, False, Joins.REFUSED),
    (Found.ANOTHER_PLACE, Marks.NONE, False, True, Joins.RAISED),
    (Found.NOTHING, Marks.CONTRADICT, False, None, Joins.REFUSED),
    (Found.NOTHING, Marks.AGREE, False, None, Joins.AS_IT_IS),
    (Found.NOTHING, Marks.ARE_OLD, False, None, Joins.RAISED),
    (Found.NOTHING, Marks.NONE, False, None, Joins.RAISED),
    (Found.NOTHING, Marks.NONE, True, None, Joins.ALL_RAISED),
]


@pytest.mark.parametrize(("found", "marks", "holds", "all_answer", "joins"), TABLE)
def test_what_is_done_with_a_database_that_answers(
    found: Found, marks: Marks, holds: bool, all_answer: bool | None, joins: Joins
) -> None:
    comer = Comer("db2:3306", 2, found, own=1, marks=marks, contradiction="its marks are about itself", holds=holds)
    for answers in [True, False] if all_answer is None else [all_answer]:
        verdict = join(comer, all_answer=answers, recorded=True)
        assert verdict.joins is joins
        assert bool(verdict.reason) is (joins is Joins.REFUSED)


def test_where_only_this_server_remembers_the_ring_a_database_without_record_and_marks_waits_for_the_others() -> None:
    empty, marked = Comer("db2:3306", 2, Found.NOTHING), Comer("db2:3306", 2, Found.NOTHING, marks=Marks.AGREE)
    assert join(empty, all_answer=False, recorded=False) == (Joins.REFUSED, UNKNOWN)
    assert join(empty, all_answer=True, recorded=False).joins is Joins.RAISED
    assert join(marked, all_answer=False, recorded=False).joins is Joins.AS_IT_IS


@pytest.mark.parametrize(
    ("recorded", "found"),
    [
        (None, Found.NOTHING),
        (RingRecord(4, 3, 4, (1, 2), own=2), Found.THIS_RING),
        (RingRecord(3, 2, 1, (1, 2), own=2), Found.EARLIER_RING),
        (RingRecord(3, 3, 3, (1, 2), own=2, state=RingState.FORMING), Found.BEGUN),
        (RingRecord(4, 3, 4, (1, 2), own=1), Found.ANOTHER_PLACE),
    ],
)
def test_what_a_database_at_offset_2_records(recorded: RingRecord | None, found: Found) -> None:
    assert found_in(recorded, 2, GROWN) is found


def test_a_record_from_before_the_offset_belonged_to_the_ring_is_an_earlier_one() -> None:
    without = RingRecord(4, 3, 4, (1, 3), own=1)
    assert found_in(RingRecord(4, 3, 4, (1, 3), own=2), 2, without) is Found.EARLIER_RING


def test_what_the_marks_of_a_database_at_offset_2_say() -> None:
    assert marks_of(set(), 2, RING)[0] is Marks.NONE
    assert marks_of({(1, 3), (3, 3)}, 2, RING)[0] is Marks.AGREE
    assert marks_of({(1, 3), (3, 3)}, 2, GROWN)[0] is Marks.ARE_OLD
    assert marks_of({(1, 3)}, 4, RING)[0] is Marks.ARE_OLD
    assert marks_of({(2, 3)}, 2, RING)[0] is Marks.CONTRADICT
    assert marks_of({(1, 2), (1, 3)}, 2, RING)[0] is Marks.CONTRADICT


def test_marks_from_before_the_growth_do_not_contradict_beside_marks_of_this_increment() -> None:
    assert marks_of({(1, 2), (1, 3)}, 2, GROWN)[0] is Marks.ARE_OLD
    assert marks_of({(1, 2)}, 2, GROWN)[0] is Marks.CONTRADICT


@pytest.mark.parametrize("all_answer", [True, False])
def test_beside_a_misplaced_database_those_that_are_in_no_place_of_their_own_are_in_doubt(all_answer: bool) -> None:
    comers = {found: Comer("db2:3306", 2, found, own=2) for found in Found}
    alone = join_all(comers, all_answer=True, recorded=True)
    assert all(verdict.joins is not Joins.REFUSED for verdict in alone.values())
    misplaced = {"misplaced": Comer("db1:3306", 1, Found.ANOTHER_PLACE, own=2, holds=True)}
    beside = join_all(comers | misplaced, all_answer=all_answer, recorded=True)
    assert {key for key, verdict in beside.items() if verdict.joins is Joins.REFUSED} == {
        "misplaced",
        Found.NOTHING,
        Found.ANOTHER_PLACE,
    }
    assert "in doubt while db1:3306 had another" in beside[Found.NOTHING].reason
