"""Which sequences have series of their own: no counter ever goes backwards, and no ticket is counted twice or not."""

import asyncio
import random

import pytest

from app.operations.series import OwnSeries


class Scrapes:
    """What a Prometheus would see of so many places."""

    def __init__(self, places: int) -> None:
        self._series = OwnSeries(places)
        self.other: int | None = None

    def __call__(self, **issued: int) -> set[str]:
        own, self.other = asyncio.run(self._series.choose(issued))
        return own


def test_the_first_to_come_have_places_and_keep_them() -> None:
    scrape = Scrapes(2)
    assert scrape(a=0, b=0, c=0, d=1) == {"a", "d"}
    assert scrape(a=0, b=7, c=0, d=1) == {"b", "d"}
    assert scrape(a=9, b=7, c=99, d=1) == {"b", "d"}
    assert scrape.other == 108


def test_of_those_that_come_at_once_the_ones_with_most_tickets_have_places() -> None:
    assert Scrapes(2)(a=3, b=1, c=4, d=1, e=5) == {"c", "e"}


def test_a_place_that_becomes_free_goes_to_one_that_was_never_folded() -> None:
    scrape = Scrapes(1)
    assert scrape(a=5, b=3, c=0) == {"a"}
    assert scrape.other == 3
    assert scrape(b=4, c=0) == {"c"}
    assert scrape.other == 4
    assert scrape(b=4, c=2) == {"c"}
    assert scrape.other == 4


def test_the_fold_keeps_what_dropped_sequences_had_and_counts_one_made_again_anew() -> None:
    scrape = Scrapes(1)
    scrape(a=9, b=5, c=5)
    assert scrape.other == 10
    scrape(a=9, c=5)
    assert scrape.other == 10
    scrape(a=9, b=2, c=3)
    assert scrape.other == 15


def test_without_a_fold_there_is_no_sum_and_once_there_was_one_it_stays() -> None:
    scrape = Scrapes(2)
    scrape(a=5, b=0)
    assert scrape.other is None
    scrape(a=5, b=0, c=0)
    assert scrape.other == 0
    scrape(a=5)
    assert scrape.other == 0


@pytest.mark.parametrize("seed", range(30))
def test_counters_only_grow_and_add_up_whatever_comes(seed: int) -> None:
    chance = random.Random(seed)
    series, places = OwnSeries(5), 5
    issued = dict.fromkeys(map(str, range(12)), 0)
    before: dict[str, int] = {}
    for _ in range(60):
        for _ in range(chance.randrange(4)):
            issued.setdefault(str(chance.randrange(30)), 0)
            name = chance.choice(list(issued))
            issued[name] += chance.randrange(9)
        own, other = asyncio.run(series.choose(dict(issued)))
        assert len(own) == min(places, len(issued))
        now = {**{name: issued[name] for name in own}, **({} if other is None else {"_other": other})}
        assert all(now[name] >= before[name] for name in now.keys() & before.keys())
        assert not [name for name, count in before.items() if count and name not in now]
        assert sum(now.values()) == sum(issued.values())
        before = now
