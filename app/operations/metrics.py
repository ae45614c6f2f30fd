"""Every metric of the server and its meaning. Counting costs an addition; the text is rendered on request.

The number of label values is bounded: a limited number of sequences (see `app.operations.series`), the ticket
databases, and a fixed set of words for each metric.
"""

import asyncio
import copy
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from prometheus_client import generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from app.common.slices import sliced
from app.databases.protocol import Draw, Drawn
from app.operations.series import OTHER
from app.tickets.requests.request import TicketRequest
from app.tickets.ring.ring import Member

DENIED = "changes", "reading", "tickets"
"""The rights that the server may deny a client."""
LINES_AT_ONCE = 200
"""How many samples are rendered in one turn of the event loop: about a millisecond."""
SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
TICKETS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 256.0, 1000.0, 10000.0)

COUNTERS = {
    "tickets_issued": f"Tickets handed out, by sequence; {OTHER}: by all sequences without series of their own.",
    "tickets_requests": "Requests for tickets and blocks, by endpoint and outcome.",
    "tickets_failovers": "Attempts on a ticket database that failed, so that the next one was asked.",
    "tickets_retries": "Draws that were tried again after a transient error, by database and cause.",
    "tickets_quarantines": "How often a ticket database was quarantined.",
    "tickets_fence_violations": "Draws that were dropped because an id broke a rule, by database and rule.",
    "tickets_gaps": "Tickets that were drawn and dropped, by database and cause.",
    "tickets_denied": "Attempts denied for want of a token, or because a browser asked for another site, by what was "
    "asked for: tickets, reading or changes.",
    "tickets_client_connections_refused": "Clients that were turned away, and their connections closed, because there "
    "were too many connections.",
}
GAUGES = {
    "tickets_database_up": "1 while the ticket database is up.",
    "tickets_database_quarantined": "1 while the ticket database is quarantined.",
    "tickets_database_unprotected": "1 while its marks cannot be kept on another database, or could not be read.",
    "tickets_connections": "Open connections to the ticket database.",
    "tickets_client_connections": "Open connections from clients.",
    "tickets_in_flight": "Requests for tickets and blocks that are being served.",
    "tickets_sequences": "Sequences known to this server.",
    "tickets_sequences_folded": f"Sequences without series of their own; together they are the sequence {OTHER}.",
    "tickets_drift": f"How far apart the databases' last tickets of a sequence are, in ids; {OTHER}: the largest.",
    "tickets_headroom": f"Ids left, by sequence and database; {OTHER}: the smallest number.",
    "tickets_headroom_ratio": f"Share of the ids left, by sequence and database; {OTHER}: the smallest.",
    "tickets_reserve": "Tickets drawn ahead and not handed out yet, by sequence; absent where none are drawn ahead; "
    f"{OTHER}: of all others together.",
    "tickets_sequence_end_timestamp_seconds": "When the time in a sequence's ids ends, in seconds since 1970, for "
    f"kinds with a time; {OTHER}: the first end.",
    "tickets_worker": "The worker number in this server's snowflake ids, by the database that leases it.",
    "tickets_worker_lease_seconds": "Seconds for which it may go on stamping snowflake ids; 0: no more. Absent "
    "where no sequence needs a worker number.",
    "tickets_clock_ahead_seconds": "How far this server's clock is ahead of every ticket database's; below 0: behind "
    "the latest. Above 1 s no id with a time is stamped.",
    "tickets_ready": "1 while this server can issue tickets and is not draining.",
    "tickets_build_info": "Always 1; the version is in the label.",
}
HISTOGRAMS = {
    "tickets_issue_seconds": "Time from a request's arrival to its tickets.",
    "tickets_statement_seconds": "Time of one draw on a ticket database.",
    "tickets_statement_tickets": "Tickets of one draw.",
}


