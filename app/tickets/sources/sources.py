"""The choice of a source for each sequence whose kind is not `ticket`."""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial

from app.kinds.definition import Definition
from app.kinds.kind import Kind, RandomKind, TimedKind
from app.tickets.lanes.lane import Lane
from app.tickets.ring.ring import Member, Ring
from app.tickets.sources.instance_number import InstanceNumber
from app.tickets.sources.kind_sources import CounterSource, CountingSource, MemorySource, RandomSource, Source
from app.tickets.sources.lane_stamps import LaneStamps
from app.tickets.sources.server_clock import AHEAD_SECONDS, ServerClock
from app.tickets.sources.worker_lease import Lease, WorkerLease

BEHIND_MS = 1_000
"""/healthz warns of a clock that is further behind the ids that this server has made."""


class Sources:
    """The sources of a server's sequences. `timeout`: seconds for a request that has to wait."""

    def __init__(
        self, ring: Ring, clock: ServerClock, lease: WorkerLease, instance: InstanceNumber, timeout: float
    ) -> None:
        self._ring = ring
        self._clock = clock
        self._lease = lease
        self._instance = instance
        self._timeout = timeout
        self._in_memory: dict[Definition, MemorySource] = {}
        self._counting: list[CountingSource] = []
        self._under_worker: list[CountingSource] = []

    def source_for(self, definition: Definition, kind: Kind, lanes: Sequence[Lane]) -> Source:
        """The source of a sequence of this `kind` and definition. The sequence's `lanes` stamp their draws from now on.

        A sequence that is looked up again in another ring keeps its source, because the source knows the ids that it
        has made in the present moment.
        """
        parameters = definition.parameters
        if isinstance(kind, TimedKind) and kind.parts == "shard":
            stamps = LaneStamps(kind, parameters, self._clock)
            for lane in lanes:
                lane.stamps = stamps
                lane.marks.always_ahead = stamps.ids_ahead
            return CounterSource(kind, parameters, self._clock, partial(self._most_at_once, stamps))
        if definition not in self._in_memory:
            self._in_memory[definition] = self._made(kind, parameters)
        return self._in_memory[definition]

    def _made(self, kind: Kind, parameters: Mapping[str, int]) -> MemorySource:
        if isinstance(kind, RandomKind):
            return RandomSource(kind, parameters, self._timeout, self._clock)
        assert isinstance(kind, TimedKind)
        holder = self._lease if kind.parts == "worker" else self._instance
        holder.need()
        source = CountingSource(kind, parameters, self._timeout, self._clock, holder)
        self._counting.append(source)
        if holder is self._lease:
            self._under_worker.append(source)
        return source

    def _most_at_once(self, stamps: LaneStamps) -> int:
        """How many ids one request can get from any of the databases."""
        databases = [member.database for member in self._ring.members]
        return min(stamps.most_at_once(databases[0].increment), *(each.largest_block for each in databases))

    @property
    def any_gives(self) -> bool:
        """Whether any sequence can give ids without a database."""
        return any(source.gives for source in self._in_memory.values())

    @property
    def worker(self) -> Lease | None:
        """The lease of this server's worker number; None if it has none."""
        return self._lease.lease

    @property
    def worker_seconds(self) -> float | None:
        """For how many seconds this server may stamp ids under its worker number, by its own clock. 0 if it may not;
        None if no sequence needs a worker number."""
        if not self._lease.is_needed:
            return None
        lease = self._lease.lease
        return 0.0 if lease is None else max(0.0, (lease.until_ms - self._clock.wall_ms()) / 1000)

    @property
    def instance_number(self) -> int | None:
        """The number of this life of the server; None before it is drawn."""
        return self._instance.number

    def warnings(self) -> Iterable[str]:
        """Why some sequences give no ids, or soon will give none, in sentences."""
        if self._clock.ahead > AHEAD_SECONDS:
            yield f"this server's clock is {self._clock.ahead:,.1f} s ahead of the ticket databases': it stamps no ids"
        behind = max((source.behind_ms for source in self._counting), default=0)
        if behind > BEHIND_MS:
            yield f"this server's clock is {behind / 1000:,.1f} s behind the ids that it has given: it waits for it"
        if self._lease.reason is not None:
            yield f"no worker number for snowflake ids: {self._lease.reason}"
        if self._instance.is_missing:
            yield "no instance number for flake and objectid ids yet: no ticket database could give one"

    def unprotected(self, member: Member) -> Iterable[str]:
        """Why ids under a worker number of this database might come twice if the database has gone back."""
        lease = self._lease.lease
        if lease is not None and lease.member is member and lease.unverified:
            yield f"{lease.unverified} could not be asked who holds worker number {lease.number}"

    @property
    def last_ms(self) -> int:
        """The last time in an id under a worker number, in milliseconds since 1970; 0 if there is no such id."""
        return max((source.last_ms for source in self._under_worker), default=0)
