"""Every metric of the server and its meaning, in Prometheus' text format, read off its state when it is asked for.

The number of label values is bounded: `OWN_SERIES` sequences, the ticket databases, and a fixed set of words.
"""

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from prometheus_client import generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from app.access import Right
from app.kinds.table import KINDS
from app.operations.state import State
from app.operations.tally import Tally
from app.tickets.catalog import Entry
from app.tickets.counts import Histogram
from app.tickets.definitions import TICKET
from app.tickets.sight import Status

OTHER = "_other"
"""The label of the sequences without series of their own. No sequence has such a name."""
OWN_SERIES = 500
"""How many sequences have series of their own: the first ones that give an id."""
SLICE = 500
"""How many sequences are read in one turn of the event loop."""

HELP = {
    "tickets_issued": f"Tickets handed out, by sequence; {OTHER}: by all without series of their own.",
    "tickets_requests": "Requests for tickets and blocks, by endpoint and outcome: ok, or the error's code.",
    "tickets_failovers": "Attempts on a ticket database that failed, so that another one was asked.",
    "tickets_quarantines": "How often a ticket database was quarantined.",
    "tickets_fence_violations": "Draws that were dropped because an id broke a rule, by database and rule.",
    "tickets_gaps": "Tickets that were drawn and dropped, by database and cause.",
    "tickets_denied": "Attempts without the right to it, by what was asked for: tickets, reading or changes.",
    "tickets_client_connections_refused": "Clients that came beyond the limit on connections.",
    "tickets_database_up": "1 while the ticket database is up.",
    "tickets_database_quarantined": "1 while the ticket database is quarantined.",
    "tickets_database_unprotected": "1 while no other database keeps the marks of what it draws.",
    "tickets_connections": "Open connections to the ticket database.",
    "tickets_client_connections": "Open connections from clients.",
    "tickets_in_flight": "Requests for tickets and blocks that are being served.",
    "tickets_sequences": "Sequences known to this server.",
    "tickets_sequences_folded": f"Sequences without series of their own; together they are {OTHER}.",
    "tickets_drift": f"How far apart the databases' last tickets of a sequence are, in ids; {OTHER}: the largest.",
    "tickets_headroom": f"Ids left, by sequence and database; {OTHER}: the smallest number.",
    "tickets_headroom_ratio": f"Share of the ids left, by sequence and database; {OTHER}: the smallest.",
    "tickets_reserve": f"Tickets drawn ahead and not handed out yet, by sequence; {OTHER}: of all others.",
    "tickets_sequence_end_timestamp_seconds": "When the time in a sequence's ids ends, in seconds since 1970; "
    f"{OTHER}: the first end.",
    "tickets_worker": "The worker number in this server's snowflake ids, by the database that leases it.",
    "tickets_worker_lease_seconds": "Seconds for which it may go on stamping snowflake ids; 0: no more. Absent where "
    "no sequence needs a worker number.",
    "tickets_clock_ahead_seconds": "How far this server's clock is ahead of every ticket database's; below 0: behind.",
    "tickets_ready": "1 while this server can issue tickets and is not draining.",
    "tickets_build_info": "Always 1; the version is in the label.",
    "tickets_issue_seconds": "Time from a request's arrival to its tickets.",
    "tickets_statement_seconds": "Time of one draw on a ticket database.",
    "tickets_statement_tickets": "Tickets of one draw.",
}
Labels = tuple[str, ...]
Values = Mapping[Any, float]


class _One(NamedTuple):
    """A collector of one metric, as prometheus_client wants it."""

    metric: Metric

    def collect(self) -> Iterable[Metric]:
        return (self.metric,)


def _plain(kind: type[CounterMetricFamily] | type[GaugeMetricFamily], name: str, labels: str, values: Values) -> Metric:
    """A counter or gauge. labels: their names, separated by spaces. values: by the values of the labels."""
    family = kind(name, HELP[name], labels=labels.split())
    for key, value in sorted(values.items()):
        family.add_metric(list(key), value)
    return family


