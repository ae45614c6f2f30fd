"""Every metric of the server and its meaning, in Prometheus' text format, read off its state when it is asked for.

The number of label values is bounded: `OWN_SERIES` sequences, the ticket databases, and a fixed set of words.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from operator import add
from typing import Any, NamedTuple

from prometheus_client import generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

from app.access import Right
from app.connections import Tally
from app.kinds.table import KINDS
from app.operations.report import Report
from app.tickets.catalog import Entry
from app.tickets.counts import Histogram
from app.tickets.definitions import TICKET
from app.tickets.sight import Member, Status
from app.tickets.source import Source
from app.version import VERSION

OTHER = "_other"
"""The label of the sequences without series of their own. No sequence has such a name."""
OWN_SERIES = 500
"""How many sequences have series of their own: the first ones that are read."""
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
Values = Mapping[Any, Any]


class Row(NamedTuple):
    """A metric, and the collector of it that prometheus_client wants.

    kind: the class of the family. values: a number, or numbers or histograms by the values of the labels: a word for
    one label, a tuple for more of them. labels: their names, separated by spaces.
    """

    kind: Any
    name: str
    values: Any
    labels: str = ""

    def collect(self) -> list[Any]:
        """See prometheus_client."""
        family = self.kind(self.name, HELP[self.name], labels=self.labels.split())
        for key, value in sorted(self.values.items()) if self.labels else [((), self.values)]:
            labels = [key] if isinstance(key, str) else list(key)
            if isinstance(value, Histogram):
                bounds = enumerate([*map(str, value.bounds), "+Inf"], 1)
                family.add_metric(labels, [(bound, sum(value.counts[:end])) for end, bound in bounds], value.total)
            else:
                family.add_metric(labels, value)
        return [family]


class Metrics:
    """Reads the metrics off a server."""

    def __init__(self, report: Report, tally: Tally) -> None:
        self._report, self._service, self._tally = report, report.service, tally
        self._labels: dict[str, str] = {}
        """The label of each sequence. It stays, because a counter must never go back."""
        self._issued: Counter[str] = Counter()
        """How many ids were issued, by label."""
        self._counted: dict[Source, int] = {}
        """How many ids of each source are in `_issued`."""

    async def text(self) -> bytes:
        """Return all metrics as text. Other tasks have their turn between the metrics."""
        written = []
        for row in [*self._doors(), *self._databases(), *await self._sequences()]:
            written.append(generate_latest(row))
            await asyncio.sleep(0)
        return b"".join(written)

    def _doors(self) -> Iterator[Row]:
        tally, clock, worker = self._tally, self._service.clock, self._service.worker
        answered = {(endpoint, "ok"): sum(seconds.counts) for endpoint, seconds in tally.seconds.items()}
        yield Row(GAUGE, "tickets_build_info", {VERSION: 1}, "version")
        yield Row(GAUGE, "tickets_ready", self._report.is_ready())
        yield Row(COUNTER, "tickets_requests", {**tally.refusals, **answered}, "endpoint outcome")
        yield Row(HISTOGRAM, "tickets_issue_seconds", tally.seconds, "endpoint")
        yield Row(GAUGE, "tickets_in_flight", tally.in_flight)
        yield Row(COUNTER, "tickets_denied", {str(right): tally.denials[right] for right in Right}, "what")
        yield Row(GAUGE, "tickets_client_connections", tally.client_connections)
        yield Row(COUNTER, "tickets_client_connections_refused", tally.connections_refused)
        if worker.needed.is_set():
            right = worker.right()
            left = max(0, right.until_ms - clock.wall_ms()) / 1000 if right is not None else 0
            holding = {worker.lease.lane.member.name: right.number} if right is not None and worker.lease else {}
            yield Row(GAUGE, "tickets_worker", holding, "database")
            yield Row(GAUGE, "tickets_worker_lease_seconds", left)
        yield Row(GAUGE, "tickets_clock_ahead_seconds", clock.ahead)

    def _databases(self) -> Iterator[Row]:
        members = self._service.sight.members

        def each(read: Callable[[Member], Any]) -> Values:
            return {member.name: read(member) for member in members}

        def words(read: Callable[[Member], Mapping[str, int]]) -> Values:
            return {(member.name, word): count for member in members for word, count in read(member).items()}

        for name, status in (("tickets_database_up", Status.UP), ("tickets_database_quarantined", Status.QUARANTINED)):
            values = {(member.name, str(member.offset)): member.status is status for member in members}
            yield Row(GAUGE, name, values, "database offset")
        unprotected = each(lambda one: self._report.unprotected(one) is not None)
        yield Row(GAUGE, "tickets_database_unprotected", unprotected, "database")
        yield Row(GAUGE, "tickets_connections", each(lambda one: one.database.connections), "database")
        yield Row(COUNTER, "tickets_gaps", words(lambda one: one.counts.gaps), "database cause")
        yield Row(COUNTER, "tickets_fence_violations", words(lambda one: one.counts.violations), "database rule")
        yield Row(COUNTER, "tickets_failovers", each(lambda one: one.counts.failovers), "database")
        yield Row(COUNTER, "tickets_quarantines", each(lambda one: one.counts.quarantines), "database")
        yield Row(HISTOGRAM, "tickets_statement_seconds", each(lambda one: one.counts.statement_seconds), "database")
        yield Row(HISTOGRAM, "tickets_statement_tickets", each(lambda one: one.counts.statement_tickets), "database")

    async def _sequences(self) -> list[Row]:
        """Read all sequences, a slice at a time."""
        issued = {source: source.issued for source in self._service.desk.sources}
        for source, count in issued.items():
            self._issued[self._label(source.sequence)] += count - self._counted.get(source, 0)
        self._counted = issued
        found: dict[tuple[str, str], dict[Any, float]] = {}
        labels = []
        for number, entry in enumerate(list(self._service.catalog.entries.values()), 1):
            labels.append(label := self._label(entry.name))
            for name, database, value, how in self._read(entry):
                values = found.setdefault((name, "sequence database" if database else "sequence"), {})
                key = (label, database) if database else label
                values[key] = how(values[key], value) if key in values else value
            if number % SLICE == 0:
                await asyncio.sleep(0)
        return [
            Row(COUNTER, "tickets_issued", {label: self._issued[label] for label in labels}, "sequence"),
            *(Row(GAUGE, name, values, of) for (name, of), values in found.items()),
            Row(GAUGE, "tickets_sequences", len(labels)),
            Row(GAUGE, "tickets_sequences_folded", labels.count(OTHER)),
        ]

    def _label(self, sequence: str) -> str:
        return self._labels.setdefault(sequence, sequence if len(self._labels) < OWN_SERIES else OTHER)

    def _read(self, entry: Entry) -> Iterator[tuple[str, str, float, Callable[[float, float], float]]]:
        """Yield values of a sequence: metric, database, value, and what becomes of the values of several sequences."""
        report, kind = self._report, entry.definition.kind
        ends_at = KINDS[kind].ends_at(entry.definition.parameters)
        if ends_at is not None:
            yield "tickets_sequence_end_timestamp_seconds", "", ends_at / 1000, min
        if (lanes := report.lanes(entry)) and report.service.settings.reserve_seconds:
            yield "tickets_reserve", "", sum(lane.in_stock for lane in lanes.values()), add
        if kind != TICKET:
            return  # its counter is no number that anybody has seen
        lasts = {member: report.last(entry, member) for member in entry.counters}
        yield "tickets_drift", "", max(lasts.values(), default=0) - min(lasts.values(), default=0), max
        for member, last in lasts.items():
            left = max(0, entry.ceiling - last)
            yield "tickets_headroom", member.name, left // report.step, min
            yield "tickets_headroom_ratio", member.name, left / entry.ceiling, min
