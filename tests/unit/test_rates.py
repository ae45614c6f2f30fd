"""The rates behind the status page, on a clock of the test's own."""

import pytest

from app.rates import SAMPLES, Rate, Rates


class World:
    """What the sampler is told: tickets issued, and ids used up on two databases."""

    def __init__(self) -> None:
        self.now = 100.0
        self.sequences: dict[str, tuple[int, tuple[int, ...]]] = {}
        self.rates = Rates(lambda: ((name, *rest) for name, rest in self.sequences.items()), lambda: self.now)

    def goes_on(self, **sequences: tuple[int, tuple[int, ...]]) -> None:
        self.sequences = sequences
        self.rates.sample()
        self.now += 2


@pytest.fixture
def world() -> World:
    return World()


def test_nothing_is_known_at_first(world: World) -> None:
    assert world.rates.of("photos") == world.rates.total() == Rate()
    world.goes_on(photos=(5, (5, 5)))
    assert world.rates.of("photos") == Rate()


def test_a_steady_rate(world: World) -> None:
    for i in range(20):
        world.goes_on(photos=(100 * i, (60 * i + 1, 50 * i + 1)), accounts=(10 * i, (0, 0)))
    photos = world.rates.of("photos")
    assert (photos.now, photos.used) == (50, 55)
    assert set(photos.history) == {50}
    assert world.rates.of("accounts") == Rate(5, [5] * 19, 0)
    assert world.rates.total().now == 55


def test_what_is_remembered_is_bounded(world: World) -> None:
    for i in range(3 * SAMPLES):
        world.goes_on(photos=(i, (i, i)))
    assert len(world.rates.of("photos").history) == SAMPLES - 1


def test_a_database_that_becomes_known_is_no_jump(world: World) -> None:
    for used in [(0, 7), (0, 8), (5_000_000, 9), (5_000_001, 10)]:
        world.goes_on(photos=(0, used))
    assert world.rates.of("photos").used == pytest.approx(4 / 6)


def test_a_database_that_goes_back_counts_for_nothing(world: World) -> None:
    for used in [(100,), (50,), (60,)]:
        world.goes_on(photos=(0, used))
    assert world.rates.of("photos").used == pytest.approx(10 / 4)


def test_a_sequence_that_is_gone_is_forgotten_and_one_that_is_new_starts_late(world: World) -> None:
    for i in range(10):
        world.goes_on(photos=(i, (i,)))
    world.goes_on(fresh=(0, (1,)))
    world.goes_on(fresh=(6, (1,)))
    assert world.rates.of("photos") == Rate()
    assert world.rates.of("fresh").history == [3]
    assert min(world.rates.total().history) >= 0
