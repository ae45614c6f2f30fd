"""A case: one measurement, and the bounds of its figure."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bench.stage import Stage


Run = Callable[["Stage", str, float], float]
"""Measures on a stage, with the server of a side, for so many seconds; returns the figure."""


@dataclass(frozen=True, slots=True)
class Bound:
    """What a figure has to reach.

    ratio: to the figure of the case `than` in the same round, or the figure itself where that is empty. A case of
    which less is better may have `ratio` at most.
    """

    ratio: float
    than: str = ""


@dataclass(frozen=True, slots=True)
class Case:
    """One row of the table.

    unit: of the figure. is_ours: whether a ticket server is measured; else it is something to compare with. is_cost:
    whether less is better.
    """

    name: str
    title: str
    run: Run
    bounds: tuple[Bound, ...] = ()
    unit: str = "tickets/s"
    is_ours: bool = True
    is_cost: bool = False