def _counter(name: str, labels: str, values: Values) -> Metric:
    return _plain(CounterMetricFamily, name, labels, values)


def _gauge(name: str, labels: str, values: Values) -> Metric:
    return _plain(GaugeMetricFamily, name, labels, values)


def _histogram(name: str, labels: str, values: Mapping[Any, Histogram]) -> Metric:
    family = HistogramMetricFamily(name, HELP[name], labels=labels.split())
    for key, histogram in sorted(values.items()):
        buckets, count = [], 0
        for bound, own in zip((*histogram.bounds, "+Inf"), histogram.counts, strict=True):
            count += own
            buckets.append((str(bound), float(count)))
        family.add_metric(list(key), buckets, histogram.total)
    return family


class Metrics:
    """Reads the metrics off a server. version: of the server."""

    def __init__(self, state: State, tally: Tally, version: str) -> None:
        self._state, self._service, self._tally, self._version = state, state.service, tally, version
        self._own: set[str] = set()
        self._folded: dict[str, int] = {}
        """The ids of each sequence that are counted among the others."""
        self._others = 0
        self._one_at_a_time = asyncio.Lock()

    async def text(self) -> bytes:
        """Return all metrics as text. Other tasks have their turn between the metrics; one caller at a time."""
        async with self._one_at_a_time:
            written = []
            for metric in [*self._doors(), *self._databases(), *await self._sequences()]:
                written.append(generate_latest(_One(metric)))
                await asyncio.sleep(0)
            return b"".join(written)

    def _doors(self) -> Iterator[Metric]:
        tally = self._tally
        requests: dict[Any, float] = dict(tally.refusals)
        requests |= {(endpoint, "ok"): sum(seconds.counts) for endpoint, seconds in tally.seconds.items()}
        yield _gauge("tickets_build_info", "version", {(self._version,): 1})
        yield _gauge("tickets_ready", "", {(): self._state.is_ready()})
        yield _counter("tickets_requests", "endpoint outcome", requests)
        yield _histogram(
            "tickets_issue_seconds", "endpoint", {(name,): seconds for name, seconds in tally.seconds.items()}
        )
        yield _gauge("tickets_in_flight", "", {(): tally.in_flight})
        yield _counter("tickets_denied", "what", {(right,): tally.denials[right] for right in Right})
        yield _gauge("tickets_client_connections", "", {(): tally.client_connections})
        yield _counter("tickets_client_connections_refused", "", {(): tally.connections_refused})
        worker = self._service.worker
        if worker.is_needed:
            right, now = worker.right(), self._service.clock.wall_ms()
            left = max(0, right.until_ms - now) / 1000 if right is not None else 0
            holding = {(worker.lease.member.name,): right.number} if right is not None and worker.lease else {}
            yield _gauge("tickets_worker", "database", holding)
            yield _gauge("tickets_worker_lease_seconds", "", {(): left})
        yield _gauge("tickets_clock_ahead_seconds", "", {(): self._service.clock.ahead})

    def _databases(self) -> Iterator[Metric]:
        members = self._service.sight.members
        with_offset = {member: (member.name, str(member.offset)) for member in members}
        up = {with_offset[each]: each.life is not None for each in members}
        yield _gauge("tickets_database_up", "database offset", up)
        quarantined = {with_offset[each]: each.status is Status.QUARANTINED for each in members}
        yield _gauge("tickets_database_quarantined", "database offset", quarantined)
        unprotected = {(each.name,): self._state.unprotected(each) is not None for each in members}
        yield _gauge("tickets_database_unprotected", "database", unprotected)
        yield _gauge("tickets_connections", "database", {(each.name,): each.database.connections for each in members})
        yield _counter("tickets_failovers", "database", {(each.name,): each.counts.failovers for each in members})
        yield _counter("tickets_quarantines", "database", {(each.name,): each.counts.quarantines for each in members})
        gaps = {(each.name, cause): count for each in members for cause, count in each.counts.gaps.items()}
        yield _counter("tickets_gaps", "database cause", gaps)
        broken = {(each.name, rule): count for each in members for rule, count in each.counts.violations.items()}
        yield _counter("tickets_fence_violations", "database rule", broken)
        seconds = {(each.name,): each.counts.statement_seconds for each in members}
        yield _histogram("tickets_statement_seconds", "database", seconds)
        tickets = {(each.name,): each.counts.statement_tickets for each in members}
        yield _histogram("tickets_statement_tickets", "database", tickets)

    # --- sequences ---------------------------------------------------------------------------------------------------

    async def _sequences(self) -> list[Metric]:
        """Read all sequences, a slice at a time."""
        entries = list(self._service.catalog.entries.values())
        (issued, own), found = self._issued(entries), _OfSequences()
        for number, entry in enumerate(entries, 1):
            found.add(entry.name if entry.name in own else OTHER, entry, self._state)
            if number % SLICE == 0:
                await asyncio.sleep(0)
        folded = sum(entry.name not in own for entry in entries)
        return [
            _counter("tickets_issued", "sequence", issued),
            _gauge("tickets_drift", "sequence", found.drift),
            _gauge("tickets_headroom", "sequence database", found.headroom),
            _gauge("tickets_headroom_ratio", "sequence database", found.ratio),
            _gauge("tickets_reserve", "sequence", found.reserve),
            _gauge("tickets_sequence_end_timestamp_seconds", "sequence", found.ends),
            _gauge("tickets_sequences", "", {(): len(entries)}),
            _gauge("tickets_sequences_folded", "", {(): folded}),
        ]

    def _issued(self, entries: list[Entry]) -> tuple[Values, set[str]]:
        """Return how many ids were issued, by sequence, and which sequences have series of their own.

        A counter must never go back, so a sequence that has issued ids keeps its series, or stays among the others.
        Places that are left are lent to sequences without an id.
        """
        issued = {source.sequence: source.issued for source in self._service.desk.sources if source.issued}
        names = {entry.name for entry in entries}
        self._own &= names
        self._folded = {name: count if name in issued else 0 for name, count in self._folded.items()}
        for name, count in issued.items():
            if name not in self._folded and len(self._own) < OWN_SERIES:
                self._own.add(name)
            if name not in self._own:
                before = self._folded.get(name, 0)
                self._others += count - before if count >= before else count  # fewer: it was looked up again
                self._folded[name] = count
        idle = [entry.name for entry in entries if entry.name not in issued and entry.name not in self._own]
        shown = self._own.union(idle[: OWN_SERIES - len(self._own)])
        values: dict[Labels, float] = {(name,): issued.get(name, 0) for name in shown}
        if self._folded:
            values[OTHER,] = self._others
        return values, shown


