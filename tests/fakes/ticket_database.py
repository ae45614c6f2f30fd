"""Ticket databases in memory, with a MySQL server's arithmetic and every fault, by name.

`FakeServer` is the database: tables with counters, rows and columns that end, a ledger, an incarnation. Several ticket
servers share it. `FakeTicketDatabase` is what one ticket server holds of it: its connections, its latency, its timeout.

A statement goes out, is executed at one moment, and its answer comes back; all the faults act at one of these three
points. Nothing here waits for real time: with no latency set a statement lets other tasks run twice, and no more.
"""

import asyncio
import copy
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from app.databases.protocol import ROOM, Draw, Drawn, Look, Mark, Position, Table
from app.errors import (
    ColumnExhausted,
    SequenceMissing,
    SequenceUnavailable,
    TicketDatabaseBusy,
    TicketDatabaseError,
    TicketDatabaseHung,
    TicketDatabaseMisconfigured,
    TicketDatabaseUnavailable,
)
from app.sequences import Width, ceiling_of

T = TypeVar("T")

TIMEOUT = 0.5
ROWS_PER_STATEMENT = 64


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

    def draw(self, count: int, offset: int, increment: int) -> Draw:
        """What REPLACE does, for a row a ticket; a larger count is a block and the id above it, which looks at the
        first id before it moves the counter."""
        first = self.counter + (offset - self.counter) % increment
        last = first + (count - 1) * increment
        if first > self.column_end:
            if count == 1 and self.column_end % increment == offset % increment:
                return Draw(self.column_end, increment, 1)  # again and again, without an error
            raise ColumnExhausted("cannot draw a further id")
        if count > ROWS_PER_STATEMENT and first > self.ceiling - ROOM * count * increment:
            self.raise_above(first)
            raise ColumnExhausted("stands too close to its end")
        if last > self.column_end:
            self.counter = self.column_end  # fails whole, and uses up what is left
            raise ColumnExhausted("cannot draw a further id")
        self.counter = last + increment
        self.largest = last
        return Draw(first, increment, count)

    def raise_above(self, above: int) -> None:
        self.largest = max(self.largest, above)
        self.counter = max(self.counter, min(above + 1, self.column_end))


@dataclass(slots=True)
class FakeState:
    """All that is on a server's disk."""

    tables: dict[str, FakeTable] = field(default_factory=dict)
    marks: dict[tuple[str, int, int], Mark] = field(default_factory=dict)
    changed: dict[tuple[str, int, int], float] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class _Stalled:
    """A statement that the server has received and has not begun. It lives on when its client has given up."""

    execute: Callable[[], object]
    table: str | None
    done: asyncio.Future[object]

    def end(self, error: TicketDatabaseError) -> None:
        if not self.done.done():
            self.done.set_exception(error)

    def run(self) -> None:
        try:
            result = self.execute()
        except TicketDatabaseError as error:
            self.end(error)
        else:
            if not self.done.done():
                self.done.set_result(result)


