"""The command: `python -m tests.long.costly`, or with `--case FILE` one input that was found earlier."""

import argparse
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from random import Random, SystemRandom

from tests.long.costly.case import SETTINGS, Case, Port
from tests.long.costly.corpus import CORPUS
from tests.long.costly.measure import Attacker, Reading, Target, confirmed, measure_twice, warm
from tests.long.costly.search import Search

FOLDER = Path(__file__).resolve().parents[3] / "build" / "costly"
SHOWN = 10


class Hunt:
    """Servers under attack, one of each setting, and one that is left alone."""

    def __init__(self, stack: ExitStack, attacker: Attacker) -> None:
        self._stack = stack
        self._attacker = attacker
        self._idle = stack.enter_context(closing(Target("plain")))
        self._targets: dict[str, Target] = {}
        self.violations = 0

    def try_(self, case: Case) -> Reading:
        """Attack with this input. One that breaks a bound is tried again on fresh servers, three times."""
        target = self._targets.get(case.setting)
        if target is None:
            target = self._targets[case.setting] = self._stack.enter_context(closing(Target(case.setting)))
            warm(target, self._attacker)
        reading = measure_twice(case, target, self._idle, self._attacker)
        if reading.breaks_a_bound:
            self._targets.pop(case.setting).close()
            again = confirmed(case, self._attacker)
            if again:
                self.violations += 1
                path = case.save(FOLDER, f"{time.strftime('%H%M%S')}-{self.violations}")
                print(f"violation, in {path}:\n  {case}\n  {reading}", *again, sep="\n  ", flush=True)
            else:
                print(f"not confirmed: {case}\n  {reading}", file=sys.stderr, flush=True)
        return reading


def main() -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.long.costly", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600, help="(%(default)g)")
    parser.add_argument("--seed", type=int, default=SystemRandom().randrange(10**6), help="of the inputs")
    parser.add_argument("--port", choices=["http", "redis", "both"], default="both")
    parser.add_argument("--case", type=Path, nargs="*", help="files with inputs that were found earlier")
    options = parser.parse_args()
    ports: Sequence[Port] = ["http", "redis"] if options.port == "both" else [options.port]
    first = [case for case in CORPUS.values() if case.setting in SETTINGS]
    if options.case:
        first = [Case.from_json(path.read_text(encoding="ascii")) for path in options.case]
    search = Search(Random(options.seed), ports, first)
    tried, until = 0, time.monotonic() + options.seconds
    with ExitStack() as stack:
        hunt = Hunt(stack, stack.enter_context(Attacker()))
        while tried < len(first) if options.case else time.monotonic() < until:
            case = search.next()
            reading = hunt.try_(case)
            search.learn(case, reading)
            tried += 1
            print(f"{tried:4} {reading}  {case}", file=sys.stderr, flush=True)
    for number, found in enumerate(search.found[:SHOWN], 1):
        path = found.case.save(FOLDER, f"worst-{number}")
        print(f"{path.name}: {found.reading}\n  {found.case}")
    slowest = max((found.reading for found in search.found), key=lambda reading: reading.waits - reading.idle)
    most = max(found.reading.grown for found in search.found)
    print(f"livez {slowest.waits * 1e3:.0f} ms at the most (idle {slowest.idle * 1e3:.0f} ms), {tried} inputs")
    print(f"memory {most / 2**20:+.0f} MiB at the most")
    print(f"violations: {hunt.violations} (seed {options.seed})")
    return 1 if hunt.violations else 0


if __name__ == "__main__":
    sys.exit(main())
