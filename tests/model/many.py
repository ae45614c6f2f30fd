"""Schedules by the thousand, in several processes, and one of them again."""

import itertools
import multiprocessing
import sys
import time
from collections import Counter
from collections.abc import Sequence

from tests.model.faults import FAULTS, LOSSES
from tests.model.schedule import Schedule

REPORT_SECONDS = 15.0
EVERYTHING = 1_000
"""This number of schedules tries every fault. If one is missing, it cannot happen any more."""
KINDS = {*FAULTS, *LOSSES, "restore", "relapse", "replace by an empty one", "freeze", "restart", "bumps"}


def replay(seed: int, steps: int, databases: int | None, engines: str | None) -> int:
    schedule = Schedule(seed, Counter(), databases, engines=engines)
    said = ""
    try:
        schedule.run(steps)
    except Exception as error:
        said = what_went_wrong(error)
    print("\n".join(schedule.log))
    print(said or "all went well")
    return int(bool(said))


def run(seeds: Sequence[int], steps: int, databases: int | None, engines: str | None, processes: int) -> int:
    """Progress and what fails go to stderr as they come, the sum to stdout; returns 0 if every schedule went well."""
    began = reported = time.monotonic()
    done: Counter[str] = Counter()
    failed = []
    jobs = ((seed, steps, databases, engines) for seed in seeds)
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        for number, (seed, said, did) in enumerate(pool.imap_unordered(one, jobs, chunksize=8), 1):
            done.update(did)
            if said:
                failed.append(seed)
                print(f"seed {seed}: {said}", file=sys.stderr, flush=True)
            if time.monotonic() - reported > REPORT_SECONDS:
                reported = time.monotonic()
                took = f"{reported - began:.0f} s"
                print(f"{number:,} of {len(seeds):,} in {took}, {len(failed)} failed", file=sys.stderr, flush=True)
    missing = KINDS - done.keys() if len(seeds) >= EVERYTHING else set()
    print(", ".join(f"{kind}: {times}" for kind, times in done.most_common()))
    print(f"seeds {seeds[0]} to {seeds[-1]}: {len(failed)} failed{''.join(f', {seed}' for seed in failed)}")
    if missing:
        print(f"never done: {', '.join(sorted(missing))}")
    return int(bool(failed or missing))


def one(job: tuple[int, int, int | None, str | None]) -> tuple[int, str, Counter[str]]:
    """One schedule: its seed, what went wrong, what was done."""
    seed, steps, databases, engines = job
    done: Counter[str] = Counter()
    try:
        Schedule(seed, done, databases, engines=engines).run(steps)
    except Exception as error:
        return seed, what_went_wrong(error), done
    return seed, "", done


def what_went_wrong(error: Exception) -> str:
    return f"{type(error).__name__}: {next(itertools.chain(str(error).splitlines(), ['']))[:2000]}"
