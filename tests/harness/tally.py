"""The checker for long runs: holds every answer against the promises as it comes, and keeps runs of ids, not answers.

`history` looks at a finished history; a tally is told one answer at a time, in the order of their arrival, and says the
same of it. What it keeps grows with the gaps between the tickets, not with the tickets. The ring may change between two
answers (`use_ring`); a ticket that comes twice is found across all rings. Beside the promises of `history` it knows two
more:

    bumped          what is asked for after a bump was answered is larger than its number
    availability    a request fails only while something is done to its server that it cannot be spared (`excused`)
"""

import math
import threading
import time
from bisect import bisect_left, bisect_right, insort
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

from tests.harness import history
from tests.harness.history import Answer

EVERYBODY = "every server"
_KEPT = 8
"""How many violations of each promise are kept in words; all are counted."""


class Runs:
    """A set of ids of one residue as runs, the gaps between them being what it costs."""

    def __init__(self, increment: int) -> None:
        self._increment = increment
        self._firsts: list[int] = []
        self._lasts: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._firsts)

    def add(self, first: int, last: int) -> tuple[int, int] | None:
        """Add first, first + increment, … last; the part of them that was there already, or None."""
        at = bisect_right(self._firsts, first)
        before = self._firsts[at - 1] if at else None
        overlap = None
        if before is not None and self._lasts[before] >= first:
            overlap = (first, min(last, self._lasts[before]))
        elif at < len(self._firsts) and self._firsts[at] <= last:
            overlap = (self._firsts[at], min(last, self._lasts[self._firsts[at]]))
        if before is None or self._lasts[before] < first - self._increment:
            insort(self._firsts, first)
            self._lasts[first] = last
            before = first
            at += 1
        else:
            self._lasts[before] = max(last, self._lasts[before])
        while at < len(self._firsts) and self._firsts[at] <= self._lasts[before] + self._increment:
            swallowed = self._lasts.pop(self._firsts.pop(at))
            self._lasts[before] = max(self._lasts[before], swallowed)
        return overlap

    def shared(self, first: int, last: int, step: int) -> int | None:
        """The smallest of first, first + step, … last that is in the set, or None."""
        found = None
        at = bisect_right(self._firsts, last) - 1
        while at >= 0 and self._lasts[self._firsts[at]] >= first:
            begin = self._firsts[at]
            both = _in_both(first, step, begin, self._increment)
            if both is not None and both <= min(last, self._lasts[begin]):
                found = both
            at -= 1
        return found


