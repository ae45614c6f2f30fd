"""The connections to one database for one purpose, and the calls that wait for them.

A connection is a session, which serves one call at a time. A call that finds no idle connection opens one, in a task of
its own, so that a hanging login holds up no call that another connection can serve. A connection is dropped after any
exception, which includes the deadline of its call and the cancellation of its caller.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Hashable, Sequence
from typing import Any, TypeVar

from app.databases.session import Session
from app.errors import DatabaseError, DatabaseFailed, DatabaseRefused, NoAnswer, OtherLife

Item = TypeVar("Item")
Key = TypeVar("Key", bound=Hashable)
Result = TypeVar("Result")
Call = Callable[[Session], Awaitable[Result]]
Send = Callable[[Session, Sequence[Item], Key], Awaitable[Sequence[Result]]]
"""Sends items, and returns a result for each."""

log = logging.getLogger(__name__)

MOST_SHARED = 500
"""The most items of several calls that share one packet."""
PATIENCE = 1.0
"""Seconds. After an attempt to connect failed, no other is made for so long while another connection is open."""
LONGEST_IDLE = 30.0
"""Seconds. A connection that was idle for longer is not used again: servers and firewalls end idle connections."""
CLOSED = "the connections to it were closed"


class _Batch:
    """Items that share one packet, of several callers, and the task that sends them."""

    def __init__(self) -> None:
        self.items: list[Any] = []
        self.callers = 0
        self.task: asyncio.Task[Sequence[Any]]


class Connections:
    """At most `most` connections, and the calls that wait for them in the order in which they came."""

    def __init__(
        self, connect: Callable[[], Awaitable[Session]], most: int, timeout: float, check: Callable[[str], None]
    ) -> None:
        """Open nothing yet.

        connect: opens a session and sets its life. timeout: the database timeout in seconds, for each call and for each
        attempt to connect. check: raises OtherLife where a life is known to be over.
        """
        self._connect = connect
        self._most = most
        self._timeout = timeout
        self._check = check
        self._open: set[Session] = set()
        self._idle: dict[Session, float] = {}
        """Since when each is idle, by the loop's clock."""
        self._reasons: dict[Session, DatabaseFailed] = {}
        """Why those were ended whose calls have not learnt of it."""
        self._batches: dict[Hashable, _Batch] = {}
        """Those that wait for a connection, and that further calls may join."""
        self._waiting: deque[asyncio.Future[Session]] = deque()
        self._opening: set[asyncio.Task[None]] = set()
        self._patience = 0.0
        self._closed = False

    def __len__(self) -> int:
        return len(self._open)

    async def run(self, call: Call[Result], life: str | None, deadline: float | None = None) -> Result:
        """Run a call on one connection, and return its result.

        life: the life that the call is meant for, None for any. deadline: by the loop's clock; None: the timeout from
        now. Raises NoAnswer when it has passed, OtherLife where the connection is of another life or loses its life
        meanwhile, DatabaseFailed and DatabaseRefused where no connection can be opened, and the errors of the call.
        """
        if life is not None:
            self._check(life)
        deadline = deadline or asyncio.get_running_loop().time() + self._timeout
        try:
            return await self._use(self._rested() or await self._wait(deadline), call, life, deadline)
        except Exception as error:
            raise self._translated(error) from error.__cause__

    async def share(
        self, send: Send[Item, Key, Result], items: Sequence[Item], key: Key, life: str
    ) -> Sequence[Result]:
        """Send items and return a result for each. Raises what `run` raises.

        A call that finds an idle connection is sent at once, by itself. All others wait for the next connection
        together with the calls of the same `send`, key and life, until they have `MOST_SHARED` items. A statement ends
        when all its callers are cancelled.
        """
        if self._idle:
            return await self.run(lambda session: send(session, items, key), life)
        at = send, key, life
        batch = self._batches.get(at)
        if batch is None or not batch.callers or len(batch.items) + len(items) > MOST_SHARED:
            batch = self._batches[at] = _Batch()
            batch.task = asyncio.create_task(self._run_batch(batch, *at))
        start = len(batch.items)
        batch.items += items
        batch.callers += 1
        try:
            return (await asyncio.shield(batch.task))[start : start + len(items)]
        except asyncio.CancelledError:
            batch.callers -= 1
            if not batch.callers:
                batch.task.cancel()
            raise

    def end(self, reason: DatabaseFailed, life: str | None = None) -> None:
        """End the connections, except for those of this life; the calls under way fail for this reason."""
        for session in [each for each in self._open if life is None or each.life != life]:
            self._end(session, reason)
        self._open_more()

    async def close(self) -> None:
        """End every call and every connection. No call works afterwards."""
        self._closed = True
        self.end(DatabaseFailed(CLOSED))
        self._fail(DatabaseFailed(CLOSED))
        for task in self._opening:
            task.cancel()
        await asyncio.gather(*self._opening, return_exceptions=True)

    # --- calls -------------------------------------------------------------------------------------------------------

    def _rested(self) -> Session | None:
        """Take an idle connection, if there is one."""
        while self._idle:
            session, since = self._idle.popitem()
            if asyncio.get_running_loop().time() - since <= LONGEST_IDLE:
                return session
            self._discard(session)
        return None

    async def _wait(self, deadline: float) -> Session:
        """Wait for a connection, and have one opened if there is room. Raises TimeoutError."""
        if self._closed:
            raise DatabaseFailed(CLOSED)
        future: asyncio.Future[Session] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        self._open_more()
        try:
            async with asyncio.timeout_at(deadline):
                return await future
        except BaseException:
            if future.done() and not future.cancelled() and future.exception() is None:
                self._release(future.result())
            raise

    async def _use(self, session: Session, call: Call[Result], life: str | None, deadline: float) -> Result:
        """Run a call on a connection that was taken, and release the connection, or drop it."""
        self._require(session)
        if life not in (None, session.life):
            self._release(session)
            raise OtherLife()
        # asyncio.timeout would take a tenth of the time of a draw
        timer = asyncio.get_running_loop().call_at(deadline, self._late, session)
        try:
            result = await call(session)
        except BaseException as error:
            reason = self._reasons.pop(session, None)
            self._discard(session)
            self._open_more()
            if reason is not None and isinstance(error, DatabaseError):
                raise reason.with_traceback(None) from error
            raise
        finally:
            timer.cancel()
        self._require(session)  # an answer that came as the connection was ended does not count
        self._release(session)
        return result

    def _late(self, session: Session) -> None:
        self._end(session, self._no_answer())
        self._open_more()

    def _end(self, session: Session, reason: DatabaseFailed) -> None:
        """End a connection. The call that uses it, or is about to, fails for this reason."""
        if session not in self._idle:
            self._reasons[session] = reason
        self._discard(session)

    def _no_answer(self) -> NoAnswer:
        return NoAnswer(f"did not answer within {self._timeout:g} s")

    def _require(self, session: Session) -> None:
        """Raise the reason where the connection was ended."""
        if session not in self._open:
            raise self._reasons.pop(session, DatabaseFailed(CLOSED)).with_traceback(None)

    def _discard(self, session: Session) -> None:
        session.abort()
        self._open.discard(session)
        self._idle.pop(session, None)

    def _release(self, session: Session) -> None:
        """Hand a connection to the call that has waited longest."""
        if session not in self._open:
            self._reasons.pop(session, None)
            return
        while self._waiting:
            future = self._waiting.popleft()
            if not future.done():
                future.set_result(session)
                return
        self._idle[session] = asyncio.get_running_loop().time()

    async def _run_batch(self, batch: _Batch, send: Send[Any, Key, Any], key: Key, life: str) -> Sequence[Any]:
        """Send a batch when a connection is there for it. No call joins it from then on."""

        def close() -> None:
            if self._batches.get((send, key, life)) is batch:
                del self._batches[send, key, life]

        def call(session: Session) -> Awaitable[Sequence[Any]]:
            close()
            return send(session, batch.items, key)

        try:
            return await self.run(call, life)
        finally:
            close()

    # --- opening -----------------------------------------------------------------------------------------------------

    def _open_more(self) -> None:
        if self._closed or (self._open and asyncio.get_running_loop().time() < self._patience):
            return
        waiting = sum(not future.done() for future in self._waiting)
        room = self._most - len(self._open) - len(self._opening)
        for _ in range(min(room, waiting - len(self._opening))):
            self._opening.add(asyncio.create_task(self._open_one()))

    async def _open_one(self) -> None:
        """Open a connection. Where that fails, the calls go on waiting if another connection may still serve them."""
        try:
            async with asyncio.timeout(self._timeout):
                session = await self._connect()
        except Exception as failure:
            error: DatabaseError | None = self._translated(failure)
        else:
            error = None
            self._open.add(session)
            self._release(session)
        finally:
            self._opening -= {asyncio.current_task()}
        if error is not None:
            self._patience = asyncio.get_running_loop().time() + PATIENCE
            if isinstance(error, DatabaseRefused) or not (self._open or self._opening):
                self._fail(error)

    def _fail(self, error: DatabaseError) -> None:
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
