"""Draws on one MySQL or MariaDB ticket database: how those that wait share connections.

A draw of one statement that finds an idle connection goes out at once, and its answer is taken off the socket. While
all are busy, draws wait, and the next free connection takes several of them in one packet and one transaction, so that
they share a commit. Each is answered after it. A block is several statements, and goes alone. Where OK packets are not
all that comes back, a task reads the rest.

A draw with a `least` is two statements, of which the first advances the table's counter: a row that no draw uses gets
the explicit id just below. That id comes back in the first one's OK packet, as a drawn one does.
"""

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from app.common.errors import (
    ColumnExhausted,
    TicketDatabaseBusy,
    TicketDatabaseError,
    TicketDatabaseMisconfigured,
    TicketDatabaseUnavailable,
)
from app.common.patience import SLICES, patience
from app.common.tasks import Tasks
from app.databases.mysql.draws.block_forms import BlockForms
from app.databases.mysql.draws.blocks import ROOM
from app.databases.mysql.draws.generated_ids import QUESTION, GeneratedIds, generated_of
from app.databases.mysql.draws.pending_draw import Deadlines, PendingDraw
from app.databases.mysql.line.connection import MySQLConnection
from app.databases.mysql.line.pool import MySQLPool
from app.databases.mysql.table import MySQLTable
from app.databases.protocol import Drawn, Position, Table

LAST_TICKETS = 1_000_000
"""With fewer left, the position is read before several tickets are drawn in one statement: one that runs past the end
of the column uses up what is left, and what this server knows is as old as the last probes, while others draw."""
CONNECTIONS = 3
"""The most connections that one server draws on at a time, for each database: few, so that draws share commits, and
more than one, so that a locked table holds up only some."""
NO_FURTHER = "holds no further id for it"
_NO_QUESTIONS: Mapping[int, int] = {}
DRAWS_PER_PACKET = 32
"""The most draws that share a packet: enough to spare round trips and commits, few enough that none waits long."""


class Packet(NamedTuple):
    """Statements that are sent together, and how many they are. `places`: behind which of them each of the draws that
    they are for has all that it needs. `questions`: the places of those that ask where the id before them came from
    (see `generated_ids`), each with the number of its draw."""

    statements: str
    answers: int
    places: Sequence[int]
    questions: Mapping[int, int]

    @property
    def is_one(self) -> bool:
        """Whether it is one statement, apart from questions: what fails then leaves nothing behind."""
        return self.answers - len(self.questions) == 1


