"""The connections to one database for one purpose, and the calls that wait for them.

A connection is a session, which serves one call at a time. A call that finds no idle connection waits for one, and a
task opens further connections meanwhile, so that a hanging login holds up no call that another connection can serve. A
connection is dropped after any exception, which includes the deadline of its call and the cancellation of its caller.
"""

import asyncio
import logging
import math
from collections import deque
from collections.abc import Awaitable, Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from app.databases.session import Session
from app.errors import DatabaseError, DatabaseFailed, DatabaseRefused, NoAnswer, OtherLife

Item = TypeVar("Item")
Result = TypeVar("Result")
Call = Callable[[Session], Awaitable[Result]]
Send = Callable[[Session, Sequence[Item]], Awaitable[Result]]

log = logging.getLogger(__name__)

MOST_SHARED = 500
"""The most items of several calls that share one packet."""
PATIENCE = 1.0
"""Seconds. After an attempt to connect failed, no other is made for so long while another connection is open."""
LONGEST_IDLE = 30.0
"""Seconds. A connection that was idle for longer is not used again: servers and firewalls end idle connections."""


@dataclass(slots=True, eq=False)
class _Connection:
    """One session. since: when it became idle. deadline: of its call. Times are by the loop's clock.

    ended: why the connection was ended, as the call on it has to know.
    """

    session: Session
    since: float = 0.0
    deadline: float = math.inf
    ended: DatabaseFailed | None = None


