"""python -m tests.model: schedules by the thousand, and one of them again, step by step."""

import argparse
import os
import sys
from collections.abc import Sequence

from tests.model.many import replay, run
from tests.model.schedule import STEPS
from tests.model.world import MIXED, ROWS, TABLES


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns 0 if every schedule went well."""
    parser = argparse.ArgumentParser(prog="python -m tests.model", description=__doc__)
    parser.add_argument("--schedules", type=int, default=1_000, help="how many (default: %(default)s)")
    parser.add_argument("--first", type=int, default=0, metavar="SEED", help="the first seed; the others follow it")
    parser.add_argument("--databases", type=int, choices=[2, 3], help="default: as the seed has it")
    parser.add_argument("--engines", choices=[TABLES, ROWS, MIXED], help="default: as the seed has it")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--steps", type=int, default=STEPS, help="chosen for each schedule (default: %(default)s)")
    parser.add_argument("--seed", type=int, help="this one alone, with every step")
    given = parser.parse_args(arguments)
    if given.seed is not None:
        return replay(given.seed, given.steps, given.databases, given.engines)
    seeds = range(given.first, given.first + given.schedules)
    return run(seeds, given.steps, given.databases, given.engines, given.processes)


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != "0":  # the same seed is to do the same in every process
        os.execve(
            sys.executable, [sys.executable, "-m", "tests.model", *sys.argv[1:]], os.environ | {"PYTHONHASHSEED": "0"}
        )
    sys.exit(main())
