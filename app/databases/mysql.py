"""A ticket database on MySQL or MariaDB.

The draws of several lanes share few connections: while all are busy, draws wait, and the next free connection takes
several of them in one packet. Each is a statement of its own, committed by itself, and is answered as soon as its own
OK packet is here; the server runs none after one that failed, so those wait again.
"""

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping
from contextlib import asynccontextmanager

from app.databases import mysql_statements as sql
from app.databases.mysql_connection import MySQLConnection, ServerFacts, opened
from app.databases.mysql_draws import PendingDraw
from app.databases.mysql_tables import MySQLTables
from app.databases.protocol import Draw, Look, Mark, Table
from app.databases.url import DatabaseURL
from app.errors import (
    SequenceMissing,
    SequenceUnavailable,
    TicketDatabaseBusy,
    TicketDatabaseError,
    TicketDatabaseHung,
    TicketDatabaseMisconfigured,
    TicketDatabaseUnavailable,
)

LARGEST_INCREMENT = 65_535
"""The largest value of the server variable auto_increment_increment; a larger one is clipped with a warning."""

DRAW_CONNECTIONS = 6
"""The most connections that one server draws on at a time, for each database."""
DRAWS_PER_PACKET = 8
"""The most draws that one packet carries: enough to save round trips, few enough that none waits long."""
QUESTION_CONNECTIONS = 4
"""The most connections for questions at a time: about tables, which may be locked, and as many for the ledger."""
RETRIES = 5
"""How often a write to the ledger is tried again after a deadlock."""
PROBE_CONNECTION_SECONDS = 10.0
"""A probe's connection is not used longer: an old one may lead to a server that new ones no longer reach."""
IDLE_SECONDS = 30.0
"""A connection that nothing needed for so long is closed at the next probe."""


