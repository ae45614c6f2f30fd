"""The world of the model: fake databases, ticket servers on them, one clock, and a record of every ticket.

Each ticket server has an event loop of its own. The world runs all of them until they are idle and then moves the
clock to the next timer, so a ticket server that is frozen stands still between any two of its steps while the others
go on. A killed one stops for good; nothing that it was about to hand out counts.

What the contract covers. `knows[d, e]`: e can tell what d has issued, as far as a ticket server could know when it
handed out d's tickets: e was among those that keep marks for d. Where d goes back in time, one e that knows has to be
well, reachable and in the ring of every ticket server (a draw that is under way may be handed out later, and d was not
protected where e was not there), and to stay so until d has been moved up: `returning` names the two until then.
"""

import asyncio
import itertools
import logging
import random
import time
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any

from app.errors import NoTicketDatabase, OutOfTime, SequenceExhausted, TicketError, UnknownSequence
from app.health import LISTING_SECONDS
from app.issuer import FirstTry
from app.sequences import Width, ceiling_of
from app.waiters import FutureWaiter, Tickets
from tests.fakes.ticket_database import FakeServer, FakeState, FakeTicketDatabase
from tests.fakes.ticket_server import REQUEST_TIMEOUT, FakeTicketServer
from tests.fakes.virtual_time import VirtualClock, VirtualLoop

SEQUENCES = {"photos": Width.BIGINT, "accounts": Width.BIGINT, "small": Width.INT}
CEILINGS = {name: ceiling_of(width, unsigned=True) for name, width in SEQUENCES.items()}
LARGEST_BLOCK = 10_000
PROBED = 2.2
"""Seconds after which every database has been probed, taken in, and its suspended lanes have been tried."""
LISTED = LISTING_SECONDS + PROBED
"""Seconds after which the tables have been listed too, and made where they were missing."""
LONGEST_ANSWER = REQUEST_TIMEOUT + 0.1


class Host:
    """Where one ticket server runs: its process, which may be frozen, killed and started again."""

    def __init__(self, number: int, world: "World") -> None:
        self.number = number
        self.name = f"tickets-{number}"
        self.frozen = False
        self.well_since = world.clock.now
        self.wakes_at = 0.0
        self._world = world
        self._start()

    def _start(self) -> None:
        world = self._world
        self.loop = VirtualLoop(world.clock)
        self.loop.set_exception_handler(world.on_loop_error)
        self.clients = [
            FakeTicketDatabase(
                server, largest_block=LARGEST_BLOCK, latency=world.latency, draws_at_once=world.toss_a_coin
            )
            for server in world.servers
        ]
        self.server = FakeTicketServer(self.clients, clock=world.clock)
        self.highest: dict[tuple[str, int], int] = {}
        self.tasks: set[asyncio.Task[None]] = set()
        self.ended = False
        self.well_since = world.clock.now
        self.spawn(self.server.start())

    def client(self, server: FakeServer) -> FakeTicketDatabase:
        return self.clients[server.offset - 1]

    def mend(self) -> None:
        """All its networks work again."""
        for client in self.clients:
            client.cut = False

    def spawn(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        task = self.loop.create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self._done)
        self.wakes_at = 0.0
        return task

    def _done(self, task: "asyncio.Task[None]") -> None:
        self.tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None and not self.ended:
            self._world.errors.append(error)

    def kill(self) -> None:
        """SIGKILL: whatever it has not sent stays unsent."""
        self.ended = True
        for client in self.clients:
            client.closed = True
        for _ in range(3):
            for task in asyncio.all_tasks(self.loop):
                task.cancel()
            self.loop.run_until_idle()
        self.loop.close()

    def restart(self) -> None:
        self.kill()
        self.frozen = False
        self._start()


class _ErrorsInTheLog(logging.Handler):
    """What the program logs as an error is one that it did not foresee."""

    def __init__(self, errors: list[BaseException]) -> None:
        super().__init__(logging.ERROR)
        self._errors = errors

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        self._errors.append(error or RuntimeError(record.getMessage()))