class DrawQueue:
    """The draws that wait for a connection to one database, and those under way on each connection. `forms`: which
    chooses the form of each; the probe tells it what the server allows. `position` tells where a sequence stands."""

    def __init__(
        self,
        pool: MySQLPool,
        offset: int,
        increment: int,
        position: Callable[[str], Awaitable[Position]],
        on_retry: Callable[[str], None],
        *,
        generated: GeneratedIds | None = None,
    ) -> None:
        self.position = position
        self._generated = generated or GeneratedIds()
        self.forms = BlockForms(offset, increment)
        self._pool = pool
        self._offset = offset
        self._increment = increment
        self._on_retry = on_retry
        self._pending: deque[PendingDraw] = deque()
        self._deadlines = Deadlines(pool.timeout, self._expired)
        self._under_way: dict[MySQLConnection, list[PendingDraw]] = {}
        self._opening = 0
        self._tasks = Tasks()
        self._closed = False

    def start_draw(self, table: Table, count: int, after: int, done: Callable[[Drawn], None], least: int = 0) -> None:
        """See TicketDatabase.start_draw."""
        if self._closed:
            asyncio.get_running_loop().call_soon(done, TicketDatabaseUnavailable("is being left"))
            return
        assert isinstance(table, MySQLTable)
        began = time.monotonic()
        draw = PendingDraw(table, count, after, began, began + self._pool.timeout, done)
        if least > 1:  # else the advance would be above 0, and an explicit 0 draws an id
            further = count - 1 if count <= table.rows_per_statement else ROOM * count + 1
            if self._next(least - 1) + further * self._increment > table.last:
                asyncio.get_running_loop().call_soon(done, ColumnExhausted(NO_FURTHER))
                return
            draw.least = least
        if count > 1 and table.last - max(after, least) < LAST_TICKETS * self._increment:
            self._tasks.spawn(self._make_sure_of(draw))
        else:
            self._begin(draw)

    def _next(self, above: int) -> int:
        """The first id above a number."""
        return above + 1 + (self._offset - above - 1) % self._increment

    async def _make_sure_of(self, draw: PendingDraw) -> None:
        """Draw several tickets in one statement if they certainly end before the column does, whatever others draw
        between this look and the statement."""
        table, room = draw.table, (ROOM * draw.count - 1) * self._increment
        try:
            next_id = (await self.position(table.sequence)).next_id
        except TicketDatabaseError as error:
            draw.answer(error)
        except BaseException:
            draw.answer(TicketDatabaseUnavailable("is being left"))
            raise
        else:
            if self._next(max(next_id, draw.least, draw.after + 1) - 1) + room > table.last:
                draw.answer(ColumnExhausted("may hold fewer further ids than were asked for", next_id - 1))
            else:
                self._begin(draw)

    def _begin(self, draw: PendingDraw) -> None:
        """Send the draw at once where a connection is idle."""
        if not self._pending and len(self._under_way) + self._opening < CONNECTIONS:
            connection = self._pool.take_idle()
            if connection is not None:
                draw.block = self.forms.block_for(draw)
                self._send(connection, [draw])
                return
        self._pending.append(draw)
        self._deadlines.watch(draw)
        self._assign()

    def _expired(self, draw: PendingDraw) -> None:
        draw.answer(self._pool.hung(draw.began, running=False))

    # --- who gets a connection -------------------------------------------------------------------------------------

    def _assign(self) -> None:
        """See to it that somebody serves what waits: an idle connection, or one more while there may be more."""
        if not self._pending or self._closed or len(self._under_way) + self._opening >= CONNECTIONS:
            return
        connection = self._pool.take_idle()
        if connection is not None:
            self._serve(connection)
        elif self._opening < len(self._pending):
            self._opening += 1
            self._tasks.spawn(self._open())

    async def _open(self) -> None:
        try:
            connection = await self._pool.connection()
        except TicketDatabaseError as error:
            self._opening -= 1
            # those that other connections will serve may wait for them
            if not self._under_way or isinstance(error, TicketDatabaseMisconfigured):
                self._fail_pending(error)
        except BaseException:
            self._opening -= 1
            raise
        else:
            self._opening -= 1
            self._serve(connection)

    def _serve(self, connection: MySQLConnection) -> None:
        """Send what waits; where nothing does any more, the connection is idle."""
        batch = self._next_batch()
        if not batch:
            self._pool.give_back(connection)
        else:
            self._send(connection, batch)

    def _next_batch(self) -> list[PendingDraw]:
        """The first draws that somebody still waits for: plain ones together, a block by itself.

        In the order of their names, and of one table those with a `least` first: two transactions that lock tables, or
        the rows of a table, in different orders deadlock.
        """
        batch: list[PendingDraw] = []
        while self._pending and len(batch) < DRAWS_PER_PACKET:
            draw = self._pending[0]
            if not draw.answered:
                draw.block = self.forms.block_for(draw)
                if batch and not self._shares(draw, batch):
                    break
                batch.append(draw)
            self._pending.popleft()
        if len(batch) > 1:
            batch.sort(key=lambda draw: (draw.table.sequence, not draw.least))
        return batch

    def _shares(self, draw: PendingDraw, batch: Sequence[PendingDraw]) -> bool:
        """Whether a draw may be in a packet, and so in a transaction, with these.

        Under `innodb_autoinc_lock_mode = 0` no transaction may draw from a table twice: in between another server takes
        the counter's lock and waits for the row, and the second draw is told that the counter cannot be read, as at the
        end of the column.
        """
        if draw.block is not None or batch[-1].block is not None:
            return False
        return not (self.forms.ends_only and any(each.table.sequence == draw.table.sequence for each in batch))

    # --- what is sent and what comes back --------------------------------------------------------------------------

    def _send(self, connection: MySQLConnection, batch: list[PendingDraw]) -> None:
        """Send one draw, or several plain ones in one transaction."""
        self._under_way[connection] = batch
        packet = self._packet(batch)
        came = partial(self._came, connection, batch, packet, time.monotonic())
        connection.draw(packet.statements, packet.answers, self._pool.timeout, came)

    def _packet(self, batch: list[PendingDraw]) -> Packet:
        """Several in one transaction, each advance right before its draw, a question right behind it if it is due."""
        first = batch[0]
        block = first.block
        due = self._generated.are_due
        if block is not None or (len(batch) == 1 and not first.least):
            sent, answers = (first.statement, 1) if block is None else (block.statements, block.answers)
            if due(first.table.sequence, first.began):
                return Packet(f"{sent};{QUESTION}", answers + 1, (answers - 1,), {answers: 0})
            return Packet(sent, answers, (answers - 1,), _NO_QUESTIONS)
        statements, places, questions = ["BEGIN"], [], {}
        for number, draw in enumerate(batch):
            if draw.least:
                statements.append(draw.advance)
            places.append(len(statements))
            statements.append(draw.statement)
            if due(draw.table.sequence, draw.began):
                questions[len(statements)] = number
                statements.append(QUESTION)
        statements.append("COMMIT")
        return Packet(";".join(statements), len(statements), places, questions)

    def _came(
        self,
        connection: MySQLConnection,
        batch: list[PendingDraw],
        packet: Packet,
        sent_at: float,
        ids: Sequence[int] | None,
    ) -> None:
        """The ids of what was sent; None: the driver has to read what came, or the rest of it."""
        if self._closed:
            return
        if ids is None:
            self._tasks.spawn(self._read(connection, batch, packet, sent_at))
            return
        self._pool.last_answer = time.monotonic()
        self._settle(connection, batch, self._drawn(batch, packet, ids))

    async def _read(
        self, connection: MySQLConnection, batch: list[PendingDraw], packet: Packet, sent_at: float
    ) -> None:
        """Read the answers in the time that is left: at the least a slice, in which what came while this process stood
        still is read. Then let go of the connection and answer the draws."""
        pool = self._pool
        ids: list[int] = []
        try:
            async with patience(max(sent_at + pool.timeout - time.monotonic(), pool.timeout / SLICES)):
                await connection.receive()
                ids.append(connection.insert_id)
                while len(ids) < packet.answers:
                    pool.last_answer = time.monotonic()
                    await connection.next()
                    is_asked = len(ids) in packet.questions
                    ids.append(connection.understand(generated_of) if is_asked else connection.insert_id)
                pool.last_answer = time.monotonic()
            results = self._drawn(batch, packet, ids)
        except TimeoutError:
            connection.drop()
            results = self._failed(batch, packet, len(ids), pool.hung(sent_at, running=True))
        except TicketDatabaseError as error:
            if connection.usable:
                pool.last_answer = time.monotonic()
            if not packet.is_one:
                connection.drop()  # a transaction is open, or the session has a block's increment
            results = self._failed(batch, packet, len(ids), error)
        except BaseException:
            connection.drop()
            self._settle(connection, batch, [TicketDatabaseUnavailable("broke the connection off")] * len(batch))
            raise
        self._settle(connection, batch, results)

    def _drawn(self, batch: Sequence[PendingDraw], packet: Packet, ids: Sequence[int]) -> Sequence[Drawn | None]:
        """The draws that these ids make up."""
        block = batch[0].block
        results: list[Drawn | None]
        if block is None:
            results = [self._plain(draw, ids[place]) for draw, place in zip(batch, packet.places, strict=True)]
        else:
            try:
                results = [self.forms.drawn(batch[0], block, ids[: block.answers])]
            except TicketDatabaseError as error:
                results = [error]
        for place, number in packet.questions.items():
            draw = batch[number]
            try:
                self._generated.check(draw.table.sequence, draw.began, ids[:place], ids[place])
            except TicketDatabaseError as error:
                results[number] = error
        return results

    def _plain(self, draw: PendingDraw, first: int) -> Drawn:
        """The ids of one plain statement. Some columns go on above the largest ticket, or repeat their last id."""
        if first + (draw.count - 1) * self._increment > draw.table.last:
            return ColumnExhausted(NO_FURTHER)
        return self.forms.plain_drawn(draw, first)

    def _failed(
        self, batch: list[PendingDraw], packet: Packet, received: int, error: TicketDatabaseError
    ) -> list[Drawn | None]:
        """What an error after so many answers means for each draw of a batch; None: it is drawn again.

        One of them failed, or all: where it was the end of the transaction. The others have not been committed: those
        that did no wrong are drawn again. Deadlocks and their like are nobody's fault: drawn again too, while the
        draw's time lasts.
        """
        if batch[0].block is not None:
            self.forms.lost(batch[0].block)
        busy = isinstance(error, TicketDatabaseBusy)
        if busy:
            self._on_retry(str(error))
        now = time.monotonic()
        culprit = sum(place < received for place in packet.places)
        results: list[Drawn | None] = []
        for number, draw in enumerate(batch):
            guilty = number == culprit or culprit >= len(batch)
            if draw.deadline > now and (busy or not guilty):
                results.append(None)
            else:
                results.append(error if guilty else self._pool.hung(draw.began, running=False))
        return results

    def _settle(self, connection: MySQLConnection, batch: list[PendingDraw], results: Sequence[Drawn | None]) -> None:
        """Free the connection and answer the draws; those without a result wait again, in front."""
        both = list(zip(batch, results, strict=True))
        for draw, result in reversed(both):
            if result is None:
                self._pending.appendleft(draw)
                self._deadlines.watch(draw)
        self._free(connection)
        for draw, result in both:
            if result is not None:
                draw.answer(result)

    def _free(self, connection: MySQLConnection) -> None:
        """The connection's work is done; it goes on to what waits."""
        del self._under_way[connection]
        self._pool.give_back(connection)
        self._assign()

    # --- the end ---------------------------------------------------------------------------------------------------

    def _fail_pending(self, error: TicketDatabaseError) -> None:
        """No connection can serve the draws that wait."""
        pending, self._pending = self._pending, deque()
        for draw in pending:
            draw.answer(error)

    async def close(self) -> None:
        """End what is under way, and answer every draw."""
        self._closed = True
        await self._tasks.cancel()
        self._deadlines.stop()
        error = TicketDatabaseUnavailable("is being left")
        under_way, self._under_way = self._under_way, {}
        for connection, batch in under_way.items():
            self._pool.discard(connection)
            for draw in batch:
                draw.answer(error)
        self._fail_pending(error)
