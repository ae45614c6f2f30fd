"""The sources: supplies of sequences whose kind is not `ticket`.

A source takes the request first. If the ids are counted in the ticket databases, the source works out the shard, and
leaves the request to the lanes. If the ids are made in memory, the source settles the request itself.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from app.common.errors import (
    ClockWentBack,
    InvalidRequest,
    NotForThisKind,
    NoTicketDatabase,
    SequenceExhausted,
    TicketError,
    TooManyAtOnce,
)
from app.kinds.kind import Kind, RandomKind, TimedKind
from app.kinds.ticks import Ticks
from app.tickets.requests.request import TicketRequest, Tickets
from app.tickets.requests.supply import Supply
from app.tickets.sources.rights import WAIT_SECONDS, Holder, NotYet
from app.tickets.sources.server_clock import ServerClock

Parameters = Mapping[str, int]


class Source(Supply):
    """A supply whose ids are not plain tickets."""

    gives_plain_tickets = False


def check(kind: Kind, request: TicketRequest) -> None:
    """Raise NotForThisKind if a sequence of this kind cannot serve such a request."""
    if request.whole:
        raise NotForThisKind(f"{request.sequence} is of kind {kind.name}, which has no blocks; use ?count=")


class RefusingSource(Source):
    """Refuses every request of a sequence that this release cannot serve. `reason`: why, in a sentence."""

    def __init__(self, reason: str) -> None:
        self.reason = reason

    def takes(self, request: TicketRequest) -> bool:
        """See Supply.takes."""
        request.desk.refuse(request, NoTicketDatabase(f"{request.sequence} cannot be served: {self.reason}"))
        return True


class CounterSource(Source):
    """Turns tickets of a counter in the ticket databases into ids, with a shard added. `most_at_once`: how many ids one
    request can get."""

    def __init__(
        self,
        kind: TimedKind,
        parameters: Parameters,
        clock: ServerClock,
        most_at_once: Callable[[], int],
    ) -> None:
        self._kind = kind
        self._parameters = parameters
        self._clock = clock
        self._most_at_once = most_at_once

    def takes(self, request: TicketRequest) -> bool:
        """See Supply.takes."""
        try:
            check(self._kind, request)
            shard = self._kind.shard_of(self._parameters, *(request.address or (None, None)))
            self._clock.now_ms()
            if request.count > 1:
                self._check_count(request)
        except TicketError as error:
            request.desk.refuse(request, error)
            return True
        request.encode = partial(self._encode, shard)
        return False

    def _check_count(self, request: TicketRequest) -> None:
        """Raise TooManyAtOnce if no moment ever has room for the request's ids."""
        most = self._most_at_once()
        if request.count > most:
            raise TooManyAtOnce(f"{request.sequence} gives {most} ids at once at the most: count is {request.count}")

    def _encode(self, shard: int, tickets: Tickets) -> Sequence[int | str]:
        encode, parameters = self._kind.encode, self._parameters
        return [encode(parameters, tick, shard) for tick in tickets]


class MemorySource(Source):
    """Makes ids in memory. `timeout`: seconds for a request that has to wait, for the clock or for a right."""

    def __init__(self, kind: Kind, parameters: Parameters, timeout: float) -> None:
        self._issued = 0
        self._kind = kind
        self._parameters = parameters
        self._timeout = timeout
        self._loop = asyncio.get_running_loop()

    @property
    def issued(self) -> int:
        """See Supply.issued."""
        return self._issued

    @property
    def gives(self) -> bool:
        """Whether it can give an id now, as far as this server knows."""
        return True

    def takes(self, request: TicketRequest) -> bool:
        """See Supply.takes."""
        try:
            check(self._kind, request)
            if request.address is not None:
                raise InvalidRequest(f"{request.sequence} is of kind {self._kind.name}, which has no shards")
        except TicketError as error:
            request.desk.refuse(request, error)
        else:
            request.deadline = self._loop.time() + self._timeout
            self._try(request)
        return True

    def _try(self, request: TicketRequest) -> None:
        if request.settled:  # its client has gone meanwhile
            return
        try:
            ids = self._take(request.count)
        except NotYet as wait:
            if self._loop.time() + wait.seconds < request.deadline:
                self._loop.call_later(wait.seconds, self._try, request)
            else:
                request.desk.refuse(request, wait.otherwise)
        except TicketError as error:
            request.desk.refuse(request, error)
        else:
            self._issued += request.count
            request.desk.answer(request, ids)

    def _take(self, count: int) -> Sequence[int | str]:
        """The next `count` ids. Raises NotYet if the request has to wait, TicketError if it is refused."""
        raise NotImplementedError


