"""The connections to one database for one purpose, and the calls that wait for them.

A connection serves one call at a time. A call that finds no idle connection opens one, in a task of its own, so that a
hanging login holds up no call that another connection can serve. A connection is dropped after any exception, when the
deadline of its call passes, and when the task that uses it is cancelled.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Hashable, Sequence
from itertools import islice
from typing import Generic, TypeVar

from app.databases.session import Session
from app.errors import DatabaseError, DatabaseFailed, DatabaseRefused, NoAnswer, OtherLife

Error = TypeVar("Error", bound=DatabaseError)
Item = TypeVar("Item")
Key = TypeVar("Key", bound=Hashable)
Result = TypeVar("Result")

log = logging.getLogger(__name__)

MOST_SHARED = 500
"""The most items of several calls that share one packet."""
PATIENCE = 1.0
"""Seconds. After an attempt to connect failed, no other is made for so long while another connection is open."""

LONGEST_IDLE = 30.0
"""Seconds. A connection that was idle for longer is not used again: servers and firewalls end idle connections."""


def again(error: Error) -> Error:
    """Return the same error once more, for another task to raise."""
    copy = type(error)(str(error))
    copy.__cause__ = error
    return copy


def _unreadable(error: Exception) -> DatabaseFailed:
    """Log an error that no session should raise, and return the one to raise in its place: the answer was odd."""
    log.error("a ticket database gave an answer that cannot be read", exc_info=error)
    return DatabaseFailed("gave an answer that cannot be read")


class Connection:
    """One open session. `reason` says why it was ended, None while it is in use or idle."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.reason: DatabaseFailed | None = None
        self.idle_since = 0.0

    def end(self, reason: DatabaseFailed) -> None:
        """Close the connection; the call under way fails for this reason."""
        self.reason = self.reason or reason
        self.session.abort()


class Connections:
    """At most `most` connections, and the calls that wait for them in the order in which they came."""

    def __init__(self, connect: Callable[[], Awaitable[Session]], most: int, timeout: float) -> None:
        """Open nothing yet.

        connect: opens a session and sets its life. timeout: the database timeout in seconds, for each call and for each
        attempt to connect.
        """
        self._connect = connect
        self._most = most
        self.timeout = timeout
        self._open: set[Connection] = set()
        self._idle: list[Connection] = []
        self._waiting: dict[asyncio.Future[Connection], None] = {}
        self._opening: set[asyncio.Task[None]] = set()
        self._patience = 0.0
        self._closed: DatabaseFailed | None = None

    def __len__(self) -> int:
        return len(self._open)

    @property
    def idle(self) -> bool:
        """Whether a call would be sent at once."""
        return bool(self._idle)

    async def run(
        self, call: Callable[[Session], Awaitable[Result]], life: str | None, deadline: float | None = None
    ) -> Result:
        """Run a call on one connection, and return its result.

        life: the life that the call is meant for, None for any. deadline: by the loop's clock; None: the timeout from
        now. Raises DatabaseFailed when it has passed, OtherLife where the connection is of another life or loses its
        life meanwhile, and the errors of the call.
        """
        loop = asyncio.get_running_loop()
        now = loop.time()
        deadline = deadline or now + self.timeout
        connection = self._rested(now) or await self._next(deadline)
        if connection.reason is not None:
            raise again(connection.reason)
        if life is not None and connection.session.life != life:
            self._release(connection)
            raise OtherLife()
        timer = loop.call_at(deadline, self._late, connection)
        try:
            result = await call(connection.session)
        except BaseException as error:
            self._drop(connection)
            if connection.reason is not None and isinstance(error, DatabaseError):
                raise connection.reason from error
            if isinstance(error, DatabaseError) or not isinstance(error, Exception):
                raise
            raise _unreadable(error) from error
        finally:
            timer.cancel()
        if connection.reason is not None:  # the answer came at the same moment, and does not count
            self._drop(connection)
            raise connection.reason
        self._release(connection)
        return result

    def end(self, reason: DatabaseFailed, life: str | None = None) -> None:
        """End the connections, except for those of this life; the calls under way fail for this reason."""
        for connection in list(self._open):
            if life is None or connection.session.life != life:
                connection.end(again(reason))
                self._forget(connection)
        self._open_more()

    def shut(self, reason: DatabaseFailed) -> None:
        """End everything for this reason, also what waits and what is being opened. No call works afterwards."""
        self._closed = reason
        self.end(reason)
        self._fail(reason)
        for task in self._opening:
            task.cancel()

    async def close(self) -> None:
        """Shut, and wait until no attempt to connect is under way."""
        self.shut(DatabaseFailed("the connections to it were closed"))
        await asyncio.gather(*self._opening, return_exceptions=True)

    # --- connections -------------------------------------------------------------------------------------------------

    async def _next(self, deadline: float) -> Connection:
        """Wait for a connection, and open one if there is room. Raises DatabaseFailed, DatabaseRefused."""
        if self._closed is not None:
            raise again(self._closed)
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Connection] = loop.create_future()
        self._waiting[future] = None
        timer = loop.call_at(deadline, self._expire, future)
        self._open_more()
        try:
            return await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled() and future.exception() is None:
                self._release(future.result())
            raise
        finally:
            timer.cancel()
            self._waiting.pop(future, None)

    def _open_more(self) -> None:
        if self._closed is not None or (self._open and asyncio.get_running_loop().time() < self._patience):
            return
        room = self._most - len(self._open) - len(self._opening)
        for _ in range(min(room, len(self._waiting) - len(self._opening))):
            task = asyncio.create_task(self._open_one())
            self._opening.add(task)

    async def _open_one(self) -> None:
        """Open a connection. Where that fails, the calls go on waiting if another connection may still serve them."""
        error: DatabaseError | None = None
        try:
            async with asyncio.timeout(self.timeout):
                connection = Connection(await self._connect())
            self._open.add(connection)
            self._release(connection)
        except TimeoutError:
            error = self._too_late()
        except DatabaseError as failure:
            error = failure
        except Exception as failure:
            error = _unreadable(failure)
        finally:
            self._opening -= {asyncio.current_task()}
        if error is not None:
            self._patience = asyncio.get_running_loop().time() + PATIENCE
            if isinstance(error, DatabaseRefused) or not (self._open or self._opening):
                self._fail(error)

    def _fail(self, error: DatabaseError) -> None:
        waiting, self._waiting = self._waiting, {}
        for future in waiting:
            if not future.done():
                future.set_exception(again(error))

    def _rested(self, now: float) -> Connection | None:
        """Take an idle connection, and drop those that have been idle for too long."""
        while self._idle:
            connection = self._idle.pop()
            if now - connection.idle_since <= LONGEST_IDLE:
                return connection
            connection.session.abort()
            self._open.discard(connection)
        return None

    def _release(self, connection: Connection) -> None:
        """Hand a connection to the call that has waited longest."""
        if connection.reason is not None:
            return
        while self._waiting:
            future = next(iter(self._waiting))
            del self._waiting[future]
            if not future.done():
                future.set_result(connection)
                return
        connection.idle_since = asyncio.get_running_loop().time()
        self._idle.append(connection)

    def _drop(self, connection: Connection) -> None:
        connection.session.abort()
        self._forget(connection)
        self._open_more()

    def _forget(self, connection: Connection) -> None:
        self._open.discard(connection)
        if connection in self._idle:
            self._idle.remove(connection)

    def _too_late(self) -> DatabaseFailed:
        return NoAnswer(f"did not answer within {self.timeout:g} s")

    def _late(self, connection: Connection) -> None:
        connection.end(self._too_late())

    def _expire(self, future: "asyncio.Future[Connection]") -> None:
        if not future.done():
            future.set_exception(self._too_late())


