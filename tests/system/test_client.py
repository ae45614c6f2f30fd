"""The Python client on real ticket servers that are killed and frozen under it."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from ticketd_client import Tickets

from tests.harness.pair import Schema
from tests.harness.processes import new_directory, remove_directory, wait_until
from tests.harness.ticketd import TicketServer

TIMEOUT = 4.0
_PROGRAM = """
import os, sys, threading, time, warnings
warnings.filterwarnings("ignore", "This process")  # threads and a fork: that is what is tried here
from ticketd_client import Tickets
folder, timeout, *urls = sys.argv[1:]
tickets = Tickets(urls, prefetch=200, timeout=float(timeout))
stop = os.path.join(folder, "stop")

def work(name):
    with open(os.path.join(folder, name), "w") as out:
        slowest = 0.0
        while not os.path.exists(stop):
            for _ in range(50):
                began = time.monotonic()
                print(tickets.take("photos"), file=out)
                slowest = max(slowest, time.monotonic() - began)
            time.sleep(0.002)
        print(f"slowest {slowest}", file=out)

def process(number, threads):
    started = [threading.Thread(target=work, args=(f"{number}-{each}",)) for each in range(threads)]
    for each in started: each.start()
    for each in started: each.join()

tickets.take("photos")
children = []
for number in range(1, 5):
    child = os.fork()
    if child == 0:
        process(number, 1)
        os._exit(0)
    children.append(child)
process(0, 8)
sys.exit(max(os.waitpid(child, 0)[1] for child in children))
"""
"""Eight threads and four forked children take tickets until there is a file `stop`, each into a file of its own."""


@pytest.fixture(params=["embedded", "mysql"])
def two_servers(
    request: pytest.FixtureRequest, new_schema: Callable[[], Schema], tmp_path: Path
) -> Iterator[list[TicketServer]]:
    """On one ring: MariaDB or MySQL, or the embedded pair."""
    databases = new_schema().urls if request.param == "mysql" else None
    with ExitStack() as stack:
        servers = [stack.enter_context(TicketServer(databases, data_dir=tmp_path / "data")) for _ in range(2)]
        for server in servers:
            server.wait_ready()
        yield servers


def test_no_ticket_twice_and_none_refused_while_a_server_is_killed_and_frozen(two_servers: list[TicketServer]) -> None:
    folder = new_directory("tickets-client-")
    one, other = two_servers
    load = subprocess.Popen([sys.executable, "-c", _PROGRAM, folder, str(TIMEOUT), one.url, other.url])

    def written() -> int:
        return sum(each.stat().st_size for each in folder.iterdir())

    def more() -> None:
        before = written()
        wait_until(lambda: written() > before + 20_000 or load.poll() is not None, 60, "more tickets")
        assert load.poll() is None

    try:
        more()
        one.kill()
        more()
        one.start()
        one.wait_ready()
        if "TICKETS_DATABASES" in other.environment:  # on the embedded pair it may stop with the file's lock in hand
            other.freeze()
            more()
            other.thaw()
            more()
        folder.joinpath("stop").touch()
        assert load.wait(60) == 0
        lines = [line for each in folder.iterdir() for line in each.read_text().splitlines()]
    finally:
        folder.joinpath("stop").touch()
        load.kill()
        load.wait(30)
        remove_directory(folder)
    slowest = [float(line.split()[1]) for line in lines if line.startswith("slowest")]
    tickets = [line for line in lines if not line.startswith("slowest")]
    assert len(slowest) == 12, "each has gone on to the end"
    assert max(slowest) < TIMEOUT
    assert len(tickets) == len(set(tickets)) > 1_000


@pytest.mark.any_engine
def test_the_counters_move_by_what_was_taken_and_what_is_ahead(new_schema: Callable[[], Schema]) -> None:
    schema = new_schema()
    with TicketServer(schema.urls) as server, Tickets(server.url, prefetch=1_000, timeout=20) as tickets:
        server.wait_ready()
        taken = [tickets.take("photos") for _ in range(20_000)]
        assert len(set(taken)) == len(taken)
        with Tickets(server.url, prefetch=0, timeout=20) as another:
            last = [another.take("photos") for _ in range(2)]
    assert 20_000 <= sum(last) / 2 <= 20_000 + 2 * 1_000 + 3 * 1_000
