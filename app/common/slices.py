"""Sequences in slices. Work on every ticket sequence goes a slice at a time: with thousands of them one pass would hold
up every ticket meanwhile."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from typing import TypeVar

T = TypeVar("T")

SLICE = 100
"""How many sequences are worked on in one turn of the event loop: about a millisecond."""


def sliced(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """The items in slices of at most `size`."""
    return (items[start : start + size] for start in range(0, len(items), size))


async def in_slices(items: Iterable[T], size: int = SLICE) -> AsyncIterator[Sequence[T]]:
    """The items as they are now, a slice at a time; between two slices everything else has its turn."""
    for number, part in enumerate(sliced(list(items), size)):
        if number:
            await asyncio.sleep(0)
        yield part
