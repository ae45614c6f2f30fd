"""The command behind `make torture`."""

import argparse
import os
import random
import sys

from tests.torture.run import Torture


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.torture", description=__doc__)
    parser.add_argument("--seconds", type=float, default=float(os.environ.get("TORTURE_SECONDS") or 120))
    parser.add_argument("--seed", type=int, default=os.environ.get("TORTURE_SEED") or random.randrange(10**6))
    parser.add_argument("--databases", type=int, choices=(2, 3), default=os.environ.get("TORTURE_DATABASES") or 2)
    parser.add_argument("--only", nargs="*", default=None, metavar="FAULT", help="only the faults of these names")
    parser.add_argument(
        "--worst-variables",
        action="store_true",
        default=bool(os.environ.get("TORTURE_WORST_VARIABLES")),
        help="databases with the worst of the variables that an operator can set",
    )
    arguments = parser.parse_args()
    return Torture(
        arguments.seconds,
        arguments.seed,
        arguments.databases,
        arguments.only,
        worst_variables=arguments.worst_variables,
    ).run()


if __name__ == "__main__":
    sys.exit(main())
