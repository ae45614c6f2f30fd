"""A place for one connection to a database server. Statements take turns on it, and it is opened when it is needed.

The line drops its connection at any doubt: after an error that leaves it unusable, at a timeout, and when the caller is
cancelled. The driver therefore never waits for the server to cancel a statement.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Generic, Protocol, TypeVar

from app.common.errors import (
    TicketDatabaseBusy,
    TicketDatabaseError,
    TicketDatabaseHung,
    TicketDatabaseUnavailable,
)
from app.common.log import event
from app.common.patience import patience

log = logging.getLogger(__name__)

SMALL_ANSWER = 256 * 1024
"""Bytes that the answer to one statement may have, unless it is a listing."""


class Connection(Protocol):
    """An open connection, as its engine makes it. `life`: of the server and data that it leads to. `opened`: when, by
    `time.monotonic`. `identity`: see ProbeResult.identity. `usable`: whether a statement may be sent on it."""

    life: str
    identity: str
    opened: float

    @property
    def usable(self) -> bool: ...

    def expect(self, most: int) -> None:
        """Break the connection off where the next answers have more bytes than this."""

    def translated(self, error: Exception) -> TicketDatabaseError | None:
        """The error of the driver in our words; None if it is none that the driver is known to raise."""

    def drop(self) -> None:
        """Break it off."""

    async def leave(self) -> None:
        """End it in good order."""


C = TypeVar("C", bound=Connection)
T = TypeVar("T")


class Line(Generic[C]):
    """`opener`: makes a new connection; raises TicketDatabaseError alone. `seconds`: for one statement or transaction,
    a new connection and the wait for its turn included."""

    def __init__(self, opener: Callable[[], Awaitable[C]], seconds: float) -> None:
        self._opener = opener
        self._seconds = seconds
        self._turn = asyncio.Lock()
        self.connection: C | None = None
        self.busy = 0
        self.closed = False

    async def run(
        self, work: Callable[[C], Awaitable[T]], life: str | None = None, *, most: int = SMALL_ANSWER, new: bool = False
    ) -> T:
        """Run `work` on the connection and return its result. `life`: run it in this life only. `most`: bytes that the
        server may answer. `new`: open a new connection for it, if the server accepts one.

        Raises TicketDatabaseError alone, within the time. Time in which this process stood still does not count.
        """
        self.busy += 1
        try:
            async with patience(self._seconds), self._turn:
                old = self.connection
                connection = await self._ready(new=new)
                if life not in (None, connection.life) and connection is old:  # the server may have restarted since
                    connection = await self._ready(new=True)
                if life not in (None, connection.life):
                    self.drop()
                    raise TicketDatabaseUnavailable("was restarted or replaced")
                connection.expect(most)
                return await self._run(work, connection)
        except TimeoutError as error:
            raise TicketDatabaseHung("did not answer in time") from error
        finally:
            self.busy -= 1

    async def _run(self, work: Callable[[C], Awaitable[T]], connection: C) -> T:
        task = asyncio.ensure_future(work(connection))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            self.drop()  # which ends the task
            task.add_done_callback(lambda done: done.cancelled() or done.exception())
            raise
        except Exception as error:
            found = error if isinstance(error, TicketDatabaseError) else connection.translated(error)
            if found is None:
                event(log, logging.ERROR, "an answer cannot be read", exc_info=error)
                found = TicketDatabaseUnavailable("gave an answer that cannot be read")
            if not connection.usable or (found is not error and not isinstance(found, TicketDatabaseBusy)):
                self.drop()
            if found is error:
                raise
            raise found from error

    async def _ready(self, *, new: bool) -> C:
        if self.closed:
            raise TicketDatabaseUnavailable("is being left")
        if self.connection is not None and not self.connection.usable:
            self.drop()
        if self.connection is not None and not new:
            return self.connection
        try:
            found = await self._opener()
        except TicketDatabaseBusy:
            if self.connection is None:
                raise
            return self.connection
        self.drop()
        self.connection = found
        return found

    def drop(self) -> None:
        """Break the connection off, if there is one."""
        connection, self.connection = self.connection, None
        if connection is not None:
            connection.drop()

    async def leave(self) -> None:
        """End the connection in good order after the statement under way. The next statement opens another one."""
        try:
            async with patience(self._seconds), self._turn:
                connection, self.connection = self.connection, None
                if connection is not None:
                    await connection.leave()
        except TimeoutError:
            self.drop()
