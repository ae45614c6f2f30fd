"""The stage of a torture run: ticket databases, three ticket servers, and a proxy on each way between them."""

import contextlib
import random
import re
import time
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

from tests.harness.engine import find_engine
from tests.harness.load import Want
from tests.harness.mysqld import TicketMySQL
from tests.harness.names import NameService, by_name
from tests.harness.pair import MySQLPair
from tests.harness.proxy import FaultyProxy
from tests.harness.schema import SCHEMA
from tests.harness.tally import Tally
from tests.harness.ticketd import TicketServer
from tests.harness.variables import worst

SERVERS = 3
SETTINGS: dict[str, float] = {
    "TICKETS_PROBE_INTERVAL": 0.3,
    "TICKETS_DATABASE_TIMEOUT": 1,
    "TICKETS_REQUEST_TIMEOUT": 8,
}
LONGEST_WAIT = 9.0
"""No request takes longer: its timeout and a second."""
HEALTHY_WITHIN = 60.0
DYING = re.compile(r"Assertion failure|Failing assertion|\[ERROR\] \[FATAL\]|got signal")
"""The words of a database server that finds itself broken."""
DEATHS = 3
"""So often a database that ended by itself is started again."""

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
    """Everything that takes part, and how to wait until all of it is well again.

    `pair` holds the databases of the ring, in its order: as many as there were at first, or one more. `spare` is the
    one that is not in it, while there is one.
    """

    def __init__(
        self,
        chance: random.Random,
        tally: Tally,
        databases: int = 2,
        *,
        reserve_seconds: float = 0.0,
        worst_variables: bool = False,
    ) -> None:
        self.chance = chance
        self.tally = tally
        self.has_reserves = reserve_seconds > 0
        self._reserved = {"TICKETS_RESERVE_SECONDS": reserve_seconds}
        self.died: list[str] = []
        """The last words of databases that ended by themselves."""
        self.engine = find_engine()
        self._variables = worst(self.engine) if worst_variables else {}
        self.fewest = databases
        self.increment = databases
        self._stack = contextlib.ExitStack()
        self.pair: MySQLPair
        self.spare: TicketMySQL | None = None
        self.names: list[NameService] = []
        self.links: list[dict[TicketMySQL, FaultyProxy]] = []
        self.servers: list[TicketServer] = []

    def __enter__(self) -> "Stage":
        with contextlib.ExitStack() as stack:
            self._stack = stack
            self.pair = stack.enter_context(MySQLPair(self.engine, n=self.fewest, variables=self._variables))
            self.pair.make_flickrs_table(FLICKRS)
            self.spare = spare = TicketMySQL(self.engine, tables=False, variables=self._variables)
            stack.callback(spare.close)
            for _ in range(SERVERS):
                self.names.append(stack.enter_context(NameService()))
                databases = [*self.pair, spare]
                self.links.append({each: stack.enter_context(FaultyProxy(each.port)) for each in databases})
                self.servers.append(TicketServer("", settings=SETTINGS | self._reserved | self.names[-1].settings))
            self.use_ring(self.increment)
            for server in self.servers:
                self.configure(server)
            with ThreadPoolExecutor() as starters:
                list(starters.map(stack.enter_context, self.servers))
            self.wait_until_well()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stack.close()

    # -- whether all is well

    def wait_until_well(self) -> None:
        """Every server passes: all databases up, no warning but those of the tables as they were made. A database that
        has ended by itself is started again, as a service manager would."""
        deadline = time.monotonic() + HEALTHY_WITHIN
        for server in self.servers:
            while (trouble := self._trouble(server)) is not None:
                if time.monotonic() > deadline:
                    raise TimeoutError(f"{server!r} is not well: {trouble}\n{server.log_text()[-2000:]}")
                self._revive()
                time.sleep(0.05)

    def _revive(self) -> None:
        for database in self.pair:
            if not database.running and len(self.died) < DEATHS:
                said = [line for line in database.log_text().splitlines() if DYING.search(line)]
                self.died.append(f"{database.name}: {said[-1] if said else 'for no known reason'}")
                with contextlib.suppress(RuntimeError):  # it may end again before it is ready
                    database.restart()

    def _trouble(self, server: TicketServer) -> str | None:
        report = server.get("/healthz").json()
        minor = "its keys deadlock", "in reserve"
        warnings = [each for each in report["warnings"] if not any(words in each["reason"] for words in minor)]
        down = [each for each in report["databases"] if each["status"] != "up"]
        return str([*down, *warnings]) if down or warnings else None

    # -- by lot

    def a_database(self) -> TicketMySQL:
        return self.chance.choice(self.pair.databases)

    def a_server(self) -> TicketServer:
        return self.chance.choice(self.servers)

    def some_servers(self) -> list[TicketServer]:
        return self.chance.sample(self.servers, self.chance.randint(1, len(self.servers)))

    def some_name_services(self) -> list[NameService]:
        return self.chance.sample(self.names, self.chance.randint(1, len(self.names)))

    def a_sequence(self) -> str:
        return self.chance.choice(SEQUENCES)

    def perhaps(self, share: float = 0.5) -> bool:
        return self.chance.random() < share

    def pause(self, shortest: float = 0.2, longest: float = 1.5) -> None:
        time.sleep(self.chance.uniform(shortest, longest))

    @contextlib.contextmanager
    def without(self, *servers: TicketServer) -> Iterator[None]:
        """Requests to these servers may fail meanwhile."""
        with contextlib.ExitStack() as stack:
            for server in servers:
                stack.enter_context(self.tally.excuses(server.name))
            yield

    # -- the ticket servers and their settings

    def configure(
        self,
        server: TicketServer,
        databases: Sequence[TicketMySQL] | None = None,
        *,
        increment: int | None = None,
        refuse_unverified: bool = False,
    ) -> None:
        """The settings for its next start: the ring's databases, or these instead, each by the server's own way."""
        links = self.links[self.servers.index(server)]
        urls = [each.url_of(SCHEMA, links[each].port) for each in databases or self.pair]
        server.environment["TICKETS_DATABASES"] = by_name(" ".join(urls))
        server.environment["TICKETS_UNVERIFIED"] = "refuse" if refuse_unverified else "serve"
        server.environment.pop("TICKETS_INCREMENT", None)
        if increment is not None:
            server.environment["TICKETS_INCREMENT"] = str(increment)

    def start_servers(self, servers: Collection[TicketServer] | None = None, *, ready: bool = True) -> None:
        """Start them side by side. They have looked at their databases then, and are ready, unless that may fail."""
        started = self.servers if servers is None else servers
        for server in started:
            server.start()
        for server in started:
            server.wait_alive()
            server.wait_looked()
            if ready:
                server.wait_ready()

    def stop_servers(self, servers: Collection[TicketServer] | None = None) -> None:
        """End them, some cleanly and some by SIGKILL."""
        for server in self.servers if servers is None else servers:
            if self.perhaps():
                server.kill()
            else:
                server.terminate()

    # -- the ring

    @property
    def offsets(self) -> range:
        return range(1, len(self.pair) + 1)

    def number(self, database: TicketMySQL, offset: int, increment: int | None = None) -> None:
        """Give it this offset and the ring's increment, or another one; where it runs, with or without a restart."""
        if (database.offset, database.increment) == (offset, increment or self.increment):
            return
        database.offset, database.increment = offset, increment or self.increment
        if not database.running:
            return
        if self.perhaps(0.3):
            database.restart()
        else:
            for name, value in (("increment", database.increment), ("offset", offset)):
                database.execute(f"SET GLOBAL auto_increment_{name} = {value}", database=None)

    def number_all(self, increment: int | None = None) -> None:
        """As the ring wants it, or with another increment."""
        for offset, database in enumerate(self.pair, 1):
            self.number(database, offset, increment)

    def prepare_spare(self, offset: int, *, increment: int | None = None, empty: bool) -> TicketMySQL:
        """Have the spare database run with these numbers, as it left the ring at this offset or empty."""
        spare = self.spare
        assert spare is not None
        if empty or spare.offset != offset:
            spare.wipe(tables=self.perhaps())
        self.number(spare, offset, increment)
        if not spare.running:
            spare.restart()
        return spare

    def take_spare_in(self) -> None:
        """It is the ring's last database from now on."""
        assert self.spare is not None
        self.pair.databases.append(self.spare)
        self.spare = None

    def take_last_out(self) -> None:
        """The ring's last database is the spare one from now on."""
        assert self.spare is None
        self.spare = self.pair.databases.pop()

    def use_ring(self, increment: int) -> None:
        """What is asked for from now on is drawn in the ring of these databases and this increment."""
        self.increment = increment
        self.tally.use_ring(increment, self.offsets)
