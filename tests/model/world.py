"""The world of the model: fake databases, ticket servers on them, one clock, and a record of every ticket.

Each ticket server has an event loop of its own, and each statement that has left one is an event of the clock's. The
world runs all loops until they are idle and then moves the clock to what comes next, so a ticket server that stands
still does so between any two iterations of its loop, while the databases and the other ticket servers go on. A killed
one stops for good; nothing that it was about to hand out counts.

A database may go back in time whenever it likes, as long as no other one is about to: `returning` is the one that does
until all is well again. What that may lead to is in `record`. One that has lost its ring record as well looks new, and
only the others can tell: while one does, nobody sets anything wrong, and while anything is wrong none comes to.
"""

import asyncio
import logging
import math
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from app.common.errors import (
    Draining,
    NoTicketDatabase,
    OutOfTime,
    SequenceExhausted,
    TicketError,
    Unavailable,
    UnknownSequence,
)
from app.common.sequences import Width, counter_table
from app.databases.protocol import RingState
from app.kinds.definition import Definition
from app.tickets.requests.request import Ids, Tickets
from app.tickets.reserve.window import window_seconds
from tests.fakes.ticket_database import TIMEOUT, TRUE_TIME, FakeServer, FakeState, FakeTicketDatabase
from tests.fakes.ticket_server import PROBE_INTERVAL, REQUEST_TIMEOUT
from tests.fakes.virtual_time import VirtualClock
from tests.model.host import Asked, Host, KindRequest, WatchedLane, WatchedRequest
from tests.model.process import Process
from tests.model.record import Record
from tests.model.sequences import CEILINGS, SEQUENCES
from tests.model.stamp_checks import check_stamps
from tests.model.stamps import AHEAD_MS, READING_MS, Stamps, tick_of, timed

WINDOW = window_seconds(PROBE_INTERVAL, TIMEOUT)
TABLES, ROWS, MIXED = "tables", "rows", "mixed"
"""Which engines the databases have: tables with counters, as MySQL's, rows with a store of notes, or both."""
REFUSING = 0.15
"""The share of ticket servers that refuse what no other database can protect."""


class _ErrorsInTheLog(logging.Handler):
    """Collects what the program logs as errors: the program did not foresee any of them."""

    def __init__(self, errors: list[BaseException]) -> None:
        super().__init__(logging.ERROR)
        self._errors = errors

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        self._errors.append(error or RuntimeError(record.getMessage()))


