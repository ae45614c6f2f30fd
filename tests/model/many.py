"""Schedules by the thousand, in several processes, and one of them again."""

import itertools
import multiprocessing
import time
from collections import Counter
from collections.abc import Sequence

from tests.model.schedule import Schedule

REPORT_SECONDS = 15.0


def replay(seed: int, steps: int, databases: int | None) -> int:
    schedule = Schedule(seed, Counter(), databases)
    said = ""
    try:
        schedule.run(steps)
    except Exception as error:
        said = what_went_wrong(error)
    print("\n".join(schedule.log))
    print(said or "all went well")
    return int(bool(said))


def run(seeds: Sequence[int], steps: int, databases: int | None, processes: int) -> int:
    began = reported = time.monotonic()
    done: Counter[str] = Counter()
    failed = 0
    jobs = ((seed, steps, databases) for seed in seeds)
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        for number, (seed, said, did) in enumerate(pool.imap_unordered(one, jobs, chunksize=8), 1):
            done.update(did)
            if said:
                failed += 1
                print(f"seed {seed}: {said}", flush=True)
            if time.monotonic() - reported > REPORT_SECONDS:
                reported = time.monotonic()
                print(f"{number} of {len(seeds)} in {reported - began:.0f} s, {failed} failed", flush=True)
    print(", ".join(f"{kind}: {times}" for kind, times in done.most_common()))
    print(f"{len(seeds)} schedules in {time.monotonic() - began:.0f} s, {failed} failed")
    return int(bool(failed))


def one(job: tuple[int, int, int | None]) -> tuple[int, str, Counter[str]]:
    """One schedule: its seed, what went wrong, what was done."""
    seed, steps, databases = job
    done: Counter[str] = Counter()
    try:
        Schedule(seed, done, databases).run(steps)
    except Exception as error:
        return seed, what_went_wrong(error), done
    return seed, "", done


def what_went_wrong(error: Exception) -> str:
    return f"{type(error).__name__}: {next(itertools.chain(str(error).splitlines(), ['']))[:2000]}"
