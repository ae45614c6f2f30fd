"""Two ticket servers under steady load for a long time, and no fault: nothing fails, comes twice, or grows."""

import sys
import time
from contextlib import ExitStack

from tests.harness.engine import find_engine
from tests.harness.load import Load, Want
from tests.harness.pair import MySQLPair
from tests.harness.tally import Tally
from tests.harness.ticketd import TicketServer

CLIENTS = 16
READINGS = 30
SETTLED = READINGS // 3
"""After so many readings caches are full, and memory and connections stay as they are."""
MEMORY_MAY_GROW = 1.05
CONNECTIONS_MAY_GROW = 1.5
"""A moment with more statements under way than ever before opens one more, and it stays."""
MIX = (
    Want("photos", weight=6),
    Want("photos", "count", 100),
    Want("photos", "block", 1000),
    Want("accounts", weight=4),
    Want("groups", "count", 10),
)


def main(seconds: float) -> int:
    """Returns the exit status."""
    tally = Tally()
    memory: list[int] = []
    connections: list[int] = []
    engine = find_engine()
    print(f"on {engine.kind} {engine.version}", flush=True)
    with ExitStack() as stack:
        pair = stack.enter_context(MySQLPair(engine))
        servers = [stack.enter_context(TicketServer(pair.urls)) for _ in range(2)]
        for server in servers:
            server.wait_health("pass")
        load = stack.enter_context(
            Load([server.address for server in servers], clients=CLIENTS, mix=MIX, record=tally.add)
        )
        for number in range(READINGS):
            load.run_for(seconds / READINGS)
            memory.append(max(server.memory() for server in servers))
            connections.append(max(database.connections() for database in pair))
            print(
                f"{(number + 1) * seconds / READINGS:5.0f} s  {tally.tickets:>11,} tickets  {memory[-1] >> 20} MiB  "
                f"{connections[-1]} connections  {time.strftime('%T')}",
                file=sys.stderr,
                flush=True,
            )
        for server in servers:
            server.wait_health("pass")
    for what, readings, may_grow in (
        ("memory", memory, MEMORY_MAY_GROW),
        ("connections", connections, CONNECTIONS_MAY_GROW),
    ):
        if readings[-1] > may_grow * max(readings[:SETTLED]):
            tally.fail(f"growth: {what} after each thirtieth of the time: {readings}")
    print(f"{seconds:.0f} s, {tally.requests:,} requests, {tally.tickets:,} tickets")
    print(f"longest wait: {tally.longest_wait:.2f} s")
    settled, last = (each / 2**20 for each in (max(memory[:SETTLED]), memory[-1]))
    print(f"memory of a server: {settled:.1f} MiB after a third of the time, {last:.1f} MiB at the end")
    print(f"violations: {tally.violations}")
    for words in tally.words:
        print(f"  {words}")
    return 1 if tally.violations or not tally.tickets else 0


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1])))
