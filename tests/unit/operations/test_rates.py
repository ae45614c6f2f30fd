"""The rates behind the status page, on a clock of the test's own."""

import asyncio
import tracemalloc

import pytest

from app.common.slices import SLICE
from app.operations.rates import SAMPLES, Rate, Rates


class World:
    """What the sampler is told: tickets issued, and ids used up on two databases."""

    def __init__(self) -> None:
        self.now = 100.0
        self.sequences: dict[str, tuple[int, tuple[int, ...]]] = {}
        self.rates = Rates(lambda: ((name, *rest) for name, rest in self.sequences.items()), lambda: self.now)

    def goes_on(self, **sequences: tuple[int, tuple[int, ...]]) -> None:
        self.sequences = sequences
        asyncio.run(self.rates.sample())
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


def test_of_those_that_do_not_move_no_history_is_kept(world: World) -> None:
    still = {f"still{number}": (7, (9, 9)) for number in range(2_000)}
    tracemalloc.start()
    try:
        for i in range(3):
            world.goes_on(photos=(i, (i, i)), **still)
        size, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert size < len(still) * 8 * SAMPLES  # less than half of what a history each would be
    assert world.rates.of("still1") == Rate()
    assert world.rates.busiest == ["photos"]


def test_one_that_begins_to_move_has_the_rate_of_one_that_was_remembered_all_along(world: World) -> None:
    for i in range(10):
        world.goes_on(late=(7, (9, 9)), photos=(i, (0, 0)))
    world.goes_on(late=(27, (19, 9)), photos=(10, (0, 0)))
    late = world.rates.of("late")
    assert (late.now, late.history, late.used) == (2, [0] * 9 + [10], 10 / 20)
    assert world.rates.busiest == ["late", "photos"]


def test_one_that_has_not_moved_for_as_long_as_is_remembered_is_forgotten_and_begins_anew(world: World) -> None:
    world.goes_on(photos=(0, (1, 1)))
    for _ in range(SAMPLES - 1):
        world.goes_on(photos=(5, (1, 1)))
    assert len(world.rates.of("photos").history) == SAMPLES - 1
    world.goes_on(photos=(5, (1, 1)))
    assert world.rates.of("photos") == Rate()
    world.goes_on(photos=(25, (1, 1)))
    assert world.rates.of("photos").now == 2
    assert world.rates.of("photos").history == [0] * (SAMPLES - 2) + [10]


def test_a_sequence_that_only_other_servers_use_moves_too(world: World) -> None:
    for i in range(5):
        world.goes_on(photos=(0, (10 * i + 1, 0)))
    assert (world.rates.of("photos").now, world.rates.of("photos").used) == (0, 5)
    assert world.rates.busiest == ["photos"]


def test_what_is_seen_while_a_sample_is_taken_is_of_samples_that_are_whole(world: World) -> None:
    names = [f"s{number:04}" for number in range(3 * SLICE)]

    async def look_meanwhile() -> list[set[float]]:
        sampling = asyncio.create_task(world.rates.sample())
        seen = []
        while not sampling.done():
            seen.append({rate for name in names for rate in world.rates.of(name).history})
            await asyncio.sleep(0)
        return seen

    for i in range(SAMPLES + 5):
        world.goes_on(**dict.fromkeys(names, (10 * i, (0, 0))))
    world.sequences = dict.fromkeys(names, (10 * (SAMPLES + 5), (0, 0)))
    assert asyncio.run(look_meanwhile()) == [{5.0}] * 4
