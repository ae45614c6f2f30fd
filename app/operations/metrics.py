"""Every metric of the server and its meaning, in Prometheus' text format, read off its state when it is asked for.

The number of label values is bounded: `OWN_SERIES` sequences, the ticket databases, and a fixed set of words.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from operator import add
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
from app.tickets.sight import Member, Status

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
    "tickets_sequence_end_timestamp_seconds": f"When the time in its ids ends, since 1970; {OTHER}: the first end.",
    "tickets_worker": "The worker number in this server's snowflake ids, by the database that leases it.",
    "tickets_worker_lease_seconds": "Seconds for which it may stamp snowflake ids. Absent where none are wanted.",
    "tickets_clock_ahead_seconds": "How far this server's clock is ahead of every ticket database's; below 0: behind.",
    "tickets_ready": "1 while this server can issue tickets and is not draining.",
    "tickets_build_info": "Always 1; the version is in the label.",
    "tickets_issue_seconds": "Time from a request's arrival to its tickets.",
    "tickets_statement_seconds": "Time of one draw on a ticket database.",
    "tickets_statement_tickets": "Tickets of one draw.",
}
COUNTER, GAUGE, HISTOGRAM = CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily


class Row(NamedTuple):
    """A metric, and the collector of it that prometheus_client wants.

    kind: the class of the family. labels: their names, separated by spaces. values: numbers, or histograms, by the
    values of the labels: a word for one label, a tuple for another number of them.
    """

    kind: Any
    name: str
    labels: str
    values: Mapping[Any, Any]

    def collect(self) -> Iterable[Metric]:
        """See prometheus_client."""
        family = self.kind(self.name, HELP[self.name], labels=self.labels.split())
        for key, value in sorted(self.values.items()):
            labels = [key] if isinstance(key, str) else list(key)
            family.add_metric(labels, *(_buckets(value) if isinstance(value, Histogram) else (value,)))
        return (family,)


def _buckets(histogram: Histogram) -> tuple[list[tuple[str, float]], float]:
    """Return how many values there are up to each bound, and the sum of all."""
    bounds = [*map(str, histogram.bounds), "+Inf"]
    return [(bound, sum(histogram.counts[:end])) for end, bound in enumerate(bounds, 1)], histogram.total


class Metrics:
    """Reads the metrics off a server. version: of the server."""

    def __init__(self, state: State, tally: Tally, version: str) -> None:
        self._state, self._service, self._tally, self._version = state, state.service, tally, version
        self._own: set[str] = set()
        self._counted: dict[str, int] = {}
        """How many ids of each sequence `_issued` has counted."""
        self._issued: Counter[str] = Counter()
        """How many ids were issued, by the label of their sequence."""
        self._one_at_a_time = asyncio.Lock()

    async def text(self) -> bytes:
        """Return all metrics as text. Other tasks have their turn between the metrics; one caller at a time."""
        async with self._one_at_a_time:
            written = []
            for row in [*self._doors(), *self._databases(), *await self._sequences()]:
                written.append(generate_latest(row))
                await asyncio.sleep(0)
            return b"".join(written)

    def _doors(self) -> Iterator[Row]:
        tally, clock, worker = self._tally, self._service.clock, self._service.worker
        answered = {(endpoint, "ok"): sum(seconds.counts) for endpoint, seconds in tally.seconds.items()}
        yield Row(GAUGE, "tickets_build_info", "version", {self._version: 1})
        yield Row(GAUGE, "tickets_ready", "", {(): self._state.is_ready()})
        yield Row(COUNTER, "tickets_requests", "endpoint outcome", {**tally.refusals, **answered})
        yield Row(HISTOGRAM, "tickets_issue_seconds", "endpoint", tally.seconds)
        yield Row(GAUGE, "tickets_in_flight", "", {(): tally.in_flight})
        yield Row(COUNTER, "tickets_denied", "what", {str(right): tally.denials[right] for right in Right})
        yield Row(GAUGE, "tickets_client_connections", "", {(): tally.client_connections})
        yield Row(COUNTER, "tickets_client_connections_refused", "", {(): tally.connections_refused})
        if worker.is_needed:
            right = worker.right()
            left = max(0, right.until_ms - clock.wall_ms()) / 1000 if right is not None else 0
            holding = {worker.lease.member.name: right.number} if right is not None and worker.lease else {}
            yield Row(GAUGE, "tickets_worker", "database", holding)
            yield Row(GAUGE, "tickets_worker_lease_seconds", "", {(): left})
        yield Row(GAUGE, "tickets_clock_ahead_seconds", "", {(): clock.ahead})

    def _databases(self) -> Iterator[Row]:
        members = self._service.sight.members

        def of_each(read: Callable[[Member], Any]) -> dict[Any, Any]:
            return {member.name: read(member) for member in members}

        def words_of_each(read: Callable[[Member], Mapping[str, int]]) -> dict[Any, Any]:
            return {(member.name, word): count for member in members for word, count in read(member).items()}

        up = {(each.name, str(each.offset)): each.life is not None for each in members}
        quarantined = {(each.name, str(each.offset)): each.status is Status.QUARANTINED for each in members}
        unprotected = of_each(lambda each: self._state.unprotected(each) is not None)
        gaps, broken = words_of_each(lambda each: each.counts.gaps), words_of_each(lambda each: each.counts.violations)
        yield Row(GAUGE, "tickets_database_up", "database offset", up)
        yield Row(GAUGE, "tickets_database_quarantined", "database offset", quarantined)
        yield Row(GAUGE, "tickets_database_unprotected", "database", unprotected)
        yield Row(GAUGE, "tickets_connections", "database", of_each(lambda each: each.database.connections))
        yield Row(COUNTER, "tickets_gaps", "database cause", gaps)
        yield Row(COUNTER, "tickets_fence_violations", "database rule", broken)
        yield Row(COUNTER, "tickets_failovers", "database", of_each(lambda each: each.counts.failovers))
        yield Row(COUNTER, "tickets_quarantines", "database", of_each(lambda each: each.counts.quarantines))
        seconds, tickets = (lambda each: each.counts.statement_seconds), (lambda each: each.counts.statement_tickets)
        yield Row(HISTOGRAM, "tickets_statement_seconds", "database", of_each(seconds))
        yield Row(HISTOGRAM, "tickets_statement_tickets", "database", of_each(tickets))

    # --- sequences ---------------------------------------------------------------------------------------------------

    async def _sequences(self) -> list[Row]:
        """Read all sequences, a slice at a time."""
        entries = list(self._service.catalog.entries.values())
        own = self._count(entries)
        found: dict[tuple[str, str], dict[Any, float]] = {}
        for number, entry in enumerate(entries, 1):
            label = entry.name if entry.name in own else OTHER
            for name, database, value, how in self._read(entry):
                values = found.setdefault((name, "sequence database" if database else "sequence"), {})
                key = (label, database) if database else (label,)
                values[key] = how(values[key], value) if key in values else value
            if number % SLICE == 0:
                await asyncio.sleep(0)
        issued = {name: self._issued[name] for name in own | ({OTHER} & self._issued.keys())}
        return [
            Row(COUNTER, "tickets_issued", "sequence", issued),
            *(Row(GAUGE, *about, values) for about, values in found.items()),
            Row(GAUGE, "tickets_sequences", "", {(): len(entries)}),
            Row(GAUGE, "tickets_sequences_folded", "", {(): sum(entry.name not in own for entry in entries)}),
        ]

    def _read(self, entry: Entry) -> Iterator[tuple[str, str, float, Callable[[float, float], float]]]:
        """Yield values of a sequence: metric, database, value, and what becomes of the values of several sequences."""
        state, kind = self._state, entry.definition.kind
        ends_at = KINDS[kind].ends_at(entry.definition.parameters)
        if ends_at is not None:
            yield "tickets_sequence_end_timestamp_seconds", "", ends_at / 1000, min
        if (lanes := state.lanes(entry)) and state.service.options.reserve:
            yield "tickets_reserve", "", sum(lane.stock.size for lane in lanes.values()), add
        if kind != TICKET:
            return  # its counter is no number that anybody has seen
        lasts = {member: state.last(entry, member) for member in entry.counters}
        yield "tickets_drift", "", max(lasts.values(), default=0) - min(lasts.values(), default=0), max
        for member, last in lasts.items():
            left = max(0, entry.ceiling - last)
            yield "tickets_headroom", member.name, left // state.step, min
            yield "tickets_headroom_ratio", member.name, left / entry.ceiling, min

    def _count(self, entries: list[Entry]) -> set[str]:
        """Count the ids that were issued since the last time, and return the sequences with series of their own.

        A counter must never go back, so a sequence that has issued ids keeps its series, or stays among the others.
        Places that are left are lent to sequences without an id.
        """
        issued = {source.sequence: source.issued for source in self._service.desk.sources if source.issued}
        names = [entry.name for entry in entries]
        self._own.intersection_update(names)
        for name, count in issued.items():
            if name not in self._counted and len(self._own) < OWN_SERIES:
                self._own.add(name)
            before = self._counted.get(name, 0)  # more than now, if the sequence was looked up again
            self._issued[name if name in self._own else OTHER] += count - before if count >= before else count
        self._counted = dict.fromkeys(self._counted, 0) | issued
        idle = [name for name in names if name not in self._counted]
        return self._own.union(idle[: OWN_SERIES - len(self._own)])
