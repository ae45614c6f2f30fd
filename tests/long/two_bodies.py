"""Two ticket servers and two bodies of data for one offset, on real databases, in rounds of random events.

`python -m tests.long.two_bodies --rounds 20`. Each round has two or three ticket databases and another one for offset
1, empty or a copy of the first. Each server has a way of its own to every database. The way to offset 1 may lead to
either body, at once or with connections that lead to both. Ways are cut and held up, servers and databases stand still
and are restarted, lists are changed and put back. A round fails where a ticket comes twice, where a sequence is
advanced more often than bodies changed, where more than 2 % of a 32-bit sequence is used up, or where not everything
serves once the operator has put one list everywhere.

`--held 120` does the opposite first: for so many seconds nothing changes any more. In the first case an operator has
changed one server's list to an empty body, in the second to a copy, and in the third a balancer leads both servers to
both bodies. The servers get 500 requests a second for single tickets, and the same verdict; `/healthz` of a server that
has to wait says so within two probe intervals.

Both servers reach the database of offset 2 all the while. Where no database that both reach had heard of a
replacement, nobody could tell the replaced body from the one in use: the contract excepts that.
"""

import argparse
import random
import re
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial

from tests.harness.engine import Engine, find_engine
from tests.harness.load import Load, Want
from tests.harness.mysqld import TicketMySQL
from tests.harness.pair import MySQLPair
from tests.harness.proxy import FaultyProxy
from tests.harness.rings import WATCHFUL, Issued
from tests.harness.schema import SCHEMA
from tests.harness.ticketd import TicketServer

EVENTS = 14
CLIENTS = 6
SETTINGS = {**WATCHFUL, "TICKETS_DATABASE_TIMEOUT": 0.5, "TICKETS_REQUEST_TIMEOUT": 2}
MIX = (
    Want("photos", weight=6),
    Want("photos", "count", 100),
    Want("photos", "block", 1000),
    Want("Tickets32", weight=6),
)
SHARE = 0.02 * 2**32
MOMENTS = (0.01, 0.05, 0.4, 1.5, 4.0)
"""Seconds for which somebody stands still: less than a probe, and more than announcements stand."""
LOG_SHOWN = 8_000
HELD = ("another list, an empty body", "another list, a copy", "a balancer in front of a copy")
HELD_CLIENTS, HELD_PAUSE = 16, 0.02
"""500 requests a second together, where an answer takes four milliseconds."""
INTERVAL = float(str(WATCHFUL["TICKETS_PROBE_INTERVAL"]))


