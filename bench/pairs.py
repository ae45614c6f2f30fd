"""`python -m bench.pairs CHECKOUT`: this checkout against another one, alternately, case by case.

Each half of a pair is a whole run of that checkout's own benchmark, with the database servers that it starts. Which of
the two goes first is left to chance. What counts is the median of the pairs' ratios.
"""

import argparse
import json
import random
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from bench import machine

HERE = Path(__file__).parent.parent
CASES = ("server-64", "server-unlike-64", "server-256", "server-latency-1", "block-10000", "sequences-1000")
LONGEST_SECONDS = 600.0
"""For one half of a pair."""


def measured(checkout: Path, cases: Sequence[str], seconds: int) -> dict[str, float]:
    """One run's figure of each case: tickets a second. Raises RuntimeError where a case has none."""
    results = checkout / "bench" / "results"
    for old in results.glob("*-partial.json"):
        old.unlink()
    command = [
        checkout / ".venv/bin/python",
        "-m",
        "bench",
        "--rounds",
        "1",
        "--seconds",
        str(seconds),
        "--only",
        *cases,
    ]
    ran = subprocess.run(
        [str(word) for word in command],
        cwd=checkout,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LONGEST_SECONDS,
        check=False,
    )
    written = list(results.glob("*-partial.json"))
    found = json.loads(written[0].read_text())["cases"] if written else []
    rates = {row["case"]: row["median"] for row in found if row["median"]}
    if missing := set(cases) - rates.keys():
        raise RuntimeError(
            f"{checkout.name}: no figure for {', '.join(sorted(missing))}\n{(ran.stdout + ran.stderr)[-2000:]}"
        )
    return rates


def commit_of(checkout: Path) -> str:
    """The commit that is checked out there."""
    command = ["git", "describe", "--always", "--dirty"]
    return subprocess.run(command, cwd=checkout, capture_output=True, text=True, check=True).stdout.strip()


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure the pairs and print a table; 1 where a figure is missing."""
    parser = argparse.ArgumentParser(prog="python -m bench.pairs", description=__doc__)
    parser.add_argument("other", type=Path, help="another checkout of this project, set up with `make check`")
    parser.add_argument("--pairs", type=int, default=16, help="how many (default %(default)s)")
    parser.add_argument("--seconds", type=int, default=3, help="for each case and run (default %(default)s)")
    parser.add_argument("--only", nargs="+", default=CASES, metavar="CASE", help=f"default: {' '.join(CASES)}")
    options = parser.parse_args(arguments)
    if warning := machine.busy():
        print(warning, file=sys.stderr)
    checkouts = (HERE, options.other.resolve())
    rates: dict[Path, dict[str, list[float]]] = {
        checkout: {case: [] for case in options.only} for checkout in checkouts
    }
    for number in range(1, options.pairs + 1):
        try:
            for checkout in random.sample(checkouts, 2):
                for case, rate in measured(checkout, options.only, options.seconds).items():
                    rates[checkout][case].append(rate)
        except (RuntimeError, subprocess.TimeoutExpired) as error:
            print(error, file=sys.stderr)
            return 1
        ratios = (
            f"{case} {rates[checkouts[0]][case][-1] / rates[checkouts[1]][case][-1]:.2f}" for case in options.only
        )
        print(f"pair {number}/{options.pairs}: {', '.join(ratios)}", file=sys.stderr, flush=True)
    here, there = (commit_of(checkout) for checkout in checkouts)
    print(f"{options.pairs} pairs of {options.seconds} s a case; tickets a second, medians; {here} / {there}\n")
    print(f"| case | {here} | {there} | median ratio | middle half of the ratios |\n| --- | ---: | ---: | ---: | --- |")
    for case in options.only:
        ours, theirs = (rates[checkout][case] for checkout in checkouts)
        ratios_of = [a / b for a, b in zip(ours, theirs, strict=True)]
        lower, middle, upper = statistics.quantiles(ratios_of, n=4) if len(ratios_of) > 1 else ratios_of * 3
        medians = statistics.median(ours), statistics.median(theirs)
        print(f"| {case} | {medians[0]:,.0f} | {medians[1]:,.0f} | {middle:.3f} | {lower:.3f} to {upper:.3f} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
