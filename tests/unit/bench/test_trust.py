"""Which runs are published, and which are not."""

import os
from collections.abc import Sequence

import pytest

from bench.case import Case
from bench.model import Sample
from bench.summary import Row
from bench.trust import ELSEWHERE_SHARE, doubts

CORES = os.cpu_count() or 1


def row(rates: Sequence[float], *, elsewhere: float = 0.0, steady: bool = True, trouble: str = "") -> Row:
    """A case whose rounds had these rates."""
    case = Case("server-64", "group", "title", lambda _stage, _seconds: Sample(1, None, None), steady=steady)
    samples = {
        number: Sample(rate, None, None, cores={"server": 1.0, "elsewhere": elsewhere})
        for number, rate in enumerate(rates, 1)
    }
    return Row(case, samples, trouble)


QUIET = [100.0, 101.0, 99.0, 102.0, 98.0]


def test_a_quiet_run_has_none() -> None:
    assert doubts("", 5, {"server-64": row(QUIET)}, True) == []


def test_one_round_out_of_five_may_be_an_outlier() -> None:
    assert doubts("", 5, {"server-64": row([100.0, 101.0, 10.0, 102.0, 98.0])}, True) == []


@pytest.mark.parametrize(
    ("busy", "rounds", "measured", "has_memory", "said"),
    [
        ("the machine was busy", 5, row(QUIET), True, "the machine was busy"),
        ("", 1, row([100.0]), True, "each case had 1 round, fewer than 5"),
        ("", 5, row(QUIET, elsewhere=2 * ELSEWHERE_SHARE * CORES), True, "other programs used"),
        ("", 5, row([100.0, 140.0, 70.0, 135.0, 72.0]), True, "the rounds of server-64 lie"),
        ("", 5, row(QUIET, trouble="failed: no answer"), True, "server-64 was not measured: failed: no answer"),
        ("", 5, row([]), True, "server-64 was not measured: no round succeeded"),
        ("", 5, row(QUIET), False, "memory was not measured"),
    ],
)
def test_each_reason_is_said(busy: str, rounds: int, measured: Row, has_memory: bool, said: str) -> None:
    (found,) = doubts(busy, rounds, {"server-64": measured}, has_memory)
    assert said in found


def test_the_rounds_of_a_case_in_which_deadlocks_decide_may_differ() -> None:
    assert doubts("", 5, {"direct-flickr-64": row([10.0, 40.0, 20.0, 35.0, 5.0], steady=False)}, True) == []
