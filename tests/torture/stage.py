"""What is tortured: two ticket databases, three ticket servers, and a proxy on each way between them."""

import contextlib
import random
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from tests.harness.engine import find_engine
from tests.harness.load import Want
from tests.harness.mysqld import TicketMySQL
from tests.harness.pair import MySQLPair
from tests.harness.proxy import FaultyProxy
from tests.harness.schema import SCHEMA
from tests.harness.tally import Tally
from tests.harness.ticketd import TicketServer

SERVERS = 3
SETTINGS = {"TICKETS_PROBE_INTERVAL": 0.3, "TICKETS_DATABASE_TIMEOUT": 1, "TICKETS_REQUEST_TIMEOUT": 8}
LONGEST_WAIT = 9.0
"""No request takes longer: its timeout and a second."""
HEALTHY_WITHIN = 60.0

FLICKRS = "Flickrs"
SEQUENCES = ("photos", "accounts", "Tickets32", FLICKRS)
MIX = (
    Want("photos", weight=6),
    Want("photos", "count", 10),
    Want("photos", "block", 100, weight=2),
    Want("accounts", "count", 30, weight=3),
    Want("accounts", "block", 1000, weight=2),
    Want("Tickets32", weight=3),
    Want("Tickets32", "block", 50),
    Want(FLICKRS, weight=2),
    Want(FLICKRS, "block", 20),
)


class Stage:
    """Everything that takes part, and how to wait until all of it is well again."""

    def __init__(self, chance: random.Random, tally: Tally) -> None:
        self.chance = chance
        self.tally = tally
        self.engine = find_engine()
        self._stack = contextlib.ExitStack()
        self.pair: MySQLPair
        self.links: list[list[FaultyProxy]] = []
        self.servers: list[TicketServer] = []

    def __enter__(self) -> "Stage":
        with contextlib.ExitStack() as stack:
            self._stack = stack
            self.pair = stack.enter_context(MySQLPair(self.engine))
            self.pair.make_flickrs_table(FLICKRS)
            for _ in range(SERVERS):
                links = [stack.enter_context(FaultyProxy(database.port)) for database in self.pair]
                urls = [db.url_of(SCHEMA, link.port) for db, link in zip(self.pair, links, strict=True)]
                self.links.append(links)
                self.servers.append(TicketServer(" ".join(urls), settings=SETTINGS))
            with ThreadPoolExecutor() as starters:
                list(starters.map(stack.enter_context, self.servers))
            self.wait_until_well()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stack.close()

    def wait_until_well(self) -> None:
        """Every server passes: both databases up, no warning but those of the tables as they were made."""
        deadline = time.monotonic() + HEALTHY_WITHIN
        for server in self.servers:
            while (trouble := self._trouble(server)) is not None:
                if time.monotonic() > deadline:
                    raise TimeoutError(f"{server!r} is not well: {trouble}\n{server.log_text()[-2000:]}")
                time.sleep(0.05)

    def _trouble(self, server: TicketServer) -> str | None:
        report = server.get("/healthz").json()
        warnings = [each for each in report["warnings"] if "its keys deadlock" not in each["reason"]]
        down = [each for each in report["databases"] if each["status"] != "up"]
        return str([*down, *warnings]) if down or warnings else None

    def a_database(self) -> TicketMySQL:
        return self.chance.choice(self.pair.databases)

    def a_server(self) -> TicketServer:
        return self.chance.choice(self.servers)

    def a_sequence(self) -> str:
        return self.chance.choice(SEQUENCES)

    def pause(self, shortest: float = 0.2, longest: float = 1.5) -> None:
        time.sleep(self.chance.uniform(shortest, longest))

    @contextlib.contextmanager
    def without(self, *servers: TicketServer) -> Iterator[None]:
        """Requests to these servers may fail meanwhile."""
        with contextlib.ExitStack() as stack:
            for server in servers:
                stack.enter_context(self.tally.excuses(server.name))
            yield
