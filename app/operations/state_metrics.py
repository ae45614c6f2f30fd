"""The metrics of the server's state, read off the databases, the server and its sequences when they are asked for."""

import math
from collections.abc import AsyncIterator, Callable, Iterable

from prometheus_client.core import Metric

from app.common.slices import in_slices
from app.common.version import VERSION
from app.operations.metrics import counter, gauge
from app.operations.series import OTHER, OwnSeries
from app.tickets.ring.ring import Member, Ring, Status
from app.tickets.sequences.catalog import Catalog
from app.tickets.sequences.entry import TICKET, Entry
from app.tickets.sources.server_clock import ServerClock
from app.tickets.sources.sources import Sources


class StateMetrics:
    """The state in the words of Prometheus.

    `ready`: whether a load balancer should send requests here. `unprotected`: why what a database issues might come
    twice; empty where it cannot.
    """

    def __init__(
        self,
        ring: Ring,
        catalog: Catalog,
        *,
        sources: Sources,
        clock: ServerClock,
        ready: Callable[[], bool],
        unprotected: Callable[[Member], Iterable[str]],
    ) -> None:
        self._ring = ring
        self._catalog = catalog
        self._sources = sources
        self._clock = clock
        self._ready = ready
        self._unprotected = unprotected
        self._series = OwnSeries()

    async def families(self) -> AsyncIterator[Metric]:
        """Every metric of the state, as it is now."""
        members = self._ring.members
        keys = {member: (member.name, str(member.database.offset)) for member in members}
        yield gauge("tickets_build_info", ["version"], {(VERSION,): 1})
        yield gauge("tickets_ready", [], {(): int(self._ready())})
        yield gauge("tickets_database_up", ["database", "offset"], {keys[m]: int(m.up) for m in members})
        quarantined = {keys[m]: int(m.status is Status.QUARANTINED) for m in members}
        yield gauge("tickets_database_quarantined", ["database", "offset"], quarantined)
        unprotected = {(m.name,): int(any(self._unprotected(m))) for m in members}
        yield gauge("tickets_database_unprotected", ["database"], unprotected)
        yield gauge("tickets_connections", ["database"], {(m.name,): m.database.connections for m in members})
        yield counter("tickets_failovers", ["database"], {(m.name,): m.failovers for m in members})
        yield counter("tickets_quarantines", ["database"], {(m.name,): m.quarantines for m in members})
        lease, seconds = self._sources.worker, self._sources.worker_seconds
        worker = {} if lease is None else {(lease.member.name,): lease.number}
        yield gauge("tickets_worker", ["database"], worker)
        yield gauge("tickets_worker_lease_seconds", [], {} if seconds is None else {(): seconds})
        yield gauge("tickets_clock_ahead_seconds", [], {(): self._clock.ahead})
        async for family in self._of_sequences():
            yield family

    async def _of_sequences(self) -> AsyncIterator[Metric]:
        entries: list[Entry] = []
        issued: dict[str, int] = {}
        async for part in in_slices(self._catalog.entries.values()):
            entries += part
            issued.update((entry.name, entry.issued) for entry in part)
        own, other = await self._series.choose(issued)
        drift: dict[tuple[str, ...], float] = {}
        headroom: dict[tuple[str, ...], float] = {}
        ratio: dict[tuple[str, ...], float] = {}
        ends: dict[tuple[str, ...], float] = {}
        reserved: dict[tuple[str, ...], float] = {}
        async for part in in_slices(entries):
            for entry in part:
                label = entry.name if entry.name in own else OTHER
                ends_at = entry.kind.ends_at(entry.parameters)
                if ends_at is not None:
                    ends[label,] = min(ends.get((label,), math.inf), ends_at / 1000)
                if entry.reserve is not None:
                    reserved[label,] = reserved.get((label,), 0) + entry.reserve.left
                if entry.kind is not TICKET:
                    continue  # its counter is no number that anybody has seen
                on = [lane for lane in entry.rotation.lanes if lane.member in entry.tables]
                lasts = [self._catalog.counters.last(entry, lane) for lane in on]
                drift[label,] = max(drift.get((label,), 0), max(lasts, default=0) - min(lasts, default=0))
                for lane, last in zip(on, lasts, strict=True):
                    key, left = (label, lane.member.name), max(0, entry.ceiling - last)
                    headroom[key] = min(headroom.get(key, math.inf), left // lane.residue.increment)
                    ratio[key] = min(ratio.get(key, 1.0), left / entry.ceiling)
        counts = {(name,): issued[name] for name in own}
        if other is not None:
            counts[OTHER,] = other
        yield counter("tickets_issued", ["sequence"], counts)
        yield gauge("tickets_drift", ["sequence"], drift)
        yield gauge("tickets_headroom", ["sequence", "database"], headroom)
        yield gauge("tickets_headroom_ratio", ["sequence", "database"], ratio)
        yield gauge("tickets_reserve", ["sequence"], reserved)
        yield gauge("tickets_sequence_end_timestamp_seconds", ["sequence"], ends)
        yield gauge("tickets_sequences", [], {(): len(issued)})
        yield gauge("tickets_sequences_folded", [], {(): len(issued) - len(own)})
