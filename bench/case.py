"""A case: one measurement, and the bounds of its figure."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from bench.stage import Stage


class Sample(NamedTuple):
    """What a case measured in one round. value: in the case's unit. p50, p99: latencies in ms, or NaN."""

    value: float
    p50: float = math.nan
    p99: float = math.nan


Run = Callable[["Stage", str, int], Sample]
"""Measures on a stage, with the server of a side, for a number of seconds."""


class Measure(NamedTuple):
    """What a bound limits.

    of: its value, from the sample of the case and that of the case that it is compared with. is_most: whether the limit
    is the largest value, not the smallest. shown: how the table writes the value, with the `title`, `rate` and `p50`
    of the case that it is compared with.
    """

    of: Callable[[Sample, Sample], float]
    is_most: bool = False
    shown: str = ""


RATE = Measure(lambda own, _: own.value)
SIZE = Measure(lambda own, _: own.value, is_most=True)
RATIO = Measure(lambda own, other: own.value / other.value, shown="{value:.2f} × {title}: {rate}")
TAIL = Measure(lambda own, _: own.p99 / own.p50, is_most=True, shown="p99 is {value:.2f} × p50")
ADDED = Measure(
    lambda own, other: own.p50 - other.p50, is_most=True, shown="p50 is {value:.3f} ms above {title}: {p50}"
)


@dataclass(frozen=True, slots=True)
class Bound:
    """What a case has to keep, in the median of its rounds. than: the case of the same round to compare with."""

    limit: float
    than: str = ""
    measure: Measure = RATIO


@dataclass(frozen=True, slots=True)
class Case:
    """One row of the table.

    unit: of the value. is_ours: whether a ticket server is measured; else it is something to compare with.
    """

    name: str
    title: str
    run: Run
    bounds: tuple[Bound, ...] = ()
    unit: str = "tickets/s"
    is_ours: bool = True
