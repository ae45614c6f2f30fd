"""The judge of the torture: it reads what the ticket servers have written down, and knows nothing else of them.

- No id twice, whoever handed it out. An id is excused that was unprotected when it was handed out, either time.
- The single ids and lists of one server from one database increase, and so do its blocks.
- Once a bump was answered, every id is above it.
"""

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

PAGE = 1 << 16
PROTECTED, UNPROTECTED = b"\1", b"\2"
TICK = 0.01
"""Seconds. Moments without a ticket are counted in ticks."""
MOST_TOLD = 10
"""How many violations of each rule are described; all are counted."""


class Line(NamedTuple):
    """One line of a log, see `worker`."""

    time: float
    sequence: str
    shape: str
    offset: int
    unprotected: bool
    runs: list[tuple[int, int]]


def read(log: Path) -> Iterator[Line]:
    """Read a log. The last line of a killed server may be cut off; it stands for nothing."""
    with log.open(encoding="ascii") as lines:
        for line in lines:
            if line.endswith("\n"):
                time, sequence, shape, offset, *rest = line.split()
                runs = [(int(first), int(count)) for first, _, count in (run.partition(":") for run in rest[1:])]
                yield Line(float(time), sequence, shape, int(offset), rest[:1] == ["1"], runs)


class Judge:
    """Judges all logs of a folder together. step: the increment."""

    def __init__(self, folder: Path, step: int) -> None:
        self._folder, self._step = folder, step
        self._pages: dict[tuple[str, int, int], bytearray] = {}
        self._ticks: set[int] = set()
        self._twice: set[tuple[str, int]] = set()
        self.ids = self.unprotected = self.excused = self.bumps = 0
        self.errors: Counter[str] = Counter()
        self.violations: Counter[str] = Counter()

    def violate(self, rule: str, words: str) -> None:
        """Count a violation, and describe it if it is among the first."""
        self.violations[rule] += 1
        if self.violations[rule] <= MOST_TOLD:
            print(f"VIOLATION of {rule}: {words}", flush=True)

    def judge(self) -> None:
        """Read all logs to their ends."""
        logs = sorted(self._folder.glob("*.log"))
        bumps = sorted(line for log in logs for line in read(log) if line.shape == "bump")
        self.bumps = len(bumps)
        for log in logs:
            self._judge(log, list(bumps))
        for sequence, number in sorted(self._twice)[:MOST_TOLD]:
            lines = [(log.stem, line) for log in logs for line in read(log) if line.sequence == sequence]
            found = [line for line in lines if any(number in self._range(*run) for run in line[1].runs)]
            self.violate("never twice", f"{number} of {sequence}: {found}")
        self.violations["never twice"] = len(self._twice)

    def longest_silence(self, begin: float, end: float) -> float:
        """Return the longest time without an answer of any server, in seconds."""
        first, last = int(begin / TICK), int(end / TICK)
        ticks = sorted({first, last, *(tick for tick in self._ticks if first < tick < last)})
        return max((after - before) * TICK for before, after in pairwise(ticks))

    def _range(self, first: int, count: int) -> range:
        return range(first, first + count * self._step, self._step)

    def _judge(self, log: Path, bumps: list[Line]) -> None:
        highest: Counter[tuple[str, int, bool]] = Counter()
        floors: Counter[str] = Counter()
        for line in read(log):
            if not line.runs:
                self.errors[line.shape] += line.shape != "bump"
                continue
            while bumps and bumps[0].time < line.time:
                bump = bumps.pop(0)
                floors[bump.sequence] = max(bump.offset, floors[bump.sequence])
            self._ticks.add(int(line.time / TICK))
            lane, floor = (line.sequence, line.offset, line.shape == "block"), floors[line.sequence]
            for first, count in line.runs:
                if first <= highest[lane]:
                    self.violate("order", f"{log.stem} gave {first} after {highest[lane]}: {line}")
                if first <= floor:
                    self.violate("bump", f"{log.stem} gave {first}, not above {floor}: {line}")
                highest[lane] = max(highest[lane], self._range(first, count)[-1])
                self._note(line, first, count)

    def _note(self, line: Line, first: int, count: int) -> None:
        """Note that these ids were handed out: a byte for each, in pages."""
        self.ids += count
        self.unprotected += count * line.unprotected
        sign = UNPROTECTED if line.unprotected else PROTECTED
        index, residue = divmod(first, self._step)
        while count:
            number, start = divmod(index, PAGE)
            page = self._pages.setdefault((line.sequence, residue, number), bytearray(PAGE))
            end = min(PAGE, start + count)
            if page.count(0, start, end) < end - start:
                there = [place for place in range(start, end) if page[place]]
                excused = {place for place in there if UNPROTECTED[0] in (page[place], sign[0])}
                self.excused += len(excused)
                ids = ((number * PAGE + place) * self._step + residue for place in there if place not in excused)
                self._twice.update((line.sequence, each) for each in ids)
            page[start:end] = sign * (end - start)
            index, count = index + end - start, count - (end - start)