class RandomSource(MemorySource):
    """Makes ids that are mostly random."""

    def __init__(self, kind: RandomKind, parameters: Parameters, timeout: float, clock: ServerClock) -> None:
        super().__init__(kind, parameters, timeout)
        self._clock = clock
        self._make = kind.make(parameters, clock.now_ms)

    def _take(self, count: int) -> Sequence[int | str]:
        ends_at = self._kind.ends_at(self._parameters)
        if ends_at is not None and self._clock.now_ms() > ends_at:
            raise SequenceExhausted("the kind of its ids has come to its end")
        return self._make(count)


class CountingSource(MemorySource):
    """Counts ids in memory, under a number that no other server has the right to use at the same time. `holder`: keeps
    that right."""

    def __init__(
        self, kind: TimedKind, parameters: Parameters, timeout: float, clock: ServerClock, holder: Holder
    ) -> None:
        super().__init__(kind, parameters, timeout)
        self._timed = kind
        self._clock = clock
        self._holder = holder
        self._ticks = Ticks()
        self._under: tuple[int, int] | None = None
        """The number that it counts under, and the moment above which it has the right to."""
        self.last_ms = 0
        """The last time in an id, in milliseconds since 1970."""

    @property
    def behind_ms(self) -> int:
        """How many milliseconds the clock is behind the last id; 0 if it is not behind."""
        last = self._timed.time_of(self._parameters, self._ticks.last) if self._ticks.last >= 0 else 0
        return max(0, last - self._clock.wall_ms())

    @property
    def gives(self) -> bool:
        """See MemorySource.gives."""
        try:
            return self._holder.right().until_ms > self._clock.now_ms()
        except (NotYet, TicketError):
            return False

    def _take(self, count: int) -> Sequence[int | str]:
        """Ids of the present moment. Each is above all earlier ones, whatever the clock and the right do."""
        kind, parameters, ticks = self._timed, self._parameters, self._ticks
        now, right = self._clock.now_ms(), self._holder.right()
        first = max(kind.tick_at(parameters, now), 0)
        if (right.number, right.after_ms) != self._under:
            # a smaller number in the same moment would make smaller ids, and another server may have made ids under
            # this number up to `after_ms`
            behind = ticks.next_moment(kind.counter_bits)
            ticks.last = max(behind, kind.tick_at(parameters, right.after_ms + kind.unit_ms)) - 1
            self._under = right.number, right.after_ms
        next_ = max(first, ticks.last + 1)
        moment = kind.time_of(parameters, next_)
        if moment > now:
            raise NotYet(
                (moment - now) / 1000, ClockWentBack(f"this server's clock is {moment - now:,} ms behind its ids")
            )
        last = next_ + count - 1
        if last > kind.last_tick(parameters):
            raise SequenceExhausted("the kind of its ids has come to its end")
        last_ms = kind.time_of(parameters, last) + kind.unit_ms - 1
        if last_ms > right.until_ms:
            over = NoTicketDatabase("the right to stamp ids has run out, and no ticket database could renew it")
            raise NotYet(WAIT_SECONDS, over) if self._holder.renews_soon() else over
        self.last_ms = max(self.last_ms, last_ms)
        return [kind.encode(parameters, tick, right.number) for tick in ticks.take(count, next_)]
