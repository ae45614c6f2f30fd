"""The checker of recorded histories finds each way in which a promise can be broken, and nothing else."""

import random
from collections.abc import Sequence

import pytest

from tests.harness.history import (
    Answer,
    between,
    disorder,
    duplicates,
    failures,
    longest_outage,
    malformed,
    percentile,
    slowest,
    statuses,
    tickets,
    violations,
)


def single(ticket: int, asked_at: float = 0, arrived_at: float = 100, server: str = "a", sequence: str = "s") -> Answer:
    return Answer(sequence, server, "single", 1, asked_at, arrived_at, 200, (ticket,))


def several(ids: Sequence[int], asked_at: float = 0, arrived_at: float = 100, server: str = "a") -> Answer:
    return Answer("s", server, "count", len(ids), asked_at, arrived_at, 200, tuple(ids))


def block(first: int, size: int, step: int = 2, asked_at: float = 0, arrived_at: float = 100) -> Answer:
    ids = range(first, first + size * step, step)
    return Answer("s", "a", "block", size, asked_at, arrived_at, 200, ids)


def a_sound_history(seed: int) -> list[Answer]:
    """Three servers and two databases; requests overlap, and each gets its tickets while it is under way."""
    chance = random.Random(seed)
    counters = {(sequence, residue): residue for sequence in ("s", "t") for residue in (1, 2)}
    history = []
    for moment in range(300):
        sequence = chance.choice(["s", "t"])
        residue = chance.choice([1, 2])
        size = chance.choice([1, 1, 1, 5, 400])
        first = counters[sequence, residue]
        counters[sequence, residue] += 2 * (size + chance.randrange(3))
        ids = range(first, first + 2 * size, 2)
        asked_at, arrived_at = moment - chance.random() * 20, moment + chance.random() * 20
        server = chance.choice(["a", "b", "c"])
        if size == 1:
            history.append(Answer(sequence, server, "single", 1, asked_at, arrived_at, 200, (first,)))
        elif size == 5:
            history.append(Answer(sequence, server, "count", 5, asked_at, arrived_at, 200, tuple(ids)))
        else:
            history.append(Answer(sequence, server, "block", 400, asked_at, arrived_at, 200, ids))
    chance.shuffle(history)
    return history


@pytest.mark.parametrize("seed", range(20))
def test_a_sound_history_has_no_violation(seed: int) -> None:
    assert violations(a_sound_history(seed)) == []


@pytest.mark.parametrize("seed", range(20))
def test_one_answer_repeated_anywhere_in_a_sound_history_is_found(seed: int) -> None:
    history = a_sound_history(seed)
    chance = random.Random(seed)
    history.insert(chance.randrange(len(history)), chance.choice(history))
    assert len(duplicates(history)) == 1


@pytest.mark.parametrize("seed", range(20))
def test_one_id_of_a_block_given_to_somebody_else_is_found(seed: int) -> None:
    history = a_sound_history(seed)
    chance = random.Random(seed)
    victim = chance.choice([answer for answer in history if answer.kind == "block"])
    history.append(single(chance.choice(victim.ids), sequence=victim.sequence, server="d"))
    assert [violation.promise for violation in violations(history)] == ["duplicate"]


def test_the_same_single_ticket_from_two_servers_is_a_duplicate() -> None:
    (found,) = duplicates([single(7, server="a"), single(9), single(7, server="b")])
    assert str(found) == "duplicate in s: 7 handed out twice, by a and by b"


def test_the_same_id_in_two_sequences_is_no_duplicate() -> None:
    assert violations([single(7), single(7, sequence="t")]) == []


def test_the_same_id_twice_in_one_answer_is_found() -> None:
    history = [several([3, 5, 5, 7])]
    assert {violation.promise for violation in violations(history)} == {"duplicate", "malformed"}


def test_a_ticket_of_a_count_inside_a_block_is_a_duplicate() -> None:
    (found,) = duplicates([block(101, 10_000), several([2, 4, 20_099])])
    assert "20099" in found.what


def test_a_ticket_just_past_a_block_is_no_duplicate() -> None:
    assert duplicates([block(101, 10_000), single(20_101), single(99)]) == []


def test_a_ticket_between_the_ids_of_a_block_belongs_to_the_other_database() -> None:
    assert duplicates([block(101, 10), single(102)]) == []


