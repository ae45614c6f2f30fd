"""Goes through the cases, round after round."""

import sys
import time
from collections.abc import Sequence
from dataclasses import replace

from bench import machine
from bench.case import Case
from bench.model import CaseFailed, Missing, Sample
from bench.stage import Stage
from bench.summary import Row

ELSEWHERE = "elsewhere"
"""The name, among the parts that use the processors, of everything that does not belong to the benchmark."""


class Progress:
    """Says on stderr what is going on."""

    def __init__(self) -> None:
        self._began = time.monotonic()

    def say(self, words: str) -> None:
        seconds = int(time.monotonic() - self._began)
        print(f"[{seconds // 60:3}:{seconds % 60:02}] {words}", file=sys.stderr, flush=True)


def run(stage: Stage, cases: Sequence[Case], seconds: float, rounds: int, progress: Progress) -> dict[str, Row]:
    """A short round that warms up and does not count, then the others. A case that cannot be measured says why."""
    rows = {case.name: Row(case) for case in cases}
    absent: set[str] = set()
    for number in range(rounds + 1):
        for position, case in enumerate(cases, 1):
            if case.name in absent:
                continue
            what = f"round {number}/{rounds}" if number else "warming up"
            label = f"{what}  {position:2}/{len(cases)}  {case.name:20}"
            try:
                sample = _measure(stage, case, seconds if number else 1.0)
            except Missing as error:
                rows[case.name].trouble = str(error)
                absent.add(case.name)
                progress.say(f"{label} {error}")
            except (CaseFailed, OSError, RuntimeError, TimeoutError) as error:
                rows[case.name].trouble = "failed: " + " ".join(str(error).split())
                progress.say(f"{label} {rows[case.name].trouble}")
                for words in stage.last_words():
                    progress.say(words)
            else:
                if number:
                    rows[case.name].samples[number] = sample
                latency = f"  p50 {sample.p50:.2f} ms" if sample.p50 is not None else ""
                besides = "".join(f"  {count:,} {words}" for words, count in sample.counts.items())
                progress.say(f"{label} {sample.rate:12,.0f}/s{latency}{besides}")
    return rows


def _measure(stage: Stage, case: Case, seconds: float) -> Sample:
    """One run, with what it used of the processors. Whatever it needs is started before the clock starts."""
    before, all_before, began = stage.processor_seconds(), machine.used_seconds(), time.perf_counter()
    sample = case.run(stage, seconds)
    took = time.perf_counter() - began
    after, all_after = stage.processor_seconds(), machine.used_seconds()
    cores = {part: (after[part] - before.get(part, 0.0)) / took for part in after}
    cores[ELSEWHERE] = max(0.0, (all_after - all_before) / took - sum(cores.values()))
    return replace(sample, cores=cores)
