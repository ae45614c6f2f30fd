"""A notebook database that is reached over connections: how an engine's few statements become a ticket database.

Draws have a connection of their own, probes another one, and questions and notes share a few. While a statement draws,
further draws wait; the next statement draws for all of them, and names each sequence once.
"""

import asyncio
import time
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Generic, TypeVar

from app.common.errors import (
    ColumnExhausted,
    NoFurtherConnection,
    RingChanged,
    TicketDatabaseError,
    TicketDatabaseHung,
    TicketDatabaseUnavailable,
)
from app.common.patience import patience
from app.databases.line import Connection, Line
from app.databases.notebook import Look, NotebookDatabase
from app.databases.protocol import Draw, Drawn, Residue, ServerEntry, Table

C = TypeVar("C", bound=Connection)
T = TypeVar("T")

QUESTIONS_AT_ONCE = 3
"""Connections for questions and notes."""
RENEW_SECONDS = 10.0
"""The probe's connection is renewed so often: the name or address may lead to another server by now."""
MOST_AT_ONCE = 500
"""Sequences that one statement draws for."""
STALE_SECONDS = 86_400.0
"""A ticket server that has not been seen for so long is forgotten."""
MOST_ROWS = 100_000
"""A database that lists more rows of one sort cannot be used."""
MOST_SERVERS = 2_000
LISTING = 64 * 1024 * 1024
"""Bytes that a listing may have: a mark with the longest name and token takes less than 400."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A draw that waits, see TicketDatabase.start_draw. `incarnation`: found by the last look before it started."""

    residue: Residue
    table: Table
    count: int
    least: int
    incarnation: str
    done: Callable[[Drawn], None]

    @property
    def more(self) -> int:
        """How far the last of the tickets is above the first."""
        return self.residue.increment * (self.count - 1)

    def ending_at(self, last: int) -> Draw:
        """The draw, from its last ticket."""
        return Draw(last - self.more, self.residue.increment, self.count)