class Histogram:
    """Counts by bucket. Adding a value costs one bisection."""

    __slots__ = ("_bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def add(self, value: float, times: int = 1) -> None:
        self.counts[bisect_left(self._bounds, value)] += times
        self.total += value * times

    @property
    def size(self) -> int:
        """How many values there are."""
        return sum(self.counts)

    def __add__(self, other: "Histogram") -> "Histogram":
        both = Histogram(self._bounds)
        both.counts = [mine + its for mine, its in zip(self.counts, other.counts, strict=True)]
        both.total = self.total + other.total
        return both

    def buckets(self) -> list[tuple[str, float]]:
        """Cumulative, as Prometheus expects them."""
        found: list[tuple[str, float]] = []
        count = 0
        for bound, own in zip([*self._bounds, float("inf")], self.counts, strict=True):
            count += own
            found.append(("+Inf" if bound == float("inf") else str(bound), float(count)))
        return found


class Metrics:
    """The counters of the running server."""

    def __init__(self) -> None:
        self.in_flight = 0
        self.client_connections = 0
        self.connections_refused = 0
        self.denials: Counter[str] = Counter()
        self.answered = {"ticket": Histogram(SECONDS), "block": Histogram(SECONDS)}
        """Seconds of the requests that got their tickets, by endpoint."""
        self._not_answered: Counter[tuple[str, str]] = Counter()
        self.statement_seconds: dict[str, Histogram] = {}
        self.statement_tickets: dict[str, Histogram] = {}
        self.retries: Counter[tuple[str, str]] = Counter()
        self.violations: Counter[tuple[str, str]] = Counter()
        self.gaps: Counter[tuple[str, str]] = Counter()

    def requests_answered(self, endpoint: str, seconds: float, requests: int) -> None:
        """See RequestObserver.requests_answered."""
        self.answered[endpoint].add(seconds, requests)

    def requests_refused(self, endpoint: str, outcome: str, requests: int) -> None:
        """See RequestObserver.requests_refused."""
        self._not_answered[endpoint, outcome] += requests

    @property
    def requests(self) -> Counter[tuple[str, str]]:
        """How many requests there were, by endpoint and outcome."""
        answered = {(endpoint, "ok"): times.size for endpoint, times in self.answered.items() if times.size}
        return self._not_answered + Counter(answered)

    @property
    def issue_seconds(self) -> Histogram:
        """Seconds of all requests that got their tickets."""
        return sum(self.answered.values(), Histogram(SECONDS))

    def denied(self, what: str) -> None:
        """See DenialObserver.denied."""
        self.denials[what] += 1

    def connection_refused(self) -> None:
        """See ConnectionObserver.connection_refused."""
        self.connections_refused += 1

    def statement(
        self, member: Member, _sequence: str, _requests: Sequence[TicketRequest], sent_at: float, drawn: Drawn
    ) -> None:
        """See Observer.statement. One that drew nothing has no time of its own: it may have waited for a connection."""
        if not isinstance(drawn, Draw):
            return
        name = member.name
        if name not in self.statement_seconds:
            self.statement_seconds[name] = Histogram(SECONDS)
            self.statement_tickets[name] = Histogram(TICKETS)
        self.statement_seconds[name].add(time.perf_counter() - sent_at)
        self.statement_tickets[name].add(drawn.size)

    def gap(self, member: Member, cause: str, tickets: int) -> None:
        """Tickets that were drawn and dropped."""
        self.gaps[member.name, cause] += tickets

    def violation(self, member: Member, rule: str) -> None:
        """The server dropped a draw: an id broke a rule, or a database refused its mark."""
        self.violations[member.name, rule] += 1

    def retry(self, member: Member, cause: str) -> None:
        """A draw that is tried again."""
        self.retries[member.name, cause] += 1


class Exposition:
    """Prometheus' text format. `state` yields the metrics that are read from the server's state on request."""

    def __init__(self, metrics: Metrics, state: Callable[[], AsyncIterator[Metric]]) -> None:
        self._metrics = metrics
        self._state = state
        self._one_at_a_time = asyncio.Lock()

    async def text(self) -> bytes:
        """The whole text. It is rendered in parts, so that tickets are issued meanwhile; one request at a time."""
        async with self._one_at_a_time:
            written = [_text(family) for family in self._counted()]
            async for family in self._state():
                for number, samples in enumerate(list(sliced(family.samples, LINES_AT_ONCE)) or [[]]):
                    part = copy.copy(family)
                    part.samples = list(samples)
                    text = _text(part)
                    written.append(text.split(b"\n", 2)[2] if number else text)  # HELP and TYPE are written once
                    await asyncio.sleep(0)
            return b"".join(written)

    def _counted(self) -> Iterable[Metric]:
        metrics = self._metrics
        yield counter("tickets_requests", ["endpoint", "outcome"], metrics.requests)
        yield counter("tickets_retries", ["database", "cause"], metrics.retries)
        yield counter("tickets_fence_violations", ["database", "rule"], metrics.violations)
        yield counter("tickets_gaps", ["database", "cause"], metrics.gaps)
        yield gauge("tickets_in_flight", [], {(): metrics.in_flight})
        yield gauge("tickets_client_connections", [], {(): metrics.client_connections})
        yield counter("tickets_denied", ["what"], {(what,): metrics.denials[what] for what in DENIED})
        yield counter("tickets_client_connections_refused", [], {(): metrics.connections_refused})
        yield histogram("tickets_issue_seconds", [], {(): metrics.issue_seconds})
        yield histogram(
            "tickets_statement_seconds", ["database"], {(k,): v for k, v in metrics.statement_seconds.items()}
        )
        yield histogram(
            "tickets_statement_tickets", ["database"], {(k,): v for k, v in metrics.statement_tickets.items()}
        )


class _Family(NamedTuple):
    """A collector of one metric."""

    metric: Metric

    def collect(self) -> Iterable[Metric]:
        return (self.metric,)


def _text(metric: Metric) -> bytes:
    return generate_latest(_Family(metric))


def counter(name: str, labels: list[str], values: Mapping[Any, float]) -> Metric:
    """A declared counter with these values by label values."""
    family = CounterMetricFamily(name, COUNTERS[name], labels=labels)
    for key, value in sorted(values.items()):
        family.add_metric(list(key), value)
    return family


def gauge(name: str, labels: list[str], values: Mapping[Any, float]) -> Metric:
    """A declared gauge with these values by label values."""
    family = GaugeMetricFamily(name, GAUGES[name], labels=labels)
    for key, value in sorted(values.items()):
        family.add_metric(list(key), value)
    return family


def histogram(name: str, labels: list[str], values: Mapping[Any, Histogram]) -> Metric:
    """A declared histogram with these values by label values."""
    family = HistogramMetricFamily(name, HISTOGRAMS[name], labels=labels)
    for key, value in sorted(values.items()):
        family.add_metric(list(key), value.buckets(), value.total)
    return family
