"""Ticks counted in memory: consecutive, each above all before it, none below what was asked for."""

from hypothesis import given
from hypothesis import strategies as st

from app.kinds.ticks import Ticks


def test_a_clock_that_goes_on_is_followed_and_one_that_goes_back_is_not() -> None:
    ticks = Ticks()
    assert ticks.last == -1
    assert list(ticks.take(2, 4096)) == [4096, 4097]
    assert list(ticks.take(1, 4096)) == [4098]
    assert list(ticks.take(2, 0)) == [4099, 4100]
    assert list(ticks.take(1, 8192)) == [8192]
    assert ticks.last == 8192


def test_more_than_a_moment_holds_runs_over_into_the_next() -> None:
    ticks = Ticks()
    ticks.take(4096, 4096)
    assert list(ticks.take(1, 4096)) == [8192]


@given(st.lists(st.tuples(st.integers(1, 5000), st.integers(-(2**40), 2**60))))
def test_none_comes_twice_or_goes_down(asked: list[tuple[int, int]]) -> None:
    ticks = Ticks()
    last = -1
    for count, first in asked:
        taken = ticks.take(count, first)
        assert (len(taken), taken.step) == (count, 1)
        assert taken[0] == max(first, last + 1)
        last = taken[-1]
        assert ticks.last == last