class NetworkedDatabase(NotebookDatabase, Generic[C]):
    """A database reached by connections that `opener` makes, see Line. An engine writes the methods that are abstract
    here, and those of NotebookDatabase except `look`. An incarnation is a connection's `life`, `-`, and a suffix that
    `look_on` chooses."""

    def __init__(
        self, name: str, offset: int, increment: int, opener: Callable[[], Awaitable[C]], seconds: float
    ) -> None:
        super().__init__(name, offset, increment)
        self._seconds = seconds
        self._probing = Line(opener, seconds)
        self._drawing = Line(opener, seconds)
        self._asking = [Line(opener, seconds) for _ in range(QUESTIONS_AT_ONCE)]
        self._waiting: list[Wanted] = []
        self._working: asyncio.Task[None] | None = None
        self._prepared: C | None = None
        self._forget = False

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name} offset {self.offset}>"

    # --- what an engine writes -------------------------------------------------------------------------------------

    @abstractmethod
    async def prepare(self, connection: C) -> None:
        """On a new connection for probes, make the tables that are missing, and check that all can be used. Raises
        TicketDatabaseMisconfigured if an operator has to act."""

    @abstractmethod
    async def look_on(self, connection: C, entry: ServerEntry | None) -> Look:
        """See NotebookDatabase.look."""

    @abstractmethod
    async def draw_all(self, wanted: Mapping[str, Wanted], incarnation: str) -> Mapping[str, Drawn]:
        """Draw these with `on_drawing`, by their sequences, in one transaction. Each is from the ring of its number,
        all or none, and none where the incarnation is another one."""

    @abstractmethod
    async def forget_server(self, connection: C) -> None:
        """Delete this ticket server's announcement."""

    # --- what follows from it --------------------------------------------------------------------------------------

    @property
    def _lines(self) -> list[Line[C]]:
        return [self._probing, self._drawing, *self._asking]

    @property
    def open_connections(self) -> list[C]:
        """The connections that are open."""
        return [line.connection for line in self._lines if line.connection is not None]

    @property
    def connections(self) -> int:
        """How many connections are open."""
        return len(self.open_connections)

    @property
    def _life(self) -> str:
        """Of the server and data that the last look found; a word that no connection has before the first."""
        return self._incarnation.partition("-")[0] or "none"

    async def ask(self, work: Callable[[C], Awaitable[T]], *, anybody: bool = True, most: int = LISTING) -> T:
        """Run `work` on a connection for questions, on a free one if possible, and return its result. See Line.run."""
        life = None if anybody else self._life
        line = min(self._asking, key=lambda each: (each.busy > 0, each.connection is None, each.busy))
        try:
            return await line.run(work, life, most=most)
        except NoFurtherConnection:
            others = [each for each in self._asking if each.connection is not None]
            if not others:
                raise
            return await min(others, key=lambda each: each.busy).run(work, life, most=most)

    async def on_drawing(self, work: Callable[[C], Awaitable[T]]) -> T:
        """Run `work` on the connection for draws, in the life that the last look found, and return its result."""
        return await self._drawing.run(work, self._life)

    async def look(self, entry: ServerEntry | None) -> Look:
        """See NotebookDatabase.look. A connection that was cut says nothing about the database, so another is tried."""
        old = self._probing.connection
        try:
            async with patience(self._seconds):
                try:
                    return await self._look(entry)
                except TicketDatabaseUnavailable as error:
                    self._probing.drop()
                    if old is None or isinstance(error, TicketDatabaseHung):
                        raise
                return await self._look(entry)
        except TimeoutError as error:
            raise TicketDatabaseHung("did not answer in time") from error
        except TicketDatabaseError:
            self._probing.drop()  # the operator's fix may hold for new connections only
            raise

    async def _look(self, entry: ServerEntry | None) -> Look:
        known = self._probing.connection
        new = self._forget or known is None or time.monotonic() >= known.opened + RENEW_SECONDS

        async def work(connection: C) -> tuple[C, Look]:
            if connection is not self._prepared:
                await self.prepare(connection)
                self._prepared = connection
            return connection, await self.look_on(connection, entry)

        found, look = await self._probing.run(work, most=LISTING, new=new)
        if self._forget and found is not known:
            self._forget = False
            for line in (self._drawing, *self._asking):
                await line.leave()
        return look

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
        """See TicketDatabase.start_draw."""
        self._waiting.append(Wanted(residue, table, count, least, self._incarnation, done))
        if self._working is None:
            self._working = asyncio.get_running_loop().create_task(self._work())

    async def _work(self) -> None:
        """Send one statement after another until no draw waits."""
        try:
            while self._waiting:
                batch: dict[str, Wanted] = {}
                later = []
                for wanted in self._waiting:
                    if wanted.table.sequence in batch or len(batch) == MOST_AT_ONCE:
                        later.append(wanted)
                    else:
                        batch[wanted.table.sequence] = wanted
                self._waiting = later
                for name, result in (await self._drawn(batch)).items():
                    batch[name].done(result)
        finally:
            self._working = None

    async def _drawn(self, batch: Mapping[str, Wanted]) -> Mapping[str, Drawn]:
        refused: dict[str, Drawn] = {}
        for name, wanted in batch.items():
            if wanted.residue.increment != self.increment:
                refused[name] = RingChanged("draws with another increment by now")
            elif not wanted.incarnation or wanted.incarnation != self._incarnation:
                refused[name] = TicketDatabaseUnavailable("was restarted or replaced")
            elif wanted.least > wanted.table.last:  # which may be more than the database can count
                refused[name] = ColumnExhausted("holds no further id for it")
        asked = {name: wanted for name, wanted in batch.items() if name not in refused}
        if not asked:
            return refused
        lost = TicketDatabaseUnavailable("lost its ring record")
        try:
            async with patience(self._seconds):
                drawn = await self.draw_all(asked, self._incarnation)
            return refused | {name: drawn.get(name, lost) for name in asked}
        except (TimeoutError, TicketDatabaseHung):
            return refused | dict.fromkeys(asked, self._hung())
        except TicketDatabaseError as error:
            return refused | dict.fromkeys(asked, error)

    def _hung(self) -> TicketDatabaseHung:
        """Fail the draws that wait behind a statement without an answer: their time is over too. Returns the error."""
        error = TicketDatabaseHung("did not answer in time")
        for wanted in self._waiting:
            asyncio.get_running_loop().call_soon(wanted.done, error)
        self._waiting = []
        return error

    def forget_connections(self) -> None:
        """See TicketDatabase.forget_connections."""
        self._forget = True

    async def close(self) -> None:
        """See TicketDatabase.close."""
        if self._working is not None:
            await asyncio.gather(self._working, return_exceptions=True)
        if self.instance and self._probing.connection is not None:
            with suppress(TicketDatabaseError):
                await self._probing.run(self.forget_server)
        for line in self._lines:
            line.closed = True
            await line.leave()
