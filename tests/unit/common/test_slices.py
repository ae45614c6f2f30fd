"""Slices: every item once and in order, and others have their turn between two of them."""

import asyncio

import pytest

from app.common.slices import in_slices, sliced
from tests.fakes.virtual_time import virtual_time


@pytest.mark.parametrize(("count", "sizes"), [(0, []), (1, [1]), (3, [3]), (4, [3, 1]), (6, [3, 3]), (7, [3, 3, 1])])
def test_every_item_is_in_one_slice(count: int, sizes: list[int]) -> None:
    parts = list(sliced(range(count), 3))
    assert [len(part) for part in parts] == sizes
    assert [item for part in parts for item in part] == list(range(count))


@virtual_time
async def test_others_have_their_turn_between_two_slices_of_what_was_there_at_the_start() -> None:
    items = [1, 2, 3, 4, 5]
    asyncio.get_running_loop().call_soon(items.clear)
    seen = [(list(part), len(items)) async for part in in_slices(items, 2)]
    assert seen == [([1, 2], 5), ([3, 4], 0), ([5], 0)]