class FakeServer:
    """One database server, and what is wrong with it at the moment.

    `down`: refuses every connection. `read_only`: reads succeed. `ledger_fails`: the ledger's table alone cannot be
    used. `misconfigured`: what a new connection finds wrong. `draws_as`: the offset and increment that draws really
    have, whatever a look says. `deadlocks`: how many of the next statements that write fail so. `loses_replies`: how
    many of the next statements are committed and never answered.
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
        self.misconfigured: str | None = None
        self.draws_as: tuple[int, int] | None = None
        self.deadlocks = 0
        self.loses_replies = 0
        self.statements = 0
        self.draws: list[tuple[str, Draw]] = []
        self._hangs = False
        self._locked: set[str] = set()
        self._stalled: list[_Stalled] = []
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
        """Whether one draw ever gave all these ids, of its own residue."""
        residue = self.offset % self.increment
        return any(
            name == sequence and drawn.first <= first and last <= drawn.last and drawn.first % self.increment == residue
            for name, drawn in reversed(self.draws)
        )

    # --- statements ------------------------------------------------------------------------------------------------

    def draw(self, sequence: str, count: int) -> Draw:
        offset, increment = self.draws_as or (self.offset, self.increment)
        drawn = self.table(sequence).draw(count, offset, increment)
        self.draws.append((sequence, drawn))
        return drawn

    def make(self, sequence: str, width: Width, start: int) -> None:
        if sequence not in self.state.tables:
            made = FakeTable(width, created=f"t{next(self._numbers)}", counter=start)
            self.state.tables[sequence] = made

    def reserve(self, marks: Iterable[Mark]) -> dict[tuple[str, int], Mark]:
        found = {}
        for mark in marks:
            key = (mark.sequence, mark.offset, mark.increment)
            row = self.state.marks.get(key, mark)
            if row.token == mark.token:
                row = replace(row, mark=max(row.mark, mark.mark), issued=max(row.issued, mark.issued))
            self._keep(key, row)
            found[mark.sequence, mark.offset] = row
        return found

    def renew(self, old: Mark, new: Mark) -> Mark:
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

    def stall(self, execute: Callable[[], object], table: str | None) -> asyncio.Future[object]:
        """Keep a statement until the server goes on."""
        statement = _Stalled(execute, table, asyncio.get_running_loop().create_future())
        self._stalled.append(statement)
        return statement.done

    def restart(self) -> None:
        """Connections break, statements that had not begun are lost, the data are as they were."""
        self.incarnation = self._new_incarnation()
        stalled, self._stalled = self._stalled, []
        self._hangs = False
        self._locked.clear()
        for statement in stalled:
            statement.end(TicketDatabaseUnavailable("broke the connection off"))

    def snapshot(self) -> FakeState:
        """A copy of the data directory."""
        return copy.deepcopy(self.state)

    def restore(self, snapshot: FakeState) -> None:
        """The data directory put back; tables have the CREATE_TIME that they had."""
        self.state = copy.deepcopy(snapshot)
        self.restart()

    def replace_by_empty(self) -> None:
        """Another server in its place, with nothing on it."""
        self.identity = f"server-{next(self._numbers)}"
        self.state = FakeState()
        self.restart()

    def truncate(self, sequence: str) -> None:
        """The counter begins again, under open connections, and CREATE_TIME stays."""
        table = self.table(sequence)
        table.counter, table.largest = 1, 0

    def drop(self, sequence: str) -> None:
        self.state.tables.pop(sequence, None)

    def remake(self, sequence: str) -> None:
        """Dropped and made again by somebody else, at 1."""
        width = self.table(sequence).width
        self.drop(sequence)
        self.make(sequence, width, 1)

    def use_up(self, sequence: str, left: int) -> None:
        """Leave only `left` numbers up to the column's end, for all databases together."""
        table = self.table(sequence)
        table.raise_above(table.column_end - left)

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

    `latency`: how long the next statement takes to the server, and its answer back. `cut`: the network between the two
    is down. `draws_at_once`: whether the next draw can be sent at once. Draws and questions are made only under the
    incarnation that the last look found.
    """

    def __init__(
        self,
        server: FakeServer,
        *,
        timeout: float = TIMEOUT,
        largest_block: int = 32_767,
        latency: Callable[[], tuple[float, float]] = lambda: (0, 0),
        draws_at_once: Callable[[], bool] = lambda: True,
    ) -> None:
        self.server = server
        self.name = server.name
        self.offset = server.offset
        self.increment = server.increment
        self.largest_block = largest_block
        self.cut = False
        self.closed = False
        self._timeout = timeout
        self._latency = latency
        self._draws_at_once = draws_at_once
        self._tasks: set[asyncio.Task[None]] = set()
        self._incarnation: str | None = None
        self._in_flight = 0

    def __repr__(self) -> str:
        return f"<FakeTicketDatabase {self.name}>"

    @property
    def connections(self) -> int:
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
        server = self.server
        there, back = self._latency()
        loses_reply = False

        def executed() -> T:
            nonlocal loses_reply
            self._refuse_if_broken(writes=writes, ledger=ledger, anybody=anybody)
            result = execute()
            if server.loses_replies:
                server.loses_replies -= 1
                loses_reply = True
            return result

        server.statements += 1
        self._in_flight += 1
        try:
            async with asyncio.timeout(self._timeout):
                await asyncio.sleep(there)
                self._refuse_if_gone()
                result = await server.stall(executed, table) if server.stands_still(table) else executed()
                await asyncio.sleep(back)
        except TimeoutError as error:
            if table is not None and not server.hangs:
                raise SequenceUnavailable("did not answer for this sequence in time") from error
            raise TicketDatabaseHung("did not answer in time") from error
        finally:
            self._in_flight -= 1
        self._refuse_if_gone()
        if loses_reply:
            raise TicketDatabaseUnavailable("broke the connection off")
        return result  # type: ignore[return-value]

    def _refuse_if_gone(self) -> None:
        if self.closed:
            raise TicketDatabaseUnavailable("is being left")
        if self.server.down or self.cut:
            raise TicketDatabaseUnavailable("refuses connections")

    def _refuse_if_broken(self, *, writes: bool, ledger: bool, anybody: bool) -> None:
        server = self.server
        if not anybody and server.incarnation != self._incarnation:
            raise TicketDatabaseUnavailable("was restarted or replaced")
        if ledger and server.ledger_fails:
            raise SequenceUnavailable("has a damaged table for it")
        if writes and server.read_only:
            raise TicketDatabaseUnavailable("is read-only")
        if writes and server.deadlocks:
            server.deadlocks -= 1
            raise TicketDatabaseBusy("deadlocked again and again")

    async def look(self) -> Look:
        """See TicketDatabase.look."""

        def found() -> Look:
            if self.server.misconfigured:
                raise TicketDatabaseMisconfigured(self.server.misconfigured)
            server = self.server
            return Look(server.incarnation, server.identity, "fake", now=server.clock(), latency=0.001)

        look = await self._statement(found, anybody=True)
        self._incarnation = look.incarnation
        return look

    async def draw(self, table: Table, count: int, after: int) -> Draw:
        """See TicketDatabase.draw."""
        assert 1 <= count <= self.largest_block
        return await self._statement(lambda: self.server.draw(table.sequence, count), table=table.sequence)

    def draw_at_once(self, table: Table, count: int, after: int, done: Callable[[Drawn], None]) -> bool:
        """See TicketDatabase.draw_at_once."""
        if not self._draws_at_once():
            return False

        async def draw() -> None:
            try:
                drawn: Drawn = await self.draw(table, count, after)
            except TicketDatabaseError as error:
                drawn = error
            done(drawn)

        task = asyncio.get_running_loop().create_task(draw())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return True

    async def names(self) -> dict[str, str]:
        """See TicketDatabase.names."""
        return await self._statement(
            lambda: {name: table.created for name, table in self.server.state.tables.items()}, writes=False
        )

    async def counters(self, names: Iterable[str]) -> dict[str, tuple[int, str]]:
        """See TicketDatabase.counters."""
        wanted = set(names)

        def found() -> dict[str, tuple[int, str]]:
            tables = self.server.state.tables
            return {name: (table.counter, table.created) for name, table in tables.items() if name in wanted}

        return await self._statement(found, writes=False)

    async def tables(self, names: Iterable[str]) -> dict[str, Table]:
        """See TicketDatabase.tables."""
        wanted = set(names)

        def found() -> dict[str, Table]:
            return {
                name: Table(name, table.width, table.ceiling, ROWS_PER_STATEMENT, table.created, table.repeats_ceiling)
                for name, table in self.server.state.tables.items()
                if name in wanted
            }

        return await self._statement(found, writes=False)

    async def position(self, table: Table) -> Position:
        """See TicketDatabase.position."""

        def found() -> Position:
            row = self.server.table(table.sequence)
            return Position(row.counter, row.largest, row.created)

        return await self._statement(found, table=table.sequence, writes=False)

    async def make(self, sequence: str, width: Width, start: int) -> None:
        """See TicketDatabase.make."""
        await self._statement(lambda: self.server.make(sequence, width, start))

    async def raise_above(self, table: Table, above: int) -> None:
        """See TicketDatabase.raise_above."""
        await self._statement(lambda: self.server.table(table.sequence).raise_above(above), table=table.sequence)

    async def marks(self, changed_within: float | None = None) -> list[Mark]:
        """See TicketDatabase.marks."""
        return await self._statement(lambda: self.server.marks(changed_within), writes=False, ledger=True, anybody=True)

    async def reserve(self, marks: Iterable[Mark]) -> Mapping[tuple[str, int], Mark]:
        """See TicketDatabase.reserve."""
        wanted = list(marks)
        return await self._statement(lambda: self.server.reserve(wanted), ledger=True)

    async def renew(self, old: Mark, new: Mark) -> Mark:
        """See TicketDatabase.renew."""
        return await self._statement(lambda: self.server.renew(old, new), ledger=True)

    def forget_connections(self) -> None:
        """See TicketDatabase.forget_connections."""

    async def close(self) -> None:
        """See TicketDatabase.close."""
        self.closed = True
