"""What a case is and what it yields."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bench.stage import Stage


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
    """What happened besides: deadlocks, failed requests."""
    cores: Mapping[str, float] = field(default_factory=dict)
    """Processor time used meanwhile, in cores, by who used it."""


@dataclass(frozen=True, slots=True)
class Case:
    """Something to measure: `run(stage, seconds)`."""

    name: str
    group: str
    title: str
    run: Callable[[Stage, float], Sample]
    note: str = ""

    @property
    def ours(self) -> bool:
        """Is it the ticket server that is measured?"""
        return self.name.startswith(("server-", "two-servers-", "count-", "block-", "sequences-", "embedded-"))


def percentile(ordered: list[float], percent: float) -> float:
    """The value below which `percent` of these lie; `ordered` is sorted and not empty."""
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]
