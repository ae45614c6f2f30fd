"""The command behind `make long`."""

import argparse
import sys

from tests.long import page
from tests.long.plan import (
    carry_out,
    clocks,
    costly,
    installing,
    many_sequences,
    model,
    older_releases,
    soak,
    torture,
    two_bodies,
    variants,
)

SCHEDULES, SECONDS, SEQUENCES = 10_000, 600.0, 10_000
"""The size of a whole run. A smaller one is not published."""


def main() -> int:
    """Returns the exit status: 1 if any part failed."""
    options = _options()
    parts = [
        model(options.schedules),
        *(variants(program) for program in options.mysqld),
        *(torture(options.seconds, program) for program in options.mysqld),
        torture(options.seconds / 2, options.mysqld[0], databases=3),
        *(two_bodies(20, program) for program in options.mysqld),
        older_releases(options.mysqld[0]),
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
    data = page.as_data(outcomes)
    print("\n".join(["", *page.tables(data)]))
    failed = any(outcome.failed for outcome in outcomes)
    is_whole = options.schedules >= SCHEDULES and options.seconds >= SECONDS and options.sequences >= SEQUENCES
    if failed or not is_whole:
        print(f"\nnot published, because {'a part failed' if failed else 'the run was smaller than a whole one'}")
    else:
        page.publish(data, page.ROOT)
        print(f"\nwritten: {page.PAGE}, {page.RESULTS}")
    return 1 if failed else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.long", description=__doc__)
    parser.add_argument("--schedules", type=int, default=SCHEDULES, help="of the model (%(default)s)")
    parser.add_argument(
        "--seconds",
        type=float,
        default=SECONDS,
        help="of each torture, of the search for costly inputs and of the soak (%(default)g); half of it with three "
        "databases",
    )
    parser.add_argument("--sequences", type=int, default=SEQUENCES, help="in use when it is started (%(default)s)")
    parser.add_argument(
        "--mysqld",
        nargs="+",
        default=[None],
        metavar="PROGRAM",
        help="torture on each of these database servers, on the first with three databases too",
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
