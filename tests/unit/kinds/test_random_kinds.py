"""The kinds from random numbers: their form, and their order under any clock."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.common.errors import SequenceExhausted, Unavailable
from app.kinds.increasing import Increasing
from app.kinds.kind import RandomKind
from app.kinds.table import KINDS

NOW = 1_795_000_000_000
RANDOM = {name: kind for name, kind in KINDS.items() if isinstance(kind, RandomKind)}


class Clock:
    """A clock that is set by hand."""

    def __init__(self, ms: int = NOW) -> None:
        self.ms = ms

    def __call__(self) -> int:
        return self.ms


def generator(name: str, clock: Callable[[], int], **given: int) -> tuple[Callable[[int], list[Any]], dict[str, int]]:
    """A generator of that kind, and its parameters."""
    kind = RANDOM[name]
    parameters = kind.for_decoding(given)
    return kind.make(parameters, clock), parameters


@pytest.mark.parametrize("name", RANDOM)
def test_a_list_has_its_length_and_every_id_reads_as_of_now(name: str) -> None:
    take, parameters = generator(name, Clock())
    for count in (1, 2, 1000):
        ids = take(count)
        assert len(ids) == len(set(ids)) == count
        said = [RANDOM[name].decode(parameters, str(each)) for each in ids]
        assert [each["id_str"] for each in said] == list(map(str, ids))
        if name != "uuid4":
            assert {each["time_ms"] for each in said} == {NOW}


@pytest.mark.parametrize("name", ["uuid7", "ulid"])
@given(steps=st.lists(st.tuples(st.integers(-(10**7), 10**7), st.sampled_from([1, 2, 1000])), max_size=12))
def test_uuid7_and_ulid_increase_whatever_the_clock_does(name: str, steps: list[tuple[int, int]]) -> None:
    clock = Clock()
    take, _ = generator(name, clock)
    last = ""
    for change, count in steps:
        clock.ms += change
        ids = take(count)
        assert [last, *ids] == sorted({last, *ids})
        last = ids[-1]


@pytest.mark.parametrize("name", ["uuid7", "ulid"])
def test_the_time_stands_while_the_clock_is_behind_and_goes_on_with_it(name: str) -> None:
    clock = Clock()
    take, parameters = generator(name, clock)
    times = []
    for ms in (NOW, NOW - 3_600_000, NOW + 1):
        clock.ms = ms
        times.append(RANDOM[name].decode(parameters, take(1)[0])["time_ms"])
    assert times == [NOW, NOW, NOW + 1]


def seeds(*values: int) -> Callable[[], int]:
    """A seed after the other."""
    left: Iterator[int] = iter(values)
    return lambda: next(left)


def test_a_counter_that_is_full_begins_the_next_millisecond_early() -> None:
    pairs = Increasing(2, seeds(2, 0, 1))
    assert pairs.take(3, 10) == [(10, 2), (10, 3), (11, 0)]
    assert pairs.take(1, 10) == [(11, 1)]
    assert pairs.take(1, 12) == [(12, 1)]


@pytest.mark.parametrize("name", ["uuid7", "ulid"])
def test_48_bits_of_time_come_to_an_end(name: str) -> None:
    clock = Clock(2**48 - 1)
    take, _ = generator(name, clock)
    take(1)
    clock.ms += 1
    with pytest.raises(SequenceExhausted):
        take(1)


def test_the_counter_of_uuid7_leaves_room_above_its_seed() -> None:
    """RFC 9562, 6.2: a seed with its topmost bit 0 cannot run over within a list."""
    clock = Clock()
    take, _ = generator("uuid7", clock)
    for _ in range(200):
        clock.ms += 1
        (made,) = take(1)
        assert int(made[15], 16) < 8


def test_two_servers_that_begin_in_one_millisecond_make_different_ids() -> None:
    for name in RANDOM:
        one, _ = generator(name, Clock())
        other, _ = generator(name, Clock())
        if name != "simpleflake":  # its odds are no one's friend
            assert not set(one(1000)) & set(other(1000))


# --- simpleflake ---------------------------------------------------------------------------------------------------


def test_one_server_repeats_no_number_within_a_millisecond_until_half_are_gone() -> None:
    clock = Clock()
    take, _ = generator("simpleflake", clock, random_bits=8)
    ids = take(64) + take(64)
    assert len(set(ids)) == 128
    assert len(take(1000)) == 1000  # luck alone from here on, but it goes on
    clock.ms += 1
    assert len(set(take(128))) == 128


def test_one_random_bit_is_not_waited_for() -> None:
    take, parameters = generator("simpleflake", Clock(), random_bits=1)
    assert {RANDOM["simpleflake"].decode(parameters, str(each))["random"] for each in take(1000)} == {0, 1}


def test_a_clock_before_the_epoch_makes_nothing() -> None:
    take, _ = generator("simpleflake", Clock(999), epoch=1000)
    with pytest.raises(Unavailable, match="before the sequence's epoch"):
        take(1)


@pytest.mark.parametrize("random_bits", [1, 22, 23])
def test_simpleflake_ends_with_the_largest_number(random_bits: int) -> None:
    kind = RANDOM["simpleflake"]
    parameters = {"epoch": 1000, "random_bits": random_bits}
    ends_at, ceiling = kind.ends_at(parameters), kind.ceiling(parameters)
    assert ends_at is not None
    assert ceiling is not None
    clock = Clock(ends_at - 1)
    take = kind.make(parameters, clock)
    assert all(isinstance(each, int) and ceiling >> random_bits << random_bits <= each <= ceiling for each in take(10))
    clock.ms += 1
    with pytest.raises(SequenceExhausted):
        take(1)
