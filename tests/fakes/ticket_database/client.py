"""One ticket server's side of a fake server."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from app.common.errors import (
    RingChanged,
    TicketDatabaseError,
)
from app.common.sequences import Width
from app.databases.protocol import (
    ClockReading,
    Draw,
    Drawn,
    Mark,
    Position,
    ProbeResult,
    Residue,
    RingRecord,
    ServerEntry,
    Table,
    TicketDatabase,
)
from app.kinds.definition import Definition
from tests.fakes.ticket_database.connections import TIMEOUT, FakeConnections
from tests.fakes.ticket_database.server import FakeServer
from tests.fakes.ticket_database.tables import FakeSequenceTable
from tests.fakes.virtual_time import VirtualLoop

LARGEST_STEP = 65_535
"""As far as one draw moves a counter at the most."""


class FakeTicketDatabase(FakeConnections, TicketDatabase):
    """One ticket server's side of a `FakeServer`: a `TicketDatabase`.

    `offset`, `increment`: what its sessions are told, where it is not what the server is configured with. `user`: whose
    connections these are. `latency`: how long the next statement takes to the server, and its answer back. `cut`: the
    network between the two is down. `connects`: whether the
    next statement needs a connection first, and so goes out one round trip later. `on_draw` is told what was drawn,
    when it is. Draws and questions are made only under the incarnation that the last look found.
    """

    system = "fake"

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
        connects: Callable[[], bool] = lambda: False,
        on_draw: Callable[[str, Draw], object] = lambda *_: None,
    ) -> None:
        super().__init__(
            server,
            offset=offset,
            increment=increment,
            user=user,
            timeout=timeout,
            latency=latency,
            connects=connects,
        )
        self._largest_block = largest_block
        self._on_draw = on_draw

    def __repr__(self) -> str:
        return f"<FakeTicketDatabase {self.name}>"

    @property
    def largest_block(self) -> int:
        return min(self._largest_block, LARGEST_STEP // self.increment)

    async def probe(self) -> ProbeResult:
        """See TicketDatabase.probe."""
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        since = loop.time()
        entry = None if self.describe is None else self.describe()

        def found() -> ProbeResult:
            server = self.server
            uses = server.uses(entry, loop.clock.now)
            server.look_for(entry, loop.clock.now)
            return ProbeResult(
                server.incarnation,
                server.identity,
                latency=0.001,
                increment=server.increment if server.has_settings else None,
                offset=server.offset if server.has_settings else None,
                record=server.state.ring,
                clock=ClockReading(server.time_at(loop.clock.now), since, since),
                uses=uses,
                older=server.older(loop.clock.now),
            )

        look = await self._statement(found, anybody=True, patient=True)
        self._incarnation = look.incarnation
        return replace(look, clock=replace(look.clock, until=loop.time()))

    def start_draw(
        self,
        residue: Residue,
        table: Table,
        count: int,
        after: int,
        done: Callable[[Drawn], None],
        *,
        least: int = 0,
    ) -> None:
        """See TicketDatabase.start_draw. An answer that has come is taken, however late it is seen."""
        assert 1 <= count <= self.largest_block
        loop = asyncio.get_running_loop()
        waits = True
        if residue.increment != self.increment:
            loop.call_soon(done, RingChanged("draws with another increment by now"))
            return

        def draw() -> None:
            incarnation, increment = self._incarnation, self.increment

            def executed() -> Draw:
                self._refuse_if_broken(incarnation, increment, writes=True, ledger=False, anybody=False)
                self.server.connected[self] = None
                drawn = self.drawing(residue, table, count, after, least)
                self._on_draw(table.sequence, drawn)
                return drawn

            self._send(executed, table.sequence, answered)

        def connected(answer: object) -> None:
            if isinstance(answer, TicketDatabaseError):
                answered(answer)
            elif waits:
                draw()

        def answered(answer: object) -> None:
            nonlocal waits
            if not waits:
                return
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
        if self._connects():
            self._send(lambda: None, None, connected)
        else:
            draw()

    def drawing(self, residue: Residue, table: Table, count: int, after: int, least: int) -> Draw:
        """Draw on the server, when the statement arrives there."""
        offset, increment, _ = residue
        return self.server.draw(table.sequence, count, offset, increment, after, least=least, most=table.last)

    def use_increment(self, increment: int) -> None:
        """See TicketDatabase.use_increment."""
        self.increment = increment

    async def record_ring(self, old: RingRecord | None, new: RingRecord) -> RingRecord:
        """See TicketDatabase.record_ring."""
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        entry, clock = None if self.describe is None else self.describe(), loop.clock
        return await self._statement(
            lambda: self.server.record_ring(old, new, entry, clock.now), anybody=True, patient=True
        )

    async def recorded_ring(self) -> RingRecord | None:
        """See TicketDatabase.recorded_ring."""
        return await self._statement(lambda: self.server.state.ring, writes=False, anybody=True)

    async def check_ring(self, number: int) -> None:
        """See TicketDatabase.check_ring."""
        await self._statement(lambda: self.server.check_ring(number), writes=False)

    async def in_use(self, seconds: float) -> list[str]:
        """See TicketDatabase.in_use."""

        def found() -> tuple[list[str], dict[str, float]]:
            return self.server.users(self), self.server.probed(self.instance)

        before, first = await self._statement(found, writes=False)
        await asyncio.sleep(seconds)
        after, later = await self._statement(found, writes=False)
        probes = any(first.get(instance) != at for instance, at in later.items())
        return list(dict.fromkeys([*before, *after, *["a ticket server that probes it"] * probes]))

    async def servers(self, within: float) -> list[ServerEntry]:
        """See TicketDatabase.servers."""
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)

        def found() -> list[ServerEntry]:
            return self.server.servers_since(self.server.time_at(loop.clock.now) - within)

        return await self._statement(found, writes=False, anybody=True)

    async def names(self) -> dict[str, str]:
        """See TicketDatabase.names."""
        return await self._statement(
            lambda: {name: table.created for name, table in self.server.state.tables.items()}, writes=False
        )

    async def tables(self, names: Iterable[str]) -> dict[str, Table]:
        """See TicketDatabase.tables."""
        requested = set(names)

        def found() -> dict[str, Table]:
            return {
                name: FakeSequenceTable(name, table.width, table.ceiling, table.created, end=table.column_end)
                for name, table in self.server.state.tables.items()
                if name in requested
            }

        return await self._statement(found, writes=False)

    async def positions(self, names: Iterable[str]) -> dict[str, Position]:
        """See TicketDatabase.positions."""
        requested = dict.fromkeys(names)

        def found() -> dict[str, Position]:
            rows = self.server.state.tables
            return {n: Position(row.counter, row.largest, row.created) for n, row in rows.items() if n in requested}

        table = next(filter(self.server.stands_still, requested), [*requested, None][0])
        return await self._statement(found, table=table, writes=False)

    async def advance(self, floors: Mapping[str, int]) -> None:
        """See TicketDatabase.advance."""

        def advance() -> None:
            tables = [(self.server.table(name), floor) for name, floor in floors.items()]
            for table, floor in tables:
                table.advance(floor)

        await self._statement(advance, table=next(filter(self.server.stands_still, floors), None))

    async def make(self, sequence: str, width: Width, start: int) -> None:
        """See TicketDatabase.make."""
        await self._statement(lambda: self.server.make(sequence, width, start))

    async def definitions(self) -> dict[str, Definition]:
        """See TicketDatabase.definitions."""
        return await self._statement(lambda: dict(self.server.state.kinds), writes=False)

    async def define(self, definition: Definition, old: Definition | None = None) -> Definition:
        """See TicketDatabase.define."""
        return await self._statement(lambda: self.server.define(definition, old), patient=True)

    async def forget_definition(self, definition: Definition) -> None:
        """See TicketDatabase.forget_definition."""

        def forget() -> None:
            if self.server.state.kinds.get(definition.key) == definition:
                del self.server.state.kinds[definition.key]

        await self._statement(forget)

    async def marks(self, changed_within: float | None = None, *, anybody: bool = True) -> list[Mark]:
        """See TicketDatabase.marks."""
        increment = self.increment

        def found() -> list[Mark]:
            return [mark for mark in self.server.marks(changed_within) if mark.increment == increment]

        return await self._statement(found, writes=False, ledger=True, anybody=anybody)

    async def marks_of_all_rings(self) -> list[Mark]:
        """See TicketDatabase.marks_of_all_rings."""
        return await self._statement(lambda: self.server.marks(None), writes=False, ledger=True, anybody=True)

    async def keep(self, marks: Iterable[Mark], ring: int) -> Mapping[tuple[str, int], Mark]:
        """See TicketDatabase.keep."""
        requested = list(marks)
        return await self._statement(lambda: self.server.keep(requested, ring), ledger=True)

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
        """See TicketDatabase.close. Nobody waits for what it says then: it arrives at once, or not at all."""
        self.closed = True
        server = self.server
        if self.describe is not None and not (self.cut or server.down or server.hangs or server.read_only):
            server.state.servers.pop(self.describe().instance, None)
