"""Runs of tickets: arithmetic progressions, whatever their steps."""

from collections.abc import Iterator
from math import gcd
from typing import NamedTuple

from app.tickets.requests.request import Tickets


class Run(NamedTuple):
    """Tickets that were handed out together: `first`, `first + step` and so on up to `last`."""

    first: int
    last: int
    step: int


def runs_of(tickets: Tickets) -> Iterator[Run]:
    if isinstance(tickets, range):
        yield Run(tickets[0], tickets[-1], tickets.step)
    else:
        yield from (Run(ticket, ticket, 1) for ticket in tickets)


def smallest_in_both(one: Run, other: Run) -> int | None:
    """The smallest id that both runs hold; None if they share none."""
    low, high = max(one.first, other.first), min(one.last, other.last)
    if low > high:
        return None
    common, apart = gcd(one.step, other.step), other.first - one.first
    if apart % common:
        return None
    every = other.step // common
    steps = apart // common * pow(one.step // common, -1, every) % every
    found = one.first + one.step * steps
    together = one.step * every
    found += -(-(low - found) // together) * together
    return found if found <= high else None
