"""How fast the server answered lately, and how many requests failed, from samples of its counters."""

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from app.operations.metrics import SECONDS, Metrics
from app.operations.rates import SAMPLE_SECONDS

INTERVALS = 30
"""How many intervals between samples are looked back on: a minute."""
RECENT_SECONDS = round(INTERVALS * SAMPLE_SECONDS)
FAILED = "unavailable", "timeout", "clock", "error"
"""The outcomes of requests that failed through no fault of the client."""


class _Sample(NamedTuple):
    """`counts`: of answered requests, by bucket of the histogram."""

    counts: Sequence[int]
    failed: int


@dataclass(frozen=True, slots=True)
class Recent:
    """The requests of the last RECENT_SECONDS. `counts`: of answered requests, by bucket. `failed`: how many failed."""

    counts: Sequence[int]
    failed: int

    @property
    def failed_share(self) -> float:
        """The share of failed requests, from 0 to 1."""
        return self.failed / max(1, self.failed + sum(self.counts))

    def latency(self, share: float) -> float | None:
        """Within how many seconds this share of the answered requests had their tickets. None if there were none,
        infinity beyond the largest bucket. Within a bucket the requests count as spread evenly."""
        wanted = share * sum(self.counts)
        if not wanted:
            return None
        before, count = 0.0, 0
        for bound, own in zip(SECONDS, self.counts, strict=False):
            if own and count + own >= wanted:
                return before + (bound - before) * (wanted - count) / own
            before, count = bound, count + own
        return math.inf


class RecentRequests:
    """Keeps a minute of samples. `sample` is called every SAMPLE_SECONDS."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._samples: deque[_Sample] = deque([_now(metrics)], maxlen=INTERVALS + 1)

    def sample(self) -> None:
        """Take a sample."""
        self._samples.append(_now(self._metrics))

    @property
    def now(self) -> Recent:
        """The last minute, up to this moment."""
        first, last = self._samples[0], _now(self._metrics)
        counts = [after - before for before, after in zip(first.counts, last.counts, strict=True)]
        return Recent(counts, last.failed - first.failed)


def _now(metrics: Metrics) -> _Sample:
    failed = sum(count for (_, outcome), count in metrics.requests.items() if outcome in FAILED)
    return _Sample(metrics.issue_seconds.counts, failed)
