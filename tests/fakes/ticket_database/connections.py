"""The connections of one ticket server to a fake server: statements that go out, and answers that come back."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from app.common.errors import (
    SequenceUnavailable,
    TicketDatabaseBusy,
    TicketDatabaseError,
    TicketDatabaseHung,
    TicketDatabaseUnavailable,
)
from app.common.patience import patience
from app.databases.protocol import (
    check_settings,
)
from tests.fakes.ticket_database.server import FakeServer
from tests.fakes.ticket_database.statement import Statement
from tests.fakes.virtual_time import VirtualLoop

T = TypeVar("T")

TIMEOUT = 0.5


class FakeConnections:
    """The connections of one ticket server. `FakeTicketDatabase` says what the parameters mean."""

    def __init__(
        self,
        server: FakeServer,
        *,
        offset: int | None,
        increment: int | None,
        user: str,
        timeout: float,
        latency: Callable[[], tuple[float, float]],
        connects: Callable[[], bool],
    ) -> None:
        self.server = server
        self.name = server.name
        self.offset = offset or server.offset
        self.increment = increment or server.increment
        self.user = user
        self.cut = False
        self.closed = False
        self._timeout = timeout
        self._latency = latency
        self._connects = connects
        self._incarnation = ""
        self._in_flight = 0

    @property
    def connections(self) -> int:
        return int(not self.closed and self in self.server.connected)

    @property
    def in_flight(self) -> int:
        """How many statements have not been answered and not been given up."""
        return self._in_flight

    async def _statement(
        self,
        execute: Callable[[], T],
        *,
        table: str | None = None,
        writes: bool = True,
        ledger: bool = False,
        anybody: bool = False,
        patient: bool = False,
    ) -> T:
        """Its time may be over though the answer has come: the timer and the answer are seen in one iteration. Not
        where it is `patient`: then time in which its ticket server stood still does not count."""

        def executed() -> T:
            self._refuse_if_broken(incarnation, increment, writes=writes, ledger=ledger, anybody=anybody)
            self.server.connected[self] = None
            return execute()

        self._in_flight += 1
        try:
            async with patience(self._timeout) if patient else asyncio.timeout(self._timeout):
                if self._connects():
                    await self._answer(lambda: None, None)
                incarnation, increment = self._incarnation, self.increment
                return await self._answer(executed, table)
        except TimeoutError as error:
            raise self._hung(table) from error
        finally:
            self._in_flight -= 1

    async def _answer(self, execute: Callable[[], T], table: str | None) -> T:
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        def answered(answer: object) -> None:
            if future.done():
                return
            if isinstance(answer, TicketDatabaseError):
                future.set_exception(answer)
            else:
                future.set_result(answer)  # type: ignore[arg-type]

        self._send(execute, table, answered)
        return await future

    def _send(self, execute: Callable[[], object], table: str | None, answered: Callable[[object], object]) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        if self.closed:
            loop.receive(partial(answered, TicketDatabaseUnavailable("is being left")))
            return
        there, back = self._latency()
        self.server.statements += 1
        loop.clock.at(loop.clock.now + there, Statement(self, execute, table, back, loop, answered).arrive)

    def _hung(self, table: str | None) -> TicketDatabaseError:
        if table is not None and not self.server.hangs:
            return SequenceUnavailable("did not answer for this sequence in time")
        return TicketDatabaseHung("did not answer in time")

    def _refuse_if_broken(self, incarnation: str, increment: int, *, writes: bool, ledger: bool, anybody: bool) -> None:
        server = self.server
        if not anybody and server.has_settings:
            check_settings(server, increment, self.offset)
        if not anybody and server.incarnation != incarnation:
            raise TicketDatabaseUnavailable("was restarted or replaced")
        if ledger and server.ledger_fails:
            raise SequenceUnavailable("has a damaged table for it")
        if writes and server.read_only:
            raise TicketDatabaseUnavailable("is read-only")
        if writes and server.deadlocks:
            server.deadlocks -= 1
            raise TicketDatabaseBusy("deadlocked again and again")