class World:
    """Databases, ticket servers, a clock, and the record."""

    def __init__(
        self,
        databases: int,
        ticket_servers: int,
        seed: int,
        *,
        increment: int | None = None,
        spare: bool = False,
        reserve_seconds: float = 0.0,
        engines: str = TABLES,
    ) -> None:
        self.clock = VirtualClock()
        self.reserve_seconds = reserve_seconds
        self.chance = random.Random(seed)
        self.errors: list[BaseException] = []
        self._error_log = _ErrorsInTheLog(self.errors)
        logging.getLogger("app").addHandler(self._error_log)
        self.increment = increment or databases
        self.servers = [self._server(offset, SEQUENCES, engines) for offset in range(1, databases + 1)]
        left = self.chance.choice([100, 3_000, 40_000])
        for server in self.servers:
            server.use_up("small", left)
        if spare:
            tables = SEQUENCES if self.toss_a_coin() else ()
            self.servers.append(self._server(databases + 1, tables, engines))
        self.size = databases
        self.well_since = dict.fromkeys(self.servers, self.clock.now)
        self.snapshots: dict[FakeServer, list[FakeState]] = {s: [s.snapshot()] for s in self.servers}
        self.returning: FakeServer | None = None
        self.record = Record(self.servers, CEILINGS, lambda: self.ring)
        self.departed: set[FakeServer] = set()
        """The databases that have ever left the ring."""
        self.stamps = Stamps(lambda server: server in self.departed or server not in self.ring)
        self.kinds: dict[str, Definition] = {}
        """The sequences of other kinds that were made or are being made."""
        self.ahead_ms = 0.0
        """How far ahead of the true time the clock of any database has ever been."""
        self.rewinds = 0
        self.lost_a_table = False
        self.outcomes: Counter[str] = Counter()
        self._trouble: dict[FakeServer | tuple[Host, FakeServer], float] = {}
        self.hosts = [
            Host(number, self, self.ring, self.own_increment, refuses=self.toss_a_coin(REFUSING))
            for number in range(1, ticket_servers + 1)
        ]
        self.operator: Process | None = None

    def _server(self, offset: int, sequences: Mapping[str, Width] | Sequence[str], engines: str) -> FakeServer:
        """A database; in a mixed ring those of even offset keep rows. What is drawn at a column's end is a ticket to
        it: the check on ids has to see it."""
        is_rows = engines == ROWS or (engines == MIXED and offset % 2 == 0)
        server = FakeServer(offset, self.increment, sequences, self.clock, is_rows=is_rows)
        server.goes_past_the_end = True
        return server

    @property
    def ring(self) -> list[FakeServer]:
        """The databases that the operator wants in the ring, in their order; the increment is `increment`."""
        return self.servers[: self.size]

    def resize(self, size: int, increment: int) -> None:
        """The operator wants another ring from now on."""
        gone = self.servers[size:]  # one that was in it by somebody's mistake as well
        self.departed.update(gone)
        self.record.left_ring(gone)
        self.size, self.increment = size, increment

    @property
    def own_increment(self) -> int | None:
        """The value that TICKETS_INCREMENT needs where no database records a ring. None: it may be unset."""
        return None if self.increment == self.size else self.increment

    @property
    def processes(self) -> list[Process]:
        return [*self.hosts, *([] if self.operator is None else [self.operator])]

    def latency(self, *, slow: bool) -> tuple[float, float]:
        there, back = (self.chance.random() * (0.6 if slow and self.chance.random() < 0.3 else 0.004) for _ in range(2))
        return there, back

    def toss_a_coin(self, heads: float = 0.5) -> bool:
        return self.chance.random() < heads

    def on_loop_error(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self.errors.append(context.get("exception") or RuntimeError(context["message"]))

    # --- time ------------------------------------------------------------------------------------------------------

    def pass_time(self, seconds: float) -> None:
        """Let so much time pass for the databases, and for every ticket server that does not stand still."""
        until = self.clock.now + seconds
        processes = self.processes
        for process in processes:
            process.look_again()
        self.take_note_of_health()
        while True:
            self.clock.run_due()
            next_step = until
            for process in processes:
                next_step = min(next_step, process.run())
            if any(process.has_received for process in processes):
                continue
            if self.clock.now >= until:
                break
            self.clock.now = max(self.clock.now, min(next_step, self.clock.next_event))
        self.take_note_of_health()
        if self.errors:
            raise self.errors[0]

    def take_note_of_health(self) -> None:
        """Remember since when each database has been well, and when each was not, or out of reach, the last time."""
        now = self.clock.now
        for server in self.servers:
            if not server.well:
                self.well_since[server] = math.inf
                self._trouble[server] = now
            elif self.well_since[server] == math.inf:
                self.well_since[server] = now
            for host in self.hosts:
                if not host.reaches(server):
                    self._trouble[host, server] = now

    def in_trouble_since(self, host: Host, server: FakeServer) -> float:
        """When this ticket server could not have asked this database the last time."""
        if not server.well or not host.reaches(server):
            return math.inf
        return max(self._trouble.get(server, 0.0), self._trouble.get((host, server), 0.0))

    # --- tickets ---------------------------------------------------------------------------------------------------

    def request(self, host: Host, sequence: str, count: int, *, whole: bool) -> "asyncio.Task[None]":
        return host.spawn(self._request(host, sequence, count, whole=whole))

    async def _request(self, host: Host, sequence: str, count: int, *, whole: bool) -> None:
        floor = self.record.floors.get(sequence, 0)
        loop = host.loop
        try:
            tickets = await self._issued(host, sequence, count, whole=whole)
        except SequenceExhausted:
            assert sequence == "small", f"{sequence} is not exhausted"
            self.outcomes["exhausted"] += 1
        except Draining:
            assert host.leaving or host.stopped or loop is not host.loop, "it was refused by a server that stays"
            self.outcomes["Draining"] += 1
        except (NoTicketDatabase, OutOfTime, UnknownSequence) as error:
            self.outcomes[type(error).__name__] += 1
        else:
            if loop is host.loop and not host.stopped:
                self.outcomes["tickets"] += len(tickets)
                self.outcomes["answers"] += 1
                host.answers += 1
                self.record.take(host, sequence, count, tickets, floor, whole=whole)

    async def _issued(self, host: Host, sequence: str, count: int, *, whole: bool) -> Tickets:
        request = WatchedRequest(partial(self.handed_out, host), sequence, count, whole=whole, lane_of=host.lane_of)
        host.server.desk.accept(request)
        if request.future.done():  # from what was drawn ahead: those that were answered before are seen before
            self.outcomes["tickets drawn ahead"] += count
            await asyncio.sleep(0)
        return await request.future

    def handed_out(self, host: Host, lane: WatchedLane, tickets: Tickets) -> None:
        database = lane.member.database
        assert isinstance(database, FakeTicketDatabase)
        server = database.server
        try:
            self.record.handed_out(
                host,
                lane,
                server,
                tickets,
                whole=self.returning is None or self.returning is server,
                cut_off=self.reserve_seconds > 0 and self._reaches_none(host),
            )
        except AssertionError as error:
            self.errors.append(error)

    def _reaches_none(self, host: Host) -> bool:
        """Whether every database was out of its reach at a moment that its last look at it may have been in."""
        began = self.clock.now - WINDOW
        return all(self.in_trouble_since(host, client.server) >= began for client in host.clients)

    # --- ids of other kinds ----------------------------------------------------------------------------------------

    @property
    def true_ms(self) -> float:
        return (TRUE_TIME + self.clock.now) * 1000

    def make_kind(self, host: Host, definition: Definition) -> None:
        self.kinds[definition.sequence] = definition
        host.spawn(self._make_kind(host, definition))

    async def _make_kind(self, host: Host, definition: Definition) -> None:
        try:
            await host.server.admin.make(definition.sequence, definition.kind, definition.parameters)
        except TicketError as error:
            self.outcomes[f"{type(error).__name__} at the making of a kind"] += 1
        else:
            self.outcomes["kinds made"] += 1

    def request_of_kind(self, host: Host, name: str, count: int, shard: int | None) -> "asyncio.Task[None]":
        return host.spawn(self._request_of_kind(host, self.kinds[name], count, shard))

    async def _request_of_kind(self, host: Host, definition: Definition, count: int, shard: int | None) -> None:
        loop = host.loop
        asked = Asked(self.true_ms, int(host.wall() * 1000), host.wall.jumps)
        made = partial(host.stamped, definition, asked)
        request = KindRequest(partial(self.handed_out, host), made, definition.sequence, count, shard)
        host.server.desk.accept(request)
        try:
            ids = await request.future
        except Draining:
            assert host.leaving or host.stopped or loop is not host.loop, "it was refused by a server that stays"
        except (Unavailable, UnknownSequence) as error:
            self.outcomes[f"{definition.kind}: {type(error).__name__}"] += 1
        else:
            if loop is host.loop and not host.stopped:
                self.outcomes[f"{definition.kind} ids"] += len(ids)
                host.answers += 1
                if timed(definition).parts == "shard":
                    first, last = (tick_of(definition, id_)[0] for id_ in (ids[0], ids[-1]))
                    ticks = [first] if count == 1 else range(first, last + 1, (last - first) // (count - 1))
                    self.record.take(host, counter_table(definition.sequence), count, ticks, 0)

    def drew_instance(self, host: Host, lane: WatchedLane, number: int) -> None:
        """A server has the number of its life."""
        before = self.record.excepted
        try:
            self.record.take(host, lane.sequence, 1, range(number, number + lane.increment, lane.increment), 0)
        except AssertionError as error:
            self.errors.append(error)
        if self.record.excepted > before:
            self.stamps.repeated.add(number)

    def stamped(self, host: Host, definition: Definition, ids: Ids, asked: Asked) -> None:
        try:
            check_stamps(self, host, definition, ids, asked)
        except AssertionError as error:
            self.errors.append(error)

    @property
    def allowed_ahead_ms(self) -> float:
        """As far ahead of the true time as a server may stamp ids that need no counter of a database."""
        return self.ahead_ms + AHEAD_MS + READING_MS

    def set_clock(self, server: FakeServer, off: float) -> None:
        """So far ahead of the true time goes a database's clock from now on."""
        server.clock_offset = off
        self.ahead_ms = max(self.ahead_ms, off * 1000)

    # --- what happens ----------------------------------------------------------------------------------------------

    @property
    def running(self) -> list[Host]:
        return [host for host in self.hosts if not host.stopped and not host.leaving]

    def reachable(self, server: FakeServer) -> bool:
        return server.well and all(host.reaches(server) for host in self.running)

    def may_go_back(self, server: FakeServer) -> bool:
        return self.returning is None or self.returning is server

    def go_back(self, server: FakeServer, how: Callable[[], None]) -> None:
        """Send a database back in time; what it keeps about the others is old or gone, too."""
        assert self.may_go_back(server), f"{self.returning} has not been advanced yet"
        self.returning = server
        self.lost_a_table = True
        self.rewinds += 1
        before, record = server.life, server.state.ring
        how()
        if not self.settings_right:
            server.state.ring = server.state.ring or record
        server.life += server.life == before
        self.record.went_back(server)
        self.well_since[server] = self.clock.now

    def bump(self, host: Host, sequence: str, above: int) -> None:
        host.spawn(self._bump(host, sequence, above))

    async def _bump(self, host: Host, sequence: str, above: int) -> None:
        loop = host.loop
        lives = {server: server.life for server in self.ring}  # it may go back before the answer has come
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT):
                await host.server.admin.bump(sequence, above, force=True)
        except (TicketError, TimeoutError):
            self.outcomes["bumps that failed"] += 1
        else:
            if loop is host.loop and not host.stopped:
                self.outcomes["bumps"] += 1
                self.record.moved_above(host, sequence, above, lives)

    # --- what the operator wants ------------------------------------------------------------------------------------

    @property
    def settings_right(self) -> bool:
        """Whether every ticket server that runs, every database and every ring record is as the operator wants it."""
        return (
            all(host.set_to[0] == tuple(self.ring) for host in self.running)
            and all(host.set_to[1] == self.increment or self.may_be_unset(host) for host in self.running)
            and all((s.offset, s.increment) == (i, self.increment) for i, s in enumerate(self.ring, start=1))
            and not self.ring_unfinished
        )

    def may_be_unset(self, host: Host) -> bool:
        """Whether its TICKETS_INCREMENT is unset, and may be."""
        recorded = any(server.state.ring is not None for server in self.ring)
        return host.set_to[1] is None and (recorded or self.own_increment is None)

    @property
    def ring_unfinished(self) -> bool:
        """Whether a database records another increment, or a change that was begun."""
        records = [server.state.ring for server in self.ring if server.state.ring is not None]
        return any(r.increment != self.increment or r.state is RingState.GROWING for r in records)

    def begun(self, increment: int) -> bool:
        """Whether a database records a ring of this increment, or that a change to it was begun."""
        return any(s.state.ring is not None and s.state.ring.increment == increment for s in self.servers)

    def report(self, host: Host) -> str:
        return f"{host.server.ring} {[*host.server.catalog.lanes.values()]} {host.server.admin.health()}"

    def end(self) -> None:
        for server in self.servers:
            server.heal()
        for process in self.processes:
            process.stop()
        logging.getLogger("app").removeHandler(self._error_log)