class Connections:
    """At most `most` connections, and the calls that wait for them in the order in which they came."""

    def __init__(self, connect: Callable[[], Awaitable[Session]], most: int, timeout: float) -> None:
        """Open nothing yet.

        connect: opens a session and sets its life. timeout: the database timeout in seconds, for each call and for each
        attempt to connect.
        """
        self._connect = connect
        self._most = most
        self._timeout = timeout
        self._life = ""
        """The life that was found last. Every connection belongs to it, unless no life was found yet."""
        self._idle: list[_Connection] = []
        self._busy: set[_Connection] = set()
        self._waiting: deque[asyncio.Future[_Connection]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._next_deadline = math.inf
        """When the timer fires: no later than the first deadline of a call. A timer for each call would cost more."""
        self._batches: dict[Hashable, tuple[list[Any], asyncio.Task[Any]]] = {}
        """By key and life: the items that wait for a connection together, and the task that sends them."""
        self._opening: asyncio.Task[None] | None = None
        self._patience = 0.0

    def __len__(self) -> int:
        return len(self._idle) + len(self._busy)

    async def run(
        self, call: Callable[..., Awaitable[Result]], life: str | None, seconds: float | None = None, *items: Any
    ) -> Result:
        """Run `call(session, *items)` on one connection, and return its result.

        life: the life that the call is meant for, None for any. seconds: that it may take; None: the database timeout.
        Raises the errors of the call, and what `Database` says of every method.
        """
        if life is not None and self._life not in ("", life):
            raise OtherLife()
        now = asyncio.get_running_loop().time()
        deadline = now + (seconds or self._timeout)
        connection = self._rested(now) or await self._wait(deadline)
        connection.deadline = deadline
        if deadline < self._next_deadline:
            self._watch(deadline)
        try:
            if connection.ended is not None or life not in (None, connection.session.life):
                raise OtherLife()
            result = await call(connection.session, *items)
            if connection.ended is not None:
                raise OtherLife()  # an answer that came as the connection was ended does not count
        except BaseException as error:
            self._drop(connection)
            if isinstance(error, Exception):
                raise connection.ended or self._translated(error) from error.__cause__
            raise
        self._release(connection)
        return result

    async def share(
        self, key: Hashable, send: Send[Item, Result], items: Sequence[Item], life: str
    ) -> tuple[Result, int]:
        """Send items. Return the result for all that are sent together, and the place of the first of these there.

        A call that finds an idle connection is sent at once, by itself. All others wait for the next connection
        together with the calls of the same key and life, until they have `MOST_SHARED` items. What is sent for several
        calls does not end when one of them is cancelled. Raises what `run` raises.
        """
        if self._idle:
            return await self.run(send, life, None, items), 0
        at = key, life
        if at not in self._batches or len(self._batches[at][0]) + len(items) > MOST_SHARED:
            self._begin(at, send, life)
        gathered, task = self._batches[at]
        start = len(gathered)
        gathered += items
        return await asyncio.shield(task), start

    def follow(self, life: str) -> None:
        """Note the life that was found last. The connections of other lives end, and the calls on them fail."""
        self._life = life
        for connection in (*self._idle, *self._busy):
            if connection.session.life != life:
                self._end(connection, OtherLife())

    def end(self, reason: DatabaseFailed) -> None:
        """End all connections, those that are being opened too; the calls that use or want one fail for this reason."""
        for connection in (*self._idle, *self._busy):
            self._end(connection, reason)
        self._fail(reason)
        if self._opening is not None:
            self._opening.cancel()

    async def close(self) -> None:
        """End every call and every connection. No call works afterwards."""
        closed = DatabaseFailed("the connections to it were closed")

        async def refuse() -> Session:
            raise closed

        self._connect = refuse
        self.end(closed)
        if self._opening is not None:
            await asyncio.gather(self._opening, return_exceptions=True)

    # --- calls -------------------------------------------------------------------------------------------------------

    def _rested(self, now: float) -> _Connection | None:
        """Take an idle connection, if there is one."""
        while self._idle:
            connection = self._idle.pop()
            if now - connection.since <= LONGEST_IDLE:
                self._busy.add(connection)
                return connection
            connection.session.abort()
        return None

    async def _wait(self, deadline: float) -> _Connection:
        """Wait for a connection, and have one opened if there is room. Raises DatabaseError."""
        future: asyncio.Future[_Connection] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        self._open_more()
        try:
            async with asyncio.timeout_at(deadline):
                return await future
        except BaseException as error:
            if future.done() and not future.cancelled() and future.exception() is None:
                self._release(future.result())
            raise (self._no_answer() if isinstance(error, TimeoutError) else error) from None

    def _begin(self, at: Hashable, send: Send[Any, Any], life: str) -> None:
        """Begin a batch. It is sent when a connection is there for it; no call joins it from then on."""
        items: list[Any] = []

        def close(task: asyncio.Task[Any] | None = None) -> None:
            if self._batches.get(at) is batch:
                del self._batches[at]
            if task is not None and not task.cancelled():
                task.exception()  # so that asyncio does not report it where all callers were cancelled

        def call(session: Session) -> Awaitable[Any]:
            close()
            return send(session, items)

        batch = self._batches[at] = items, asyncio.create_task(self.run(call, life))
        batch[1].add_done_callback(close)

    def _no_answer(self) -> NoAnswer:
        return NoAnswer(f"did not answer within {self._timeout:g} s")

    def _watch(self, deadline: float) -> None:
        """Let the timer fire at this deadline, and no later at the next ones."""
        if self._timer is not None:
            self._timer.cancel()
        self._next_deadline = deadline
        self._timer = asyncio.get_running_loop().call_at(deadline, self._end_late)

    def _end_late(self) -> None:
        """End the connections whose calls have come to their deadline."""
        now = max(asyncio.get_running_loop().time(), self._next_deadline)  # a timer may fire a little early
        self._timer, self._next_deadline = None, math.inf
        for connection in [each for each in self._busy if each.deadline <= now]:
            self._end(connection, self._no_answer())
        deadline = min((each.deadline for each in self._busy if each.ended is None), default=math.inf)
        if deadline < math.inf:
            self._watch(deadline)

    def _end(self, connection: _Connection, reason: DatabaseFailed) -> None:
        """End a connection. The call that has it fails for this reason."""
        if connection in self._busy:
            connection.ended = connection.ended or reason
        else:
            self._idle.remove(connection)
        connection.session.abort()

    def _drop(self, connection: _Connection) -> None:
        """End the connection that a call had."""
        connection.session.abort()
        self._busy.remove(connection)
        self._open_more()

    def _release(self, connection: _Connection) -> None:
        """Hand a connection to the call that has waited longest."""
        if connection.ended is not None:
            self._drop(connection)
            return
        connection.deadline = math.inf
        while self._waiting:
            future = self._waiting.popleft()
            if not future.done():
                future.set_result(connection)
                return
        self._busy.remove(connection)
        connection.since = asyncio.get_running_loop().time()
        self._idle.append(connection)

    # --- opening -----------------------------------------------------------------------------------------------------

    def _open_more(self) -> None:
        """Open a connection where a call waits for it, there is room, and none is being opened."""
        has_room = self._opening is None and len(self) < self._most
        may = not len(self) or asyncio.get_running_loop().time() >= self._patience
        if has_room and may and not all(future.done() for future in self._waiting):
            self._opening = asyncio.create_task(self._open_one())

    async def _open_one(self) -> None:
        """Open a connection. Where that fails, the calls go on waiting if another connection may still serve them."""
        try:
            async with asyncio.timeout(self._timeout):
                connection = _Connection(await self._connect())
            self._busy.add(connection)
            self._release(connection)
        except Exception as failure:
            error = self._translated(failure)
            self._patience = asyncio.get_running_loop().time() + PATIENCE
            if isinstance(error, DatabaseRefused) or not len(self):
                self._fail(error)
        finally:
            self._opening = None
            self._open_more()

    def _fail(self, error: DatabaseError) -> None:
        """Fail the calls that wait for a connection."""
        while self._waiting:
            future = self._waiting.popleft()
            if not future.done():
                future.set_exception(error)

    def _translated(self, error: Exception) -> DatabaseError:
        """Return the error for what a call or an attempt to connect raised."""
        if isinstance(error, DatabaseError):
            return error
        if isinstance(error, TimeoutError):
            return self._no_answer()
        log.error("a ticket database gave an answer that cannot be read", exc_info=error)
        return DatabaseFailed("gave an answer that cannot be read")
