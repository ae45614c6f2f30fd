"""The counts of the doors: plain numbers, to which a door adds. `metrics` reads them."""

from collections import Counter

from app.tickets.counts import SECONDS, Histogram

ENDPOINTS = "ticket", "block"


class Tally:
    """Counts requests and connections of all protocols, since the start.

    in_flight: requests for ids that are being served. client_connections: that are open. connections_refused: clients
    that came beyond the limit on connections.
    """

    def __init__(self) -> None:
        self.in_flight = self.client_connections = self.connections_refused = 0
        self.seconds = {endpoint: Histogram(SECONDS) for endpoint in ENDPOINTS}
        """How long the requests took that got their ids, by endpoint."""
        self.refusals: Counter[tuple[str, str]] = Counter()
        """Requests that got an error, by endpoint and the error's code."""
        self.denials: Counter[str] = Counter()
        """Attempts without the right to it, by the right."""

    def answered(self, endpoint: str, seconds: float) -> None:
        """A request has got its ids. endpoint: `ticket` or `block`."""
        self.seconds[endpoint].add(seconds)

    def refused(self, endpoint: str, code: str) -> None:
        """A request for ids got an error. code: the error's word, as in `code` of a problem."""
        self.refusals[endpoint, code] += 1

    def denied(self, right: str) -> None:
        """A client may not do what it asked for. right: an `access.Right`."""
        self.denials[right] += 1