def test_two_blocks_that_overlap_are_found() -> None:
    (found,) = duplicates([block(1, 100), block(151, 100)])
    assert "151 to 199 in steps of 2" in found.what


def test_a_short_duplicate_behind_a_longer_block_is_found_after_others_in_it() -> None:
    history = [block(1, 1000), single(5, server="b"), single(1_999, server="c"), single(2_001)]
    assert len(duplicates(history)) == 2


def test_a_block_with_a_wrong_step_is_found_and_its_ids_are_compared_one_by_one() -> None:
    history = [block(1, 10, step=4), single(9, server="b"), single(11, server="b")]
    promises = [violation.promise for violation in violations(history)]
    assert promises == ["malformed", "duplicate"]


@pytest.mark.parametrize("ids", [[1, 3], [1, 3, 5, 7]])
def test_too_few_and_too_many_tickets_are_found(ids: list[int]) -> None:
    (found,) = malformed([several([1, 3, 5])._replace(ids=tuple(ids))])
    assert f"3 tickets expected, {len(ids)} given" in found.what


def test_ids_that_do_not_increase_within_one_answer_are_found() -> None:
    (found,) = malformed([several([3, 1, 5])])
    assert "do not increase" in found.what


def test_an_id_of_no_databases_offset_is_found() -> None:
    history = [single(4), block(3, 5, step=4), several([1, 2, 3])]
    found = malformed(history, increment=4, offsets=[1, 2])
    assert [violation.what for violation in found] == [
        "4 is of no database's offset, from a",
        "3 is of no database's offset, from a",
        "3 is of no database's offset, from a",
    ]


def test_an_id_of_zero_is_found() -> None:
    (found,) = malformed([single(0)])
    assert "below 1" in found.what


def test_a_failure_that_carries_tickets_is_found() -> None:
    (found,) = malformed([single(1)._replace(status=503)])
    assert "a 503 with tickets" in found.what


def test_a_smaller_id_asked_for_after_a_larger_one_arrived_is_disorder() -> None:
    (found,) = disorder([single(9, 0, 1), single(7, 2, 3)])
    assert str(found) == "disorder in s: 7 came from a after 9 had come from it"


def test_a_smaller_id_of_a_request_that_overlaps_is_no_disorder() -> None:
    assert disorder([single(9, 0, 2), single(7, 1, 3)]) == []


def test_disorder_is_found_behind_an_overlapping_request_and_in_any_order_of_recording() -> None:
    history = [single(5, 2, 3), single(9, 0, 10), single(7, 0, 1)]
    for recorded in (history, history[::-1]):
        (found,) = disorder(recorded)
        assert "5 came from a after 7" in found.what


def test_a_smaller_id_from_another_server_or_another_database_is_no_disorder() -> None:
    assert (
        disorder([single(9, 0, 1), single(7, 2, 3, server="b"), single(8, 2, 3), single(6, 2, 3, sequence="t")]) == []
    )


def test_a_block_that_begins_below_an_earlier_block_is_disorder_and_below_a_ticket_it_is_none() -> None:
    late = block(41, 10, asked_at=2, arrived_at=3)
    assert len(disorder([block(51, 10, asked_at=0, arrived_at=1), late])) == 1
    assert not disorder([single(51, 0, 1), late])


def test_a_count_over_both_databases_is_in_order_on_each() -> None:
    assert disorder([several([1, 3, 200, 202], 0, 1), single(5, 2, 3), single(204, 2, 3)]) == []
    (found,) = disorder([several([1, 3, 200, 202], 0, 1), several([5, 201, 202 - 2], 2, 3)])
    assert "200 came from a after 202" in found.what


def test_the_figures_of_a_history() -> None:
    history = [
        single(1, 0, 1),
        block(3, 100, asked_at=1, arrived_at=1.5),
        Answer("s", "a", "single", 1, 2, 5, 503),
        Answer("s", "a", "single", 1, 6, 6.1, 0, error="ConnectionResetError"),
    ]
    assert tickets(history) == 101
    assert statuses(history) == {200: 2, 503: 1, 0: 1}
    assert [answer.status for answer in failures(history)] == [503, 0]
    assert slowest(history) == 3
    assert percentile(history, 0.5) == 0.5
    assert percentile(history, 1) == 3
    assert percentile([], 0.99) == 0
    assert between(history, 1, 6) == history[1:3]
    assert longest_outage(history, 0, 10) == 8.5
