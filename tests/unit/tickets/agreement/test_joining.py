"""The table of how a database that answers joins the ring that is recorded."""

import pytest

from app.databases.protocol import RingRecord, RingState
from app.tickets.agreement.joining import JOINS, Comer, Found, Joins, found_by_marks, found_by_record, refusals
from app.tickets.agreement.record import UNKNOWN

RING = RingRecord(5, 3, 1, (1, 2, 3), own=1)
GROWN = RingRecord(5, 3, 4, (1, 2, 3), own=1)

TABLE = """
                holds nothing   holds tickets
this_ring       as_it_is        as_it_is
earlier_ring    raised          raised
begun           raised          all_raised
another_place   raised          refused
marks           as_it_is        as_it_is
old_marks       raised          raised
wrong_marks     refused         refused
nothing         raised          all_raised
"""


@pytest.mark.parametrize("row", TABLE.strip().splitlines()[1:])
def test_how_a_database_joins_while_every_database_answers(row: str) -> None:
    found, *expected = row.split()
    for holds in (False, True):
        comer = Comer("db2:3306", 2, Found(found), holds, own=1, wrong="its marks are about itself")
        refused = refusals({2: comer}, all_answer=True, recorded=True)
        joins = JOINS[comer.found][holds]
        assert (joins is None) is (2 in refused)
        assert str(joins or "refused") == expected[holds]


def test_an_empty_database_takes_another_place_only_where_every_database_answers() -> None:
    empty = {2: Comer("db2:3306", 2, Found.ANOTHER_PLACE, own=1)}
    assert "only where every database answers" in refusals(empty, all_answer=False, recorded=True)[2]
    assert not refusals(empty, all_answer=True, recorded=True)


def test_where_only_this_server_remembers_the_ring_a_database_without_record_and_marks_waits_for_the_others() -> None:
    comers = {1: Comer("db1:3306", 1, Found.MARKS), 2: Comer("db2:3306", 2, Found.NOTHING)}
    assert refusals(comers, all_answer=False, recorded=False) == {2: UNKNOWN}
    assert not refusals(comers, all_answer=True, recorded=False)
    assert not refusals(comers, all_answer=False, recorded=True)


def test_beside_a_misplaced_database_those_that_would_be_raised_in_no_place_of_their_own_are_in_doubt() -> None:
    comers = {str(found): Comer("db2:3306", 2, found, own=3, wrong="wrong") for found in Found}
    del comers["wrong_marks"]
    assert not refusals(comers, all_answer=True, recorded=True)
    comers["misplaced"] = Comer("db1:3306", 1, Found.ANOTHER_PLACE, holds=True, own=2)
    refused = refusals(comers, all_answer=True, recorded=True)
    assert set(refused) == {"misplaced", "another_place", "old_marks", "nothing"}
    assert "in doubt while db1:3306 had another" in refused["nothing"]
    assert "was drawn at offset 2, and TICKETS_DATABASES lists it at 1" in refused["misplaced"]


@pytest.mark.parametrize(
    ("recorded", "found"),
    [
        (RingRecord(4, 3, 4, (1, 2), own=2), Found.THIS_RING),
        (RingRecord(3, 2, 1, (1, 2), own=2), Found.EARLIER_RING),
        (RingRecord(3, 3, 3, (1, 2), own=2, state=RingState.FORMING), Found.BEGUN),
        (RingRecord(4, 3, 4, (1, 2), own=1), Found.ANOTHER_PLACE),
    ],
)
def test_what_the_record_of_a_database_at_offset_2_says(recorded: RingRecord, found: Found) -> None:
    assert found_by_record(recorded, 2, GROWN) is found


def test_a_record_from_before_the_offset_belonged_to_the_ring_is_an_earlier_one() -> None:
    without = RingRecord(4, 3, 4, (1, 3), own=1)
    assert found_by_record(RingRecord(4, 3, 4, (1, 3), own=2), 2, without) is Found.EARLIER_RING


@pytest.mark.parametrize(
    ("kept", "offset", "record", "found"),
    [
        (set(), 2, RING, Found.NOTHING),
        ({(1, 3), (3, 3)}, 2, RING, Found.MARKS),
        ({(1, 3)}, 4, RING, Found.OLD_MARKS),
        ({(2, 3)}, 2, RING, Found.WRONG_MARKS),
        ({(1, 2), (1, 3)}, 2, RING, Found.WRONG_MARKS),
        ({(1, 3), (3, 3)}, 2, GROWN, Found.OLD_MARKS),
        ({(1, 2), (1, 3)}, 2, GROWN, Found.OLD_MARKS),
        ({(1, 2)}, 2, GROWN, Found.WRONG_MARKS),
    ],
)
def test_what_the_marks_of_a_database_say(
    kept: set[tuple[int, int]], offset: int, record: RingRecord, found: Found
) -> None:
    told, wrong = found_by_marks(kept, offset, record)
    assert told is found
    assert bool(wrong) is (found is Found.WRONG_MARKS)


def test_joining_as_it_is_needs_no_look_at_what_the_database_holds() -> None:
    assert {found for found, (empty, full) in JOINS.items() if empty is not full} == {
        Found.BEGUN,
        Found.ANOTHER_PLACE,
        Found.NOTHING,
    }
    assert Joins.AS_IT_IS not in JOINS[Found.NOTHING]
