"""The tally finds what the checker of histories finds, and what that one does not look for."""

import random
import time
from collections.abc import Sequence

import pytest

from tests.harness import history
from tests.harness.history import Answer, Kind
from tests.harness.tally import EVERYBODY, Runs, Tally


def answer(
    *ids: int,
    asked: float = 0,
    arrived: float = 1,
    server: str = "a",
    sequence: str = "photos",
    status: int = 200,
    block: bool = False,
) -> Answer:
    kind: Kind = "single" if len(ids) < 2 else "count"
    carried: Sequence[int] = ids
    if block:
        kind, carried = "block", range(ids[0], ids[-1] + 2, 2)
    return Answer(sequence, server, kind, len(carried), asked, arrived, status, carried)


def tally_of(*answers: Answer) -> Tally:
    tally = Tally()
    for each in answers:
        tally.add(each)
    return tally


def test_a_good_history_is_good() -> None:
    tally = tally_of(
        answer(1),
        answer(2, asked=1.1, arrived=2),
        answer(3, 101, block=True, asked=2.1, arrived=3),
        answer(103, 105, 107, asked=3.1, arrived=4),
        answer(4, asked=3.1, arrived=5),
        answer(1, sequence="accounts"),
    )
    assert (tally.violations, tally.words, tally.tickets, tally.requests) == (0, [], 57, 6)
    assert tally.longest_wait == pytest.approx(1.9)


@pytest.mark.parametrize(
    ("promise", "answers"),
    [
        ("duplicate", [answer(7), answer(7, server="b")]),
        ("duplicate", [answer(11, 211, block=True), answer(101, server="b")]),
        ("duplicate", [answer(101), answer(11, 211, block=True, server="b")]),
        ("duplicate", [answer(1, 3, 9), answer(5, 7, 9, server="b")]),
        ("duplicate", [answer(11, 21, block=True), answer(31, 41, block=True), answer(1, 91, block=True, server="b")]),
        ("malformed", [answer(0)]),
        ("malformed", [answer(5, 3)]),
        ("malformed", [Answer("photos", "a", "count", 3, 0, 1, 200, (1, 3))]),
        ("disorder", [answer(9, asked=0, arrived=1), answer(7, asked=2, arrived=3)]),
        ("disorder", [answer(9, 11), answer(8, asked=2, arrived=3), answer(6, asked=4, arrived=5)]),
        ("unavailable", [answer(status=503)]),
        ("unavailable", [answer(status=0)]),
    ],
)
def test_a_broken_history_is_found_out(promise: str, answers: list[Answer]) -> None:
    tally = tally_of(*answers)
    assert tally.violations == 1
    assert tally.words[0].startswith(promise)


def test_requests_that_overlap_may_come_out_in_any_order_and_servers_owe_one_another_none() -> None:
    tally = tally_of(
        answer(9, asked=0, arrived=1), answer(7, asked=0.5, arrived=2), answer(5, asked=3, arrived=4, server="b")
    )
    assert tally.words == []


def test_tickets_after_a_bump_are_above_it() -> None:
    tally = tally_of(answer(1))
    tally.bumped("photos", 1000, at=2)
    tally.add(answer(3, asked=1.9, arrived=3))
    tally.add(answer(3, sequence="accounts", asked=2.1, arrived=3))
    assert tally.words == []
    tally.add(answer(999, asked=2.1, arrived=4))
    assert tally.violations == 1


def test_failures_are_excused_while_their_server_cannot_help_it() -> None:
    tally = Tally()
    now = time.monotonic()
    with tally.excuses("a", lambda: now):
        tally.add(answer(status=0, asked=now + 1, arrived=now + 2))
        tally.add(answer(status=0, asked=now - 1, arrived=now + 1))
    with tally.excuses(EVERYBODY, lambda: now + 5):
        tally.add(answer(status=503, asked=now + 5, arrived=now + 6, server="b"))
    assert (tally.violations, tally.excused) == (0, {"no answer": 2, "503": 1})
    tally.add(answer(status=503, asked=now + 6, arrived=now + 7, server="b"))
    assert (tally.violations, tally.failed) == (1, {"503": 1})


def test_runs_that_meet_become_one() -> None:
    runs = Runs(2)
    chance = random.Random(1)
    blocks = [(first, first + 18) for first in range(1, 20_001, 20)]
    chance.shuffle(blocks)
    for first, last in blocks:
        assert runs.add(first, last) is None
    assert len(runs) == 1
    assert runs.add(19_999, 20_001) == (19_999, 19_999)


@pytest.mark.parametrize("seed", range(40))
def test_it_agrees_with_the_checker_of_histories(seed: int) -> None:
    """Random histories, most of them broken in some way; both say whether tickets came twice or out of order."""
    chance = random.Random(seed)
    answers: list[Answer] = []
    following = {0: 2, 1: 1}
    clock = 0.0
    for _ in range(60):
        residue, size = chance.choice((0, 1)), chance.choice((1, 1, 2, 5, 30))
        first = following[residue]
        if chance.random() < 0.02:
            first = max(2 - residue, first - 2 * chance.randrange(1, 20))
        ids = range(first, first + 2 * size, 2)
        following[residue] = max(following[residue], first + 2 * size)
        asked = clock - chance.choice((0.0, 0.0, 0.4))
        clock += 0.3
        block = size == 30
        answers.append(
            Answer(
                "photos",
                chance.choice("ab"),
                "block" if block else "count",
                size,
                asked,
                clock,
                200,
                ids if block else tuple(ids),
            )
        )
    words = tally_of(*answers).words
    assert any(w.startswith("duplicate") for w in words) == bool(history.duplicates(answers))
    assert any(w.startswith("disorder") for w in words) == bool(history.disorder(answers))


@pytest.mark.parametrize("seed", range(20))
def test_tickets_that_come_again_in_another_ring_are_found(seed: int) -> None:
    """Blocks in rings of several increments, held against sets of ids."""
    chance = random.Random(seed)
    tally = Tally()
    handed_out: set[int] = set()
    duplicates = 0
    for clock in range(200):
        increment = chance.choice((1, 2, 3, 4, 6))
        first = chance.randrange(1, 20_000)
        ids = range(first, first + chance.randrange(1, 30) * increment, increment)
        tally.use_ring(increment, range(1, increment + 1))
        tally.add(Answer("photos", f"server {clock}", "block", len(ids), clock, clock + 1, 200, ids))
        again = not handed_out.isdisjoint(ids)
        duplicates += again
        assert (tally.violations > 0) == again, (clock, ids)
        tally.violations = 0
        handed_out.update(ids)
    assert duplicates > 3


def test_a_ring_that_has_room_has_no_tickets_there() -> None:
    tally = Tally()
    tally.use_ring(4, (1, 2))
    tally.add(answer(1))
    tally.add(answer(6, asked=1.1, arrived=2))
    assert tally.words == []
    tally.add(answer(7, asked=2.1, arrived=3))
    assert tally.words[0].startswith("malformed")
