"""Sequences whose ids this server makes in memory.

The ids of `uuid4`, `uuid7`, `ulid` and `simpleflake` are mostly random. The server counts those of `snowflake`, `flake`
and `objectid`, under a number that no other server may use for the same times (see `rights`).
"""

import asyncio
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
from app.tickets.source import shard_of
from app.tickets.stamps import MOST_AHEAD, ServerClock

RETRY = 0.005  # seconds after which a request that waits for a right tries again

Ids = Sequence[int | str]


class NotYet(Exception):
    """The ids may be had after this many seconds. why: for a request that cannot wait that long."""

    def __init__(self, seconds: float, why: TicketError) -> None:
        super().__init__(str(why))
        self.seconds, self.why = seconds, why


def counting(kind: TimedKind, parameters: Parameters, clock: ServerClock, holder: Holder) -> Callable[[int], Ids]:
    """Return what makes the ids of one sequence under the right of a holder: called with a count, it returns ids.

    They are of the present moment, each above all earlier ids, whatever the clock and the right do. A count that is
    full goes on into the next moment, and the id after that waits for the clock. The call raises NotYet where the ids
    may be had later, and TicketError.
    """
    holder.needed.set()
    last = under = -1

    def take(count: int) -> Ids:
        nonlocal last, under
        now, right = clock.now_ms(), holder.right()
        if right is not None:
            number, after_ms, until_ms = right
            if number >> kind.part_bits:
                raise Exhausted(f"the number {number} of this server does not fit into ids of kind {kind.name}")
            # another server may have made ids under this number up to `after_ms`
            first = max(kind.tick_at(parameters, max(now, after_ms + kind.unit_ms)), last + 1, 0)
            if number != under:  # a smaller number would make smaller ids in the moment of the last id
                first = max(first, (last >> kind.counter_bits) + 1 << kind.counter_bits)
            end = first + count - 1
            if (wait := kind.time_of(parameters, first) - now) > 0:
                raise NotYet(wait / 1000, ClockAhead(f"this server's clock is {wait:,} ms behind its own ids"))
            if end > kind.last_tick:
                raise Exhausted(f"ids of kind {kind.name} with this epoch have come to their end")
            if kind.time_of(parameters, end) + kind.unit_ms - 1 <= until_ms:
                last, under = end, number
                return [kind.encode(tick, number) for tick in range(first, end + 1)]
        raise holder.trouble or NotYet(RETRY, NoTicketDatabase(f"this server has no {kind.part} number yet"))

    return take


class MemorySource:
    """Gives the ids of one sequence; see `source.Source`.

    make: returns as many new ids as it is asked for. Raises TicketError; NotYet where they may be had later.
    """

    lanes: Sequence[Lane] = ()

    def __init__(self, sequence: str, kind: Kind, parameters: Parameters, make: Callable[[int], Ids]) -> None:
        self.sequence, self.issued = sequence, 0
        self._kind, self._parameters, self._make = kind, parameters, make
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[Request] = deque()
        self._timer: asyncio.TimerHandle | None = None

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

    def ask(self, request: Request) -> None:
        """See Source.ask."""
        self._waiting.append(request)
        if self._timer is None:
            self._serve()

    async def end(self) -> list[Request]:
        """See Source.end. A source that is asked again goes on."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        requests = [request for request in self._waiting if not request.is_over]
        self._waiting.clear()
        return requests

    def _serve(self) -> None:
        """Settle the requests that wait, in their order, and come back later where the next one has to wait."""
        self._timer = None
        while self._waiting:
            request = self._waiting[0]
            try:
                if not request.is_over:
                    shard_of(self._kind, self._parameters, request)
                    ids = self._make(request.count)
                    self.issued += request.count
                    request.finish(ids[0] if request.shape is Shape.SINGLE else ids)
            except NotYet as wait:
                if self._loop.time() + wait.seconds < request.deadline:
                    self._timer = self._loop.call_later(wait.seconds, self._serve)
                    return
                request.fail(wait.why)
            except TicketError as error:
                request.fail(error)
            self._waiting.popleft()


class Memory:
    """The memory sources of one server. worker, instance: hold the rights of the kinds that count."""

    def __init__(self, clock: ServerClock, worker: Holder, instance: Holder) -> None:
        self._clock, self._holders = clock, {"worker": worker, "instance": instance}
        self._sources: dict[tuple[str, str, frozenset[tuple[str, int]]], MemorySource] = {}
        self._is_random = False

    def source(self, sequence: str, definition: Definition) -> MemorySource:
        """Return the source of a sequence. It stays the same, because it knows the ids that it made in this moment."""
        kind, parameters = KINDS[definition.kind], definition.parameters
        key = sequence.lower(), kind.name, frozenset(parameters.items())
        if key not in self._sources:
            make: Callable[[int], Ids]
            if isinstance(kind, TimedKind):
                make = counting(kind, parameters, self._clock, self._holders[kind.part])
            else:
                assert isinstance(kind, RandomKind)
                make, self._is_random = kind.make(parameters, self._clock.now_ms), True
            self._sources[key] = MemorySource(sequence, kind, parameters, make)
        return self._sources[key]

    @property
    def gives(self) -> bool:
        """Whether any sequence can give ids without a database, for /readyz."""
        now = self._clock.wall_ms()
        rights = [holder.right() for holder in self._holders.values() if holder.needed.is_set()]
        return self._is_random or any(right is not None and now <= right.until_ms for right in rights)

    def warnings(self) -> Iterator[str]:
        """Why some sequences give no ids, for /healthz."""
        if self._clock.ahead > MOST_AHEAD:
            yield f"this server's clock is {self._clock.ahead:,.1f} s ahead of the ticket databases': it stamps no ids"
        for holder in self._holders.values():
            if holder.trouble is not None and holder.right() is None:
                yield str(holder.trouble)