class World:
    """Databases, ticket servers, a clock, and the record."""

    def __init__(self, databases: int, ticket_servers: int, seed: int) -> None:
        self.clock = VirtualClock()
        self.chance = random.Random(seed)
        self.errors: list[BaseException] = []
        self._error_log = _ErrorsInTheLog(self.errors)
        logging.getLogger("app").addHandler(self._error_log)
        self.slow = 0.004
        self.servers = [FakeServer(offset, databases, SEQUENCES, self.clock) for offset in range(1, databases + 1)]
        left = self.chance.choice([100, 3_000, 40_000])
        for server in self.servers:
            server.use_up("small", left)
        self.well_since = dict.fromkeys(self.servers, self.clock.now)
        self.snapshots: dict[FakeServer, list[FakeState]] = {s: [s.snapshot()] for s in self.servers}
        self.knows = {(d, e): True for d in self.servers for e in self.servers if d is not e}
        self.returning: tuple[FakeServer, FakeServer] | None = None
        self.runs: dict[tuple[str, int], list[tuple[int, int, str]]] = {}
        self.floors: dict[str, int] = {}
        self.lost_a_table = False
        self.outcomes: Counter[str] = Counter()
        self.hosts = [Host(number, self) for number in range(1, ticket_servers + 1)]

    def latency(self) -> tuple[float, float]:
        return self.chance.random() * self.slow, self.chance.random() * self.slow

    def toss_a_coin(self) -> bool:
        return self.chance.random() < 0.5

    def on_loop_error(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self.errors.append(context.get("exception") or RuntimeError(context["message"]))

    # --- time ------------------------------------------------------------------------------------------------------

    def pass_time(self, seconds: float) -> None:
        """Let so much time pass for every ticket server that is not frozen."""
        until = self.clock.now + seconds
        self.wake()
        while True:
            next_timer = until
            for host in self.hosts:
                if host.frozen:
                    continue
                if host.wakes_at <= self.clock.now + 1e-9:
                    host.wakes_at = host.loop.run_until_idle()
                next_timer = min(next_timer, host.wakes_at)
            if self.clock.now >= until:
                break
            self.clock.now = next_timer
        if self.errors:
            raise self.errors[0]

    def wake(self) -> None:
        """Something was done from outside: every loop may have something to do."""
        for host in self.hosts:
            host.wakes_at = 0.0

    def take_note_of_health(self) -> None:
        """Remember since when each database and each ticket server has been well."""
        for server in self.servers:
            if not server.well:
                self.well_since[server] = float("inf")
            elif self.well_since[server] == float("inf"):
                self.well_since[server] = self.clock.now
        for host in self.hosts:
            if host.frozen:
                host.well_since = float("inf")
            elif host.well_since == float("inf"):
                host.well_since = self.clock.now

    # --- tickets ---------------------------------------------------------------------------------------------------

    def request(self, host: Host, sequence: str, count: int, *, whole: bool) -> "asyncio.Task[None]":
        return host.spawn(self._request(host, sequence, count, whole=whole))

    async def _request(self, host: Host, sequence: str, count: int, *, whole: bool) -> None:
        floor = self.floors.get(sequence, 0)
        try:
            tickets = await self._issued(host, sequence, count, whole=whole)
        except SequenceExhausted:
            assert sequence == "small", f"{sequence} is not exhausted"
            self.outcomes["exhausted"] += 1
        except (NoTicketDatabase, OutOfTime, UnknownSequence) as error:
            self.outcomes[type(error).__name__] += 1
        else:
            if not host.ended:
                self._record(host, sequence, count, tickets, floor)

    async def _issued(self, host: Host, sequence: str, count: int, *, whole: bool) -> Tickets:
        """Half of those for one ticket try the express way first, as HTTP does."""
        issuer, began = host.server.issuer, host.loop.time()
        if count == 1 and self.toss_a_coin():
            waiter = FutureWaiter(1, False, began + issuer.first_attempt)
            lane = issuer.ask_first(sequence, waiter)
            if lane is not None:
                tickets = await waiter.future
                return tickets or await issuer.issue(sequence, 1, first=FirstTry(lane, began, time.perf_counter()))
        return await issuer.issue(sequence, count, whole=whole)

    def _record(self, host: Host, sequence: str, count: int, tickets: Tickets, floor: int) -> None:
        self.outcomes["tickets"] += len(tickets)
        self.outcomes["answers"] += 1
        assert len(tickets) == count, f"{count} wanted, {len(tickets)} given"
        increment = self.servers[0].increment
        first, last = tickets[0], tickets[-1]
        assert all(before < after for before, after in itertools.pairwise(tickets)), f"{tickets} do not increase"
        residues = {ticket % increment for ticket in tickets}
        assert len(residues) == 1, f"{tickets} are of two databases"
        server = self.servers[(first - 1) % increment]
        runs = [(first, last)] if isinstance(tickets, range) else [(ticket, ticket) for ticket in tickets]
        assert not isinstance(tickets, range) or tickets.step == increment, f"they go in steps of {tickets.step}"
        assert first > floor, f"{first} in {sequence} after it was moved above {floor}"
        assert last <= CEILINGS[sequence], f"{last} is above the end of {sequence}"
        for begin, end in runs:
            assert server.has_drawn(sequence, begin, end), f"{begin} to {end} were never drawn from {server.name}"
        highest = host.highest.get((sequence, server.offset), 0)
        assert first > highest, f"{host.name} gave {first} in {sequence} after {highest}"
        host.highest[sequence, server.offset] = last
        for begin, end in runs:
            self._never_twice(host, sequence, server.offset, begin, end)
        self._note_what_is_known(host, server)

    def _never_twice(self, host: Host, sequence: str, offset: int, first: int, last: int) -> None:
        runs = self.runs.setdefault((sequence, offset), [])
        place = bisect_right(runs, (first, last, ""))
        for neighbour in runs[max(0, place - 1) : place + 1]:
            assert last < neighbour[0] or neighbour[1] < first, (
                f"{sequence}: {first} to {last} of {host.name} had been given by {neighbour[2]}: {neighbour[:2]}"
            )
        runs.insert(place, (first, last, host.name))

    def _note_what_is_known(self, host: Host, server: FakeServer) -> None:
        member = host.server.ring.members[server.offset - 1]
        keepers = {m.database.offset for m in host.server.ring.keepers(member)}
        for other in self.servers:
            if other is not server and other.offset not in keepers:
                self.knows[server, other] = False

    # --- what happens ----------------------------------------------------------------------------------------------

    def reachable(self, server: FakeServer) -> bool:
        return server.well and not any(host.client(server).cut for host in self.hosts)

    def spared(self, server: FakeServer) -> bool:
        """Whether the contract needs this database as it is, because another one is coming back from the past."""
        return self.returning is not None and server is self.returning[1]

    def who_knows(self, server: FakeServer) -> FakeServer | None:
        """A database that can tell all that this one has issued, and can be asked by every ticket server."""
        for other in self.servers:
            if other is not server and self.knows[server, other] and self.reachable(other) and self._is_taken_in(other):
                return other
        return None

    def _is_taken_in(self, server: FakeServer) -> bool:
        """Whether every ticket server has it in its ring as it is now, and does not only think so still."""
        members = [host.server.ring.members[server.offset - 1] for host in self.hosts]
        return all(m.up and m.marks_trouble is None and m.incarnation == server.incarnation for m in members)

    def may_go_back(self, server: FakeServer) -> bool:
        return self.returning is None and self.who_knows(server) is not None

    def go_back(self, server: FakeServer, how: Callable[[], None]) -> None:
        """Send a database back in time; what it keeps about the others is old or gone, too."""
        witness = self.who_knows(server)
        assert witness is not None, f"nobody knows what {server} has issued"
        self.returning = (server, witness)
        self.lost_a_table = True
        how()
        for other in self.servers:
            if other is not server:
                self.knows[other, server] = False
        self.well_since[server] = self.clock.now

    def bump(self, host: Host, sequence: str, above: int) -> None:
        host.spawn(self._bump(host, sequence, above))

    async def _bump(self, host: Host, sequence: str, above: int) -> None:
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT):
                await host.server.overseer.bump(sequence, above, force=True)
        except (TicketError, TimeoutError):
            self.outcomes["bumps that failed"] += 1
        else:
            if not host.ended:
                self.outcomes["bumps"] += 1
                self.floors[sequence] = max(self.floors.get(sequence, 0), above)

    # --- what has to hold ------------------------------------------------------------------------------------------

    def quiet_down(self) -> None:
        """Let every request end and every background loop go round; then whoever can serve has to.

        The faults that there are stay.
        """
        self.take_note_of_health()
        patience = LISTED if self.lost_a_table else PROBED
        self.pass_time(patience)
        for host in self.hosts:
            assert host.frozen or not host.tasks, f"{host.name} never ended {host.tasks}"
        long_ago = self.clock.now - patience + 0.001
        well = [server for server in self.servers if self.reachable(server) and self.well_since[server] <= long_ago]
        ready = [host for host in self.hosts if not host.frozen and host.well_since <= long_ago]
        if not well:
            return
        wanted = 2 * len(self.servers)
        for host, sequence in itertools.product(ready, ("photos", "accounts")):
            before = self.outcomes["answers"]
            for _ in range(wanted):
                self.request(host, sequence, 1, whole=False)
            self.pass_time_until_answered()
            served = self.outcomes["answers"] - before
            assert served == wanted, f"{host.name} served {served} of {wanted} in {sequence}: {self.report(host)}"
        if len(well) == len(self.servers) and len(ready) == len(self.hosts):
            for host in ready:
                for _ in range(wanted):
                    self.request(host, "small", 1, whole=False)
            self.pass_time_until_answered()
            self.pass_time(PROBED)
            for host in ready:
                self._is_well(host)
            self.returning = None
            self.lost_a_table = False
            self.knows = dict.fromkeys(self.knows, True)

    def pass_time_until_answered(self) -> None:
        began = self.clock.now
        while any(host.tasks and not host.frozen for host in self.hosts):
            self.pass_time(0.02)
            assert self.clock.now < began + LONGEST_ANSWER, "a request is stuck"

    def _is_well(self, host: Host) -> None:
        health = host.server.overseer.health()
        warnings = [w for w in health["warnings"] if w["sequence"] != "small"]
        down = [database for database in health["databases"] if database["status"] != "up"]
        assert not warnings, f"{host.name} warns: {warnings}"
        assert not down, f"{host.name} has not taken in {down}"

    def report(self, host: Host) -> str:
        return f"{host.server.ring} {[*host.server.catalog.lanes.values()]} {host.server.overseer.health()}"

    def end(self) -> None:
        for server in self.servers:
            server.heal()
        for host in self.hosts:
            host.kill()
        logging.getLogger("app").removeHandler(self._error_log)
