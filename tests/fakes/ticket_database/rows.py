"""An engine that keeps sequences and notes as rows of one store, in memory: the protocol from `NotebookDatabase`.

A sequence is a row with its last ticket, a draw of any number ends where the last ticket does, and changes are counted,
not dated. The store, its network and its faults are a `FakeServer`'s.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from app.common.errors import ColumnExhausted
from app.common.sequences import Width, ceiling_of
from app.databases.notebook import Book, Look, NotebookDatabase, Write, after
from app.databases.protocol import OLDER, ClockReading, Draw, Position, Residue, ServerEntry, Table
from tests.fakes.ticket_database.client import FakeTicketDatabase
from tests.fakes.ticket_database.server import FakeServer
from tests.fakes.virtual_time import VirtualClock, VirtualLoop


def _clock() -> VirtualClock:
    """What the server's clock goes by: a statement takes effect outside of any event loop."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    return loop.clock


class RowTicketDatabase(NotebookDatabase, FakeTicketDatabase):
    """One ticket server's side of such a database. Every statement takes effect at one moment, on the server."""

    def __init__(self, server: FakeServer, **more: Any) -> None:
        FakeTicketDatabase.__init__(self, server, **more)
        NotebookDatabase.__init__(self, self.name, self.offset, self.increment)

    # --- who it is -------------------------------------------------------------------------------------------------

    async def look(self, entry: ServerEntry | None) -> Look:
        """See NotebookDatabase.look."""
        since, clock = asyncio.get_running_loop().time(), _clock()

        def found() -> Look:
            server = self.server
            server.look_for(entry, clock.now)
            read_at = ClockReading(server.time_at(clock.now), since, since)
            servers = list(self._kept(Book.SERVERS).values())
            return Look(server.incarnation, server.identity, 0.001, read_at, server.state.ring, servers)

        look = await self._statement(found, anybody=True, patient=True)
        return replace(look, clock=replace(look.clock, until=asyncio.get_running_loop().time()))

    async def clock(self) -> float:
        """See NotebookDatabase.clock."""
        clock = _clock()
        return await self._statement(lambda: self.server.time_at(clock.now), writes=False, anybody=True)

    # --- sequences -------------------------------------------------------------------------------------------------

    def drawing(self, residue: Residue, table: Table, count: int, after: int, least: int) -> Draw:
        """Draw from the row, in one statement: all of them or none, and in the ring of that number alone."""
        server, row = self.server, self.server.table(table.sequence)
        if server.state.ring is not None:
            server.check_ring(residue.ring)
        offset, step = server.draws_as or residue[:2]
        above = max(row.counter, least) if least > 1 else row.counter
        first = above + (offset - above) % step
        last = first + (count - 1) * step
        if last > table.last and not (server.goes_past_the_end and count == 1):
            raise ColumnExhausted("holds no further id for it", row.counter - 1)
        row.counter, row.largest = last + 1, last
        drawn = Draw(first, step, count)
        server.draws.append((table.sequence, drawn, server.life))
        return drawn

    async def sequences(self, names: Iterable[str] | None) -> Sequence[tuple[Table, Position]]:
        """See NotebookDatabase.sequences."""
        requested = None if names is None else dict.fromkeys(names)

        def found() -> Sequence[tuple[Table, Position]]:
            return [
                (
                    Table(name, row.width, ceiling_of(row.width, unsigned=True), row.created),
                    Position(row.counter, row.counter - 1, row.created),
                )
                for name, row in self.server.state.tables.items()
                if requested is None or name in requested
            ]

        return await self._statement(found, table=self._locked_of(requested or ()), writes=False)

    def _locked_of(self, names: Iterable[str]) -> str | None:
        """What a statement about these waits for, if it waits: the first that is locked."""
        names = list(names)
        return next(filter(self.server.stands_still, names), names[0] if len(names) == 1 else None)

    async def make(self, sequence: str, width: Width, start: int) -> None:
        """See TicketDatabase.make."""
        await self._statement(lambda: self.server.make(sequence, width, start))

    async def advance(self, floors: Mapping[str, int]) -> None:
        """See TicketDatabase.advance."""

        def advance() -> None:
            for name in floors:
                self.server.table(name)
            for name, floor in floors.items():
                row = self.server.table(name)
                row.counter, row.largest = max(row.counter, floor + 1), max(row.largest, floor)

        await self._statement(advance, table=self._locked_of(floors))

    # --- notes -----------------------------------------------------------------------------------------------------

    def _kept(self, book: Book) -> dict[tuple[Any, ...], Any]:
        state = self.server.state
        match book:
            case Book.MARKS:
                return dict(state.marks)
            case Book.RING:
                return {} if state.ring is None else {(): state.ring}
            case Book.KINDS:
                return {(key,): definition for key, definition in state.kinds.items()}
            case Book.SERVERS:
                older = ServerEntry("", OLDER, (), 0, at=max(0.0, self.server.older_probe), uses=None)
                return {(key,): entry for key, entry in state.servers.items()} | ({("",): older} if older.at else {})

    async def read(self, book: Book, since: int | None = None, *, anybody: bool = False) -> tuple[list[Any], int]:
        """See NotebookDatabase.read."""

        def found() -> tuple[list[Any], int]:
            state = self.server.state
            notes = self._kept(book)
            if book is Book.MARKS and since is not None:
                notes = {key: mark for key, mark in notes.items() if state.numbers[key] > since}
            return list(notes.values()), state.number

        return await self._statement(found, writes=False, ledger=book is Book.MARKS, anybody=anybody)

    async def write(
        self,
        book: Book,
        writes: Sequence[Write[Any]],
        ring: int | None,
        *,
        entry: ServerEntry | None = None,
        anybody: bool = False,
    ) -> list[Any]:
        """See NotebookDatabase.write."""
        clock = _clock()

        def written() -> list[Any]:
            self.server.check_ring(ring)
            results = []
            for each in writes:
                kept = self._kept(book).get(each.key)
                results.append(after(kept, each))
                if results[-1] != kept:
                    self._put(book, each.key, results[-1])
                    self.server.probes(entry, clock.now)
            return results

        return await self._statement(written, ledger=book is Book.MARKS, anybody=anybody)

    def _put(self, book: Book, key: tuple[Any, ...], note: Any) -> None:
        state = self.server.state
        if book is Book.MARKS:
            self.server.write_mark(key, note)
        elif book is Book.RING:
            state.ring = note
        elif note is None:
            del state.kinds[key[0]]
        else:
            state.kinds[key[0]] = note

    # --- the end ---------------------------------------------------------------------------------------------------

    async def in_use(self, seconds: float) -> list[str]:
        """See TicketDatabase.in_use."""
        connected = [await self._statement(lambda: self.server.users(self), writes=False, anybody=True)]
        probed = await super().in_use(seconds)
        connected.append(await self._statement(lambda: self.server.users(self), writes=False, anybody=True))
        return list(dict.fromkeys([*connected[0], *connected[1], *probed]))


def client_of(server: FakeServer, **more: Any) -> FakeTicketDatabase:
    """A ticket server's side of a fake server, whatever its engine."""
    return (RowTicketDatabase if server.is_rows else FakeTicketDatabase)(server, **more)
