"""What servers answer, read with suspicion: what breaks a rule is no answer.

A ticket that is handed out twice costs more than one that nobody gets. So an answer that cannot be right is refused
whole, by name, and another URL is asked.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Sequence
from math import gcd
from typing import Any, Union

Ticket = Union[int, str]  # a string where it is longer than 63 bits

LARGEST_ID = 2**63 - 1
LARGEST_BLOCK = 10_000
LARGEST_COUNT = 1_000
LARGEST_INCREMENT = 65_535  # `auto_increment_increment` is 16 bits wide, and a block spans no more than that

REMEMBERED = 512
"""Answers of one sequence that are remembered, so that no ticket is taken twice."""

_LONG_ID = re.compile(r"[0-9A-Za-z-]{24,36}")


class AttemptFailed(Exception):
    """One URL did not do it: it is down, slow, lies, or says "later". Another one may.

    `retry_after`: seconds for which it wants to be left alone.
    """

    def __init__(self, says: str, status: int | None = None, retry_after: float | None = None) -> None:
        super().__init__(says)
        self.says, self.status, self.retry_after = says, status, retry_after


def read_object(body: bytes) -> dict[str, Any]:
    """The JSON object of a body. This and what follows raises AttemptFailed where the answer cannot be right."""
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):  # a number of 5,000 digits is a ValueError, too
        raise AttemptFailed("did not answer with JSON") from None
    if not isinstance(found, dict):
        raise AttemptFailed("did not answer with a JSON object")
    return found


def block_of(first: object, step: object, size: object, wanted: int) -> range:
    """The tickets of a block of these numbers, as many as are wanted."""
    if type(size) is not int or size != wanted:
        raise AttemptFailed(f"gave a block of {size!r} where {wanted} were asked for")
    if type(step) is not int or step < 1 or step * size > LARGEST_INCREMENT:
        raise AttemptFailed(f"gave a block of {size} with a step of {step!r}")
    if type(first) is not int or first < 1:
        raise AttemptFailed(f"gave a block that begins with {first!r}")
    if first + (size - 1) * step > LARGEST_ID:
        raise AttemptFailed("gave a block with ids above 2^63 - 1")
    return range(first, first + size * step, step)


def tickets_of(ids: Sequence[object], wanted: int) -> list[Ticket]:
    """These as tickets, as many as are wanted."""
    found: list[Ticket] = []
    for given in ids:
        if (isinstance(given, str) and _LONG_ID.fullmatch(given)) or (type(given) is int and 0 <= given <= LARGEST_ID):
            found.append(given)
        else:
            raise AttemptFailed(f"gave {given!r} for a ticket")
    if len(found) != wanted:
        raise AttemptFailed(f"did not answer with {wanted} tickets")
    if len(set(found)) != wanted:
        raise AttemptFailed("gave a ticket twice in one answer")
    return found


class Given:
    """The tickets that one sequence's servers have given lately. One thread at a time takes blocks."""

    def __init__(self) -> None:
        self._blocks: tuple[range, ...] = ()
        self._singles: dict[Ticket, object] = {}

    def take(self, tickets: Collection[Ticket]) -> None:
        """Remember the tickets, a block as a range. Raises AttemptFailed where one may have been given before."""
        if isinstance(tickets, range):
            known = any(map(tickets.__contains__, list(self._singles)))
            for block in self._blocks:
                overlap = max(block[0], tickets[0]) <= min(block[-1], tickets[-1])
                known = known or (overlap and (block[0] - tickets[0]) % gcd(block.step, tickets.step) == 0)
        else:
            known = not self._singles.keys().isdisjoint(tickets)
            known = known or any(any(map(block.__contains__, tickets)) for block in self._blocks)
        if known:
            raise AttemptFailed(f"gave tickets that have been given before: {list(tickets)[:1]} and on")
        if isinstance(tickets, range):
            self._blocks = (*self._blocks, tickets)[-REMEMBERED:]
        else:
            self._singles.update(dict.fromkeys(tickets))
            for ticket in list(self._singles)[: -LARGEST_COUNT * 4]:
                self._singles.pop(ticket, None)