class Round:
    """One round, on databases of its own."""

    def __init__(self, engine: Engine, seed: int, stack: ExitStack) -> None:
        self._chance = random.Random(seed)
        self.databases = self._chance.choice([2, 3])
        self.copied = self._chance.random() < 0.5
        self.issued = Issued()
        self.events: list[str] = []
        pair = stack.enter_context(MySQLPair(engine, n=self.databases))
        self._common = list(pair)[1:]
        self._bodies = [pair[0], stack.enter_context(TicketMySQL(engine, offset=1, increment=self.databases))]
        self._ways = [
            [stack.enter_context(FaultyProxy(each.port)) for each in (pair[0], *self._common)] for _ in range(2)
        ]
        self.servers = [stack.enter_context(TicketServer(self._list(way), settings=SETTINGS)) for way in self._ways]

    def hold(self, case: str, seconds: float) -> None:
        """Have two servers disagree, and let them, at 500 requests a second."""
        for server in self.servers:
            server.wait_health("pass")
        clients, mix = [server.address for server in self.servers], [Want("Tickets32", weight=5), Want("photos")]
        with Load(
            clients, clients=HELD_CLIENTS, mix=mix, pause=HELD_PAUSE, timeout=8, record=self.issued.record
        ) as load:
            load.run_for(1)
            self.copied = "copy" in case
            if self.copied:
                self._copy()
            began = time.monotonic()
            for way in self._ways if "balancer" in case else self._ways[1:]:
                way[0].targets = [each.port for each in self._bodies[0 if "balancer" in case else 1 :]]
                way[0].cut()
            if "list" in case:
                self.servers[1].wait_health("warn", 2 * INTERVAL + 1)
            said, asked = time.monotonic() - began, self._asked
            load.run_for(seconds)
            asked = self._asked - asked
        print(
            f"{case}: /healthz after {said:.2f} s, {asked / seconds:.0f} requests a second for {seconds:g} s; ", end=""
        )

    @property
    def _asked(self) -> int:
        return self.issued.tickets + len(self.issued.failed)

    def _copy(self) -> None:
        saved = self._bodies[0].save_data_directory()
        self._bodies[1].kill()
        self._bodies[1].restore_data_directory(saved)
        self._bodies[1].start()
        self._bodies[1].wait_ready()

    def _list(self, way: list[FaultyProxy]) -> str:
        databases = [self._bodies[0], *self._common]
        return " ".join(each.url_of(SCHEMA, proxy.port) for each, proxy in zip(databases, way, strict=True))

    def attack(self) -> None:
        """All events, and then the operator puts one list everywhere."""
        for server in self.servers:
            server.wait_health("pass")
        clients = [server.address for server in self.servers]
        with Load(clients, clients=CLIENTS, mix=MIX, pause=0.01, timeout=8, record=self.issued.record) as load:
            load.run_for(1)
            if self.copied:
                self._copy()
            for _ in range(EVENTS):
                event = self._chance.choice(self._events())
                self.events.append(f"{time.strftime('%T')} {event.__name__}")
                event()
                load.run_for(self._chance.choice([0.1, 0.5, 2.0]))
            self._put_right(self._chance.choice(self._bodies))
            for server in self.servers:
                server.wait_health("pass", 60)
            load.run_for(1)

    def _events(self) -> list[Callable[[], None]]:
        others = [self._partition_common] if self.databases == 3 else []
        return [
            *(self._lead, self._lead, self._lead_at_once, self._lead_at_once, self._lead_to_both),
            *(self._freeze_server, self._freeze_server, self._restart_server, self._end_server),
            *(self._freeze_body, self._restart_body, self._partition_body, self._partition_body, self._delay),
            *others,
        ]

    def _say(self, words: object) -> None:
        self.events[-1] += f" {words}"

    def _a_way(self) -> tuple[int, list[FaultyProxy]]:
        which = self._chance.randrange(2)
        return which, self._ways[which]

    def _lead(self) -> None:
        """New connections lead to one body, those that there are stay where they are."""
        which, way = self._a_way()
        body = self._chance.randrange(2)
        way[0].targets = [self._bodies[body].port]
        self._say(f"server {which} to body {body}")

    def _lead_at_once(self) -> None:
        self._lead()
        for way in self._ways:
            way[0].cut()

    def _lead_to_both(self) -> None:
        which, way = self._a_way()
        way[0].targets = [each.port for each in self._bodies]
        way[0].cut()
        self._say(f"server {which}")

    def _freeze_server(self) -> None:
        server, seconds = self._chance.choice(self.servers), self._chance.choice(MOMENTS)
        server.freeze()
        if self._chance.random() < 0.5:
            self._lead_at_once()
        time.sleep(seconds)
        server.thaw()
        self._say(f"{server.port} for {seconds}")

    def _restart_server(self) -> None:
        server, kill = self._chance.choice(self.servers), self._chance.random() < 0.5
        server.restart(kill=kill)
        self._say(f"{server.port} kill={kill}")

    def _end_server(self) -> None:
        """The other one is alone for a while."""
        server, kill = self._chance.choice(self.servers), self._chance.random() < 0.5
        server.kill() if kill else server.terminate()
        time.sleep(self._chance.choice(MOMENTS))
        server.start()
        server.wait_alive()
        self._say(f"{server.port} kill={kill}")

    def _freeze_body(self) -> None:
        body, seconds = self._chance.choice(self._bodies), self._chance.choice(MOMENTS)
        body.freeze()
        time.sleep(seconds)
        body.thaw()
        self._say(f"{body.port} for {seconds}")

    def _restart_body(self) -> None:
        body = self._chance.choice(self._bodies)
        body.restart(kill=self._chance.random() < 0.5)
        self._say(body.port)

    def _partition_body(self) -> None:
        self._partition(0)

    def _partition_common(self) -> None:
        self._partition(2)

    def _partition(self, index: int) -> None:
        which, way = self._a_way()
        seconds = self._chance.choice(MOMENTS)
        fault = self._chance.choice(
            [way[index].refuse, way[index].freeze, way[index].drop_replies, way[index].drop_requests]
        )
        fault()
        time.sleep(seconds)
        way[index].restore()
        self._say(f"server {which} from offset {index + 1} for {seconds}: {fault.__name__}")

    def _delay(self) -> None:
        """The common database answers late, and is reached all the same: a new connection takes several answers, which
        have to come within the timeout."""
        which, way = self._a_way()
        way[1].delay(0.03)
        time.sleep(self._chance.choice(MOMENTS))
        way[1].restore()
        self._say(f"server {which}")

    def _put_right(self, body: TicketMySQL) -> None:
        self.events.append(f"{time.strftime('%T')} one list everywhere: {body.port}")
        for way in self._ways:
            way[0].targets = [body.port]
            way[0].cut()

    # -- the verdict

    def wrong(self) -> list[str]:
        """The promises that the run broke."""
        found = list(self.issued.twice)
        changes = max(self._number(each) for each in (*self._bodies, *self._common))
        for server in self.servers:
            for sequence in ("photos", "Tickets32"):
                advances = len(re.findall(rf"advanced.*{sequence}", server.log_text()))
                if advances > self.databases * changes:
                    found.append(f"{server.name} advanced {sequence} {advances} times in {changes} changes")
        used = self.issued.highest("Tickets32")
        return found + ([f"{used:,} of Tickets32 are used up"] if used > SHARE else [])

    def _number(self, database: TicketMySQL) -> int:
        (number,) = database.execute("SELECT COALESCE(MAX(number), 0) FROM _ring")[0]
        return int(number)

    def __str__(self) -> str:
        changes = max(self._number(each) for each in (*self._bodies, *self._common))
        return (
            f"{self.databases} databases, {'a copy' if self.copied else 'an empty one'}: {self.issued.tickets:,} "
            f"tickets, {len(self.issued.failed):,} requests refused, ring number {changes}, "
            f"Tickets32 at {self.issued.highest('Tickets32'):,}"
        )


