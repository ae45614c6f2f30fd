"""How fast each sequence goes: a sample every few seconds, off the way of any ticket, and a bounded memory of them."""

import asyncio
import logging
from array import array
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

log = logging.getLogger(__name__)

SAMPLE_SECONDS = 2.0
SAMPLES = 121
"""How many are kept: four minutes."""
PRESENT = 5
"""How many intervals make up the present rate."""

Progress = Callable[[], Iterable[tuple[str, int, tuple[int, ...]]]]
"""For every sequence: its name, tickets issued by this server, and ids used up on each database (0: not known)."""


class _History:
    """The newest numbers, oldest first. All its memory is taken at once, so that a server does not grow as they come;
    as objects they would be the largest part of one with many sequences."""

    __slots__ = ("_filled", "_values")

    def __init__(self) -> None:
        self._values = array("d", bytes(8 * SAMPLES))
        self._filled = 0

    def add(self, value: float) -> None:
        if self._filled < SAMPLES:
            self._values[self._filled] = value
            self._filled += 1
        else:
            del self._values[0]
            self._values.append(value)

    @property
    def last(self) -> float:
        return self._values[self._filled - 1] if self._filled else 0.0

    def all(self) -> Sequence[float]:
        return self._values[: self._filled]


@dataclass(slots=True)
class _Samples:
    """Of one sequence, or of all of them. `used` adds up what was seen to be used, by whichever server."""

    issued: _History = field(default_factory=_History)
    used: _History = field(default_factory=_History)
    last: tuple[int, ...] = ()

    def add(self, issued: int, last: tuple[int, ...]) -> None:
        seen = sum(max(0, now - before) for before, now in zip(self.last, last, strict=False) if before and now)
        self.used.add(seen + self.used.last)
        self.issued.add(issued)
        self.last = last


@dataclass(frozen=True, slots=True)
class Rate:
    """Tickets a second: now, and over the time that is remembered, oldest first. `used`: ids used up a second."""

    now: float = 0.0
    history: Sequence[float] = ()
    used: float = 0.0


class Rates:
    """Samples what `progress` says, from `start` to `stop`."""

    def __init__(self, progress: Progress, clock: Callable[[], float]) -> None:
        self._progress = progress
        self._clock = clock
        self._times: deque[float] = deque(maxlen=SAMPLES)
        self._all = _Samples()
        self._sequences: dict[str, _Samples] = {}
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            try:
                self.sample()
            except Exception:
                log.exception("the sampler met an error it does not know")
            await asyncio.sleep(SAMPLE_SECONDS)

    def sample(self) -> None:
        """Take one sample of every sequence; forget those that are gone."""
        self._times.append(self._clock())
        sequences: dict[str, _Samples] = {}
        total = 0
        for name, issued, last in self._progress():
            samples = sequences[name] = self._sequences.get(name) or _Samples()
            samples.add(issued, last)
            total += issued
        self._sequences = sequences
        self._all.add(total, ())

    def of(self, name: str) -> Rate:
        """The rate of one sequence; zero if it is not known."""
        samples = self._sequences.get(name)
        return Rate() if samples is None else self._rate(samples)

    def total(self) -> Rate:
        """The rate of all sequences together."""
        return self._rate(self._all)

    def _rate(self, samples: _Samples) -> Rate:
        issued, used = samples.issued.all(), samples.used.all()
        times = list(self._times)[-len(issued) :]
        if len(times) < 2:
            return Rate()
        history = [
            max(0, now - before) / max(until - since, 1e-3)
            for (before, now), (since, until) in zip(pairwise(issued), pairwise(times), strict=True)
        ]
        first = max(0, len(times) - 1 - PRESENT)
        present = max(0, issued[-1] - issued[first]) / max(times[-1] - times[first], 1e-3)
        used_up = (used[-1] - used[0]) / max(times[-1] - times[0], 1e-3)
        return Rate(present, history, used_up)
