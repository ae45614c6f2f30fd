"""Rounds become one row."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

from bench.case import Case
from bench.model import Sample


@dataclass(slots=True)
class Row:
    """All that is known of a case: its rounds, and what went wrong."""

    case: Case
    samples: dict[int, Sample] = field(default_factory=dict)
    """By round."""
    trouble: str = ""

    @property
    def rates(self) -> list[float]:
        return [sample.rate for sample in self.samples.values()]

    @property
    def median(self) -> float:
        """Tickets a second."""
        return statistics.median(self.rates)

    @property
    def p50(self) -> float | None:
        """The median round's, in milliseconds."""
        return _median([sample.p50 for sample in self.samples.values()])

    @property
    def p99(self) -> float | None:
        """The median round's, in milliseconds."""
        return _median([sample.p99 for sample in self.samples.values()])

    @property
    def counts(self) -> dict[str, int]:
        """Incidents over all rounds."""
        total: dict[str, int] = {}
        for sample in self.samples.values():
            for what, count in sample.counts.items():
                total[what] = total.get(what, 0) + count
        return total

    @property
    def cores(self) -> dict[str, float]:
        """Processor time in cores, by who used it."""
        parts = {part for sample in self.samples.values() for part in sample.cores}
        found = {part: statistics.median(s.cores.get(part, 0.0) for s in self.samples.values()) for part in parts}
        return {part: found[part] for part in sorted(found) if found[part] >= 0.02}


def _median(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None
