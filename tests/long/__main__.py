"""The command behind `make long`."""

import argparse
import os
import platform
import subprocess
import sys
import time

from tests.long.plan import (
    REPOSITORY,
    carry_out,
    clocks,
    costly,
    installing,
    many_sequences,
    model,
    soak,
    torture,
    variants,
)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.long", description=__doc__)
    parser.add_argument("--schedules", type=int, default=10_000, help="of the model (%(default)s)")
    parser.add_argument(
        "--seconds",
        type=float,
        default=600,
        help="of each torture, of the search for costly inputs and of the soak (%(default)g); half of it with three "
        "databases",
    )
    parser.add_argument("--sequences", type=int, default=10_000, help="in use when it is started (%(default)s)")
    parser.add_argument(
        "--mysqld",
        nargs="+",
        default=[None],
        metavar="PROGRAM",
        help="torture on each of these database servers, on the first with three databases too",
    )
    options = parser.parse_args()
    parts = [
        model(options.schedules),
        *(variants(program) for program in options.mysqld),
        *(torture(options.seconds, program) for program in options.mysqld),
        torture(options.seconds / 2, options.mysqld[0], databases=3),
        clocks(30, options.mysqld[0]),
        many_sequences(options.sequences),
        costly(options.seconds),
        installing(),
        soak(options.seconds),
    ]
    outcomes = []
    for number, part in enumerate(parts, 1):
        print(f"{number} of {len(parts)}: {part.name}", flush=True)
        outcome = carry_out(part)
        outcomes.append(outcome)
        if outcome.failed:
            print(outcome.output, flush=True)
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=REPOSITORY, capture_output=True, text=True, check=False
    ).stdout.strip()
    print(f"\n`make long`, {time.strftime('%Y-%m-%d')}, {commit}, {os.cpu_count()} processors, {platform.machine()}:\n")
    print("| part | took | came to |\n| --- | ---: | --- |")
    for outcome in outcomes:
        print(outcome.row)
    return 1 if any(outcome.failed for outcome in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())