def _in_both(first: int, step: int, other_first: int, other_step: int) -> int | None:
    """The smallest number that is in first, first + step, … and in other_first, other_first + other_step, …"""
    divisor = math.gcd(step, other_step)
    if (other_first - first) % divisor:
        return None
    period = other_step // divisor
    steps = (other_first - first) // divisor * pow(step // divisor, -1, period) % period
    number = first + step * steps
    return number + max(0, -(-(other_first - number) // (step * period))) * step * period


class _Highest:
    """The largest id that had arrived by a time, for times that are not long past."""

    def __init__(self, horizon: float) -> None:
        self._horizon = horizon
        self._times: list[float] = []
        self._ids: list[int] = []

    def arrived(self, at: float, last: int) -> None:
        if self._ids and last <= self._ids[-1]:
            return
        self._times.append(at)
        self._ids.append(last)
        if len(self._ids) % 1000 == 0 and (past := bisect_left(self._times, at - self._horizon) - 1) > 0:
            del self._times[:past], self._ids[:past]

    def before(self, time: float) -> int:
        """The largest id that arrived before this time; 0 if there is none."""
        at = bisect_left(self._times, time)
        return self._ids[at - 1] if at else 0


class _Window(NamedTuple):
    server: str
    began: float
    ended: list[float]


@dataclass
class Tally:
    """What has come of all requests so far. `offsets`: of the databases that there are, all up to the increment if
    None. `horizon`: no request takes longer, in seconds."""

    increment: int = 2
    offsets: Collection[int] | None = None
    horizon: float = 30.0
    tickets: int = 0
    requests: int = 0
    violations: int = 0
    words: list[str] = field(default_factory=list)
    failed: Counter[str] = field(default_factory=Counter)
    excused: Counter[str] = field(default_factory=Counter)
    longest_wait: float = 0.0

    def __post_init__(self) -> None:
        self._runs: dict[tuple[str, int, int], Runs] = defaultdict(lambda: Runs(self.increment))
        self._rings = {self.increment}
        self._highest: dict[tuple[str, str, bool, int, int], _Highest] = defaultdict(lambda: _Highest(self.horizon))
        self._bumps: dict[str, list[tuple[float, int]]] = defaultdict(list)
        self._windows: list[_Window] = []
        self._lock = threading.Lock()

    @property
    def runs(self) -> int:
        """How many runs of ids are kept: what the memory goes with."""
        return sum(len(runs) for runs in self._runs.values())

    def add(self, answer: Answer) -> None:
        """One more answer; those of one server come in the order of their arrival."""
        with self._lock:
            self.requests += 1
            if answer.status == 200:
                self._add_tickets(answer)
            else:
                self._add_failure(answer)
            if not self._excuse(answer):
                self.longest_wait = max(self.longest_wait, answer.took)

    def use_ring(self, increment: int, offsets: Collection[int]) -> None:
        """What is asked for from now on is drawn by databases with these offsets and this increment."""
        with self._lock:
            self.increment, self.offsets = increment, offsets
            self._rings.add(increment)

    def bumped(self, sequence: str, above: int, at: float) -> None:
        """From this time on every ticket asked for is larger."""
        with self._lock:
            self._bumps[sequence].append((at, above))

    @contextmanager
    def excuses(self, server: str, clock: Callable[[], float] = time.monotonic) -> Iterator[None]:
        """While this lasts, requests to the server (or EVERYBODY) may fail: it is killed, or has no database."""
        window = _Window(server, clock(), [])
        with self._lock:
            self._windows.append(window)
        try:
            yield
        finally:
            window.ended.append(clock())

    def fail(self, what: str) -> None:
        """A broken promise that somebody else has found."""
        with self._lock:
            self._violated(what)

    # -- one answer

    def _add_tickets(self, answer: Answer) -> None:
        self.tickets += len(answer.ids)
        for violation in history.malformed([answer], self.increment, self.offsets):
            self._violated(str(violation))
        if not answer.ids:
            return
        spans: dict[int, tuple[int, int]] = {}
        for first, last, _ in history.runs_of(answer, self.increment):
            residue = first % self.increment
            overlap = self._runs[answer.sequence, self.increment, residue].add(first, last)
            if overlap is not None:
                self._violated(
                    f"duplicate in {answer.sequence}: {overlap[0]} to {overlap[1]} handed out again by {answer.server}"
                )
            self._look_in_other_rings(answer, first, last)
            low, high = spans.get(residue, (first, last))
            spans[residue] = (min(low, first), max(high, last))
        for residue, (low, high) in spans.items():
            of = answer.sequence, answer.server, answer.kind == "block", self.increment, residue
            highest = self._highest[of]
            known = highest.before(answer.asked_at)
            if known and low <= known:
                self._violated(
                    f"disorder in {answer.sequence}: {low} came from {answer.server} after {known} had come from it"
                )
            highest.arrived(answer.arrived_at, high)
        for at, above in self._bumps[answer.sequence]:
            if answer.asked_at > at and min(answer.ids[0], answer.ids[-1]) <= above:
                self._violated(f"bumped {answer.sequence} above {above}, then {answer.ids[0]} came of {answer.server}")

    def _look_in_other_rings(self, answer: Answer, first: int, last: int) -> None:
        for increment in self._rings - {self.increment}:
            for residue in range(increment):
                runs = self._runs.get((answer.sequence, increment, residue))
                again = None if runs is None else runs.shared(first, last, self.increment)
                if again is not None:
                    self._violated(
                        f"duplicate in {answer.sequence}: {again} handed out again by {answer.server}, first in a "
                        f"ring of increment {increment} and now of {self.increment}"
                    )

    def _add_failure(self, answer: Answer) -> None:
        kind = f"{answer.status}" if answer.status else "no answer"
        if self._excuse(answer):
            self.excused[kind] += 1
            return
        self.failed[kind] += 1
        asked = time.strftime("%T", time.gmtime(time.time() - time.monotonic() + answer.asked_at))
        self._violated(
            f"unavailable: {kind} for {answer.sequence} from {answer.server}, asked at {asked}, "
            f"after {answer.took:.2f} s: {answer.error[:200]}"
        )

    def _excuse(self, answer: Answer) -> bool:
        self._windows = [w for w in self._windows if not w.ended or w.ended[0] > answer.arrived_at - self.horizon]
        return any(
            window.server in (EVERYBODY, answer.server)
            and window.began <= answer.arrived_at
            and (not window.ended or answer.asked_at <= window.ended[0])
            for window in self._windows
        )

    def _violated(self, what: str) -> None:
        self.violations += 1
        promise = what.partition(" ")[0]
        if sum(words.startswith(promise) for words in self.words) < _KEPT:
            self.words.append(what)
