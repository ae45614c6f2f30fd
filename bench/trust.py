"""Whether a run can be trusted, and so may be published.

A run is published only where it is whole, every case was measured, and the machine did nothing else meanwhile. A
measure that misses its threshold is no reason against publishing: the table says that it was missed.
"""

import os
import statistics
from collections.abc import Mapping

from bench.runner import ELSEWHERE
from bench.summary import Row

FEWEST_ROUNDS = 5
"""Below this number of rounds their spread says nothing."""
ELSEWHERE_SHARE = 0.15
"""The share of the machine's processors that other programs may use, in the median of all measurements."""
SPREAD = 0.25
"""The middle half of a case's rounds may lie so far apart, as a part of their median."""


def spread(row: Row) -> float:
    """How far the middle half of a case's rounds lies apart, as a part of their median. It needs two rounds."""
    lower, _, upper = statistics.quantiles(row.rates, n=4, method="inclusive")
    return (upper - lower) / row.median


def elsewhere(rows: Mapping[str, Row]) -> float:
    """The processors that were used by anything but the benchmark, in the median of all measurements, in cores."""
    found = [sample.cores.get(ELSEWHERE, 0.0) for row in rows.values() for sample in row.samples.values()]
    return statistics.median(found) if found else 0.0


def doubts(busy: str, rounds: int, rows: Mapping[str, Row], has_memory: bool) -> list[str]:
    """The reasons to distrust a whole run, a clause each; none where it can be trusted.

    `busy`: the warning from before the run. `rounds`: how many each case had. `has_memory`: whether the server's memory
    was measured.
    """
    found = [busy] if busy else []
    if rounds < FEWEST_ROUNDS:
        found.append(f"each case had {rounds} round{'s' * (rounds != 1)}, fewer than {FEWEST_ROUNDS}")
    used, allowed = elsewhere(rows), ELSEWHERE_SHARE * (os.cpu_count() or 1)
    if used > allowed:
        found.append(f"other programs used {used:.2f} cores meanwhile, more than {allowed:.2f}")
    for name, row in rows.items():
        if row.trouble or not row.samples:
            found.append(f"{name} was not measured: {row.trouble or 'no round succeeded'}")
        elif row.case.steady and len(row.samples) > 1 and (apart := spread(row)) > SPREAD:
            found.append(f"the rounds of {name} lie {apart:.0%} of their median apart, more than {SPREAD:.0%}")
    if not has_memory:
        found.append("the server's memory was not measured")
    return found