class MySQLDatabase(MySQLTables):
    """One MySQL or MariaDB server as a ticket database; owns all its connections."""

    def __init__(
        self,
        url: DatabaseURL,
        offset: int,
        increment: int,
        timeout: float,
        on_retry: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.name = url.name
        self.offset = offset
        self.increment = increment
        self.largest_block = LARGEST_INCREMENT // increment
        self._url = url
        self._timeout = timeout
        self._context = url.ssl_context()
        self._on_retry = on_retry
        self._incarnation: str | None = None
        self._ends_only = False
        self._shared: set[str] = set()
        self._idle: list[MySQLConnection] = []
        self._probe: MySQLConnection | None = None
        self._drawing = 0
        self._opening = 0
        self._asking_tables = asyncio.Semaphore(QUESTION_CONNECTIONS)
        self._asking_marks = asyncio.Semaphore(QUESTION_CONNECTIONS)
        self._pending: deque[PendingDraw] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self._last_answer = 0.0
        self._open = 0
        self._closed = False

    def __repr__(self) -> str:
        return f"<MySQLDatabase {self.name} offset {self.offset}, {self._open} connections>"

    @property
    def connections(self) -> int:
        """How many connections are open."""
        return self._open

    # --- probes ----------------------------------------------------------------------------------------------------

    async def look(self) -> Look:
        """See TicketDatabase.look."""
        try:
            async with asyncio.timeout(self._timeout):
                return await self._look()
        except TimeoutError as error:
            self._drop_probe()
            raise TicketDatabaseUnavailable("did not answer in time") from error
        except TicketDatabaseError:
            # a fresh connection next time: what is wrong may have been put right for new ones only
            self._drop_probe()
            raise

    async def _look(self) -> Look:
        probe = self._probe
        if probe is None or not probe.usable or time.monotonic() > probe.last_used + PROBE_CONNECTION_SECONDS:
            self._drop_probe()
            probe = self._probe = await self._connect(admitting=True)
            facts = probe.facts
            assert facts is not None
            probe.last_used = time.monotonic()
            await self._prepare_own_tables(probe)
        else:
            try:
                facts = await probe.check()
            except BaseException as error:
                probe._fail(error)
                raise
        began = time.monotonic()
        await probe.execute(sql.PROBE)
        latency = time.monotonic() - began
        self._ends_only = facts.autoinc_lock_mode == 0
        if self._incarnation != facts.incarnation:
            self._incarnation = facts.incarnation
            self._drop_idle()
        await self._close_unused()
        return Look(
            incarnation=facts.incarnation,
            identity=facts.identity,
            version=facts.version,
            now=facts.now,
            latency=latency,
            warnings=facts.durability + self._layout_warnings,
        )

    async def _prepare_own_tables(self, probe: MySQLConnection) -> None:
        """Make the server's own tables where they are missing; needs no privilege where they are there."""
        try:
            rows = await probe.execute(sql.LAYOUT)
            await probe.execute("SELECT 1 FROM _high_water, _probe WHERE FALSE")
        except SequenceMissing:
            rows = ()
        if not rows:
            for statement in sql.OWN_TABLES:
                await probe.execute(statement)
            rows = ((sql.LAYOUT_VERSION,),)
        version = int(rows[0][0])
        self._layout_warnings = (
            (f"its own tables have version {version}, newer than this server's {sql.LAYOUT_VERSION}",)
            if version > sql.LAYOUT_VERSION
            else ()
        )

    def _drop_probe(self) -> None:
        if self._probe is not None:
            self._discard(self._probe)
            self._probe = None

    def forget_connections(self) -> None:
        """See TicketDatabase.forget_connections."""
        self._drop_probe()
        self._drop_idle()

    def _drop_idle(self) -> None:
        while self._idle:
            self._discard(self._idle.pop())

    async def _close_unused(self) -> None:
        horizon = time.monotonic() - IDLE_SECONDS
        unused = [c for c in self._idle if c.last_used < horizon]
        self._idle = [c for c in self._idle if c.last_used >= horizon]
        for connection in unused:
            self._open -= 1
            await connection.say_goodbye()

    # --- connections -----------------------------------------------------------------------------------------------

    async def _connect(self, *, admitting: bool = False) -> MySQLConnection:
        """A new connection; for draws and questions only to the incarnation that the last probe found."""
        if self._closed:
            raise TicketDatabaseUnavailable("is being left")
        self._open += 1
        try:
            connection = await opened(self._url, self.increment, self.offset, self._context, self._timeout)
        except BaseException:
            self._open -= 1
            raise
        facts: ServerFacts | None = connection.facts
        if not admitting and facts is not None and facts.incarnation != self._incarnation:
            self._discard(connection)
            raise TicketDatabaseUnavailable("was restarted or replaced")
        return connection

    def _take_idle(self) -> MySQLConnection | None:
        while self._idle:
            connection = self._idle.pop()
            if connection.usable:
                return connection
            self._discard(connection)
        return None

    def _discard(self, connection: MySQLConnection) -> None:
        self._open -= 1
        connection.drop()

    def _give_back(self, connection: MySQLConnection) -> None:
        """Keep it for the next use, unless something is known against it."""
        facts = connection.facts
        if connection.usable and not self._closed and facts is not None and facts.incarnation == self._incarnation:
            connection.last_used = time.monotonic()
            self._idle.append(connection)
        else:
            self._discard(connection)

    @asynccontextmanager
    async def _question(self, *, about_marks: bool = False, anybody: bool = False) -> AsyncIterator[MySQLConnection]:
        """A connection for one question, within the timeout; raises TicketDatabaseError only.

        `anybody`: whatever server answers now, in the ring or not.
        """
        try:
            async with asyncio.timeout(self._timeout), self._asking_marks if about_marks else self._asking_tables:
                connection = self._take_idle() or await self._connect(admitting=anybody)
                try:
                    yield connection
                except TicketDatabaseError:
                    raise
                except BaseException:
                    connection.drop()
                    raise
                finally:
                    self._give_back(connection)
        except TimeoutError as error:
            raise self._hung(time.monotonic() - self._timeout, running=True) from error

    def _hung(self, since: float, *, running: bool) -> TicketDatabaseError:
        """What a statement without an answer means: one table's trouble if the database answered something else."""
        if self._last_answer <= since:
            return TicketDatabaseHung("did not answer in time")
        if running:
            return SequenceUnavailable("did not answer for this sequence in time: its table may be locked")
        return TicketDatabaseBusy("had no connection free in time")

    # --- draws -----------------------------------------------------------------------------------------------------

    async def draw(self, table: Table, count: int, after: int) -> Draw:
        """See TicketDatabase.draw."""
        loop = asyncio.get_running_loop()
        pending = PendingDraw(
            table,
            count,
            after,
            self.increment,
            self.offset,
            deadline=time.monotonic() + self._timeout,
            future=loop.create_future(),
            shared=table.sequence in self._shared,
            ends_only=self._ends_only,
        )
        connection = self._take_idle() if not self._pending and self._drawing < DRAW_CONNECTIONS else None
        if connection is not None:
            self._drawing += 1
            await self._run(connection, [pending])
            self._release(connection)
            if pending.future.done():
                return pending.future.result()
        else:
            self._pending.append(pending)
            self._assign()
        try:
            async with asyncio.timeout_at(loop.time() + pending.deadline - time.monotonic()):
                return await pending.future
        except TimeoutError as error:
            raise self._hung(pending.deadline - self._timeout, running=False) from error

    def _assign(self) -> None:
        """See to it that somebody serves what waits: an idle connection, or one more while there may be more."""
        if not self._pending or self._drawing >= DRAW_CONNECTIONS:
            return
        connection = self._take_idle()
        if connection is not None:
            self._drawing += 1
            self._spawn(self._serve(connection))
        elif self._opening < len(self._pending):
            self._drawing += 1
            self._opening += 1
            self._spawn(self._open_and_serve())

    def _spawn(self, coroutine: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _open_and_serve(self) -> None:
        try:
            connection = await self._connect()
        except TicketDatabaseError as error:
            self._drawing -= 1
            self._opening -= 1
            # those that other connections will serve may wait for them
            if self._drawing == self._opening or isinstance(error, TicketDatabaseMisconfigured):
                self._fail_pending(error)
            return
        except BaseException:
            self._drawing -= 1
            self._opening -= 1
            raise
        self._opening -= 1
        await self._serve(connection)

    def _fail_pending(self, error: TicketDatabaseError) -> None:
        pending, self._pending = self._pending, deque()
        for draw in pending:
            draw.fail(error)

    async def _serve(self, connection: MySQLConnection) -> None:
        """Run what waits, several draws in a packet, until nothing waits or the connection is lost."""
        try:
            while connection.usable:
                batch = self._next_batch()
                if not batch:
                    break
                await self._run(connection, batch)
        finally:
            self._release(connection)

    def _release(self, connection: MySQLConnection) -> None:
        self._drawing -= 1
        self._give_back(connection)
        if self._pending:
            self._assign()

    def _next_batch(self) -> list[PendingDraw]:
        """The first draws that somebody still waits for; one of each table, so that no two wait for one row."""
        now = time.monotonic()
        batch: list[PendingDraw] = []
        while self._pending and len(batch) < DRAWS_PER_PACKET:
            draw = self._pending.popleft()
            if draw.future.done():
                continue
            if draw.deadline <= now:
                draw.fail(self._hung(draw.deadline - self._timeout, running=False))
                continue
            batch.append(draw)
        return batch

    async def _run(self, connection: MySQLConnection, batch: list[PendingDraw]) -> None:
        """Send the batch in one packet and answer each draw from its own result. Raises nothing but cancellation."""
        began = time.monotonic()
        done = 0
        clean = False
        try:
            async with asyncio.timeout(self._timeout):
                await connection.start(";".join([draw.statement for draw in batch]))
                for draw in batch:
                    if done:
                        await connection.next()
                    drawn = await draw.read(connection)
                    self._last_answer = time.monotonic()
                    done += 1
                    self._answer(draw, drawn)
            clean = True
        except TimeoutError:
            connection.drop()
            batch[done].fail(self._hung(began, running=True))
        except TicketDatabaseError as error:
            if not batch[done].plain:
                connection.drop()  # the session may be left at a block's increment, with a transaction open
            if connection.usable:
                self._last_answer = time.monotonic()
            self._retry_or_fail(batch[done], error)
        finally:
            if not clean:
                self._pending.extendleft(reversed(batch[done + 1 :]))

    def _answer(self, draw: PendingDraw, drawn: Draw | None) -> None:
        if drawn is not None:
            if draw.alone:
                self._shared.discard(draw.table.sequence)
            if not draw.future.done():
                draw.future.set_result(drawn)
            return
        self._shared.add(draw.table.sequence)
        draw.shared = True
        self._pending.appendleft(draw)

    def _retry_or_fail(self, draw: PendingDraw, error: TicketDatabaseError) -> None:
        """Deadlocks and their like are nobody's fault: the draw is tried again while its time lasts."""
        if isinstance(error, TicketDatabaseBusy) and draw.deadline > time.monotonic():
            self._on_retry(str(error))
            self._pending.appendleft(draw)
        else:
            draw.fail(error)

    # --- the ledger ------------------------------------------------------------------------------------------------

    async def marks(self) -> list[Mark]:
        """See TicketDatabase.marks."""
        async with self._question(about_marks=True, anybody=True) as connection:
            return [_mark(row) for row in await connection.execute(sql.MARKS)]

    async def reserve(self, marks: Iterable[Mark]) -> Mapping[tuple[str, int], Mark]:
        """See TicketDatabase.reserve."""
        wanted = sorted(marks, key=lambda mark: (mark.sequence, mark.offset))
        found: dict[tuple[str, int], Mark] = {}
        for start in range(0, len(wanted), 200):
            part = wanted[start : start + 200]
            rows = [(m.sequence, m.offset, m.increment, m.mark, m.issued, m.token) for m in part]
            keys = [(m.sequence, m.offset, m.increment) for m in part]
            for row in await self._write_marks(f"{sql.reserve(rows)}; {sql.read_back(keys)}"):
                found[row.sequence, row.offset] = row
        return found

    async def _write_marks(self, statements: str) -> list[Mark]:
        """Run a write and the read after it; a deadlock is tried again."""
        for attempt in range(RETRIES):
            try:
                async with self._question(about_marks=True) as connection:
                    await connection.start(statements)
                    await connection.next()
                    self._last_answer = time.monotonic()
                    return [_mark(row) for row in connection.rows]
            except TicketDatabaseBusy as error:
                if attempt == RETRIES - 1:
                    raise
                self._on_retry(str(error))
        raise TicketDatabaseBusy

    async def renew(self, old: Mark, new: Mark) -> Mark:
        """See TicketDatabase.renew."""
        key = (old.sequence, old.offset, old.increment)
        rows = await self._write_marks(
            f"{sql.renew(key, (old.token, old.mark), (new.token, new.mark), new.issued)}; {sql.read_back([key])}"
        )
        if not rows:
            raise TicketDatabaseUnavailable("lost a row of its ledger")
        return rows[0]

    async def close(self) -> None:
        """See TicketDatabase.close."""
        self._closed = True
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._fail_pending(TicketDatabaseUnavailable("is being left"))
        connections, self._idle = [*self._idle, *([self._probe] if self._probe else [])], []
        self._probe = None
        for connection in connections:
            self._open -= 1
            try:
                async with asyncio.timeout(self._timeout):
                    await connection.say_goodbye()
            except TimeoutError:
                connection.drop()


def _mark(row: tuple[object, ...]) -> Mark:
    sequence, offset, increment, mark, issued, token = row
    return Mark(str(sequence), int(str(offset)), int(str(increment)), int(str(mark)), int(str(issued)), str(token))
