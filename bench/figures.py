"""The figures of a run: what each round measured, ratios within rounds, and whether to trust them."""

import itertools
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from bench.case import Bound, Case, Sample

FEWEST_ROUNDS = 5
"""With fewer rounds their spread says nothing."""
MOST_SPREAD = 0.25
"""How far the middle half of the rounds may lie apart, as a part of the median; so may the calibration."""
MOST_APART = 1 / 3
"""The share of the figures whose rounds may lie further apart. What waits for a disk varies without other work, too."""
MOST_LOAD = 0.5
"""The load average for each core from which on the machine was busy before the run."""
MOST_OTHERS = 0.05
"""The share of the cores that other programs may use meanwhile. An idle machine's own services take a fifth of it."""

Key = tuple[str, str]
"""A case and a side, by their names."""


@dataclass(slots=True)
class Figures:
    """rounds: by case and side, then by the number of the round. troubles: why a case has no figure."""

    rounds: dict[Key, dict[int, Sample]] = field(default_factory=dict)
    troubles: dict[Key, str] = field(default_factory=dict)

    def median(self, case: str, side: str) -> Sample:
        """The median of the rounds, of each figure by itself; NaN where there was none."""
        found = self.rounds.get((case, side))
        return Sample(*map(statistics.median, zip(*found.values(), strict=True))) if found else Sample(math.nan)

    def spread(self, case: str, side: str) -> float:
        """How far the middle half of the rounds lies apart, as a part of the median."""
        return spread([sample.value for sample in self.rounds.get((case, side), {}).values()])

    def pairs(self, one: Key, other: Key) -> list[tuple[Sample, Sample]]:
        """The samples of each round that has both."""
        these, those = self.rounds.get(one, {}), self.rounds.get(other, {})
        return [(these[number], those[number]) for number in these if number in those]

    def reached(self, case: Case, bound: Bound, side: str) -> float:
        """Return the value that is compared with the bound, the median of the rounds; NaN where no round has one."""
        pairs = self.pairs((case.name, side), (bound.than or case.name, side))
        return statistics.median(itertools.starmap(bound.measure.of, pairs)) if pairs else math.nan


def spread(values: Sequence[float]) -> float:
    """How far the middle half of the values lies apart, as a part of their median; 0 for fewer than two."""
    if len(values) < 2:
        return 0.0
    lower, middle, upper = statistics.quantiles(values, n=4, method="inclusive")
    return (upper - lower) / middle


def is_met(bound: Bound, reached: float) -> bool:
    """Whether a value keeps the bound."""
    return reached <= bound.limit if bound.measure.is_most else reached >= bound.limit


def busy(load: float, cores: int) -> list[str]:
    """Return that the machine was busy before the run, if it was. load: the average before the run."""
    return [f"the load average before was {load:.1f} on {cores} cores"] if load >= MOST_LOAD * cores else []


def doubts(
    figures: Figures, *, load: float, cores: int, others: float, calibration: Sequence[float], facts: Mapping[str, str]
) -> list[str]:
    """Return why these figures cannot be trusted, a clause each; none where they can.

    load: the average before the run. others: the cores that other processes used meanwhile. calibration: seconds that
    the same loop took each time.
    """
    found = busy(load, cores)
    if others > MOST_OTHERS * cores:
        found.append(f"other programs used {others:.2f} cores meanwhile")
    if (apart := spread(calibration)) > MOST_SPREAD:
        found.append(f"the middle half of what the same loop took lies {apart:.0%} apart")
    if facts["data on"] in ("tmpfs", "ramfs"):
        found.append(f"the databases wrote to a {facts['data on']}, which is no disk")
    found += [f"{' of '.join(key)} has no figure: {trouble}" for key, trouble in figures.troubles.items()]
    fewest = min(map(len, figures.rounds.values()), default=0)
    if fewest < FEWEST_ROUNDS:
        found.append(f"a case had {fewest} rounds, fewer than {FEWEST_ROUNDS}")
    wide = [" of ".join(key) for key in figures.rounds if figures.spread(*key) > MOST_SPREAD]
    if len(wide) > MOST_APART * len(figures.rounds):
        found.append(f"the middle half of the rounds lies more than {MOST_SPREAD:.0%} apart of {', '.join(wide)}")
    return found
