"""Sequences in slices. Work on every ticket sequence goes a slice at a time: with thousands of them one pass would hold
up every ticket meanwhile."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from typing import TypeVar

T = TypeVar("T")

SLICE = 100
"""How many sequences are worked on in one turn of the event loop: about a millisecond."""


def sliced(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """The items in slices of at most `size`."""
    return (items[start : start + size] for start in range(0, len(items), size))


def _others_turn() -> Awaitable[None]:
    return asyncio.sleep(0)


async def in_slices(
    items: Iterable[T], size: int = SLICE, pause: Callable[[], Awaitable[None]] = _others_turn
) -> AsyncIterator[Sequence[T]]:
    """The items as they are now, a slice at a time. Between two slices it awaits `pause`, in which everything else has
    its turn."""
    for number, part in enumerate(sliced(list(items), size)):
        if number:
            await pause()
        yield part
