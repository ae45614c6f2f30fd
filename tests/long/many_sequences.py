"""Thousands of sequences that are all in use, both databases and the ticket server started again at the same time."""

import random
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import httpx

from tests.harness.engine import find_engine
from tests.harness.mysqld import TicketMySQL
from tests.harness.pair import MySQLPair
from tests.harness.processes import wait_until
from tests.harness.ticketd import TicketServer

ALIVE_SECONDS = 2.0
"""From the process's start to the first 200 of /livez."""
TICKET_SECONDS = 3.0
"""From the first database that accepts a connection to the first ticket of a sequence chosen at random."""
PAGES = ("/healthz", "/sequence", "/sequence?search=s99", "/", "/metrics")
PAGE_SECONDS = 2.0
LONGEST_SECONDS = 120.0
MAKERS = 4
ANSWER_SECONDS = 60.0


def make(database: TicketMySQL, numbers: range) -> None:
    """Make the tables of these sequences, as a DBA would."""
    with database.connect() as connection, connection.cursor() as cursor:
        for number in numbers:
            cursor.execute(f"CREATE TABLE s{number} LIKE Tickets64")


def in_threads(work: Callable[[int], object], times: int, workers: int = 16) -> None:
    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(work, range(times)))


def use(server: TicketServer, number: int) -> None:
    """Draw a ticket; while the databases are busy with all these tables, again and again."""
    answer = server.get(f"/ticket/s{number}")
    until = time.monotonic() + ANSWER_SECONDS
    while answer.status != 200:
        if time.monotonic() > until:
            raise TimeoutError(f"{ANSWER_SECONDS:g} s: {answer.status} {answer.text}\n{server.log_text()[-3000:]}")
        time.sleep(0.05)
        answer = server.get(f"/ticket/s{number}")


def first_ticket(server: TicketServer, count: int, pair: MySQLPair) -> tuple[float, float]:
    """When the first database accepted a connection, and when the first ticket came."""
    accepted = 0.0
    until = time.monotonic() + LONGEST_SECONDS
    while time.monotonic() < until:
        if not accepted:
            with suppress(Exception):
                pair.odd.connect().close()
                accepted = time.monotonic()
        with suppress(httpx.HTTPError):
            if server.get(f"/ticket/s{random.randrange(count)}").status == 200:
                now = time.monotonic()
                return accepted or now, now
    raise TimeoutError(f"no ticket in {LONGEST_SECONDS:g} s\n{server.log_text()[-3000:]}")


def main(count: int) -> int:
    """Returns the exit status."""
    engine = find_engine()
    print(f"on {engine.kind} {engine.version}", flush=True)
    with MySQLPair(engine, flags=["--table-open-cache=4000"]) as pair, TicketServer(pair.urls) as server:
        server.wait_health("pass")
        server.terminate()
        share = -(-count // MAKERS)
        parts = [range(first, min(first + share, count)) for first in range(0, count, share)]
        for database in pair:
            in_threads(lambda part, of=database: make(of, parts[part]), len(parts), MAKERS)  # type: ignore[misc]
        server.start()
        server.wait_alive()
        for database in pair:
            server.wait_database(database.name, "up", 120)
        for _ in pair:
            in_threads(lambda number: use(server, number), count)
        print(f"{count} sequences in use", file=sys.stderr, flush=True)
        server.terminate()
        for database in pair:
            database.kill()
        with ThreadPoolExecutor(len(pair)) as starting:
            for database in pair:
                starting.submit(database.start)
            began = time.monotonic()
            server.start()
            server.wait_alive()
            alive = time.monotonic() - began
            accepted, came = first_ticket(server, count, pair)
        for database in pair:
            server.wait_database(database.name, "up", 120)
        slowest = 0.0
        for page in PAGES:
            began = time.monotonic()
            wait_until(lambda path=page: server.get(path).status == 200, 30, page)  # type: ignore[misc]
            slowest = max(slowest, time.monotonic() - began)
    ticket = max(0.0, came - accepted)
    print(f"livez {alive:.1f} s, first ticket {ticket:.1f} s after the first database, slowest page {slowest:.1f} s")
    return int(alive > ALIVE_SECONDS or ticket > TICKET_SECONDS or slowest > PAGE_SECONDS)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000))
