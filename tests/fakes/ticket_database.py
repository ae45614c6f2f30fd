"""Ticket databases in memory, with a MySQL server's arithmetic and every fault, by name.

`FakeServer` is the database: tables with counters, rows and columns that end, a ledger, an incarnation. Several ticket
servers share it. `FakeTicketDatabase` is what one ticket server holds of it: its connections, its latency, its timeout.

A statement goes out, is executed at one moment, and its answer comes back; all the faults act at one of these three
points. Once it is out it is the server's: it is executed though the client stands still, has given up or was killed,
and its answer lies there until the client's event loop looks. So all of this is for a `VirtualLoop`. Nothing here waits
for real time: with no latency set a statement lets other tasks run twice, and no more.
"""

import asyncio
import copy
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar

from app.common.errors import (
    ColumnExhausted,
    RingChanged,
    SequenceMissing,
    SequenceUnavailable,
    SequenceWentBack,
    TicketDatabaseBusy,
    TicketDatabaseError,
    TicketDatabaseHung,
    TicketDatabaseMisconfigured,
    TicketDatabaseUnavailable,
)
from app.common.sequences import Width, ceiling_of
from app.databases.protocol import ROOM, Draw, Drawn, Mark, Position, ProbeResult, RingRecord, Table, check_settings
from tests.fakes.virtual_time import VirtualLoop

T = TypeVar("T")

TIMEOUT = 0.5
ROWS_PER_STATEMENT = 64
LARGEST_STEP = 65_535
"""As far as one draw moves a counter at the most."""


@dataclass(slots=True)
class FakeTable:
    """One ticket table: `counter` is its AUTO_INCREMENT, `largest` its MAX(id), `created` its CREATE_TIME."""

    width: Width
    created: str
    unsigned: bool = True
    counter: int = 1
    largest: int = 0

    @property
    def column_end(self) -> int:
        """The largest number that the column holds."""
        return int(2 ** (int(self.width) - (not self.unsigned)) - 1)

    @property
    def ceiling(self) -> int:
        return ceiling_of(self.width, unsigned=self.unsigned)

    @property
    def repeats_ceiling(self) -> bool:
        return self.column_end == self.ceiling

    def draw(self, count: int, offset: int, increment: int, after: int = 0) -> Draw:
        """What REPLACE does, for a row a ticket; a larger count is a block and the id above it, which looks at the
        first id before it moves the counter. A counter at the end stays there, and gives its id again and again."""
        first = self.counter + (offset - self.counter) % increment
        last = first + (count - 1) * increment
        if first > self.column_end:
            raise ColumnExhausted("cannot draw a further id")
        if count > ROWS_PER_STATEMENT and first <= after:
            self.advance(first)
            raise SequenceWentBack(f"gave id {first} after {after} had been issued")
        if count > ROWS_PER_STATEMENT and first > self.ceiling - ROOM * count * increment:
            self.advance(first)
            raise ColumnExhausted("stands too close to its end")
        if last > self.column_end:
            self.counter = self.column_end  # fails whole, and uses up what is left
            raise ColumnExhausted("cannot draw a further id")
        self.counter = min(last + increment, self.column_end)
        self.largest = last
        return Draw(first, increment, count)

    def advance(self, above: int) -> None:
        self.largest = max(self.largest, above)
        self.counter = max(self.counter, min(above + 1, self.column_end))


@dataclass(slots=True)
class FakeState:
    """All that is on a server's disk."""

    tables: dict[str, FakeTable] = field(default_factory=dict)
    marks: dict[tuple[str, int, int], Mark] = field(default_factory=dict)
    changed: dict[tuple[str, int, int], float] = field(default_factory=dict)
    ring: RingRecord | None = None


