"""What `Tickets` and `AsyncTickets` share: the servers, the sequences' supplies, the threads, and what a fork does."""

from __future__ import annotations

import json
import ssl
import sys
import threading
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

from ticketd_client import forks
from ticketd_client.answers import LARGEST_COUNT, LARGEST_ID, Ticket
from ticketd_client.errors import InvalidRequest, TicketError
from ticketd_client.failover import Failover
from ticketd_client.servers import Server
from ticketd_client.supply import Front, Limits, Supply
from ticketd_client.urls import servers_of
from ticketd_client.workers import Workers

T = TypeVar("T")

LONGEST = 1e9
"""Seconds: no lock can be waited for much longer."""
THREADS = 32
"""At most, for all sequences: they fetch blocks, look at servers that failed, and do what AsyncTickets waits for."""


def _is_name(sequence: object) -> bool:
    """Whether this can be sent to a server, which says whether it is a sequence's name."""
    if not isinstance(sequence, str) or not sequence or len(sequence) > 1_000:
        return False
    try:
        sequence.encode()
    except UnicodeEncodeError:  # half of a surrogate pair
        return False
    return True


class Engine:
    """One client. `fronts` is for `take`'s shortest way: see supply."""

    def __init__(
        self, urls: str | Sequence[str], *, token: str | None, limits: Limits, tls: ssl.SSLContext | None
    ) -> None:
        if type(limits.prefetch) is not int or limits.prefetch < 0:
            raise InvalidRequest(f"prefetch={limits.prefetch!r}: a whole number, 0 or more, is wanted")
        spans = {"max_age": limits.max_age, "timeout": limits.timeout}
        if limits.patience is not None:
            spans["patience"] = limits.patience
        for name, value in spans.items():
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= LONGEST:
                raise InvalidRequest(f"{name}={value!r}: seconds, more than 0, are wanted")
        self.limits = limits
        servers = servers_of(urls, token, tls)
        self.urls = [server.url for server in servers]
        self.fronts: dict[str, Front] = {}
        self._lock = threading.RLock()
        self._supplies: dict[str, Supply] = {}
        self._closed = False
        self._workers = Workers(THREADS)
        self._failover = Failover(servers, self._workers, limits.patience)
        self._end = weakref.finalize(self, _end, self._workers, self._failover)
        _engines.add(self)

    def begin(
        self, sequence: str, got: list[Ticket], n: int, key: int | None, *, deadline: float, here: bool
    ) -> list[Ticket] | Future[list[Ticket]]:
        """`got` and more tickets, `n` in all, or a future of them. `here`: whether this thread may wait for a server.

        Where the future has a SequenceConflict, call it again: the sequence's kind is known then.
        """
        supply = self._supply(sequence)
        if key is None and supply.has_blocks and (self.limits.prefetch or n > LARGEST_COUNT):
            return supply.take(got, n, deadline, here)
        if key is not None and (type(key) is not int or not 0 <= key <= LARGEST_ID):
            raise InvalidRequest(f"key={key!r}: a whole number from 0 to 2^63 - 1 is wanted")
        return self._do(lambda: self._singles(supply, n, key, deadline), here)

    def bump(
        self, sequence: str, above: int, force: bool, *, deadline: float, here: bool
    ) -> dict[str, Any] | Future[dict[str, Any]]:
        """Advance the sequence above a number; the server's answer, or a future of it."""
        supply = self._supply(sequence)
        if type(above) is not int or above < 0:
            raise InvalidRequest(f"above={above!r}: a whole number, 0 or more, is wanted")

        def question(server: Server, attempt: float) -> dict[str, Any]:
            answer = server.bump(supply.sequence, above, force, attempt)
            supply.drop()
            return answer

        return self._change(question, f"{sequence} is not advanced", deadline, here)

    def ensure(
        self, sequence: str, parameters: dict[str, Any], *, deadline: float, here: bool
    ) -> dict[str, Any] | Future[dict[str, Any]]:
        """Make the sequence if it is not there; the server's answer, or a future of it."""
        name = self._supply(sequence).sequence
        try:
            json.dumps(parameters, allow_nan=False)
        except (TypeError, ValueError, RecursionError) as error:
            raise InvalidRequest(f"the parameters of {sequence} cannot be sent: {error}") from None
        return self._change(
            lambda server, attempt: server.ensure(name, parameters, attempt), f"{sequence} is not made", deadline, here
        )

    def out_of_time(self, sequence: str) -> TicketError:
        """For who has waited for others to fetch."""
        return self._failover.unavailable(f"no tickets of {sequence} in {self.limits.timeout:g} s")

    def close(self) -> None:
        """Hand out nothing any more. What is under way is waited for by nobody."""
        forks.look()
        with self._lock:
            self._closed = True
            supplies = list(self._supplies.values())
        for supply in supplies:
            supply.close()
        self._end()

    def begin_anew(self) -> None:
        """In the child of a fork: what is in memory is the parent's, so are the connections, and its threads are not
        here. Locks are made anew, for one of those threads may have held them.

        A call that the fork interrupted goes on with the parent's supply: see forks, and Supply.life.
        """
        self.fronts.clear()
        self._lock = threading.RLock()
        self._supplies = {}
        self._workers.begin_anew()
        self._failover.begin_anew()

    def locks(self) -> list[forks.Lock]:
        """All that a call may wait for."""
        return [self._lock, self._workers.lock, *(supply.lock for supply in list(self._supplies.values()))]

    def _supply(self, sequence: str) -> Supply:
        life = forks.look()
        if sys.is_finalizing():  # threads that held a lock have stopped where they were
            raise TicketError("the interpreter is ending")
        supply = self._supplies.get(sequence) if isinstance(sequence, str) else None
        if supply is not None and supply.life[0] and not self._closed:
            return supply
        if not _is_name(sequence):
            raise InvalidRequest("a sequence's name is wanted")
        with self._lock:
            if self._closed:
                raise TicketError("this client is closed")
            supply = self._supplies.get(sequence)
            if supply is None or not supply.life[0]:  # the latter where a fork interrupted these lines
                supply = Supply(sequence, self._failover, self.limits, self.fronts, self._workers.run, life=life)
                self._supplies[sequence] = supply
            if self._closed:  # by a finalizer or a signal handler, in this thread
                supply.close()
            return supply

    def _singles(self, supply: Supply, n: int, key: int | None, deadline: float) -> list[Ticket]:
        got = supply.take_singles(min(n, LARGEST_COUNT), key, deadline)
        while len(got) < n:
            got += supply.take_singles(min(n - len(got), LARGEST_COUNT), key, deadline)
        return got

    def _change(
        self, question: Callable[[Server, float], dict[str, Any]], trouble: str, deadline: float, here: bool
    ) -> dict[str, Any] | Future[dict[str, Any]]:
        """Ask a server over whose protocol sequences are made and advanced."""
        return self._do(lambda: self._failover.ask(question, deadline, trouble, changes=True), here)

    def _do(self, job: Callable[[], T], here: bool) -> T | Future[T]:
        if here:
            return job()
        future: Future[T] = Future()

        def do() -> None:
            if future.cancelled():
                return
            try:
                result = job()
            except BaseException as error:  # it is the waiter's
                if future.set_running_or_notify_cancel():
                    future.set_exception(error)
            else:
                if future.set_running_or_notify_cancel():  # else nobody waits any more: it is lost
                    future.set_result(result)

        self._workers.run(do)
        return future


def _end(workers: Workers, failover: Failover) -> None:
    if not forks.in_a_child():  # else all that is the parent's, and may be locked for ever
        workers.close()
        failover.close()


def _in_the_child() -> None:
    for engine in list(_engines):
        engine.begin_anew()


def _locks() -> list[forks.Lock]:
    return [lock for engine in list(_engines) for lock in engine.locks()]


_engines: weakref.WeakSet[Engine] = weakref.WeakSet()
forks.tell(_in_the_child, _locks)
