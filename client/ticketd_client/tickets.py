"""The clients: `Tickets`, and `AsyncTickets` with the same for asyncio."""

from __future__ import annotations

import asyncio
import json
import re
import ssl
import sys
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from time import monotonic
from typing import Any, TypeVar

from ticketd_client.answers import LARGEST_ID
from ticketd_client.clock import passed
from ticketd_client.errors import InvalidRequest, TicketError, TicketsUnavailable
from ticketd_client.failover import Failover
from ticketd_client.forks import ALIVE, Life, begin_anew, look
from ticketd_client.supply import Front, Supply
from ticketd_client.urls import servers_of

T = TypeVar("T")
THREADS = 32  # at most, for what an AsyncTickets waits for
_HALF = re.compile("[\ud800-\udfff]")  # of a surrogate pair, which no text has


class _Client:
    def __init__(
        self,
        urls: str | Sequence[str],
        *,
        token: str | None = None,
        prefetch: int = 1000,
        max_age: float = 60.0,
        timeout: float = 2.0,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """Nothing is sent before the first ticket is asked for. Raises InvalidRequest, which is a ValueError.

        - `urls`: of ticket servers, or of load balancers in front of them: `http://host:port`, `https://…`,
          `redis://[:token@]host:port`. They are asked in turn; one that fails rests while there is another.
        - `token`: the bearer token, where the servers want one.
        - `prefetch`: how many tickets are fetched ahead for each sequence, at most; fewer where two seconds use up
          fewer. 0: none, each call is a request.
        - `max_age`: seconds after which a ticket from memory is thrown away.
        - `timeout`: seconds that a call takes at most, for all URLs and the resolution of their names together. Each
          URL has an equal share of the time that is left.
        - `tls`: for https://, what the servers' certificates are verified with, if not the system's authorities.
        """
        if type(prefetch) is not int or prefetch < 0:
            raise InvalidRequest(f"prefetch={prefetch!r}: a whole number, 0 or more, is wanted")
        for name, value in (("max_age", max_age), ("timeout", timeout)):
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < 1e9:
                raise InvalidRequest(f"{name}={value!r}: seconds, more than 0, are wanted")
        self._limits = prefetch, max_age, timeout
        self._failover = Failover(servers_of(urls, token, tls))
        self._fronts: dict[str, Front] = {}
        self._closed = False
        self._begin_anew()
        _clients.add(self)

    def __repr__(self) -> str:
        urls = " ".join(server.url for server in self._failover.servers)
        prefetch, max_age, timeout = self._limits
        return f"<{type(self).__name__} {urls} prefetch={prefetch} max_age={max_age:g} timeout={timeout:g}>"

    def __reduce__(self) -> Any:
        raise TypeError(f"{type(self).__name__} cannot be pickled, for it may have a token: make it in each process")

    def _supply(self, sequence: str, n: int, key: int | None, life: Life) -> Supply:
        """Where `n` tickets come from. Raises InvalidRequest for what no server could answer."""
        if sys.is_finalizing():  # threads that fetch have stopped where they were
            raise TicketError("the interpreter is ending")
        if self._closed:
            raise TicketError("this client is closed")
        if not isinstance(sequence, str) or not 0 < len(sequence) <= 1_000 or _HALF.search(sequence):
            raise InvalidRequest("a sequence's name is wanted")
        if type(n) is not int or n < 0:
            raise InvalidRequest(f"n={n!r}: a whole number, 0 or more, is wanted")
        if key is not None and (type(key) is not int or not 0 <= key <= LARGEST_ID):
            raise InvalidRequest(f"key={key!r}: a whole number from 0 to 2^63 - 1 is wanted")
        place = sequence, id(life)  # a call that a fork interrupts still has the parent's life
        supply = self._supplies.get(place)
        if supply is None:
            new = Supply(sequence, self._failover, self._fronts, life, self._limits)
            supply = self._supplies.setdefault(place, new)
        if self._closed:  # by a finalizer, a signal handler or another thread
            supply.close()
        return supply

    def _ensure(self, sequence: str, parameters: dict[str, Any]) -> dict[str, Any]:
        deadline = monotonic() + self._limits[2]
        self._supply(sequence, 0, None, look())
        try:
            body = json.dumps(parameters, allow_nan=False).encode()
        except (TypeError, ValueError, RecursionError) as error:
            raise InvalidRequest(f"the parameters of {sequence} cannot be sent: {error}") from None
        able = [server for server in self._failover.servers if server.administers]
        if not able:
            raise TicketsUnavailable(f"{sequence} is not made: that takes an http:// URL")
        what = f"{sequence} is not made"
        return Failover(able).ask(lambda server, end: server.ensure(sequence, body, end), deadline, what)

    def _close(self) -> None:
        look()
        self._closed = True
        for supply in list(self._supplies.values()):
            supply.close()
        for server in self._failover.servers:
            server.close()
        self._threads.shutdown(wait=False)

    def _begin_anew(self) -> None:
        """In the child of a fork: what is in memory is the parent's, and so are the connections and threads."""
        self._fronts.clear()
        self._supplies: dict[tuple[str, int], Supply] = {}
        self._threads = ThreadPoolExecutor(THREADS)
        for server in self._failover.servers:
            server.forget_connections()


class Tickets(_Client):
    """Tickets for programs without an event loop; every method may be called from any number of threads.

    One of them, made at import, serves a process and all that it forks: the child of a `fork` begins with nothing in
    memory, and never hands out what its parent does. A program may end without `close`.
    """

    def take(self, sequence: str, key: int | None = None) -> Any:
        """A ticket: an `int`, a `str` for kinds whose ids are longer than 63 bits.

        `key`, for kinds with shards: the id has shard `key mod shards`; it is always a request. Raises NoSuchSequence,
        SequenceExhausted, NotAllowed, TicketsUnavailable, InvalidRequest.
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
        """`n` tickets, in no order. All or none: where it raises, those that had come are lost. As `take` otherwise."""
        while True:
            life = look()
            supply = self._supply(sequence, n, key, life)
            got = supply.take(supply.from_memory(n, key), n, key)
            if ALIVE in life:  # see forks: nothing may stand between this and the return
                return got

    def ensure(self, sequence: str, **parameters: Any) -> dict[str, Any]:
        """Make the sequence if it is not there, and return the server's answer. Takes an admin token and HTTP.

            tickets.ensure("photos", bits=53, start=1_000)

        The parameters are those of the server's `PUT /sequence/{sequence}`. A sequence that is there with these
        parameters stays as it is; `start` is not compared. Raises SequenceConflict if it is there with others,
        NotAllowed without an admin token, InvalidRequest for parameters that cannot be, TicketsUnavailable.
        """
        return self._ensure(sequence, parameters)

    def close(self) -> None:
        """Throw away what is in memory and close the connections. Waits for nothing."""
        self._close()

    def __enter__(self) -> Tickets:
        return self

    def __exit__(self, *_: object) -> None:
        self._close()


class AsyncTickets(_Client):
    """Tickets for asyncio; of use to any number of event loops and their tasks, and to a process that forks.

    What memory holds is handed out without a pause; threads ask the servers. An `await` that is cancelled loses its
    tickets.
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
        while True:
            life = look()
            supply = self._supply(sequence, n, key, life)
            got = supply.from_memory(n, key)
            if len(got) < n:
                got = await self._away(supply.take, got, n, key)
            if ALIVE in life:  # see forks: nothing may stand between this and the return
                return got

    async def ensure(self, sequence: str, **parameters: Any) -> dict[str, Any]:
        """See Tickets.ensure."""
        return await self._away(self._ensure, sequence, parameters)

    async def close(self) -> None:
        """See Tickets.close."""
        self._close()

    async def __aenter__(self) -> AsyncTickets:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._close()

    async def _away(self, job: Callable[..., T], *given: Any) -> T:
        """What the job returns, which a thread does."""
        done = asyncio.get_running_loop().run_in_executor(self._threads, job, *given)
        try:
            return await asyncio.wait_for(done, self._limits[2])
        except asyncio.TimeoutError:
            raise self._failover.unavailable(f"no answer in {self._limits[2]:g} s") from None


_clients: weakref.WeakSet[_Client] = weakref.WeakSet()
begin_anew.append(lambda: [*map(_Client._begin_anew, list(_clients))])