def verdict(this: Round, act: Callable[[], None]) -> bool:
    """Have a round act. Returns whether all is well, and prints what came of it."""
    try:
        act()
        wrong = this.wrong()
    except (TimeoutError, AssertionError) as error:
        wrong = [f"not as it should be: {error}"]
    print(f"{this}", flush=True)
    if wrong:
        print("\n".join(["WRONG", *wrong[:10], *this.events]))
        for server in this.servers:
            print(f"the last words of {server.name}:\n{server.log_text()[-LOG_SHOWN:]}", flush=True)
    return not wrong


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.long.two_bodies", description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument(
        "--held", type=float, default=0, metavar="SECONDS", help="of each case in which nothing changes"
    )
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**9), help="of the first round")
    options = parser.parse_args()
    engine = find_engine()
    print(f"on {engine.kind} {engine.version}, seeds from {options.seed}", flush=True)
    violations = 0
    for case in HELD if options.held else ():
        with ExitStack() as stack:
            this = Round(engine, options.seed, stack)
            violations += not verdict(this, partial(this.hold, case, options.held))
    for seed in range(options.seed, options.seed + options.rounds):
        with ExitStack() as stack:
            this = Round(engine, seed, stack)
            print(f"seed {seed}: ", end="")
            violations += not verdict(this, this.attack)
    print(f"violations: {violations}")
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
