"""The rate of each sequence, from a sample every few seconds, outside the path of a ticket, with bounded memory.

Only sequences that have moved lately have a history: of ten thousand, usually a few are in use.
"""

import asyncio
import logging
from array import array
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from app.common.slices import SLICE
from app.common.tasks import Tasks

log = logging.getLogger(__name__)

SAMPLE_SECONDS = 2.0
SAMPLES = 121
"""How many samples are kept: four minutes."""
PRESENT = 5
"""How many intervals make up the present rate."""

Progress = Callable[[], Iterable[tuple[str, int, tuple[int, ...]]]]
"""For every sequence: its name, tickets issued by this server, and ids used up on each database (0: unknown)."""


class _History:
    """The newest values, oldest first. Its memory is allocated at once, and not as Python objects, which would be most
    of the memory of a server with many sequences."""

    __slots__ = ("_values", "filled")

    def __init__(self, before: float = 0.0, times: int = 0) -> None:
        """Filled with the value `before`, `times` times."""
        self.filled = min(times, SAMPLES)
        self._values = array("d", [before] * self.filled + [0.0] * (SAMPLES - self.filled))

    def add(self, value: float) -> None:
        if self.filled < SAMPLES:
            self._values[self.filled] = value
            self.filled += 1
        else:
            del self._values[0]
            self._values.append(value)

    @property
    def is_constant(self) -> bool:
        """Whether the value has been the same for the whole history."""
        return self.filled == SAMPLES and self._values[0] == self._values[-1]

    @property
    def first(self) -> float:
        return self._values[0] if self.filled else 0.0

    @property
    def last(self) -> float:
        return self._values[self.filled - 1] if self.filled else 0.0

    def back(self, times: int) -> float:
        """The value `times` samples before the newest."""
        return self._values[self.filled - 1 - times]

    def all(self) -> Sequence[float]:
        return self._values[: self.filled]


class _Still(NamedTuple):
    """A sequence that has not moved: since which sample, and its position."""

    since: int
    issued: int
    last: tuple[int, ...]


@dataclass(slots=True)
class _Samples:
    """The samples of one moving sequence, or of all sequences together. `used`: the ids used up so far, by all servers.
    `number`: the number of the newest sample. `now`: the present rate."""

    issued: _History = field(default_factory=_History)
    used: _History = field(default_factory=_History)
    last: tuple[int, ...] = ()
    number: int = 0
    now: float = 0.0

    def add(self, issued: int, last: tuple[int, ...], times: Sequence[float]) -> None:
        """A sample, taken at the last of these times."""
        self.used.add(_used(self.last, last) + self.used.last)
        self.issued.add(issued)
        self.last = last
        back = min(PRESENT, self.issued.filled - 1)
        if back:
            self.now = max(0, issued - self.issued.back(back)) / max(times[-1] - times[-1 - back], 1e-3)


def _used(before: tuple[int, ...], now: tuple[int, ...]) -> int:
    return sum(max(0, b - a) for a, b in zip(before, now, strict=False) if a and b)


@dataclass(frozen=True, slots=True)
class Rate:
    """Tickets per second: now, and over the history, oldest first. `used`: ids used up per second, by all servers."""

    now: float = 0.0
    history: Sequence[float] = ()
    used: float = 0.0


class Rates:
    """Samples `progress` from `start` to `stop`."""

    def __init__(self, progress: Progress, clock: Callable[[], float]) -> None:
        self._progress = progress
        self._clock = clock
        self._times: deque[float] = deque(maxlen=SAMPLES + 1)
        self._number = 0
        self._all = _Samples()
        self._moving: dict[str, _Samples] = {}
        self._still: dict[str, _Still] = {}
        self.busiest: list[str] = []
        """The sequences that have moved lately, the fastest first."""
        self.at_each_sample: list[Callable[[], None]] = []
        """Called with each sample: what else keeps a history."""
        self._tasks = Tasks()

    def start(self) -> None:
        self._tasks.spawn(self._run())

    async def stop(self) -> None:
        await self._tasks.cancel()

    async def _run(self) -> None:
        while True:
            try:
                await self.sample()
            except Exception:
                log.exception("unexpected error while sampling")
            await asyncio.sleep(SAMPLE_SECONDS)

    async def sample(self) -> None:
        """Take one sample of every sequence, a slice at a time, and drop those that are gone."""
        self._number += 1
        self._times.append(self._clock())
        moving: dict[str, _Samples] = {}
        still: dict[str, _Still] = {}
        total = 0
        for count, (name, issued, last) in enumerate(self._progress(), start=1):
            samples = self._moving.get(name) or self._begun(name, issued, last)
            if samples is None:
                before = self._still.get(name)
                still[name] = _Still(self._number if before is None else before.since, issued, last)
            else:
                samples.add(issued, last, self._times)
                samples.number = self._number
                if samples.issued.is_constant and samples.used.is_constant:
                    still[name] = _Still(self._number - SAMPLES + 1, issued, last)
                else:
                    moving[name] = samples
            total += issued
            if count % SLICE == 0:
                await asyncio.sleep(0)
        self._moving, self._still = moving, still
        self._all.add(total, (), self._times)
        self._all.number = self._number
        for call in self.at_each_sample:
            call()
        self.busiest = sorted(moving, key=lambda name: -moving[name].now)

    def _begun(self, name: str, issued: int, last: tuple[int, ...]) -> _Samples | None:
        """A history for a sequence that has begun to move; None if it has not."""
        before = self._still.get(name)
        if before is None or (issued == before.issued and not _used(before.last, last)):
            return None
        times = self._number - before.since
        return _Samples(_History(before.issued, times), _History(0.0, times), before.last)

    def of(self, name: str) -> Rate:
        """The rate of one sequence; zero if it has not moved within the history, or is unknown."""
        samples = self._moving.get(name)
        return Rate() if samples is None else self._rate(samples)

    def used(self, name: str) -> float:
        """The ids of a sequence used up per second, by all servers: `Rate.used`, without the history."""
        samples = self._moving.get(name)
        return 0.0 if samples is None else self._used(samples, self._times_of(samples))

    def total(self) -> Rate:
        """The rate of all sequences together."""
        return self._rate(self._all)

    def _rate(self, samples: _Samples) -> Rate:
        issued, times = samples.issued.all(), self._times_of(samples)
        if len(times) < 2:
            return Rate()
        history = [
            max(0, now - before) / max(until - since, 1e-3)
            for (before, now), (since, until) in zip(pairwise(issued), pairwise(times), strict=True)
        ]
        return Rate(samples.now, history, self._used(samples, times))

    def _used(self, samples: _Samples, times: Sequence[float]) -> float:
        if len(times) < 2:
            return 0.0
        return (samples.used.last - samples.used.first) / max(times[-1] - times[0], 1e-3)

    def _times_of(self, samples: _Samples) -> Sequence[float]:
        """When its samples were taken. During `sample` some sequences have the newest one and some do not."""
        times = list(self._times)
        end = len(times) - (self._number - samples.number)
        return times[max(0, end - samples.issued.filled) : end]
