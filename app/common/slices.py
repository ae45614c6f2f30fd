"""Work on every sequence, a slice at a time: with thousands of them one pass would hold up every ticket meanwhile."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import TypeVar

T = TypeVar("T")

SLICE = 100
"""So many sequences are looked at in one turn of the event loop: about a millisecond."""


async def in_slices(items: Iterable[T], size: int = SLICE) -> AsyncIterator[list[T]]:
    """The items as they are now, a slice at a time; between two slices everything else has its turn."""
    found = list(items)
    for start in range(0, len(found), size):
        if start:
            await asyncio.sleep(0)
        yield found[start : start + size]
