"""What the draws from one ticket database came to, counted since the start, for the metrics."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence

SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
TICKETS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 256.0, 1000.0, 10000.0)


class Histogram:
    """How many values there were at or below each bound, the last count being for those above all bounds.

    bounds: rising. counts: one more than there are bounds. total: the sum of all values.
    """

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def add(self, value: float, times: int = 1) -> None:
        """Count a value that came this many times."""
        self.counts[bisect_left(self.bounds, value)] += times
        self.total += value * times


class Counts:
    """The counts of one database.

    failovers: statements that failed, so that another database was asked. quarantines: how often it was quarantined.
    gaps: ids that were drawn and dropped, by the reason. violations: draws that broke a rule, by the rule.
    statement_seconds, statement_tickets: how long the draws took, and how many ids each of them gave.
    """

    def __init__(self) -> None:
        self.failovers = self.quarantines = 0
        self.gaps: Counter[str] = Counter()
        self.violations: Counter[str] = Counter()
        self.statement_seconds = Histogram(SECONDS)
        self.statement_tickets = Histogram(TICKETS)

    def note_statement(self, seconds: float, tickets: int) -> None:
        """A statement has taken so long, and has drawn so many ids."""
        self.statement_seconds.add(seconds)
        self.statement_tickets.add(tickets)
