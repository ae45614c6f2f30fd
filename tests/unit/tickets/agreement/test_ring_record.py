"""Whether settings agree with the ring that the databases record: the decisions alone."""

from dataclasses import replace

import pytest

from app.databases.protocol import RingRecord, RingState
from app.tickets.agreement.record import (
    RingContradiction,
    begun,
    contradiction,
    contradiction_of_marks,
    finished,
    first_record,
    former_setting,
    increment_of_marks,
    newest,
    same_ring,
    with_offsets,
)

TWO = RingRecord(1, 2, 1, (1, 2), own=1)


def test_the_highest_number_counts() -> None:
    later = RingRecord(3, 3, 3, (1, 2, 3), own=2)
    assert newest([TWO, later, replace(TWO, own=2)]) == replace(later, former=(2,))


def test_an_increment_of_before_is_a_note_and_any_other_a_contradiction() -> None:
    grown = replace(TWO, increment=4, former=(2,))
    assert contradiction(grown, 2, 2) is None
    assert "TICKETS_INCREMENT is 2, which the ring had before" in str(former_setting(grown, 2))
    assert contradiction(grown, 3, 2) is not None
    for increment in (None, 3, 4):
        assert former_setting(grown, increment) is None


def test_every_increment_that_the_ring_has_had_is_remembered() -> None:
    one, two = replace(TWO, former=(6,)), RingRecord(3, 3, 3, (1, 2, 3), own=2, former=(4,))
    assert newest([one, two]).former == newest([two, one]).former == (2, 4, 6)
    assert begun([one, two], 2, (1, 2), RingState.GROWING).former == (3, 4, 6)


def test_one_number_with_offsets_of_both() -> None:
    assert newest([TWO, replace(TWO, offsets=(1, 3), own=3)]).offsets == (1, 2, 3)


def test_one_number_counted_up_twice_from_older_rings_is_the_latest_increment() -> None:
    old, new = RingRecord(5, 3, 1, (1, 2, 3), own=1), RingRecord(5, 3, 4, (1, 2), own=2)
    found = newest([old, new])
    assert (found.since, found.offsets) == (4, (1, 2))


def test_two_rings_of_one_number_are_nobodys() -> None:
    with pytest.raises(RingContradiction, match="two rings, number 1 with increment"):
        newest([replace(TWO, increment=3), TWO])


@pytest.mark.parametrize(
    ("increment", "listed", "said"),
    [
        (None, 2, None),
        (2, 2, None),
        (None, 1, None),
        (3, 2, "the recorded increment of the ring is 2, and TICKETS_INCREMENT is 3"),
        (3, 3, "the recorded increment of the ring is 2, and TICKETS_INCREMENT is 3"),
        (None, 3, "the recorded increment of the ring is 2, and TICKETS_DATABASES lists 3"),
    ],
)
def test_settings_against_the_record(increment: int | None, listed: int, said: str | None) -> None:
    found = contradiction(TWO, increment, listed)
    assert (found or "").startswith(said or "")
    assert (found is None) == (said is None)


@pytest.mark.parametrize(
    ("marks", "increment", "listed", "found"),
    [
        (set(), None, 3, 3),
        ({(1, 4), (2, 4)}, None, 2, 4),
        ({(1, 4), (2, 2)}, None, 2, 2),
        ({(1, 4)}, 6, 2, 6),
    ],
)
def test_the_increment_of_a_ring_that_is_not_recorded(
    marks: set[tuple[int, int]], increment: int | None, listed: int, found: int
) -> None:
    assert increment_of_marks(marks, increment, listed) == found


@pytest.mark.parametrize(
    ("marks", "increment", "own", "listed", "said"),
    [
        ({(2, 2)}, 2, 1, 2, None),
        (set(), 2, 1, 2, None),
        ({(2, 2)}, 3, 1, 3, "of increment 2, and the ring's is 3"),
        ({(2, 2), (3, 3)}, 3, 1, 3, "of increment 2, and the ring's is 3"),
        ({(1, 2)}, 2, 1, 2, "about offset 1, at which TICKETS_DATABASES lists it"),
        ({(2, 2)}, 2, 1, 3, "lists 3 databases"),
    ],
)
def test_settings_against_marks(
    marks: set[tuple[int, int]], increment: int, own: int, listed: int, said: str | None
) -> None:
    found = contradiction_of_marks(marks, increment, own, listed)
    assert (said or "") in (found or "")
    assert (found is None) == (said is None)


def test_a_further_offset_is_another_number_of_the_same_increment() -> None:
    assert with_offsets(TWO, [2, 1]) is TWO
    more = with_offsets(TWO, [3])
    assert (more.number, more.since, more.offsets) == (2, 1, (1, 2, 3))


def test_a_change_begins_and_ends_under_numbers_of_its_own() -> None:
    change = begun([RingRecord(7, 2, 1, (1, 2), own=1)], 3, [2, 1], RingState.GROWING)
    assert (change.number, change.since, change.offsets, change.state) == (8, 8, (1, 2), RingState.GROWING)
    new = finished(change)
    assert (new.number, new.since, new.offsets, new.state) == (9, 9, (1, 2), RingState.DRAWN)
    assert first_record(2, [2, 1]) == replace(TWO, own=0)


def test_a_ring_is_the_same_whatever_database_records_it() -> None:
    assert same_ring(TWO, replace(TWO, own=2))
    assert same_ring(None, None)
    assert not same_ring(TWO, None)
    assert not same_ring(TWO, replace(TWO, state=RingState.GROWING))