@dataclass(slots=True, eq=False)
class _Statement:
    """A statement that has left its client. It lives on when the client does not: `answered` is told, if it can be."""

    client: "FakeTicketDatabase"
    execute: Callable[[], object]
    table: str | None
    back: float
    loop: VirtualLoop
    answered: Callable[[object], object]

    def arrive(self) -> None:
        if self._is_cut_off():
            self.end(TicketDatabaseUnavailable("refuses connections"))
        elif self.client.server.stands_still(self.table):
            self.client.server.stall(self)
        else:
            self.run()

    def run(self) -> None:
        server = self.client.server
        try:
            answer = self.execute()
            if server.loses_replies:
                server.loses_replies -= 1
                answer = TicketDatabaseUnavailable("broke the connection off")
        except TicketDatabaseError as error:
            answer = error
        clock = self.loop.clock
        clock.at(clock.now + self.back, partial(self._come_back, answer))

    def _come_back(self, answer: object) -> None:
        self.end(TicketDatabaseUnavailable("refuses connections") if self._is_cut_off() else answer)

    def _is_cut_off(self) -> bool:
        return self.client.cut or self.client.server.down

    def end(self, answer: object) -> None:
        """Leave the answer, or the error that it is, where the client's event loop looks."""
        self.loop.receive(partial(self.answered, answer))


