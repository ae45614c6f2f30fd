"""The clients: `Tickets`, and `AsyncTickets` with the same for asyncio."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Sequence
from concurrent.futures import Future
from itertools import repeat, starmap
from time import monotonic
from types import TracebackType
from typing import Any, TypeVar

from ticketd_client.answers import Ticket
from ticketd_client.clock import passed
from ticketd_client.engine import Engine
from ticketd_client.errors import InvalidRequest, SequenceConflict, TicketError
from ticketd_client.forks import ALIVE, Life, look
from ticketd_client.supply import Limits, Pending

T = TypeVar("T")

LONGEST_WAIT = 0.05
"""Seconds between two looks at whether this is still the process that asked."""


class _Client:
    """What both have."""

    def __init__(
        self,
        urls: str | Sequence[str],
        *,
        token: str | None = None,
        prefetch: int = 1000,
        max_age: float = 60.0,
        timeout: float = 2.0,
        tls: ssl.SSLContext | None = None,
        patience: float | None = None,
    ) -> None:
        """`urls`: of ticket servers, or of load balancers in front of them: `http://host:port`, `https://…`,
        `redis://[:token@]host:port`. They are asked in turn; one that fails rests while there is another.

        `token`: the bearer token, where the servers want one.

        `prefetch`: how many tickets are fetched ahead for each sequence, at most; fewer where the present rate uses up
        fewer in two seconds. 0: none, each call is a request.

        `max_age`: seconds after which a ticket from memory is thrown away instead of handed out. Somebody who bumps a
        sequence can count on it.

        `timeout`: seconds that a call takes at most, for all URLs together, the resolution of their hosts' names
        included. Each URL that is asked has an equal share of the time that is left, so that a slow one leaves the
        others theirs; the last one has all of it.

        `tls`: for https://, what the servers' certificates are verified with, if not with the system's authorities.

        `patience`: seconds after a failure for which a client that has been given nothing yet asks again, where that is
        less than `timeout`: for somebody who waits at a terminal, and may have named the wrong server.

        Nothing is sent before the first ticket is asked for. Raises InvalidRequest, which is a ValueError.
        """
        self._engine = Engine(urls, token=token, limits=Limits(prefetch, max_age, timeout, patience), tls=tls)
        self._fronts = self._engine.fronts
        self._timeout = self._engine.limits.timeout

    def __repr__(self) -> str:
        limits = self._engine.limits
        return (
            f"<{type(self).__name__} {' '.join(self._engine.urls)} prefetch={limits.prefetch} "
            f"max_age={limits.max_age:g} timeout={limits.timeout:g}>"
        )

    def _from_memory(self, sequence: str, n: int) -> tuple[list[Ticket], Life]:
        """Up to n tickets from the front shelf, without a lock, and the life of the process whose tickets they are."""
        got: list[Ticket] = []
        expires, life = 0.0, None
        try:
            pop, expires, life = self._fronts[sequence]
            got.extend(starmap(pop, repeat((), n)))
        except (LookupError, TypeError):  # none there, no more there, or no name
            pass
        if life is not None and expires > passed() and life[0]:
            return got, life
        return [], look()


class Tickets(_Client):
    """Tickets for programs without an event loop; every method may be called from any number of threads.

        with Tickets(["http://10.0.0.1:8000", "http://10.0.0.2:8000"]) as tickets:
            tickets.take("photos")

    One of them, made at import, serves a process and all that it forks: the child of a `fork` begins with nothing in
    memory and connections of its own, and never hands out what its parent does. A program may end without `close`.
    """

    def take(self, sequence: str, key: int | None = None) -> Any:
        """A ticket: an `int`, a `str` for kinds whose ids are longer than 63 bits.

        From memory in less than a microsecond; from a server where there is none in memory yet. `key`, for kinds with
        shards: the id has shard `key mod shards`; it is always a request.

        Raises NoSuchSequence, SequenceExhausted, NotAllowed, TicketsUnavailable, InvalidRequest.
        """
        if key is None:
            try:
                pop, expires, life = self._fronts[sequence]
                ticket = pop()
            except (LookupError, TypeError):
                pass
            else:
                if expires > passed() and ALIVE in life:
                    return ticket
        while True:
            life = look()
            (ticket,) = self.take_many(sequence, 1, key)
            if ALIVE in life:  # see forks: nothing may stand between this and the return
                return ticket

    def take_many(self, sequence: str, n: int, key: int | None = None) -> list[Any]:
        """`n` tickets, in no order. Those that memory lacks come in blocks of up to 10,000, or 1,000 a request for
        kinds without blocks. All or none: where it raises, those that had come are lost. As `take` otherwise."""
        if type(n) is not int or n < 0:
            raise InvalidRequest(f"n={n!r}: a whole number, 0 or more, is wanted")
        while True:
            got, life = self._from_memory(sequence, n) if key is None else ([], look())
            if len(got) < n:
                try:
                    got = self._take(sequence, got, n, key, life)
                except TicketError:
                    if life[0]:
                        raise
                    continue  # what failed here was the parent's
            if ALIVE in life:  # see forks: nothing may stand between this and the return
                return got

    def ensure(self, sequence: str, **parameters: Any) -> dict[str, Any]:
        """Make the sequence if it is not there, and return the server's answer. Takes an admin token and HTTP.

            tickets.ensure("photos", bits=53, start=1_000)
            tickets.ensure("likes", kind="instagram", epoch=1_314_220_021_721, shards=2_000)

        The parameters are those of the server's `PUT /sequence/{sequence}`, and its defaults hold for those that are
        left out. A sequence that is there with these parameters stays as it is; `start` is not compared.

        Raises SequenceConflict if it is there with others, NotAllowed without an admin token, InvalidRequest for
        parameters that cannot be, TicketsUnavailable if no server could do it, and where all URLs are redis://.
        """
        deadline = monotonic() + self._timeout
        life = look()
        begun = self._engine.ensure(sequence, parameters, deadline=deadline, here=True)
        return self._wait(begun, sequence, deadline, life)

    def bump(self, sequence: str, above: int, force: bool = False) -> dict[str, Any]:
        """Have every later ticket be larger than `above`; the server's answer. Takes an admin token and HTTP.

        This client throws away what it has in memory of the sequence; others do after their `max_age`. `force`: even
        if it uses up more than 90 % of the sequence. TicketsUnavailable may mean that it is under way: repeat it.
        """
        deadline = monotonic() + self._timeout
        life = look()
        begun = self._engine.bump(sequence, above, force, deadline=deadline, here=True)
        return self._wait(begun, sequence, deadline, life)

    def close(self) -> None:
        """Throw away what is in memory and close the connections. Waits for nothing."""
        self._engine.close()

    def __enter__(self) -> Tickets:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _take(self, sequence: str, got: list[Ticket], n: int, key: int | None, life: Life) -> list[Ticket]:
        deadline = monotonic() + self._timeout
        engine = self._engine
        try:
            begun = engine.begin(sequence, got, n, key, deadline=deadline, here=True)
            return self._wait(begun, sequence, deadline, life)
        except SequenceConflict:
            if key is not None:
                raise
        # the sequence is of a kind without blocks, which is known now
        begun = engine.begin(sequence, got, n, key, deadline=deadline, here=True)
        return self._wait(begun, sequence, deadline, life)

    def _wait(self, result: T | Future[T], sequence: str, deadline: float, life: Life) -> T:
        if not isinstance(result, Future):
            return result
        if isinstance(result, Pending):
            while not result.comes(min(max(deadline - monotonic(), 0.001), LONGEST_WAIT)):
                # in a child of a fork that interrupted this, no thread is left that could bring the result
                if not life[0] or (monotonic() >= deadline and result.cancel()):  # not cancelled: it comes just now
                    raise self._engine.out_of_time(sequence)
        return result.result()


class AsyncTickets(_Client):
    """Tickets for asyncio; of use to any number of event loops and their tasks, and to a process that forks.

        async with AsyncTickets(["http://10.0.0.1:8000"]) as tickets:
            await tickets.take("photos")

    What memory holds is handed out without a pause. Servers are asked by threads in the background, so that a loop
    that ends leaves nothing half done; an `await` that is cancelled loses its tickets.
    """

    async def take(self, sequence: str, key: int | None = None) -> Any:
        """See Tickets.take."""
        if key is None:
            try:
                pop, expires, life = self._fronts[sequence]
                ticket = pop()
            except (LookupError, TypeError):
                pass
            else:
                if expires > passed() and ALIVE in life:
                    return ticket
        while True:
            life = look()
            (ticket,) = await self.take_many(sequence, 1, key)
            if ALIVE in life:  # see forks: nothing may stand between this and the return
                return ticket

    async def take_many(self, sequence: str, n: int, key: int | None = None) -> list[Any]:
        """See Tickets.take_many."""
        if type(n) is not int or n < 0:
            raise InvalidRequest(f"n={n!r}: a whole number, 0 or more, is wanted")
        while True:
            got, life = self._from_memory(sequence, n) if key is None else ([], look())
            if len(got) < n:
                try:
                    got = await self._take(sequence, got, n, key)
                except TicketError:
                    if life[0]:
                        raise
                    continue  # what failed here was the parent's
            if ALIVE in life:  # see forks: nothing may stand between this and the return
                return got

    async def ensure(self, sequence: str, **parameters: Any) -> dict[str, Any]:
        """See Tickets.ensure."""
        deadline = monotonic() + self._timeout
        begun = self._engine.ensure(sequence, parameters, deadline=deadline, here=False)
        return await self._wait(begun, sequence, deadline)

    async def bump(self, sequence: str, above: int, force: bool = False) -> dict[str, Any]:
        """See Tickets.bump."""
        deadline = monotonic() + self._timeout
        return await self._wait(
            self._engine.bump(sequence, above, force, deadline=deadline, here=False), sequence, deadline
        )

    async def close(self) -> None:
        """See Tickets.close."""
        self._engine.close()

    async def __aenter__(self) -> AsyncTickets:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def _take(self, sequence: str, got: list[Ticket], n: int, key: int | None) -> list[Ticket]:
        deadline = monotonic() + self._timeout
        engine = self._engine
        try:
            return await self._wait(
                engine.begin(sequence, got, n, key, deadline=deadline, here=False), sequence, deadline
            )
        except SequenceConflict:
            if key is not None:
                raise
        # the sequence is of a kind without blocks, which is known now
        begun = engine.begin(sequence, got, n, key, deadline=deadline, here=False)
        return await self._wait(begun, sequence, deadline)

    async def _wait(self, result: T | Future[T], sequence: str, deadline: float) -> T:
        if not isinstance(result, Future):
            return result
        try:
            return await asyncio.wait_for(asyncio.wrap_future(result), max(0.0, deadline - monotonic()))
        except asyncio.TimeoutError:
            raise self._engine.out_of_time(sequence) from None
