"""`python -m bench.scrape`: what a scrape of /metrics every second costs a server under full load."""

import argparse
import random
import statistics
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from bench import machine, runner, wrk
from bench.model import CaseFailed, Missing
from bench.stage import Stage

ALLOWED = 0.03
"""The share of its throughput that scraping may cost."""


@contextmanager
def scraped(port: int) -> Iterator[list[float]]:
    """Scrape the server every second, as Prometheus does; gives the seconds that each scrape took."""
    over, took = threading.Event(), list[float]()

    def scrape() -> None:
        while not over.wait(1.0):
            began = time.perf_counter()
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
                answer.read()
            took.append(time.perf_counter() - began)

    prometheus = threading.Thread(target=scrape)
    prometheus.start()
    try:
        yield took
    finally:
        over.set()
        prometheus.join()


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure pairs, one with scrapes and one without, in random order; 0 where it costs less than is allowed."""
    parser = argparse.ArgumentParser(prog="python -m bench.scrape", description=__doc__)
    parser.add_argument("--pairs", type=int, default=12, help="how many (default 12)")
    parser.add_argument("--seconds", type=int, default=8, help="for each half of a pair (default 8)")
    parser.add_argument("--connections", type=int, default=64, help="that ask for single tickets (default 64)")
    options = parser.parse_args(arguments)
    progress = runner.Progress()
    stage = Stage(progress.say, many_sequences=False)
    try:
        return _measure(stage, options.pairs, options.seconds, options.connections, progress)
    except (CaseFailed, Missing) as error:
        progress.say(str(error))
        return 1
    finally:
        stage.close()


def _measure(stage: Stage, pairs: int, seconds: int, connections: int, progress: runner.Progress) -> int:
    if warning := machine.busy():
        progress.say(warning)
    port = stage.server.port
    wrk.measure([port], "/ticket/photos", connections, 3)
    without: list[float] = []
    with_scrapes: list[float] = []
    took: list[float] = []
    for number in range(1, pairs + 1):
        for scraping in random.sample((True, False), 2):
            if scraping:
                with scraped(port) as seen:
                    with_scrapes.append(wrk.measure([port], "/ticket/photos", connections, seconds).rate)
                took += seen
            else:
                without.append(wrk.measure([port], "/ticket/photos", connections, seconds).rate)
        progress.say(f"pair {number:2}/{pairs}  without {without[-1]:8,.0f}/s  scraped {with_scrapes[-1]:8,.0f}/s")
    cost = 1 - statistics.median(with_scrapes) / statistics.median(without)
    of_pairs = statistics.median(1 - a / b for a, b in zip(with_scrapes, without, strict=True))
    print(
        f"{pairs} pairs of {seconds} s, single tickets, {connections} connections: "
        f"median {statistics.median(without):,.0f}/s without "
        f"and {statistics.median(with_scrapes):,.0f}/s with a scrape every second: "
        f"{cost:.1%} less (median of the pairs {of_pairs:.1%}); "
        f"a scrape took {statistics.median(took) * 1000:.1f} ms (median)"
    )
    return 0 if cost < ALLOWED else 1


if __name__ == "__main__":
    sys.exit(main())