class _Batch(Generic[Item, Result]):
    """Calls that share one packet: the items of each, and the future of their results."""

    def __init__(self) -> None:
        self.calls: list[tuple[Sequence[Item], asyncio.Future[Sequence[Result]]]] = []
        self.size = 0
        self.task: asyncio.Task[None] | None = None


class Sharing(Generic[Item, Result, Key]):
    """Calls of one kind, which share a packet while they wait for a connection.

    A call that finds an idle connection is sent at once, by itself. All others wait for the next connection together
    with the calls of the same life and key, until they have `MOST_SHARED` items.
    """

    def __init__(
        self, connections: Connections, send: Callable[[Session, Sequence[Item], Key], Awaitable[Sequence[Result]]]
    ) -> None:
        """Send nothing yet.

        send: takes the session, items of any number of calls, and their key; returns a result for each item.
        """
        self._connections = connections
        self._send = send
        self._next: dict[tuple[str, Key], _Batch[Item, Result]] = {}

    async def put(self, items: Sequence[Item], key: Key, life: str) -> Sequence[Result]:
        """Send items and return a result for each. Raises what `Connections.run` raises.

        Where the caller is cancelled, the statement under way ends with it unless others wait for the same statement.
        """
        if self._connections.idle:
            return await self._connections.run(lambda session: self._send(session, items, key), life)
        loop = asyncio.get_running_loop()
        batch = self._next.get((life, key))
        if batch is None or batch.size + len(items) > MOST_SHARED:
            batch = self._next[life, key] = _Batch()
            batch.task = asyncio.create_task(self._run(batch, key, life, loop.time() + self._connections.timeout))
        future: asyncio.Future[Sequence[Result]] = loop.create_future()
        batch.calls.append((items, future))
        batch.size += len(items)
        try:
            return await future
        except asyncio.CancelledError:
            if batch.task is not None and all(future.done() for _, future in batch.calls):
                self._close(batch, key, life)
                batch.task.cancel()
            raise

    async def _run(self, batch: _Batch[Item, Result], key: Key, life: str, deadline: float) -> None:
        """Send a batch when a connection is there for it."""

        def send(session: Session) -> Awaitable[Sequence[Result]]:
            self._close(batch, key, life)
            batch.calls = [call for call in batch.calls if not call[1].done()]
            return self._send(session, [item for items, _ in batch.calls for item in items], key)

        try:
            results = iter(await self._connections.run(send, life, deadline))
        except Exception as error:  # a defect too: the waiting tasks have to learn of every error
            for _, future in batch.calls:
                if not future.done():
                    future.set_exception(again(error) if isinstance(error, DatabaseError) else error)
        else:
            for items, future in batch.calls:
                mine = list(islice(results, len(items)))
                if not future.done():
                    future.set_result(mine)
        finally:
            self._close(batch, key, life)

    def _close(self, batch: _Batch[Item, Result], key: Key, life: str) -> None:
        """Let no further call join this batch."""
        if self._next.get((life, key)) is batch:
            del self._next[life, key]