class _OfSequences:
    """Collects what is read off the sequences, by their labels."""

    def __init__(self) -> None:
        self.drift: dict[Labels, float] = defaultdict(float)
        self.reserve: dict[Labels, float] = defaultdict(float)
        self.headroom: dict[Labels, float] = {}
        self.ratio: dict[Labels, float] = {}
        self.ends: dict[Labels, float] = {}

    def add(self, label: str, entry: Entry, state: State) -> None:
        """Add one sequence."""
        kind = KINDS[entry.definition.kind]
        ends_at = kind.ends_at(entry.definition.parameters)
        if ends_at is not None:
            _keep_smallest(self.ends, (label,), ends_at / 1000)
        if (lanes := state.lanes(entry)) and state.service.options.reserve:
            self.reserve[label,] += sum(lane.stock.size for lane in lanes.values())
        if entry.definition.kind != TICKET:
            return  # its counter is no number that anybody has seen
        lasts = {member: state.last(entry, member) for member in entry.counters}
        self.drift[label,] = max(self.drift[label,], max(lasts.values(), default=0) - min(lasts.values(), default=0))
        for member, last in lasts.items():
            left = max(0, entry.ceiling - last)
            _keep_smallest(self.headroom, (label, member.name), left // state.step)
            _keep_smallest(self.ratio, (label, member.name), left / entry.ceiling)


def _keep_smallest(values: dict[Labels, float], key: Labels, value: float) -> None:
    values[key] = min(values.get(key, value), value)
