"""The result of a case, or the reason why there is none."""

from collections.abc import Mapping
from dataclasses import dataclass, field


class Missing(Exception):
    """A program that the case needs is not on this machine; the words say how to get it."""


class CaseFailed(Exception):
    """The case could not be measured; the words say why."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One run of one case. Latencies are in milliseconds, of one request; `rate` is tickets (or answers) a second."""

    rate: float
    p50: float | None
    p99: float | None
    counts: Mapping[str, int] = field(default_factory=dict)
    """Incidents of the run: deadlocks, failed requests."""
    cores: Mapping[str, float] = field(default_factory=dict)
    """Processor time used meanwhile, in cores, by who used it."""


def percentile(ordered: list[float], percent: float) -> float:
    """The value below which `percent` of these lie; `ordered` is sorted and not empty."""
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]
