"""What one sequence's servers have given this client: nothing is taken twice, and the step stays what it was."""

from __future__ import annotations

import time
from bisect import bisect_left, insort
from collections.abc import Callable, Iterable
from math import gcd

from ticketd_client.answers import AttemptFailed, Block, Ticket

REMEMBERED = 1_000
"""Stretches of blocks that are remembered, for each offset; those of a lone client grow together to one."""
SINGLES = 4_096
"""Tickets out of blocks are remembered as stretches; so many of those that came one by one."""
DOUBTED = 5.0
"""Seconds for which a changed step is taken for a lie where no second URL confirms it."""


class Given:
    """The memory of one sequence. Its owner has one thread at a time use it.

    A step is the ring's increment. It changes when the ring grows, which takes all servers to be stopped: rarely. So a
    server with another step than before is refused, until a second one says the same, or nobody has said anything else
    for `DOUBTED` seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.step: int | None = None
        self._clock = clock
        self._stretches: dict[tuple[int, int], list[tuple[int, int]]] = {}
        self._singles: dict[Ticket, None] = {}
        self._doubts: dict[int, tuple[str, float]] = {}

    def take_block(self, block: Block, url: str) -> None:
        """Remember the block. Raises AttemptFailed where it cannot be right."""
        self._refuse_known(block)
        if self.step not in (None, block.step):
            self._doubt(block.step, url)
        self._doubts.clear()
        self.step = block.step
        self._remember(block)

    def take_singles(self, tickets: Iterable[Ticket]) -> None:
        """Remember the tickets. Raises AttemptFailed where one was given before."""
        new = list(tickets)
        for ticket in new:
            if ticket in self._singles or (isinstance(ticket, int) and self._known(Block(ticket, 1, 1))):
                raise AttemptFailed(f"gave the ticket {ticket}, which has been given before")
        self._singles.update(dict.fromkeys(new))
        while len(self._singles) > SINGLES:
            del self._singles[next(iter(self._singles))]

    def _doubt(self, step: int, url: str) -> None:
        """Raises AttemptFailed unless there is reason to believe it."""
        first, since = self._doubts.setdefault(step, (url, self._clock()))
        if first == url and self._clock() - since < DOUBTED:
            raise AttemptFailed(f"gave a block with a step of {step} where it has been {self.step}")

    def _refuse_known(self, block: Block) -> None:
        known = self._known(block)
        if known is None:
            ids = block.ids
            single = next((ticket for ticket in self._singles if ticket in ids), None)
            if single is None:
                return
            known = (int(single), int(single))
        raise AttemptFailed(
            f"gave the block {block.first} to {block.last}, of which {known[0]} to {known[1]} have been given before"
        )

    def _known(self, block: Block) -> tuple[int, int] | None:
        """A stretch given before that the block may share a ticket with."""
        for (step, residue), stretches in self._stretches.items():
            if (block.first - residue) % gcd(step, block.step if block.size > 1 else step):
                continue
            place = bisect_left(stretches, (block.first, 0))
            if place and stretches[place - 1][1] >= block.first:
                return stretches[place - 1]
            if place < len(stretches) and stretches[place][0] <= block.last:
                return stretches[place]
        return None

    def _remember(self, block: Block) -> None:
        stretches = self._stretches.setdefault((block.step, block.first % block.step), [])
        low, high = block.first, block.last
        place = bisect_left(stretches, (low, 0))
        if place < len(stretches) and stretches[place][0] == high + block.step:
            high = stretches.pop(place)[1]
        if place and stretches[place - 1][1] == low - block.step:
            low = stretches.pop(place - 1)[0]
        insort(stretches, (low, high))
        if len(stretches) > REMEMBERED:
            del stretches[0]
