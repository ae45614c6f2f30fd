"""Run many schedules: `python -m tests.model --schedules 10000 --processes 2`; replay one: `--seed 17 --trace`."""

import argparse
import logging
import multiprocessing
import sys
import time
from functools import partial

from tests.model import growing  # noqa: F401 - registers its fault
from tests.model.faults import at_random
from tests.model.judge import Judge
from tests.model.protections import TAKE_OUT, without
from tests.model.scale import Scale
from tests.model.world import World


def run_seed(seed: int, protection: str | None = None, *, trace: bool = False) -> tuple[Judge, list[str]]:
    """Run the random schedule of a seed without a protection. Returns what the judge found, and the trace."""
    world = World(seed, Scale.of(seed), trace=trace)
    with without(*([protection] if protection is not None else [])):
        return world.run(at_random), world.trace


def _work(seed: int, protection: str | None) -> tuple[int, list[str], int, int]:
    judge, _ = run_seed(seed, protection)
    return seed, judge.faults, judge.count, judge.repeated


def main() -> int:
    """Run what the command line says; exit status 1 if something was wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.model", description=__doc__)
    parser.add_argument("--schedules", type=int, default=1000, help="how many seeds to run")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--seed", type=int, default=None, help="the first seed, or the only one with --trace")
    parser.add_argument("--trace", action="store_true", help="run one seed and print what happens in it")
    parser.add_argument("--without", choices=sorted(TAKE_OUT), help="take a protection out")
    chosen = parser.parse_args()
    logging.disable(logging.CRITICAL)
    if chosen.trace:
        judge, trace = run_seed(chosen.seed or 0, chosen.without, trace=True)
        print(*trace, *judge.faults, sep="\n")
        return bool(judge.faults)
    first, began, wrong, ids, excused = chosen.seed or 0, time.monotonic(), 0, 0, 0
    seeds = range(first, first + chosen.schedules)
    with multiprocessing.Pool(chosen.processes) as pool:
        results = pool.imap_unordered(partial(_work, protection=chosen.without), seeds, 10)
        for done, (seed, faults, count, repeated) in enumerate(results, 1):
            ids, excused, wrong = ids + count, excused + repeated, wrong + bool(faults)
            if faults:
                print(f"\rseed {seed}: {faults[0]}" + (f" (and {len(faults) - 1} more)" if faults[1:] else ""))
            if done % 100 == 0 or done == chosen.schedules:
                said = (
                    f"{done} schedules, {ids} ids, {excused} excused, {wrong} wrong, {time.monotonic() - began:.0f} s"
                )
                print(f"\r{said}", end="", file=sys.stderr)
    print(file=sys.stderr)
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
