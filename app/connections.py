"""Counts the doors' requests and connections, whatever protocol they speak, and limits the connections."""

import contextlib
import logging
import resource
import time
from collections import Counter
from enum import Enum

from app.errors import TicketError
from app.tickets.counts import SECONDS, Histogram

log = logging.getLogger(__name__)

BACKLOG = 4_096
"""Connections that the system accepts for a port before the server takes them."""
DEFAULT_MOST = 10_000
"""Client connections, where TICKETS_MAX_CONNECTIONS does not say."""
KEPT = 192
"""Open files that are not for `SERVED` connections: for the ticket databases, for `ONE_ANSWER`, and for the process."""
FOR_ONE_ANSWER = 32
"""Connections beyond the limit that get one answer each."""
QUIET = 60.0
"""Seconds between two lines in the log about connections beyond the limit."""


class Admission(Enum):
    """What a new connection gets: it is served, or it gets one answer and is closed, or it is closed at once."""

    SERVED = "served"
    ONE_ANSWER = "one answer"
    REFUSED = "refused"


class Tally:
    """Counts requests and connections of all protocols, since the start.

    in_flight: requests for ids that are being served. client_connections: that are open. connections_refused: clients
    that came beyond the limit on connections.
    """

    def __init__(self) -> None:
        self.in_flight = self.client_connections = self.connections_refused = 0
        self.seconds = {endpoint: Histogram(SECONDS) for endpoint in ("ticket", "block")}
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


class Connections:
    """Counts the client connections of all ports.

    most: how many are served. tally: learns how many there are, and how many came beyond the limit.
    """

    def __init__(self, most: int, tally: Tally) -> None:
        self.most = most
        self._tally = tally
        self._open = dict.fromkeys(Admission, 0)
        self._silent_until = 0.0

    def admit(self) -> Admission:
        """Decide on a new connection. When it has ended, the caller passes the decision to `leave`."""
        admission = Admission.SERVED
        if self._open[Admission.SERVED] >= self.most:
            is_answered = self._open[Admission.ONE_ANSWER] < FOR_ONE_ANSWER
            admission = Admission.ONE_ANSWER if is_answered else Admission.REFUSED
            self._tally.connections_refused += 1
            if (now := time.monotonic()) >= self._silent_until:
                self._silent_until = now + QUIET
                log.warning("all %d client connections are taken, further ones are not served", self.most)
        self._count(admission, 1)
        return admission

    def leave(self, admission: Admission) -> None:
        """A connection has ended. admission: what `admit` decided on it."""
        self._count(admission, -1)

    def _count(self, admission: Admission, change: int) -> None:
        if admission is not Admission.REFUSED:
            self._open[admission] += change
            self._tally.client_connections += change


def most_connections(wanted: int | None) -> int:
    """Raise the limit on open files as far as the system allows, and return how many client connections are served.

    wanted: what TICKETS_MAX_CONNECTIONS says, None where it is unset. Raises TicketError where the limit leaves none.
    """
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    with contextlib.suppress(OSError, ValueError):  # a system may have a hard limit that it does not grant
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    most, allowed = wanted or DEFAULT_MOST, files - KEPT
    if allowed < 1:
        how = "ulimit -Hn, LimitNOFILE= of systemd, --ulimit nofile= of Docker"
        raise TicketError(
            f"the limit on open files is {files}, and the server needs more than {KEPT}; raise it ({how})"
        )
    if allowed < most:
        log.warning("the limit on open files, %d, allows %d client connections and not %d", files, allowed, most)
    return min(most, allowed)
