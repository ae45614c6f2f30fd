"""Sequences whose ids this server makes in memory.

The ids of `uuid4`, `uuid7`, `ulid` and `simpleflake` are mostly random. The server counts those of `snowflake`, `flake`
and `objectid`, under a number that no other server may use for the same times (see `rights`).
"""

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Sequence

from app.errors import ClockAhead, Exhausted, NoTicketDatabase, TicketError
from app.kinds.chance import RandomKind
from app.kinds.kind import Kind, Parameters
from app.kinds.table import KINDS
from app.kinds.timed import TimedKind
from app.tickets.definitions import Definition
from app.tickets.lane import Lane
from app.tickets.request import Request, Shape
from app.tickets.rights import Holder
from app.tickets.server_clock import MOST_AHEAD, ServerClock
from app.tickets.source import shard_of

RETRY = 0.005
"""Seconds after which a request that waits for a right tries again."""
FAR_BEHIND_MS = 1_000
"""/healthz warns of a clock that is further behind the ids that this server has made."""

Ids = Sequence[int | str]


class NotYet(Exception):
    """The ids may be had after this many seconds. why: for a request that cannot wait that long."""

    def __init__(self, seconds: float, why: TicketError) -> None:
        super().__init__(str(why))
        self.seconds, self.why = seconds, why


class MemorySource(ABC):
    """Gives the ids of one sequence; see `source.Source`. The kinds that make ids in memory have no shards."""

    lanes: Sequence[Lane] = ()

    def __init__(self, sequence: str, kind: Kind, parameters: Parameters) -> None:
        self.sequence = sequence
        self._kind, self._parameters = kind, parameters
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[Request] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._why: TicketError | None = None
        self.issued = 0

    def __repr__(self) -> str:
        return f"<{self._kind.name} {self.sequence} waiting {len(self._waiting)}>"

    @property
    @abstractmethod
    def gives(self) -> bool:
        """Whether an id can be had now."""

    def ready(self) -> int | str | None:
        """See Source.ready."""
        if self._waiting:
            return None
        try:
            (made,) = self._make(1)
        except (NotYet, TicketError):  # a request is told why
            return None
        self.issued += 1
        return made

    def ask(self, requests: Sequence[Request]) -> None:
        """See Source.ask."""
        self._waiting.extend(requests)
        self._serve()

    def expire(self, now: float, error: Callable[[], TicketError]) -> None:
        """See Source.expire. The error is what the request waited for."""
        while self._waiting and (self._waiting[0].is_over or self._waiting[0].deadline <= now):
            self._waiting.popleft().fail(self._why or error())

    def hand_over(self) -> list[Request]:
        """See Source.hand_over."""
        requests = [request for request in self._waiting if not request.is_over]
        self._waiting.clear()
        return requests

    async def end(self) -> None:
        """See Source.end. A source that is asked again goes on."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _serve(self) -> None:
        """Settle the requests that wait, in their order, and come back later if some are left."""
        while self._waiting:
            request = self._waiting[0]
            try:
                if not request.is_over:
                    self._settle(request)
            except NotYet as wait:
                if self._loop.time() + wait.seconds < request.deadline:
                    self._why = wait.why
                    if self._timer is None:
                        self._timer = self._loop.call_later(wait.seconds, self._again)
                    return
                request.fail(wait.why)
            self._waiting.popleft()

    def _again(self) -> None:
        self._timer = None
        self._serve()

    def _settle(self, request: Request) -> None:
        """Answer or refuse a request. Raises NotYet where it has to wait."""
        try:
            shard_of(self._kind, self._parameters, request)
            ids = self._make(request.count)
        except TicketError as error:
            request.fail(error)
        else:
            self.issued += request.count
            request.finish(ids[0] if request.shape is Shape.SINGLE else ids)

    @abstractmethod
    def _make(self, count: int) -> Ids:
        """Return the next ids. Raises NotYet where they may be had later, and TicketError."""


class RandomSource(MemorySource):
    """Makes ids that are mostly random."""

    def __init__(self, sequence: str, kind: RandomKind, parameters: Parameters, clock: ServerClock) -> None:
        super().__init__(sequence, kind, parameters)
        self._generate = kind.make(parameters, clock.now_ms)

    @property
    def gives(self) -> bool:
        """See MemorySource.gives."""
        return True

    def _make(self, count: int) -> Ids:
        return self._generate(count)


class CountingSource(MemorySource):
    """Counts ids under the right of a holder."""

    def __init__(
        self, sequence: str, kind: TimedKind, parameters: Parameters, clock: ServerClock, holder: Holder
    ) -> None:
        super().__init__(sequence, kind, parameters)
        self._timed, self._clock, self._holder = kind, clock, holder
        self._last = -1
        self._under: tuple[int, int] | None = None
        holder.need()

    @property
    def gives(self) -> bool:
        """See MemorySource.gives."""
        right = self._holder.right()
        return right is not None and self._clock.wall_ms() <= right.until_ms

    @property
    def behind_ms(self) -> int:
        """How many milliseconds this server's clock is behind the last id; 0 if it is not behind."""
        last = self._timed.time_of(self._parameters, self._last) if self._last >= 0 else 0
        return max(0, last - self._clock.wall_ms())

    def _make(self, count: int) -> Ids:
        """Return ids of the present moment, each above all earlier ids, whatever the clock and the right do.

        A count that is full goes on into the next moment, and the id after that waits for the clock.
        """
        kind, parameters = self._timed, self._parameters
        now, right = self._clock.now_ms(), self._holder.right()
        if right is None:
            raise self._no_right()
        number, after_ms, until_ms = right
        if number >> kind.part_bits:
            raise Exhausted(f"the number {number} of this server does not fit into ids of kind {kind.name}")
        if (number, after_ms) != self._under:
            # A smaller number would make smaller ids in the moment of the last id, and another server may have made ids
            # under this number up to `after_ms`.
            next_moment = (self._last >> kind.counter_bits) + 1 << kind.counter_bits
            self._last = max(next_moment, kind.tick_at(parameters, after_ms + kind.unit_ms)) - 1
            self._under = number, after_ms
        first = max(kind.tick_at(parameters, now), self._last + 1, 0)
        last = first + count - 1
        if (wait := kind.time_of(parameters, first) - now) > 0:
            raise NotYet(wait / 1000, ClockAhead(f"this server's clock is {wait:,} ms behind its own ids"))
        if last > kind.last_tick:
            raise Exhausted(f"ids of kind {kind.name} with this epoch have come to their end")
        if kind.time_of(parameters, last) + kind.unit_ms - 1 > until_ms:
            raise self._no_right()
        self._last = last
        return [kind.encode(tick, number) for tick in range(first, last + 1)]

    def _no_right(self) -> NotYet:
        why = self._holder.trouble or NoTicketDatabase(f"this server has no {self._timed.part} number yet")
        return NotYet(RETRY if self._holder.is_coming else float("inf"), why)


