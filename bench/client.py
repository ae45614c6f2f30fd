"""`python -m bench.client`: what a ticket costs one thread of a program that takes it from the Python client."""

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from itertools import repeat

from ticketd_client import Tickets
from ticketd_client import __file__ as client

from bench import machine, runner
from bench.model import CaseFailed, Missing
from bench.stage import Stage

PREFETCH = 10_000
MANY = 100
PACE = 100_000
"""Tickets a second at which no `take` may be slow."""
ASKED_TAKE, ASKED_MANY, ASKED_SLOWEST = 1_000_000, 2_000_000, 0.005
"""Tickets a second, tickets a second, seconds."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure; 0 where all of it is what is asked for."""
    parser = argparse.ArgumentParser(prog="python -m bench.client", description=__doc__)
    parser.add_argument("--seconds", type=float, default=30, help="for each of the three (default 30)")
    parser.add_argument("--embedded", action="store_true", help="the server on its embedded pair, without MySQL")
    options = parser.parse_args(arguments)
    progress = runner.Progress()
    stage = Stage(progress.say, many_sequences=False)
    try:
        if warning := machine.busy():
            progress.say(warning)
        progress.say(f"the client is {client}")
        server = stage.embedded if options.embedded else stage.server
        counted = None if options.embedded else lambda: sum(each.counter("photos") for each in stage.databases) // 2
        return _measure(f"http://127.0.0.1:{server.port}", options.seconds, counted)
    except (CaseFailed, Missing) as error:
        progress.say(str(error))
        return 1
    finally:
        stage.close()


def _measure(url: str, seconds: float, counted: Callable[[], int] | None) -> int:
    before = counted() if counted else 0
    with Tickets(url, prefetch=PREFETCH, timeout=5) as tickets:
        taken, rate = _as_fast_as_it_goes(lambda: tickets.take("photos"), 1, seconds)
        print(f"take: {rate:,.0f} tickets a second for {seconds:g} s (asked: {ASKED_TAKE:,})")
        more, of_many = _as_fast_as_it_goes(lambda: tickets.take_many("photos", MANY), MANY, seconds)
        taken += more
        print(f"take_many of {MANY}: {of_many:,.0f} tickets a second for {seconds:g} s (asked: {ASKED_MANY:,})")
        waits = _paced(lambda: tickets.take("photos"), seconds)
        taken += len(waits)
    waits.sort()
    slowest = ", ".join(f"{1000 * wait:.2f}" for wait in waits[-5:])
    achieved = len(waits) / seconds
    print(f"take at {achieved:,.0f} a second for {seconds:g} s: median {1e6 * waits[len(waits) // 2]:.2f} us, ", end="")
    print(f"the five slowest {slowest} ms (asked: none above {1000 * ASKED_SLOWEST:g})")
    if counted:
        drawn = counted() - before
        print(f"{taken:,} tickets were taken, {drawn:,} drawn from the databases: {drawn - taken:,} more")
        if not 0 <= drawn - taken <= 2 * PREFETCH:  # what was ahead at the end, and a block that was under way
            raise CaseFailed("these do not go together")
    good = rate >= ASKED_TAKE and of_many >= ASKED_MANY and waits[-1] <= ASKED_SLOWEST and achieved > 0.99 * PACE
    return 0 if good else 1


def _as_fast_as_it_goes(call: Callable[[], object], each: int, seconds: float) -> tuple[int, float]:
    """How many tickets the calls took, the first second included, and how many a second after that."""
    taken = 0
    for lasts in (1.0, seconds):
        began = now = time.perf_counter()
        here = 0
        while now - began < lasts:
            for _ in repeat(None, 1_000):
                call()
            here += 1_000 * each
            now = time.perf_counter()
        taken += here
    return taken, here / (now - began)


def _paced(call: Callable[[], object], seconds: float) -> list[float]:
    """Seconds that each call took, at `PACE` of them a second; late ones follow one another."""
    waits: list[float] = []
    clock = time.perf_counter
    began = now = clock()
    while now - began < seconds:
        if len(waits) < (now - began) * PACE:
            before = clock()
            call()
            waits.append(clock() - before)
        now = clock()
    return waits


if __name__ == "__main__":
    sys.exit(main())
