"""Draws on one MySQL or MariaDB ticket database: what is sent for each, and how those that wait share connections.

A draw of one statement that finds an idle connection goes out at once, and its answer is taken off the socket. While
all are busy, draws wait, and the next free connection takes several of them in one packet and one transaction, so that
they share a commit. Each is answered after it.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass

from app.common.errors import (
    ColumnExhausted,
    SequenceWentBack,
    TicketDatabaseBusy,
    TicketDatabaseError,
    TicketDatabaseMisconfigured,
    TicketDatabaseUnavailable,
)
from app.common.patience import SLICES, patience
from app.databases.mysql import statements as sql
from app.databases.mysql.connection import MySQLConnection
from app.databases.mysql.pool import MySQLPool
from app.databases.protocol import ROOM, Draw, Drawn, Table

CONNECTIONS = 3
"""The most connections that one server draws on at a time, for each database: few, so that draws share commits, and
more than one, so that a locked table holds up only some."""
DRAWS_PER_PACKET = 32
"""The most draws that share a packet: enough to spare round trips and commits, few enough that none waits long."""
NEAR_THE_END = 16
"""In the last so-manieth of a column a block costs one id more, by which its place is certain: further away whatever
other servers have drawn since this one heard of it does not come near the end."""


@dataclass(slots=True, eq=False)
class PendingDraw:
    """`count` tickets that somebody waits for.

    A block lies between two ordinary ids, which belong to it. `shared`: other servers draw from the table too, so the
    three seldom meet, the block is taken whole, and the two ids are dropped. `alone`: this one met nobody. `ends_only`:
    see `mysql_statements.draw_ends`. Close to the end of the column two ordinary ids lie below it.
    """

    table: Table
    count: int
    after: int
    increment: int
    offset: int
    deadline: float
    future: "asyncio.Future[Draw]"
    shared: bool
    ends_only: bool
    alone: bool = False

    @property
    def plain(self) -> bool:
        """One ordinary statement, which leaves the session as it was."""
        return self.count <= self.table.rows_per_statement

    @property
    def below(self) -> int:
        """How many ordinary ids are drawn below a block."""
        return 1 if self.ends_only or self.after <= self.table.ceiling - self.table.ceiling // NEAR_THE_END else 2

    @property
    def size(self) -> int:
        """How many ids a block has between the ordinary ones."""
        return self.count if self.shared else max(self.count - self.below - 1, 1)

    @property
    def limit(self) -> int:
        """The largest id after which a block certainly fits into the column, the gaps that it may leave too."""
        return self.table.ceiling - ROOM * self.count * self.increment

    @property
    def statement(self) -> str:
        name = self.table.sequence
        if self.plain:
            return sql.draw(name, self.count)
        place = (self.after, self.limit), self.increment, self.offset
        if self.ends_only:
            return sql.draw_ends(name, self.count, *place)
        return sql.draw_block(name, self.size, *place, below=self.below)

    async def read(self, connection: MySQLConnection) -> Draw | None:
        """Read this draw's results, of which the first has been received already.

        None: another server drew between a block and the ids around it, so that they are not one block. All are
        dropped, and the next try takes a whole block between ids that are dropped.
        """
        if self.plain:
            return Draw(connection.insert_id, self.increment, self.count)
        if self.ends_only:
            below = connection.insert_id
            self._check_place(below)
            await connection.next()
            await connection.next()
            first = connection.insert_id
            await connection.next()
            return Draw(first, self.increment, self.count)
        await connection.next()
        lowest = below = connection.insert_id
        if self.below > 1:
            await connection.next()
            below = connection.insert_id
        self._check_place(below)
        await connection.next()
        await connection.next()
        first = connection.insert_id
        await connection.next()
        await connection.next()
        above = connection.insert_id
        await connection.next()
        end = first + self.size * self.increment
        if above < end:
            raise TicketDatabaseUnavailable(f"gave id {above} inside a block of {self.size} that begins at {first}")
        self.alone = lowest + self.below * self.increment == below + self.increment == first and end == above
        if self.shared:
            return Draw(first, self.increment, self.count)
        return Draw(lowest, self.increment, self.count) if self.alone else None

    def _check_place(self, below: int) -> None:
        """Before a block is taken for one: the id right below it is above all that was known issued, and so far from
        the end that the block was drawn."""
        if 0 < below <= self.after:
            raise SequenceWentBack(f"gave id {below} after {self.after} had been issued")
        if below > self.limit:
            raise ColumnExhausted(f"stands at {below}, too close to its end for a block of {self.count}")


class DrawQueue:
    """The draws that wait for a connection to one database, and the tasks that serve them."""

    def __init__(self, pool: MySQLPool, offset: int, increment: int, on_retry: Callable[[str], None]) -> None:
        self.ends_only = False
        self._pool = pool
        self._offset = offset
        self._increment = increment
        self._on_retry = on_retry
        self._shared: set[str] = set()
        self._pending: deque[PendingDraw] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self._serving = 0
        self._opening = 0

    def draw_at_once(self, table: Table, count: int, after: int, done: Callable[[Drawn], None]) -> bool:
        """See TicketDatabase.draw_at_once."""
        if self._pending or self._serving >= CONNECTIONS or count > table.rows_per_statement:
            return False
        connection = self._pool.take_idle()
        if connection is None:
            return False
        self._serving += 1
        began = time.monotonic()

        def answered(ids: Sequence[int] | None) -> None:
            if ids is None:
                draw = self._pending_draw(table, count, after, began)
                self._spawn(self._receive(connection, draw, done))
                return
            self._pool.last_answer = time.monotonic()
            self._set_free(connection)
            done(Draw(ids[0], self._increment, count))

        connection.draw(sql.draw(table.sequence, count), 1, self._pool.timeout, answered)
        return True

    async def _receive(self, connection: MySQLConnection, draw: PendingDraw, done: Callable[[Drawn], None]) -> None:
        """What a draw that was sent at once came to, where it is no id."""
        drawn: Drawn = TicketDatabaseUnavailable("broke the connection off")
        try:
            await self._serve(connection, [draw], sent=True)
            drawn = await self._result(draw)
        except TicketDatabaseError as error:
            drawn = error
        finally:
            done(drawn)

    async def draw(self, table: Table, count: int, after: int) -> Draw:
        """See TicketDatabase.draw."""
        draw = self._pending_draw(table, count, after, time.monotonic())
        self._pending.append(draw)
        self._assign()
        return await self._result(draw)

    def _pending_draw(self, table: Table, count: int, after: int, began: float) -> PendingDraw:
        return PendingDraw(
            table,
            count,
            after,
            self._increment,
            self._offset,
            deadline=began + self._pool.timeout,
            future=asyncio.get_running_loop().create_future(),
            shared=table.sequence in self._shared,
            ends_only=self.ends_only,
        )

    def _rest_of(self, deadline: float) -> patience:
        """What is left until then; at the least a slice, in which what came while this process stood still is read."""
        return patience(max(deadline - time.monotonic(), self._pool.timeout / SLICES))

    async def _result(self, draw: PendingDraw) -> Draw:
        if draw.future.done():
            return draw.future.result()
        try:
            async with self._rest_of(draw.deadline):
                return await draw.future
        except TimeoutError as error:
            raise self._pool.hung(draw.deadline - self._pool.timeout, running=False) from error

    # --- who serves ------------------------------------------------------------------------------------------------

    def _assign(self) -> None:
        """See to it that somebody serves what waits: an idle connection, or one more while there may be more."""
        if not self._pending or self._serving >= CONNECTIONS:
            return
        connection = self._pool.take_idle()
        if connection is not None:
            self._serving += 1
            self._spawn(self._serve(connection, []))
        elif self._opening < len(self._pending):
            self._serving += 1
            self._opening += 1
            self._spawn(self._open_and_serve())

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _open_and_serve(self) -> None:
        try:
            connection = await self._pool.connection()
        except TicketDatabaseError as error:
            self._serving -= 1
            # those that other connections will serve may wait for them
            if self._serving == self._opening - 1 or isinstance(error, TicketDatabaseMisconfigured):
                self.fail_all(error)
            return
        except BaseException:
            self._serving -= 1
            raise
        finally:
            self._opening -= 1
        await self._serve(connection, [])

    async def _serve(self, connection: MySQLConnection, batch: list[PendingDraw], *, sent: bool = False) -> None:
        """Run the batch, or what waits; the connection goes back, and on to what waits then."""
        try:
            batch = batch or self._next_batch()
            if batch:
                await self._run(connection, batch, sent=sent)
        finally:
            self._set_free(connection)

    def _set_free(self, connection: MySQLConnection) -> None:
        self._serving -= 1
        self._pool.give_back(connection)
        self._assign()

    def _next_batch(self) -> list[PendingDraw]:
        """The first draws that somebody still waits for: plain ones together, a block by itself.

        In the order of their names: two transactions that lock tables in different orders deadlock.
        """
        now = time.monotonic()
        batch: list[PendingDraw] = []
        while self._pending and len(batch) < DRAWS_PER_PACKET:
            if batch and not (batch[-1].plain and self._pending[0].plain):
                break
            draw = self._pending.popleft()
            if draw.deadline <= now:
                draw_failed(draw, self._pool.hung(draw.deadline - self._pool.timeout, running=False))
            elif not draw.future.done():
                batch.append(draw)
        batch.sort(key=lambda draw: draw.table.sequence)
        return batch

    # --- one packet ------------------------------------------------------------------------------------------------

    async def _run(self, connection: MySQLConnection, batch: list[PendingDraw], *, sent: bool) -> None:
        """Send the batch in one packet, unless it has been `sent`, and answer every draw.

        Raises nothing but cancellation.
        """
        began = batch[0].deadline - self._pool.timeout if sent else time.monotonic()
        drawn: list[Draw | None] = []
        try:
            async with self._rest_of(began + self._pool.timeout):
                await self._exchange(connection, batch, drawn, sent=sent)
        except TimeoutError:
            connection.drop()
            self._failed(batch, len(drawn), self._pool.hung(began, running=True))
        except TicketDatabaseError as error:
            if connection.usable:
                self._pool.last_answer = time.monotonic()
            if len(batch) > 1 or not batch[0].plain:
                connection.drop()  # a transaction is open, or the session has a block's increment
            self._failed(batch, len(drawn), error)
        except BaseException:
            connection.drop()
            self._failed(batch, len(batch), TicketDatabaseUnavailable("broke the connection off"))
            raise
        else:
            for draw, result in zip(batch, drawn, strict=True):
                self._answer(draw, result)

    async def _exchange(
        self, connection: MySQLConnection, batch: list[PendingDraw], drawn: list[Draw | None], *, sent: bool
    ) -> None:
        """One draw, or several in one transaction; what each gave goes to `drawn` as it comes."""
        together = len(batch) > 1
        statements = [draw.statement for draw in batch]
        if together:
            statements = ["BEGIN", *statements, "COMMIT"]
        if batch[0].plain and not sent:
            ids = await connection.draw_all(";".join(statements), len(statements), self._pool.timeout)
            if ids is not None:
                self._pool.last_answer = time.monotonic()
                each = zip(batch, ids[1:-1] if together else ids, strict=True)
                drawn.extend(Draw(id_, self._increment, draw.count) for draw, id_ in each)
                return
            sent = True
        if sent:
            await connection.receive()
        else:
            await connection.start(";".join(statements))
        for draw in batch:
            if together:
                await connection.next()
            drawn.append(await draw.read(connection))
            self._pool.last_answer = time.monotonic()
        if together:
            await connection.next()

    def _answer(self, draw: PendingDraw, drawn: Draw | None) -> None:
        if drawn is None:
            self._shared.add(draw.table.sequence)
            draw.shared = True
            self._pending.appendleft(draw)
            return
        if draw.alone:
            self._shared.discard(draw.table.sequence)
        if not draw.future.done():
            draw.future.set_result(drawn)

    def _failed(self, batch: list[PendingDraw], culprit: int, error: TicketDatabaseError) -> None:
        """One draw of the batch failed, or (`culprit` beyond it) all of them. The others have not been committed.

        Those that did no wrong wait again, in front. Deadlocks and their like are nobody's fault: tried again too,
        while the draw's time lasts.
        """
        busy = isinstance(error, TicketDatabaseBusy)
        if busy:
            self._on_retry(str(error))
        for number, draw in reversed(list(enumerate(batch))):
            guilty = number == culprit or culprit >= len(batch)
            if draw.deadline > time.monotonic() and (busy or not guilty):
                self._pending.appendleft(draw)
            elif guilty:
                draw_failed(draw, error)
            else:
                draw_failed(draw, self._pool.hung(draw.deadline - self._pool.timeout, running=False))

    def fail_all(self, error: TicketDatabaseError) -> None:
        """Nobody can serve what waits."""
        pending, self._pending = self._pending, deque()
        for draw in pending:
            draw_failed(draw, error)

    async def close(self) -> None:
        """End what is under way."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self.fail_all(TicketDatabaseUnavailable("is being left"))


def draw_failed(draw: PendingDraw, error: TicketDatabaseError) -> None:
    """Tell whoever waits for the draw, if anybody does."""
    if not draw.future.done():
        draw.future.set_exception(error)