class Memory:
    """The memory sources of one server. worker, instance: hold the rights of the kinds that count."""

    def __init__(self, clock: ServerClock, worker: Holder, instance: Holder) -> None:
        self._clock, self._worker, self._instance = clock, worker, instance
        self._sources: dict[tuple[str, str, frozenset[tuple[str, int]]], MemorySource] = {}

    def source(self, sequence: str, definition: Definition) -> MemorySource:
        """Return the source of a sequence. It stays the same, because it knows the ids that it made in this moment."""
        key = sequence.lower(), definition.kind, frozenset(definition.parameters.items())
        if key not in self._sources:
            self._sources[key] = self._source(sequence, definition)
        return self._sources[key]

    def _source(self, sequence: str, definition: Definition) -> MemorySource:
        kind, parameters = KINDS[definition.kind], definition.parameters
        if isinstance(kind, RandomKind):
            return RandomSource(sequence, kind, parameters, self._clock)
        assert isinstance(kind, TimedKind)
        holder = self._worker if kind.part == "worker" else self._instance
        return CountingSource(sequence, kind, parameters, self._clock, holder)

    @property
    def gives(self) -> bool:
        """Whether any sequence can give ids without a database, for /readyz."""
        return any(source.gives for source in self._sources.values())

    def warnings(self) -> Iterator[str]:
        """Why some sequences give no ids, for /healthz."""
        if self._clock.ahead > MOST_AHEAD:
            yield f"this server's clock is {self._clock.ahead:,.1f} s ahead of the ticket databases': it stamps no ids"
        counting = [source for source in self._sources.values() if isinstance(source, CountingSource)]
        behind = max((source.behind_ms for source in counting), default=0)
        if behind > FAR_BEHIND_MS:
            yield f"this server's clock is {behind / 1000:,.1f} s behind the ids that it has given: it waits for it"
        for holder in (self._worker, self._instance):
            if holder.trouble is not None and holder.right() is None:
                yield str(holder.trouble)