class FakeServer:
    """One database server, and what is wrong with it at the moment.

    `down`: refuses every connection. `read_only`: reads succeed. `ledger_fails`: the ledger's table alone cannot be
    used. `has_settings`: whether it is configured with an increment and an offset, as a server is, and a file is not;
    where it is, nobody draws with others. `misconfigured`: what a new connection finds wrong. `draws_as`: the offset
    and increment that draws really have, whatever a look says. `deadlocks`: how many of the next statements that write
    fail so. `loses_replies`: how many of the next statements are committed and never answered. `life`: how often it has
    gone back in time.
    """

    _numbers = itertools.count(1)

    def __init__(
        self,
        offset: int,
        increment: int = 2,
        sequences: Mapping[str, Width] | Sequence[str] = ("photos",),
        clock: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self.clock = clock
        self.offset = offset
        self.increment = increment
        self.name = f"fake{offset}:3306"
        self.identity = f"server-{next(self._numbers)}"
        self.state = FakeState()
        self.incarnation = self._new_incarnation()
        self.down = False
        self.read_only = False
        self.ledger_fails = False
        self.has_settings = True
        self.misconfigured: str | None = None
        self.draws_as: tuple[int, int] | None = None
        self.deadlocks = 0
        self.loses_replies = 0
        self.alive: list[str] = []
        self.statements = 0
        self.life = 0
        self.draws: list[tuple[str, Draw, int]] = []
        self.connected: dict[FakeTicketDatabase, None] = {}
        self.looks = 0
        self._hangs = False
        self._locked: set[str] = set()
        self._stalled: list[_Statement] = []
        widths = sequences if isinstance(sequences, Mapping) else dict.fromkeys(sequences, Width.BIGINT)
        for sequence, width in widths.items():
            self.make(sequence, width, 1)

    def __repr__(self) -> str:
        return f"<FakeServer {self.name} {self.incarnation}>"

    def _new_incarnation(self) -> str:
        return f"start-{next(self._numbers)}"

    def table(self, sequence: str) -> FakeTable:
        """Raises SequenceMissing."""
        if sequence not in self.state.tables:
            raise SequenceMissing("has no table for it")
        return self.state.tables[sequence]

    def mark(self, sequence: str, offset: int) -> Mark | None:
        """The row that this server keeps about another one."""
        return self.state.marks.get((sequence, offset, self.increment))

    def has_drawn(self, sequence: str, first: int, last: int) -> bool:
        """Whether one draw ever gave all these ids."""
        return any(
            name == sequence and drawn.first <= first and last <= drawn.last and (first - drawn.first) % drawn.step == 0
            for name, drawn, _ in reversed(self.draws)
        )

    def lives_that_drew(self, sequence: str, id_: int) -> set[int]:
        """In which of its lives it drew this id: more than one where it has gone back in between."""
        return {life for name, drawn, life in self.draws if name == sequence and drawn.first <= id_ <= drawn.last}

    # --- statements ------------------------------------------------------------------------------------------------

    def draw(self, sequence: str, count: int, offset: int = 0, increment: int = 0, after: int = 0) -> Draw:
        """`offset`, `increment`: what the session has been told, where it has been told any."""
        offset, increment = self.draws_as or (offset or self.offset, increment or self.increment)
        drawn = self.table(sequence).draw(count, offset, increment, after)
        self.draws.append((sequence, drawn, self.life))
        return drawn

    def make(self, sequence: str, width: Width, start: int, *, unsigned: bool = True) -> None:
        if sequence not in self.state.tables:
            made = FakeTable(width, created=f"t{next(self._numbers)}", unsigned=unsigned, counter=start)
            self.state.tables[sequence] = made

    def record_ring(self, old: RingRecord | None, new: RingRecord) -> RingRecord:
        if self.state.ring == old:
            self.state.ring = new
        if self.state.ring is None:  # replaced by an empty one since it was looked at
            raise TicketDatabaseUnavailable("lost its ring record")
        return self.state.ring

    def check_ring(self, number: int | None) -> None:
        """None: a test writes by hand."""
        if number is not None and (self.state.ring is None or self.state.ring.number != number):
            raise RingChanged

    def reserve(self, marks: Iterable[Mark], ring: int | None = None) -> dict[tuple[str, int], Mark]:
        self.check_ring(ring)
        found = {}
        for mark in marks:
            key = (mark.sequence, mark.offset, mark.increment)
            row = self.state.marks.get(key, mark)
            if row.token == mark.token:
                row = replace(row, mark=max(row.mark, mark.mark), issued=max(row.issued, mark.issued))
            self._keep(key, row)
            found[mark.sequence, mark.offset] = row
        return found

    def supersede(self, old: Mark, new: Mark, ring: int | None = None) -> Mark:
        self.check_ring(ring)
        key = (old.sequence, old.offset, old.increment)
        row = self.state.marks.get(key)
        if row is None:
            raise TicketDatabaseUnavailable("lost a row of its ledger")
        if row.token == old.token and row.mark <= old.mark:
            row = replace(row, token=new.token, mark=new.mark, issued=max(row.issued, new.issued))
            self._keep(key, row)
        return row

    def _keep(self, key: tuple[str, int, int], row: Mark) -> None:
        if self.state.marks.get(key) != row:
            self.state.marks[key] = row
            self.state.changed[key] = self.clock()

    def marks(self, changed_within: float | None) -> list[Mark]:
        since = float("-inf") if changed_within is None else self.clock() - changed_within
        return [row for key, row in self.state.marks.items() if self.state.changed[key] >= since]

    # --- what can happen to it -------------------------------------------------------------------------------------

    @property
    def hangs(self) -> bool:
        return self._hangs

    def hang(self) -> None:
        """Stop answering; what arrives is executed when it thaws, whether anybody waits for it still or not."""
        self._hangs = True

    def thaw(self) -> None:
        self._hangs = False
        self._run_stalled()

    def lock(self, sequence: str) -> None:
        """LOCK TABLES: draws from this table, and questions about it, stand still; all else goes on."""
        self._locked.add(sequence)

    def unlock(self) -> None:
        self._locked.clear()
        self._run_stalled()

    @property
    def locks(self) -> bool:
        return bool(self._locked)

    def _run_stalled(self) -> None:
        stalled, self._stalled = self._stalled, []
        for statement in stalled:
            if self.stands_still(statement.table):
                self._stalled.append(statement)
            else:
                statement.run()

    def stands_still(self, table: str | None) -> bool:
        return self._hangs or (table is not None and table in self._locked)

    def stall(self, statement: _Statement) -> None:
        """Keep a statement until the server goes on."""
        self._stalled.append(statement)

    def restart(self) -> None:
        """Connections break, statements that had not begun are lost, the data are as they were."""
        self.connected.clear()
        self.incarnation = self._new_incarnation()
        stalled, self._stalled = self._stalled, []
        self._hangs = False
        self._locked.clear()
        for statement in stalled:
            statement.end(TicketDatabaseUnavailable("broke the connection off"))

    def configure(self, offset: int, increment: int) -> None:
        """Other values in its configuration, and a restart."""
        self.offset, self.increment = offset, increment
        self.restart()

    def set_global(self, offset: int, increment: int) -> None:
        """The same while it runs, and every connection is ended: whoever reconnects finds the same incarnation."""
        self.offset, self.increment = offset, increment
        self.connected.clear()

    def users(self, asking: "FakeTicketDatabase") -> list[str]:
        """Who else is connected, and the ticket servers that a test says are alive."""
        others = [f"a connection of {each.user}" for each in self.connected if not each.closed and each is not asking]
        return [*self.alive, *others]

    def lose_ring_record(self) -> None:
        """Somebody has deleted its row."""
        self.state.ring = None
        self.restart()

    def snapshot(self) -> FakeState:
        """A copy of the data directory."""
        return copy.deepcopy(self.state)

    def restore(self, snapshot: FakeState) -> None:
        """The data directory put back; tables have the CREATE_TIME that they had."""
        self.state = copy.deepcopy(snapshot)
        self.life += 1
        self.restart()

    def replace_by_empty(self) -> None:
        """Another server in its place, with nothing on it."""
        self.identity = f"server-{next(self._numbers)}"
        self.state = FakeState()
        self.life += 1
        self.restart()

    def truncate(self, sequence: str) -> None:
        """The counter begins again, under open connections, and CREATE_TIME stays."""
        table = self.table(sequence)
        table.counter, table.largest = 1, 0
        self.life += 1

    def drop(self, sequence: str) -> None:
        self.state.tables.pop(sequence, None)
        self.life += 1

    def remake(self, sequence: str) -> None:
        """Dropped and made again by somebody else, at 1."""
        width = self.table(sequence).width
        self.drop(sequence)
        self.make(sequence, width, 1)

    def use_up(self, sequence: str, left: int) -> None:
        """Leave only `left` numbers up to the column's end, for all databases together."""
        table = self.table(sequence)
        table.advance(table.column_end - left)

    @property
    def well(self) -> bool:
        """Whether nothing is wrong with it."""
        return not (
            self.down
            or self.read_only
            or self.ledger_fails
            or self.misconfigured
            or self.draws_as
            or self.deadlocks
            or self.loses_replies
            or self._hangs
            or self._locked
        )

    def heal(self) -> None:
        """Put right whatever is wrong with it; what it has lost stays lost."""
        self.down = self.read_only = self.ledger_fails = False
        self.misconfigured = self.draws_as = None
        self.deadlocks = self.loses_replies = 0
        self.thaw()
        self.unlock()


class FakeTicketDatabase:
    """One ticket server's side of a `FakeServer`: a `TicketDatabase`.

    `offset`, `increment`: what its sessions are told, where it is not what the server is configured with. `user`: whose
    connections these are. `latency`: how long the next statement takes to the server, and its answer back. `cut`: the
    network between the two is down. `draws_at_once`: whether the next draw can be sent at once. `connects`: whether the
    next statement needs a connection first, and so goes out one round trip later. `on_draw` is told what was drawn,
    when it is. Draws and questions are made only under the incarnation that the last look found.
    """

    def __init__(
        self,
        server: FakeServer,
        *,
        offset: int | None = None,
        increment: int | None = None,
        user: str = "a ticket server",
        timeout: float = TIMEOUT,
        largest_block: int = 32_767,
        latency: Callable[[], tuple[float, float]] = lambda: (0, 0),
        draws_at_once: Callable[[], bool] = lambda: True,
        connects: Callable[[], bool] = lambda: False,
        on_draw: Callable[[str, Draw], object] = lambda *_: None,
    ) -> None:
        self.server = server
        self.name = server.name
        self.offset = offset or server.offset
        self.increment = increment or server.increment
        self.user = user
        self._largest_block = largest_block
        self.cut = False
        self.closed = False
        self._timeout = timeout
        self._latency = latency
        self._draws_at_once = draws_at_once
        self._connects = connects
        self._on_draw = on_draw
        self._incarnation: str | None = None
        self._in_flight = 0

    def __repr__(self) -> str:
        return f"<FakeTicketDatabase {self.name}>"

    @property
    def largest_block(self) -> int:
        return min(self._largest_block, LARGEST_STEP // self.increment)

    @property
    def connections(self) -> int:
        return int(not self.closed and self in self.server.connected)

    @property
    def in_flight(self) -> int:
        """How many statements have not been answered and not been given up."""
        return self._in_flight

    async def _statement(
        self,
        execute: Callable[[], T],
        *,
        table: str | None = None,
        writes: bool = True,
        ledger: bool = False,
        anybody: bool = False,
    ) -> T:
        """Its time may be over though the answer has come: the timer and the answer are seen in one iteration."""

        def executed() -> T:
            self._refuse_if_broken(incarnation, increment, writes=writes, ledger=ledger, anybody=anybody)
            self.server.connected[self] = None
            return execute()

        self._in_flight += 1
        try:
            async with asyncio.timeout(self._timeout):
                if self._connects():
                    await self._answer(lambda: None, None)
                incarnation, increment = self._incarnation, self.increment
                return await self._answer(executed, table)
        except TimeoutError as error:
            raise self._hung(table) from error
        finally:
            self._in_flight -= 1

    async def _answer(self, execute: Callable[[], T], table: str | None) -> T:
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        def answered(answer: object) -> None:
            if future.done():
                return
            if isinstance(answer, TicketDatabaseError):
                future.set_exception(answer)
            else:
                future.set_result(answer)  # type: ignore[arg-type]

        self._send(execute, table, answered)
        return await future

    def _send(self, execute: Callable[[], object], table: str | None, answered: Callable[[object], object]) -> None:
        if self.closed:
            raise TicketDatabaseUnavailable("is being left")
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        there, back = self._latency()
        self.server.statements += 1
        loop.clock.at(loop.clock.now + there, _Statement(self, execute, table, back, loop, answered).arrive)

    def _hung(self, table: str | None) -> TicketDatabaseError:
        if table is not None and not self.server.hangs:
            return SequenceUnavailable("did not answer for this sequence in time")
        return TicketDatabaseHung("did not answer in time")

    def _refuse_if_broken(
        self, incarnation: str | None, increment: int, *, writes: bool, ledger: bool, anybody: bool
    ) -> None:
        server = self.server
        if not anybody and server.has_settings:
            check_settings(server, increment, self.offset)
        if not anybody and server.incarnation != incarnation:
            raise TicketDatabaseUnavailable("was restarted or replaced")
        if ledger and server.ledger_fails:
            raise SequenceUnavailable("has a damaged table for it")
        if writes and server.read_only:
            raise TicketDatabaseUnavailable("is read-only")
        if writes and server.deadlocks:
            server.deadlocks -= 1
            raise TicketDatabaseBusy("deadlocked again and again")

    async def probe(self) -> ProbeResult:
        """See TicketDatabase.probe."""

        def found() -> ProbeResult:
            if self.server.misconfigured:
                raise TicketDatabaseMisconfigured(self.server.misconfigured)
            server = self.server
            server.looks += 1
            return ProbeResult(
                server.incarnation,
                server.identity,
                "fake",
                now=server.clock(),
                latency=0.001,
                increment=server.increment if server.has_settings else None,
                offset=server.offset if server.has_settings else None,
                record=server.state.ring,
            )

        look = await self._statement(found, anybody=True)
        self._incarnation = look.incarnation
        return look

    async def draw(self, table: Table, count: int, after: int) -> Draw:
        """See TicketDatabase.draw."""
        assert 1 <= count <= self.largest_block
        increment = self.increment
        return await self._statement(lambda: self._drawn(table, count, after, increment), table=table.sequence)

    def _drawn(self, table: Table, count: int, after: int, increment: int) -> Draw:
        """`increment`: that of the session, when the statement was sent."""
        drawn = self.server.draw(table.sequence, count, self.offset, increment, after)
        self._on_draw(table.sequence, drawn)
        return drawn

    def draw_at_once(self, table: Table, count: int, after: int, done: Callable[[Drawn], None]) -> bool:
        """See TicketDatabase.draw_at_once. An answer that has come is taken, however late it is seen."""
        if self.closed or count > table.rows_per_statement or not self._draws_at_once():
            return False
        loop = asyncio.get_running_loop()
        incarnation, increment, waits = self._incarnation, self.increment, True

        def executed() -> Draw:
            self._refuse_if_broken(incarnation, increment, writes=True, ledger=False, anybody=False)
            return self._drawn(table, count, after, increment)

        def answered(answer: object) -> None:
            nonlocal waits
            if waits:
                waits = False
                timer.cancel()
                self._in_flight -= 1
                if isinstance(answer, Draw):
                    done(answer)
                else:
                    assert isinstance(answer, TicketDatabaseError)
                    loop.call_soon(done, answer)

        self._in_flight += 1
        timer = loop.call_later(self._timeout, lambda: answered(self._hung(table.sequence)))
        self._send(executed, table.sequence, answered)
        return True

    def use_increment(self, increment: int) -> None:
        """See TicketDatabase.use_increment."""
        self.increment = increment

    async def record_ring(self, old: RingRecord | None, new: RingRecord) -> RingRecord:
        """See TicketDatabase.record_ring."""
        return await self._statement(lambda: self.server.record_ring(old, new), anybody=True)

    async def check_ring(self, number: int) -> None:
        """See TicketDatabase.check_ring."""
        await self._statement(lambda: self.server.check_ring(number), writes=False)

    async def in_use(self, seconds: float) -> list[str]:
        """See TicketDatabase.in_use."""
        before, looks = await self._statement(lambda: (self.server.users(self), self.server.looks), writes=False)
        await asyncio.sleep(seconds)
        after, later = await self._statement(lambda: (self.server.users(self), self.server.looks), writes=False)
        probed = ["a ticket server that probes it"] * (later > looks)
        return list(dict.fromkeys([*before, *after, *probed]))

    async def names(self) -> dict[str, str]:
        """See TicketDatabase.names."""
        return await self._statement(
            lambda: {name: table.created for name, table in self.server.state.tables.items()}, writes=False
        )

    async def counters(self, names: Iterable[str]) -> dict[str, tuple[int, str]]:
        """See TicketDatabase.counters."""
        requested = set(names)

        def found() -> dict[str, tuple[int, str]]:
            tables = self.server.state.tables
            return {name: (table.counter, table.created) for name, table in tables.items() if name in requested}

        return await self._statement(found, writes=False)

    async def tables(self, names: Iterable[str]) -> dict[str, Table]:
        """See TicketDatabase.tables."""
        requested = set(names)

        def found() -> dict[str, Table]:
            return {
                name: Table(name, table.width, table.ceiling, ROWS_PER_STATEMENT, table.created, table.repeats_ceiling)
                for name, table in self.server.state.tables.items()
                if name in requested
            }

        return await self._statement(found, writes=False)

    async def position(self, table: Table) -> Position:
        """See TicketDatabase.position."""

        def found() -> Position:
            row = self.server.table(table.sequence)
            return Position(row.counter, row.largest, row.created)

        return await self._statement(found, table=table.sequence, writes=False)

    async def positions(self, tables: Iterable[Table]) -> dict[str, Position]:
        """See TicketDatabase.positions."""
        names = {table.sequence for table in tables}

        def found() -> dict[str, Position]:
            rows = self.server.state.tables
            return {n: Position(row.counter, row.largest, row.created) for n, row in rows.items() if n in names}

        return await self._statement(found, writes=False)

    async def advance_all(self, floors: Mapping[str, int]) -> None:
        """See TicketDatabase.advance_all."""

        def advance() -> None:
            tables = [(self.server.table(name), floor) for name, floor in floors.items()]
            for table, floor in tables:
                table.advance(floor)

        await self._statement(advance)

    async def make(self, sequence: str, width: Width, start: int) -> None:
        """See TicketDatabase.make."""
        await self._statement(lambda: self.server.make(sequence, width, start))

    async def advance(self, table: Table, above: int) -> None:
        """See TicketDatabase.advance."""
        await self._statement(lambda: self.server.table(table.sequence).advance(above), table=table.sequence)

    async def marks(self, changed_within: float | None = None) -> list[Mark]:
        """See TicketDatabase.marks."""
        increment = self.increment

        def found() -> list[Mark]:
            return [mark for mark in self.server.marks(changed_within) if mark.increment == increment]

        return await self._statement(found, writes=False, ledger=True, anybody=True)

    async def marks_of_all_rings(self) -> list[Mark]:
        """See TicketDatabase.marks_of_all_rings."""
        return await self._statement(lambda: self.server.marks(None), writes=False, ledger=True, anybody=True)

    async def reserve(self, marks: Iterable[Mark], ring: int) -> Mapping[tuple[str, int], Mark]:
        """See TicketDatabase.reserve."""
        requested = list(marks)
        return await self._statement(lambda: self.server.reserve(requested, ring), ledger=True)

    async def supersede(self, old: Mark, new: Mark, ring: int) -> Mark:
        """See TicketDatabase.supersede."""
        return await self._statement(lambda: self.server.supersede(old, new, ring), ledger=True)

    async def supersede_all(self, replacements: Iterable[tuple[Mark, Mark]], ring: int) -> None:
        """See TicketDatabase.supersede_all."""
        requested = list(replacements)

        def supersede() -> None:
            self.server.check_ring(ring)
            for old, new in requested:
                if (old.sequence, old.offset, old.increment) in self.server.state.marks:
                    self.server.supersede(old, new, ring)

        await self._statement(supersede, ledger=True)

    def forget_connections(self) -> None:
        """See TicketDatabase.forget_connections."""

    async def close(self) -> None:
        """See TicketDatabase.close."""
        self.closed = True
